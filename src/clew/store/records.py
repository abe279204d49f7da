"""What is read back: spans, runs and lists of runs, the same from every source.

Attribute values are JSON-safe: `str`, `bool`, `int`, `float` (finite) and lists of these. What JSON
cannot say is written as OTLP's JSON does, as an object with one key: `{"bytesValue": "<base64>"}`,
`{"doubleValue": "NaN" | "Infinity" | "-Infinity"}`, `{"kvlistValue": {...}}`. A mapping among
attribute values is therefore always one of these three.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, cast

from msgspec import Struct

from clew import semconv
from clew.errors import ClewError
from clew.store.scopes import EVERYTHING, NOTHING
from clew.store.scopes import Scope as ReadScope

SpanType = Literal["run", "agent", "round", "call", "tool", "decision", "event", "foreign"]
"""`run` is the outermost span of a segment, `agent` an agent inside it, `event` a zero-length mark
(started, sealed), `foreign` whatever Clew did not open."""

SPAN_TYPES: Final[tuple[SpanType, ...]] = (
    "run",
    "agent",
    "round",
    "call",
    "tool",
    "decision",
    "event",
    "foreign",
)
SPAN_KINDS: Final = ("unspecified", "internal", "server", "client", "producer", "consumer")
"""Names of OTLP's span kinds, by number."""
STATUS_CODES: Final = ("unset", "ok", "error")
"""Names of OTLP's status codes, by number."""

MAX_PAGE: Final = 1000
"""The largest page of a list."""


class QueryError(ClewError, ValueError):
    """A filter, a limit or a cursor cannot be used."""


class Resource(Struct, frozen=True, kw_only=True):
    """Who sent a span: the attributes of its service."""

    attributes: dict[str, Any]
    schema_url: str = ""

    @property
    def service(self) -> str | None:
        """`service.name`, if it is there."""
        return text(self.attributes, "service.name")


class Scope(Struct, frozen=True, kw_only=True):
    """Which instrumentation made a span."""

    name: str = ""
    version: str = ""
    attributes: dict[str, Any] = {}  # msgspec copies an empty default for each instance
    schema_url: str = ""


class Event(Struct, frozen=True, kw_only=True):
    """A point in time inside a span, in nanoseconds since 1970."""

    name: str
    time_ns: int
    attributes: dict[str, Any] = {}


class Link(Struct, frozen=True, kw_only=True):
    """A pointer from one span to another."""

    trace_id: str
    span_id: str
    trace_state: str = ""
    attributes: dict[str, Any] = {}


class SpanRecord(Struct, frozen=True, kw_only=True):
    """One span as it was sent. Ids are lower-case hex, times nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str | None
    type: SpanType
    name: str
    kind: int
    start_ns: int
    end_ns: int
    status: int = 0
    status_message: str = ""
    trace_state: str = ""
    flags: int = 0
    attributes: dict[str, Any] = {}
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    dropped: tuple[int, int, int] = (0, 0, 0)
    """Attributes, events and links that the sender dropped."""
    resource: Resource
    scope: Scope

    @property
    def seq(self) -> int | None:
        """Place in the segment, from 1."""
        return integer(self.attributes, semconv.SEQ)

    @property
    def segment(self) -> int | None:
        """Number of the segment in its run, from 1."""
        return integer(self.attributes, semconv.SEGMENT)

    @property
    def segment_id(self) -> str | None:
        """Identity of the segment."""
        return text(self.attributes, semconv.SEGMENT_ID)

    @property
    def duration_ns(self) -> int:
        """Length in nanoseconds; 0 where the clock went backwards."""
        return max(0, self.end_ns - self.start_ns)


class RunSummary(Struct, frozen=True, kw_only=True):
    """What a run is known by in a list. None means unknown, never zero.

    Totals are the ones that the run states itself once its last segment has ended; until then
    they are added up from the spans that have arrived.
    """

    trace_id: str
    is_run: bool
    """False for a trace without any span of Clew."""
    agent: str | None = None
    service: str | None = None
    status: str | None = None
    """One of `semconv.RUN_STATUSES`; None for a trace that is no run."""
    termination_reason: str | None = None
    error_type: str | None = None
    start_ns: int
    end_ns: int
    segments: int = 0
    sealed: int = 0
    """How many of the segments are sealed."""
    spans: int = 0
    errors: int = 0
    """Spans with an error status."""
    rounds: int | None = None
    tool_calls: int | None = None
    decisions: int | None = None
    denials: int | None = None
    rounds_unpriced: int | None = None
    rounds_without_usage: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    cost_status: str | None = None
    models: tuple[str, ...] = ()
    conversation_id: str | None = None
    tenant: str | None = None
    actor: str | None = None
    """Keyed digest of the actor that the run acts for."""
    configuration: str | None = None
    trigger: str | None = None
    parent_run_id: str | None = None
    capture_level: str | None = None
    duplicates: int = 0
    """Identical copies that arrived again and changed nothing."""
    conflicts: int = 0
    """Copies with other content under the id of a stored span."""

    @property
    def run_id(self) -> str:
        """The run's uuid, dashed: the same 128 bits as the trace id."""
        return run_id_of(self.trace_id)

    @property
    def duration_ns(self) -> int:
        """From the first start to the last end, waits between segments included."""
        return max(0, self.end_ns - self.start_ns)


class RunRecord(Struct, frozen=True, kw_only=True):
    """One run with all its spans, ordered by segment and `clew.seq`, then by start."""

    summary: RunSummary
    spans: tuple[SpanRecord, ...]
    conflicts: tuple[SpanRecord, ...] = ()
    """Other versions of spans that are already in `spans`."""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs a list shows. Times are nanoseconds since 1970 and compare with the start."""

    agent: str | None = None
    status: str | None = None
    model: str | None = None
    """A model that answered, or was asked where the answer names none."""
    tool: str | None = None
    """A tool that was called."""
    gate: str | None = None
    """A gate that decided something; with `outcome` it is the same decision that has both."""
    outcome: str | None = None
    """One of `semconv.OUTCOMES`: what a gate decided."""
    since_ns: int | None = None
    until_ns: int | None = None
    cost_from: float | None = None
    """Only runs whose known cost is at least this, in US dollars."""
    cost_to: float | None = None
    """Only runs whose known cost is at most this."""
    denied: bool = False
    """Only runs with a denial."""
    failed: bool = False
    """Only runs with an error status on any span."""
    everything: bool = False
    """Traces without any span of Clew too."""
    scope: ReadScope = EVERYTHING
    """Whose runs may be read."""
    waiting_of: ReadScope = NOTHING
    """Whose runs are listed, beside those, while they wait for an approval."""

    def __post_init__(self) -> None:
        if self.status is not None and self.status not in semconv.RUN_STATUSES:
            known = ", ".join(semconv.RUN_STATUSES)
            raise QueryError(f"status must be one of {known}, not {self.status!r}")
        if self.outcome is not None and self.outcome not in semconv.DECISION_OUTCOMES:
            known = ", ".join(semconv.DECISION_OUTCOMES)
            raise QueryError(f"outcome must be one of {known}, not {self.outcome!r}")
        bounds = [each for each in (self.cost_from, self.cost_to) if each is not None]
        if any(not 0 <= each < math.inf for each in bounds):
            raise QueryError("a cost must be a finite number that is not below 0")
        if bounds != sorted(bounds):
            raise QueryError("the lowest cost is above the highest one")
        times = [each for each in (self.since_ns, self.until_ns) if each is not None]
        if len(times) == 2 and times[0] >= times[1]:
            raise QueryError("the time from which runs are listed must be before its end")

    @property
    def asks_for_spans(self) -> bool:
        """True where a summary alone does not tell whether a run belongs to the list."""
        return any((self.tool, self.gate, self.outcome))

    def accepts(self, run: RunSummary) -> bool:
        """Say whether `run` belongs to the list (for sources that filter in memory).

        What only its spans tell (tool, gate and outcome) is said by `accepts_spans`.
        """
        covered = self.scope.covers(tenant=run.tenant, agent=run.agent, actor=run.actor) or (
            run.status == "waiting_for_approval"
            and self.waiting_of.covers(tenant=run.tenant, agent=run.agent, actor=run.actor)
        )
        cost = run.cost_usd
        return (
            covered
            and (self.agent is None or run.agent == self.agent)
            and (self.status is None or run.status == self.status)
            and (self.model is None or self.model in run.models)
            and (self.since_ns is None or run.start_ns >= self.since_ns)
            and (self.until_ns is None or run.start_ns < self.until_ns)
            and (self.cost_from is None or (cost is not None and cost >= self.cost_from))
            and (self.cost_to is None or (cost is not None and cost <= self.cost_to))
            and (not self.denied or bool(run.denials))
            and (not self.failed or bool(run.errors))
            and (self.everything or run.is_run)
        )

    def accepts_spans(self, spans: Iterable[SpanRecord]) -> bool:
        """Say whether the spans of a run have the tool and the decision that are asked for."""
        tool, decided = self.tool is None, self.gate is None and self.outcome is None
        for span in spans:
            found = span.attributes
            tool = tool or (span.type == "tool" and text(found, semconv.TOOL_NAME) == self.tool)
            decided = decided or (
                span.type == "decision"
                and (self.gate is None or text(found, semconv.DECISION_GATE) == self.gate)
                and (self.outcome is None or text(found, semconv.DECISION_OUTCOME) == self.outcome)
            )
        return tool and decided


class Page(Struct, frozen=True, kw_only=True):
    """Which stretch of a list, newest first."""

    limit: int = 50
    after: str | None = None
    """The `next` of the page before."""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_PAGE:
            raise QueryError(f"limit must be between 1 and {MAX_PAGE}, not {self.limit}")

    def position(self) -> tuple[int, str] | None:
        """Return start and trace id of the last run of the page before."""
        if self.after is None:
            return None
        start, _, trace_id = self.after.partition("-")
        try:
            position = int(start, 16), bytes.fromhex(trace_id).hex()
        except ValueError:
            position = (-1, "")
        if not 0 <= position[0] < 2**63 or len(position[1]) != 32:
            raise QueryError(f"the cursor {self.after[:80]!r} is not one that a list gave")
        return position


class RunPage(Struct, frozen=True, kw_only=True):
    """One page of a list of runs; `next` is None at the end."""

    runs: tuple[RunSummary, ...]
    next: str | None = None


def cursor(run: RunSummary) -> str:
    """Return the `Page.after` that continues behind `run`."""
    return f"{run.start_ns:x}-{run.trace_id}"


def run_id_of(trace_id: str) -> str:
    """Return the dashed uuid with the bits of a trace id of 32 hex digits."""
    return str(uuid.UUID(trace_id))


def span_order(span: SpanRecord) -> tuple[float, float, int, str]:
    """Sort key: segment, `clew.seq`, start; spans without the first two come behind."""
    segment, seq = span.segment, span.seq
    return (
        math.inf if segment is None else segment,
        math.inf if seq is None else seq,
        span.start_ns,
        span.span_id,
    )


def span_type(attributes: Mapping[str, Any], scope_name: str) -> SpanType:
    """Tell what a span stands for; names and kinds are the sender's, so only attributes count."""
    if scope_name != semconv.SCOPE:
        return "foreign"
    if semconv.RUN_EVENT in attributes:
        return "event"
    if semconv.DECISION_GATE in attributes:
        return "decision"
    operation = attributes.get(semconv.OPERATION)
    if attributes.get(semconv.RUN_ROOT) is True:
        return "run"
    if operation == "execute_tool" or semconv.TOOL_OUTCOME in attributes:
        return "tool"
    if operation in {"invoke_agent", "invoke_workflow"}:
        return "agent"
    if operation is None:
        return "foreign"
    return "round" if semconv.ROUND in attributes else "call"


def text(attributes: Mapping[str, Any], key: str) -> str | None:
    """Return a text attribute, None if it is absent or of another type."""
    value = attributes.get(key)
    return value if isinstance(value, str) else None


def integer(attributes: Mapping[str, Any], key: str) -> int | None:
    """Return an integer attribute, None if it is absent or of another type."""
    value = attributes.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(attributes: Mapping[str, Any], key: str) -> float | None:
    """Return a numeric attribute, None if it is absent or of another type."""
    value = attributes.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


def texts(attributes: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list-of-text attribute, empty if it is absent or of another type."""
    value = attributes.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return tuple(each for each in cast("Sequence[Any]", value) if isinstance(each, str))
