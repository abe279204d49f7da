"""One HTTP exchange with a model, as any HTTP client library's tap sees it.

`Exchange` is library-neutral: a tap tells it what is sent, what comes back and how it ends; it
opens and finishes the round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context

from clew import semconv
from clew._guard import guard, record_failure
from clew.attempts import LogicalCall, current_call
from clew.context import NODE, SPAN, current
from clew.dialects import recognise
from clew.dialects.conversation import LONG, Conversation
from clew.endings import Ending
from clew.facts import ROUND_OPERATIONS, RequestFacts
from clew.levels import NONE
from clew.pipeline.light import LightSpan
from clew.pipeline.runtime import Runtime
from clew.prompts.registry import known
from clew.rounds import Round
from clew.rules import OTHER
from clew.spans import Agent, allowed, is_cancellation
from clew.typing import Route

TRACE_HEADERS = frozenset({"traceparent", "tracestate", "baggage"})
_STREAM_TYPES = frozenset(
    {"text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream"}
)
_WHOLE_TYPES = frozenset({"", "application/json", "text/html", "application/problem+json"})
_TARGETS_KEPT = 4096
_SMALL = 2048
"""Bytes of an answer that is kept until somebody reads it: as much as what is read takes."""
LARGEST_UNREAD = 128 * 1024
"""The same where few such answers wait, whole ones and streams."""

_EXCHANGE = otel_context.create_key("clew-exchange")
_COVER = otel_context.create_key("clew-covering-round")
# The key by which OpenTelemetry's HTTP instrumentations are told to stand aside; it is not public.
_SUPPRESS_HTTP: str = getattr(
    otel_context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation"
)

targets: dict[tuple[str, str, str, int | None, str], Target | None] = {}
"""What was recognised, by method, scheme, host, port and path."""


class Target(NamedTuple):
    """Where a recognised request goes, remembered for the next request of its kind."""

    route: Route
    born: Mapping[str, Any]
    """Attributes that a round of this target has from birth; they have obeyed their rules."""
    propagates: bool
    """Whether trace headers may go there."""


def target_of(
    runtime: Runtime, method: str, scheme: str, host: str, port: int | None, path: str
) -> Target | None:
    """Recognise a model call by method, host and path."""
    key = (method, scheme, host, port, path)
    try:
        return targets[key]
    except KeyError:
        pass
    where = host if port is None else f"{host}:{port}"
    settings = runtime.settings
    route = recognise(method, where, path, hosts=settings.provider_hosts)
    found: Target | None = None
    if route is not None:
        born = {
            semconv.OPERATION: route.operation,
            semconv.PROVIDER: route.provider or OTHER,
            semconv.SERVER_ADDRESS: host,
            semconv.SERVER_PORT: port or {"https": 443, "http": 80}.get(scheme),
        }
        found = Target(route, allowed(born), host in settings.propagate_to)
    remember(key, found)
    return found


def remember(key: tuple[str, str, str, int | None, str], target: Target | None) -> None:
    """Remember what was recognised."""
    if len(targets) >= _TARGETS_KEPT:
        targets.clear()
    targets[key] = target


def forget_targets() -> None:
    """Forget what was recognised (the operator's hosts may be others now)."""
    targets.clear()


class Exchange:
    """One request of a recognised model call, and its response."""

    unread = False
    """True where nobody will see what is read of the response: leave that as it is."""

    __slots__ = ("attempt", "call", "request", "round", "route", "runtime", "started", "target")

    def __init__(
        self,
        runtime: Runtime,
        target: Target,
        request: Any,
        call: LogicalCall | None,
        round_: Round,
        *,
        silent: bool = False,
    ) -> None:
        self.runtime = runtime
        self.target = target
        self.route = target.route
        self.request = request
        self.call = call
        self.round = round_
        self.attempt = -1 if silent else round_.attempts
        self.started = time.perf_counter_ns()

    def context(self) -> Context:
        """Return the context for the sending: the round is current, HTTP spans are suppressed."""
        # One copy more would be made by each `set_value`.
        return Context({**current(), SPAN: self.round.span, _EXCHANGE: self, _SUPPRESS_HTTP: True})

    def raised(self, error: BaseException) -> None:
        """The sending raised."""
        with guard("record a failed request"):
            self.end(Ending(error=error, outcome=_interrupted(error)))

    def responded(
        self, status: int, content_type: str, body: bytes, headers: Mapping[str, str]
    ) -> None:
        """A whole response has come."""
        try:
            route, round_ = self.route, self.round
            if status < 400:
                streamed = self.streams(content_type)
                if round_.content is not None:
                    round_.content.took(body, content_type if streamed else None)
                if streamed:
                    self.end(_read_stream(route, status, content_type, body))
                    return
                if len(body) <= LARGEST_UNREAD and self.may_wait() and route.dialect.may_wait(body):
                    ending = Ending(status=status, response_bytes=len(body))
                    read = partial(_read_whole, route, body)
                    if len(body) <= _SMALL:
                        round_.unread = read
                        round_.finish(ending)
                        return
                    if self.end_unread(ending, read):
                        return
            response = route.dialect.response(body, status, route, headers)
            self.end(Ending(response=response, status=status, response_bytes=len(body)))
        except Exception:
            record_failure("read a response")

    def may_wait(self, *, failing: bool = False) -> bool:
        """Tell whether an answer with a status of success can be read later, off the caller's path.

        It is one whose span does so anyway: it is kept until then.

        Args:
            failing: whether it may turn out to have failed. Then nobody may ask for that before.
        """
        round_, runtime, span = self.round, self.runtime, self.round.span
        return (
            type(span) is LightSpan
            and round_.agent is not None
            and round_.hops is None
            and round_.content is None
            and self.attempt == round_.attempts
            and not (runtime.observers or runtime.governor is not None)
            and not (failing and span.is_held)
        )

    def end_unread(self, ending: Ending, read: Callable[[Ending], Ending]) -> bool:
        """End the round, and let `read` tell later what came; False where too much waits already.

        Args:
            ending: what is known by now.
            read: returns the whole of it. Called once, on any thread, off the caller's path.
        """
        round_ = self.round
        if not round_.is_open(self.runtime):
            return False
        round_.unread = read
        if not self.runtime.put_off(round_):
            round_.unread = None
            return False
        round_.finish(ending)
        return True

    def streams(self, content_type: str) -> bool:
        """Tell whether a response with this content type is a stream of events.

        Where a stream was asked for, any type that is not a whole document's is one: gateways
        and older APIs name theirs as they like (`application/stream+json`, `text/plain`).
        """
        if self.route.stream or content_type in _STREAM_TYPES:
            return True
        return self.round.request.stream and content_type not in _WHOLE_TYPES

    def end(self, ending: Ending) -> None:
        """End the round, or only this attempt when the SDK may try again."""
        if self.attempt != self.round.attempts:
            return  # another attempt has taken its place, or the round is somebody else's to end
        call = self.call
        if call is not None:
            failed = ending.error is not None or (ending.status or 0) >= 400
            if (failed or call.hops is not None) and current_call() is call:
                call.attempt_failed(ending)
                return
        self.round.finish(ending)


class Unread(Exchange):
    """A call of a run that is sampled out, where nobody looks at its answers: it is only counted.

    What is around it still is as for any other: other instrumentations make no span of their own.
    """

    unread = True
    __slots__ = ("_here",)

    def __init__(self, target: Target, request: Any, here: Context) -> None:
        self.target = target
        self.request = request
        self._here = here

    def context(self) -> Context:
        """Return the context for the sending: HTTP spans are suppressed."""
        return Context({**self._here, _EXCHANGE: self, _SUPPRESS_HTTP: True})

    def raised(self, error: BaseException) -> None:
        """Take no note."""

    def end(self, ending: Ending) -> None:
        """Take no note."""


def _read_whole(route: Route, body: bytes, ending: Ending) -> Ending:
    """Read an answer that has waited."""
    response = route.dialect.response(body, ending.status or 0, route)
    return msgspec.structs.replace(ending, response=response)


def _read_stream(route: Route, status: int, content_type: str, body: bytes) -> Ending:
    """Read a stream of events that is in memory as a whole."""
    reader = route.dialect.stream(route, content_type)
    reader.feed(body)
    response = reader.result()
    return Ending(
        response=response,
        status=status,
        outcome="complete" if response.complete else "failed",
        chunks=reader.chunks,
        response_bytes=len(body),
    )


def _interrupted(error: BaseException) -> str | None:
    return "cancelled" if is_cancellation(error) else None


def begin(
    runtime: Runtime,
    request: Any,
    target: Target,
    body: bytes | None,
    *,
    first: bool = False,
    facts: RequestFacts | None = None,
) -> Exchange | None:
    """Begin an exchange for a model call, unless an outer tap has begun it already.

    Args:
        runtime: the runtime.
        request: the client library's request object.
        target: where it goes.
        body: the request body, or None when it is not in memory.
        first: True where the tap knows that no header tells of attempts before this one.
        facts: what the body says, where it has been read before.
    """
    here = current()
    active: Any = here.get(_EXCHANGE)
    if active is not None and active.request is request:
        return None
    node: Any = here.get(NODE)
    cover: Any = here.get(_COVER)
    if cover is not None and node is cover.parent_node:
        return Exchange(runtime, target, request, None, cover, silent=True)
    round_ = hops = agent = None
    call = current_call()
    if call is not None:
        hops = call.hops
        if call.round is not None:
            round_ = call.next_attempt()
    if node is not None:
        agent = node.agent
        if agent is not None and agent.unread and runtime.governor is None and hops is None:
            return _unread(agent, call, target, request, here)
    if round_ is None:
        route = target.route
        if facts is None:
            facts = _read(route, body, agent) if body else RequestFacts()
        resend = 0 if first or call is not None else _retries(request)
        round_ = Round(route, facts, grouped=call is not None, resend=resend, hops=hops)
        born = target.born
        if known and body:
            born = with_prompt(runtime, round_, born, body)
        round_.open(runtime, born, None if body is None else len(body), here)
        if runtime.capturing:
            round_.capture(runtime, body)
        if call is not None:
            call.round = round_
    elif round_.content is not None:
        round_.content.again(body)
    round_.attempts += 1
    return Exchange(runtime, target, request, call, round_)


def _read(route: Route, body: bytes, agent: Agent | None) -> RequestFacts:
    """Read a request body; of a long one, only what an agent has not sent before."""
    if agent is None or len(body) < LONG:
        return route.dialect.request(body, route)
    if agent.conversation is None:
        agent.conversation = Conversation()
    return agent.conversation.request(route.dialect, body, route)


def _unread(
    agent: Agent, call: LogicalCall | None, target: Target, request: Any, here: Context
) -> Unread:
    """Count a call that nobody looks at; all attempts of one call are one round."""
    if call is None or not call.counted:
        agent.segment.count_round(agent)
        if call is not None:
            call.counted = True
    return Unread(target, request, here)


def with_prompt(
    runtime: Runtime, round_: Round, born: Mapping[str, Any], given: bytes | str
) -> Mapping[str, Any]:
    """Add the blocks of the segmented prompt that a round carries, unless the level is none.

    Args:
        runtime: the runtime.
        round_: the round, not yet opened.
        born: the attributes to add to.
        given: the request's body, or its system text where that is at hand.
    """
    if round_.operation not in ROUND_OPERATIONS:
        return born
    if runtime.capturing and runtime.level_in(current()) == NONE:
        return born
    from clew.prompts import recognition  # not loaded where no prompt is registered

    if isinstance(given, str):
        return {**born, **recognition.attributes_of_text(given, runtime.digests)}
    dialect = round_.route.dialect.name
    return {**born, **recognition.attributes_of(dialect, given, runtime.digests)}


def _retries(request: Any) -> int:
    """Return how often an SDK that is not grouped says that it has tried before."""
    told = request.headers.get("x-stainless-retry-count")
    return int(told) if told and told.isdigit() else 0


def covered_by(round_: Round, base: Context) -> Context:
    """Return a context in which requests are part of a round that is recorded further out."""
    return Context({**trace.set_span_in_context(round_.span, base), _COVER: round_})


def is_covered() -> bool:
    """Tell whether what is sent here is part of a round that is recorded further out."""
    here = current()
    cover: Any = here.get(_COVER)
    return cover is not None and here.get(NODE) is cover.parent_node


def active_exchange() -> Exchange | None:
    """Return the exchange whose request is being sent here."""
    active = otel_context.get_value(_EXCHANGE)
    return active if isinstance(active, Exchange) else None


def content_type_of(headers: Mapping[str, str]) -> str:
    """Return the media type of a response, lower-case, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()
