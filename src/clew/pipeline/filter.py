"""Apply the allow-list to a finished span, on a copy.

Covers name, attributes, events, links, status, trace state, resource and scope, for spans of
every library alike. Status descriptions, exception messages and stack traces never pass:
exceptions leave as type names.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, TraceState

from clew import semconv
from clew.allow_list import AllowList
from clew.rules import DROPPED, OTHER, Identifier

_WORD = Identifier(128)
VERBS = frozenset(
    {
        *semconv.OPERATIONS,
        *("decide", "run_started", "run_heartbeat", "run_sealed"),
        *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "HTTP"),
        *("SELECT", "INSERT", "UPDATE", "MERGE", "publish", "receive", "process", "send"),
    }
)
SCHEMAS = "https://opentelemetry.io/schemas/"
SAMPLING_STATE = "ot"  # the only vendor entry of a trace state that is OpenTelemetry's own
_CACHED = 256
_NONE = semconv.CAPTURE_LEVELS[0]
_INSTANCE = "service.instance.id"


class Filter:
    """Copies finished spans, keeping what an allow-list permits. Not thread-safe: one per thread.

    Args:
        allow_list: what may leave.
        own_resource: attributes that replace those of the same name on every resource.
        add_instance: whether resources get a `service.instance.id` that they lack.
    """

    def __init__(
        self, allow_list: AllowList, own_resource: Mapping[str, Any], add_instance: bool = False
    ) -> None:
        self._list = allow_list
        self._list_at_none = allow_list.bound(None)
        """Without keyed digests, for spans of other libraries where the level is `none`."""
        self._own_resource = dict(own_resource)
        if add_instance and _INSTANCE not in self._own_resource:
            self._own_resource[_INSTANCE] = instance_id()
        self.dropped: Counter[str] = Counter()
        """What was kept out, by rule."""
        self._resources: dict[int, tuple[Any, Resource]] = {}
        self._scopes: dict[int, tuple[Any, InstrumentationScope | None]] = {}

    def renew_instance(self) -> None:
        """Take a new `service.instance.id` (in a forked child: it is another instance)."""
        self._own_resource[_INSTANCE] = instance_id()
        self._resources.clear()

    def apply(
        self, span: ReadableSpan, attributes: Mapping[str, Any] | None = None
    ) -> ReadableSpan:
        """Return the copy that may leave; `attributes` stand in for the span's own."""
        dropped: Counter[str] = Counter()
        given = (span.attributes or {}) if attributes is None else attributes
        listed = self._list if given.get(semconv.CAPTURE_LEVEL) != _NONE else self._list_at_none
        kept = listed.keep(given, dropped)
        name = self._name(span.name, kept, dropped)
        events = [_event(event, listed, dropped) for event in span.events] if span.events else ()
        links = [_link(link, listed, dropped) for link in span.links] if span.links else ()
        if span.status.description:
            dropped["status_description"] += 1
        if dropped:
            self.dropped.update(dropped)
            if semconv.PRIVACY_DROPPED in self._list.spans:
                kept[semconv.PRIVACY_DROPPED] = dropped.total()
        return ReadableSpan(
            name=name,
            context=_context(span.context),
            parent=_context(span.parent),
            resource=self._resource(span.resource),
            attributes=kept,
            events=events,
            links=links,
            kind=span.kind,
            status=Status(span.status.status_code),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=self._scope(span.instrumentation_scope),
        )

    def trusts_ours(self) -> bool:
        """Tell whether the list lets pass all that our own spans carry, by the same rules.

        Our values have obeyed the rules when they were set, so they need no second look then.
        """
        listed = self._list.spans
        return all(listed.get(key) is rule for key, rule in semconv.RULES.items())

    def passes(self, key: str) -> bool:
        """Tell whether a key is on the list."""
        return key in self._list.spans

    def resource(self, resource: Resource) -> Resource:
        """Return the copy of a resource that may leave."""
        return self._resource(resource)

    def _name(self, name: str, kept: Mapping[str, Any], dropped: Counter[str]) -> str:
        leaving = name_that_leaves(name, kept)
        if leaving != name:
            dropped["name"] += 1
        return leaving

    def _resource(self, resource: Resource) -> Resource:
        cached = self._resources.get(id(resource))
        if cached is not None:
            return cached[1]
        attributes = {**resource.attributes, **self._own_resource}
        kept = self._list.keep_resource(attributes, self.dropped)
        result = Resource(kept, schema_that_leaves(resource.schema_url))
        if len(self._resources) >= _CACHED:
            self._resources.clear()
        # The key is an address: keeping the object keeps the address from being used again.
        self._resources[id(resource)] = (resource, result)
        return result

    def _scope(self, scope: InstrumentationScope | None) -> InstrumentationScope | None:
        if scope is None:
            return None
        cached = self._scopes.get(id(scope))
        if cached is not None:
            return cached[1]
        name = _WORD.apply(scope.name)
        version = _WORD.apply(scope.version) if scope.version else None
        result = InstrumentationScope(
            OTHER if name is DROPPED else name,
            None if version is DROPPED else version,
            schema_that_leaves(scope.schema_url),
            self._list.keep(scope.attributes or {}, self.dropped),
        )
        if len(self._scopes) >= _CACHED:
            self._scopes.clear()
        self._scopes[id(scope)] = (scope, result)
        return result


def _event(event: Event, listed: AllowList, dropped: Counter[str]) -> Event:
    name = _WORD.apply(event.name)
    if name is DROPPED:
        dropped["name"] += 1
        name = OTHER
    attributes = listed.keep(event.attributes or {}, dropped)
    return Event(name=name, attributes=attributes, timestamp=event.timestamp)


def _link(link: Link, listed: AllowList, dropped: Counter[str]) -> Link:
    attributes = listed.keep(link.attributes or {}, dropped)
    return Link(_context(link.context) or link.context, attributes)


def name_that_leaves(name: str, kept: Mapping[str, Any]) -> str:
    """Return the leading identifier of a span's name, and what kept attributes vouch for."""
    words = name.split(" ") if isinstance(name, str) else []
    if not words or _WORD.apply(words[0]) is DROPPED:
        return OTHER
    result = [words[0]]
    for word in words[1:]:
        if word not in VERBS and not any(word == value for value in kept.values()):
            break
        result.append(word)
    return " ".join(result)


def schema_that_leaves(url: str | None) -> str | None:
    """Return the address of a schema if it is one of OpenTelemetry's own."""
    if not url or not url.startswith(SCHEMAS):
        return None
    return url if _WORD.apply(url) is not DROPPED else None


def _context(context: SpanContext | None) -> SpanContext | None:
    if context is None or not context.trace_state:
        return context
    state = context.trace_state.get(SAMPLING_STATE)
    pairs: Sequence[tuple[str, str]] = [(SAMPLING_STATE, state)] if state else []
    return SpanContext(
        context.trace_id,
        context.span_id,
        context.is_remote,
        context.trace_flags,
        TraceState(pairs),
    )


def instance_id() -> str:
    """Return a fresh `service.instance.id`."""
    return str(uuid.uuid4())
