"""What a run is known by in a list, folded from its spans in whatever order they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from clew import semconv
from clew.store.records import RunSummary, SpanRecord, integer, number, text

_MOST_MODELS: Final = 16
_MOST_SEGMENTS: Final = 256
_COUNTS: Final = ("rounds", "tool_calls", "decisions", "denials")
_TOKENS: Final = {
    "input_tokens": semconv.USAGE_INPUT,
    "output_tokens": semconv.USAGE_OUTPUT,
    "cache_read_tokens": semconv.USAGE_CACHE_READ,
    "cache_write_tokens": semconv.USAGE_CACHE_WRITE,
    "reasoning_tokens": semconv.USAGE_REASONING,
}
_STATED: Final = {
    **{name: f"clew.run.{name}" for name in _COUNTS},
    "rounds_unpriced": "clew.run.rounds_unpriced",
    "rounds_without_usage": "clew.run.rounds_without_usage",
    **{name: f"clew.run.usage.{name}" for name in _TOKENS},
    "cost_usd": "clew.run.cost.usd",
    "cost_status": "clew.run.cost.status",
}
"""Totals by their name here, each with the attribute in which a run states it."""
_STATED_OF_SEGMENT: Final = {
    name: key.replace("clew.run.", "clew.segment.", 1) for name, key in _STATED.items()
}
"""The same of one segment alone."""
_ABOUT: Final = {
    "conversation_id": semconv.CONVERSATION_ID,
    "tenant": semconv.TENANT,
    "actor": semconv.ACTOR,
    "configuration": semconv.CONFIGURATION,
    "trigger": semconv.TRIGGER,
    "parent_run_id": semconv.RUN_PARENT_ID,
    "capture_level": semconv.CAPTURE_LEVEL,
}
_OWNING: Final = frozenset({"tenant", "actor"})
"""Whose a run is, as the first span says: no later one can give it to somebody else."""
MODEL_OPERATIONS: Final = frozenset(semconv.OPERATIONS) - {
    "invoke_agent",
    "invoke_workflow",
    "create_agent",
    "execute_tool",
    "retrieval",
    "plan",
    "unknown",
}


class Ending(Struct, kw_only=True):
    """What the outermost span of the latest ended segment states."""

    segment: int
    end_ns: int
    status: str | None
    termination_reason: str | None
    error_type: str | None
    totals: dict[str, Any]


class Part(Struct, kw_only=True):
    """What the outermost span of one segment states of that segment alone."""

    segment_id: str
    previous_id: str | None
    totals: dict[str, Any]


class RunFold(Struct, kw_only=True):
    """The state behind a `RunSummary`. Each span is added once; the order does not matter."""

    trace_id: str
    is_run: bool = False
    agent: str | None = None
    service: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    last_segment: int = 0
    segment_ids: list[str] = []
    sealed_ids: list[str] = []
    spans: int = 0
    backfilled: int = 0
    """Spans that were made of records: they say nothing of how the run went on."""
    errors: int = 0
    counts: dict[str, int] = {}
    tokens: dict[str, int] = {}
    cost_usd: float | None = None
    cost_statuses: list[str] = []
    models: list[str] = []
    about: dict[str, str] = {}
    ending: Ending | None = None
    parts: list[Part] = []
    duplicates: int = 0
    conflicts: int = 0

    def add(self, span: SpanRecord) -> None:
        """Take one more span into account."""
        attributes = span.attributes
        self.spans += 1
        self.backfilled += attributes.get(semconv.BACKFILLED) is True
        self.is_run = self.is_run or semconv.RUN_ID in attributes or span.type != "foreign"
        if self.start_ns is None or span.start_ns < self.start_ns:
            self.start_ns = span.start_ns
        # A seal comes seconds after the end; it would make every run look that much longer.
        if span.type != "event" and (self.end_ns is None or span.end_ns > self.end_ns):
            self.end_ns = span.end_ns
        if span.status == 2 and span.type != "decision":
            self.errors += 1
        self._add_segment(span)
        match span.type:
            case "run":
                self._add_ending(span)
            case "event":
                self._describe(span)
            case "round":
                self._count("rounds")
            case "tool":
                self._count("tool_calls")
            case "decision":
                self._count("decisions")
                self._count("denials", attributes.get(semconv.DECISION_OUTCOME) == "deny")
            case _:
                pass
        if is_model_call(span):
            self._add_model_call(span)
        if self.service is None or span.type in {"run", "event"}:
            self.service = span.resource.service or self.service

    def summary(self) -> RunSummary:
        """Return what is known so far."""
        ending, running = self.ending, self._is_running()
        totals: dict[str, Any] = {}
        if ending is not None and not running:
            totals = self._of_all_parts() or ending.totals
        else:
            totals = self._added_up()
        stated: dict[str, Any] = {name: totals.get(name) for name in _STATED}
        about: dict[str, Any] = {name: self.about.get(name) for name in _ABOUT}
        return RunSummary(
            trace_id=self.trace_id,
            is_run=self.is_run,
            agent=self.agent,
            service=self.service,
            status="running" if running else ending.status if ending else None,
            termination_reason=None if running or not ending else ending.termination_reason,
            error_type=None if running or not ending else ending.error_type,
            start_ns=self.start_ns or 0,
            end_ns=self.end_ns or self.start_ns or 0,
            segments=len(self.segment_ids),
            sealed=len(self.sealed_ids),
            spans=self.spans,
            errors=self.errors,
            models=tuple(self.models),
            duplicates=self.duplicates,
            conflicts=self.conflicts,
            **stated,
            **about,
        )

    def _is_running(self) -> bool:
        if not self.is_run or self.backfilled == self.spans:
            return False
        return self.ending is None or self.last_segment > self.ending.segment

    def _add_segment(self, span: SpanRecord) -> None:
        self.last_segment = max(self.last_segment, span.segment or 0)
        identity = span.segment_id
        if identity is None:
            return
        if identity not in self.segment_ids and len(self.segment_ids) < _MOST_SEGMENTS:
            self.segment_ids.append(identity)
        sealed = span.attributes.get(semconv.RUN_EVENT) == "sealed"
        if sealed and identity not in self.sealed_ids and len(self.sealed_ids) < _MOST_SEGMENTS:
            self.sealed_ids.append(identity)

    def _add_ending(self, span: SpanRecord) -> None:
        self._describe(span)
        self._add_part(span)
        segment = span.segment or 0
        if self.ending and (self.ending.segment, self.ending.end_ns) > (segment, span.end_ns):
            return
        found = span.attributes
        self.ending = Ending(
            segment=segment,
            end_ns=span.end_ns,
            status=text(found, semconv.RUN_STATUS),
            termination_reason=text(found, semconv.RUN_TERMINATION_REASON),
            error_type=text(found, semconv.ERROR_TYPE),
            totals=_stated(found, _STATED),
        )

    def _add_part(self, span: SpanRecord) -> None:
        known = {each.segment_id for each in self.parts}
        if span.segment_id is None or span.segment_id in known or len(known) >= _MOST_SEGMENTS:
            return
        part = Part(
            segment_id=span.segment_id,
            previous_id=text(span.attributes, semconv.SEGMENT_PREVIOUS_ID),
            totals=_stated(span.attributes, _STATED_OF_SEGMENT),
        )
        self.parts.append(part)

    def _of_all_parts(self) -> dict[str, Any] | None:
        """Return the totals of a run that was begun more than once, or forked; else None.

        What its last part states reaches back to where that attempt began, and no further. Of an
        attempt that was cut off there is no statement, only spans.
        """
        covered = {each for part in self.parts for each in (part.segment_id, part.previous_id)}
        if self.parts and not covered.issuperset(self.segment_ids):
            return self._added_up()
        before = [each.previous_id for each in self.parts]
        if len(set(before)) == len(before) or not all(each.totals for each in self.parts):
            return None
        found: dict[str, Any] = {}
        for part in self.parts:
            for name, value in part.totals.items():
                if name != "cost_status":
                    found[name] = found.get(name, 0) + value
        statuses = {each.totals.get("cost_status") for each in self.parts} - {None}
        if statuses:
            found["cost_status"] = statuses.pop() if len(statuses) == 1 else "partial"
        return found

    def _describe(self, span: SpanRecord) -> None:
        found = span.attributes
        self.agent = text(found, semconv.AGENT_NAME) or self.agent
        for name, key in _ABOUT.items():
            value = text(found, key)
            if value is not None and (name not in _OWNING or name not in self.about):
                self.about[name] = value

    def _add_model_call(self, span: SpanRecord) -> None:
        found = span.attributes
        model = text(found, semconv.RESPONSE_MODEL) or text(found, semconv.REQUEST_MODEL)
        if model and model not in self.models and len(self.models) < _MOST_MODELS:
            self.models.append(model)
        if found.get(semconv.AGGREGATE) is True:
            return
        for name, key in _TOKENS.items():
            count = integer(found, key)
            if count is not None:
                self.tokens[name] = self.tokens.get(name, 0) + count
        cost = number(found, semconv.COST_USD)
        if cost is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost
        status = text(found, semconv.COST_STATUS)
        if status is not None and status not in self.cost_statuses:
            self.cost_statuses.append(status)

    def _added_up(self) -> dict[str, Any]:
        """Return the sums over the spans that are there."""
        counts = {name: self.counts.get(name, 0) for name in _COUNTS} if self.is_run else {}
        return {**counts, **self.tokens, **self._cost()}

    def _cost(self) -> dict[str, Any]:
        known = self.cost_statuses
        status = known[0] if len(known) == 1 else "partial" if known else None
        return {"cost_usd": self.cost_usd, "cost_status": status}

    def _count(self, name: str, counts: bool = True) -> None:
        if counts:
            self.counts[name] = self.counts.get(name, 0) + 1


def _stated(attributes: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the totals that are stated under these keys, by their name."""
    found: dict[str, Any] = {name: number(attributes, key) for name, key in keys.items()}
    found["cost_status"] = text(attributes, keys["cost_status"])
    return {name: value for name, value in found.items() if value is not None}


def is_model_call(span: SpanRecord) -> bool:
    """Tell whether a span is a call of a model, ours or another library's."""
    return span.attributes.get(semconv.OPERATION) in MODEL_OPERATIONS


def fold(spans: Iterable[SpanRecord], trace_id: str) -> RunSummary:
    """Summarise the spans of one trace."""
    state = RunFold(trace_id=trace_id)
    for span in spans:
        state.add(span)
    return state.summary()
