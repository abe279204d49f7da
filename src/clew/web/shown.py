"""What a timeline may show of a run: an allow-list of keys that hold no content.

It applies at every capture level and whoever sent the spans. Keys of content are on no list that
this uses, so captured messages and tool arguments never appear on a timeline; what is left out is
counted.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from clew import semconv
from clew.allow_list import AllowList
from clew.rules import DROPPED, OTHER, Identifier
from clew.store.records import Event, Link, Resource, RunRecord, SpanRecord

_WORD: Final = Identifier(128)


class Shown(Struct, frozen=True, kw_only=True):
    """A run as its timeline shows it."""

    record: RunRecord
    hidden: Mapping[str, int]
    """How much of a span is not shown, by span id: attributes and texts that the list drops."""
    open: frozenset[str] = frozenset()
    """Ids of spans that have not ended: of these only the beginning has arrived."""
    adopted: frozenset[str] = frozenset()
    """Ids of spans whose parent has not ended; they stand below the run."""
    version: str | None = None
    """What the source said about the run's version when it was read."""


class Recent:
    """Runs that were shown lately: a page is followed by its rows and by one span after another.

    Args:
        most: spans of all of them together.
    """

    def __init__(self, most: int = 60_000) -> None:
        self._most = most
        self._found: OrderedDict[str, Shown] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, trace_id: str, version: str | None) -> Shown | None:
        """Return a run if it is still as it was."""
        with self._lock:
            found = self._found.get(trace_id)
            if found is None or version is None or found.version != version:
                return None
            self._found.move_to_end(trace_id)
            return found

    def put(self, trace_id: str, found: Shown) -> None:
        """Keep a run, and let go of those that were not asked for the longest."""
        if found.version is None:
            return
        with self._lock:
            self._found[trace_id] = found
            self._found.move_to_end(trace_id)
            size = sum(len(each.record.spans) for each in self._found.values())
            while self._found and size > self._most:
                _, gone = self._found.popitem(last=False)
                size -= len(gone.record.spans)


class Filter:
    """Leaves of a run what an allow-list lets pass."""

    def __init__(self, allow_list: AllowList) -> None:
        rules = allow_list.bound(None)
        spans = {key: rule for key, rule in rules.spans.items() if key not in semconv.CONTENT}
        self._list = AllowList(spans, resource=rules.resource)

    def apply(self, record: RunRecord) -> Shown:
        """Return the run without what its timeline must not show."""
        hidden: dict[str, int] = {}
        resources: dict[int, Resource] = {}
        spans = tuple(self._span(each, hidden, resources) for each in record.spans)
        conflicts = tuple(self._span(each, {}, resources) for each in record.conflicts)
        return Shown(record=replace(record, spans=spans, conflicts=conflicts), hidden=hidden)

    def _span(
        self, span: SpanRecord, hidden: dict[str, int], resources: dict[int, Resource]
    ) -> SpanRecord:
        dropped: Counter[str] = Counter()
        resource = resources.get(id(span.resource))
        if resource is None:
            kept = _lists(self._list.keep_resource(span.resource.attributes, Counter()))
            resource = resources[id(span.resource)] = replace(span.resource, attributes=kept)
        message = span.status_message
        if message and _WORD.apply(message) is DROPPED:
            message, dropped["text"] = "", 1
        shown = replace(
            span,
            attributes=_lists(self._list.keep(span.attributes, dropped)),
            status_message=message,
            events=tuple(self._event(each, dropped) for each in span.events),
            links=tuple(self._link(each, dropped) for each in span.links),
            resource=resource,
        )
        if dropped:
            hidden[span.span_id] = dropped.total()
        return shown

    def _event(self, event: Event, dropped: Counter[str]) -> Event:
        name = event.name
        if _WORD.apply(name) is DROPPED:
            name, dropped["text"] = OTHER, dropped["text"] + 1
        return replace(
            event, name=name, attributes=_lists(self._list.keep(event.attributes, dropped))
        )

    def _link(self, link: Link, dropped: Counter[str]) -> Link:
        return replace(link, attributes=_lists(self._list.keep(link.attributes, dropped)))


def _lists(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes as a record has them, with lists."""
    for key, value in attributes.items():
        if type(value) is tuple:
            attributes[key] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    return attributes


def with_open_spans(shown: Shown) -> Shown:
    """Add the runs that are going on: spans are sent when they end, children before parents.

    A run that has started and whose span has not arrived gets a row from its start mark. Spans of
    its segment whose parents are missing stand below it.
    """
    record = shown.record
    known = {each.span_id for each in record.spans}
    roots: dict[str | None, SpanRecord] = {}
    for mark in record.spans:
        if mark.type != "event" or mark.attributes.get(semconv.RUN_EVENT) != "started":
            continue
        if mark.parent_id and mark.parent_id not in known and mark.segment_id not in roots:
            roots[mark.segment_id] = _open(mark, record)
    if not roots:
        return shown
    adopted: set[str] = set()
    spans: list[SpanRecord] = []
    present = known | {each.span_id for each in roots.values()}
    placed: set[str] = set()
    for span in record.spans:
        root = roots.get(span.segment_id)
        if root is not None and root.span_id not in placed:
            placed.add(root.span_id)
            spans.append(root)
        if root is not None and span.parent_id and span.parent_id not in present:
            adopted.add(span.span_id)
            span = replace(span, parent_id=root.span_id)  # noqa: PLW2901 - the same span
        spans.append(span)
    return replace(
        shown,
        record=replace(record, spans=tuple(spans)),
        open=frozenset(each.span_id for each in roots.values()),
        adopted=frozenset(adopted),
    )


def _open(mark: SpanRecord, record: RunRecord) -> SpanRecord:
    """Return the span that a start mark announces, as long as what has arrived below it."""
    attributes = {key: value for key, value in mark.attributes.items() if key != semconv.RUN_EVENT}
    # The mark's own number: the span has the one before it.
    attributes.pop(semconv.SEQ, None)
    same = [each.end_ns for each in record.spans if each.segment_id == mark.segment_id]
    return replace(
        mark,
        span_id=mark.parent_id or "",
        parent_id=None,
        type="run",
        name=mark.name.replace("run_started", "invoke_agent", 1),
        end_ns=max([mark.end_ns, *same]),
        attributes={**attributes, semconv.RUN_STATUS: "running"},
        events=(),
        links=(),
    )


def is_live(record: RunRecord) -> bool:
    """Tell whether more may come: a segment of the run is not sealed."""
    summary = record.summary
    return summary.is_run and summary.sealed < max(1, summary.segments)
