"""The shapes of the JSON twins, named: their description (`clew.web.openapi`) is made from these.

Every field is always there; what is unknown is null. Times in nanoseconds are text, for they are
larger than the numbers of JavaScript.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, defstruct
from msgspec.structs import fields

from clew.prompts.compare import Comparison
from clew.sources.prompt_report import Evicted, RoundBreak
from clew.store.prompt_records import PromptRecord, PromptRow
from clew.web.diff import ToolChange, ValueChange


class Problem(Struct):
    """What is wrong."""

    status: int
    message: str


class Error(Struct):
    """An answer that is not what was asked for."""

    error: Problem


class Tokens(Struct):
    """Tokens of a run."""

    input: int | None
    output: int | None
    cache_read: int | None
    cache_write: int | None
    reasoning: int | None


class Run(Struct):
    """What a run is known by in a list."""

    run_id: str
    trace_id: str
    is_run: bool
    agent: str | None
    service: str | None
    status: str | None
    termination_reason: str | None
    error_type: str | None
    start_time: str
    end_time: str
    start_time_unix_nano: str
    end_time_unix_nano: str
    duration_ms: float
    segments: int
    sealed_segments: int
    spans: int
    errors: int
    rounds: int | None
    rounds_unpriced: int | None
    rounds_without_usage: int | None
    tool_calls: int | None
    decisions: int | None
    denials: int | None
    tokens: Tokens
    cost_usd: float | None
    cost_status: str | None
    models: list[str]
    conversation_id: str | None
    tenant: str | None
    configuration: str | None
    trigger: str | None
    parent_run_id: str | None
    capture_level: str | None
    identical_copies: int
    conflicting_copies: int


class ListedRun(Run):
    """A run in a list; where it may not be opened it waits for an approval by its reader."""

    readable: bool


class RunList(Struct):
    """One page of a list, newest first."""

    runs: list[ListedRun]
    next: str | None


class SpanEvent(Struct):
    """A point in time inside a span."""

    name: str
    time_unix_nano: str
    attributes: dict[str, Any]


class SpanLink(Struct):
    """A pointer to another span."""

    trace_id: str
    span_id: str
    attributes: dict[str, Any]


class SpanScope(Struct):
    """Which instrumentation made a span."""

    name: str
    version: str


class Span(Struct):
    """One span, without attributes that the allow-list does not name."""

    trace_id: str
    span_id: str
    parent_id: str | None
    type: str
    name: str
    kind: str
    status: str
    status_message: str
    segment: int | None
    segment_id: str | None
    seq: int | None
    start_time: str
    end_time: str
    start_time_unix_nano: str
    end_time_unix_nano: str
    duration_ms: float
    attributes: dict[str, Any]
    events: list[SpanEvent]
    links: list[SpanLink]
    trace_state: str
    flags: int
    dropped_attributes: int
    dropped_events: int
    dropped_links: int
    scope: SpanScope
    resource: dict[str, Any]


class RunDetail(Struct):
    """One run with all its spans, in their order."""

    run: Run
    spans: list[Span]
    conflicting_copies: list[Span]


class SpanDetail(Struct):
    """One span, and how many of its attributes are not shown."""

    span: Span
    hidden: int


class TimelineSegment(Struct):
    """One segment, with its own axis."""

    place: int
    segment: int | None
    start_time_unix_nano: str
    length_ns: int


class TimelineRow(Struct):
    """One span as the timeline shows it."""

    place: int
    segment: int
    span_id: str
    type: str
    name: str
    seq: int | None
    depth: int
    start_ns: int
    length_ns: int
    wait_ns: int | None
    start: str
    duration: str
    tokens: str
    cost: str
    facts: list[str]
    outcome: str | None
    error: str | None
    denied: bool
    failed: bool
    orphan: bool
    open: bool
    aside: bool


class TimelineRows(Struct):
    """Rows of a timeline; `next` is what `after` continues with."""

    run_id: str
    live: bool
    segments: list[TimelineSegment]
    rows: list[TimelineRow]
    accepted: int
    total: int
    next: int | None


class PromptRound(Struct):
    """The prompt of one round."""

    round: int | None
    span_id: str
    request_id: str | None
    model: str | None
    system_bytes: int | None
    blocks: int | None
    history_length: int | None
    tool_tokens: int | None
    tool_share: float | None
    input_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None


class GrownBlock(Struct):
    """One block over the rounds, and by how many bytes it grew."""

    id: str
    occurrence: int
    layer: str
    sizes: list[int | None]
    grown: int


class AgentPrompts(Struct):
    """How the prompts of one agent developed."""

    agent: str | None
    agent_id: str | None
    lost_tokens: int | None
    lost_usd: float | None
    rounds: list[PromptRound]
    breaks: list[RoundBreak]
    growth: list[GrownBlock]
    evicted: list[Evicted]


class RunPrompts(Struct):
    """How the prompts of a run developed, by agent."""

    agents: list[AgentPrompts]


class CostSum(Struct):
    """A sum over model calls; the cost is of those calls whose cost is known."""

    calls: int
    unpriced: int
    unknown: int
    partial: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    lower_bound: bool


class DayCost(CostSum):
    """The sum of one day."""

    day: str


class AgentCost(CostSum):
    """The sum of one agent."""

    agent: str | None


class ModelCost(CostSum):
    """The sum of one model."""

    model: str | None


class Costs(Struct):
    """What model calls cost."""

    first: str
    last: str
    agent: str | None
    model: str | None
    total: CostSum
    days: list[DayCost]
    agents: list[AgentCost]
    models: list[ModelCost]
    more_agents: int
    more_models: int


IndexRow = defstruct(
    "IndexRow",
    [
        *(
            (each.name, str if each.name == "start_ns" else each.type)
            for each in fields(PromptRow)
            if each.name != "path"
        ),
        ("system_tokens", int),
    ],
    kw_only=True,
)
"""What the index knows of one recorded call: no content."""
IndexRow.__doc__ = "What the index knows of one recorded call: no content."


class CallList(Struct):
    """One page of recorded calls, newest first."""

    capture_enabled: bool
    requests: list[IndexRow]  # pyright: ignore[reportInvalidTypeForm] - made above
    next: str | None


class Call(Struct):
    """One recorded call: its row, and the whole record."""

    index: IndexRow  # pyright: ignore[reportInvalidTypeForm]
    record: PromptRecord


class MessagesDiff(Struct):
    """How two histories relate."""

    same: int | None
    before: int | None
    after: int | None


class CallDiff(Struct):
    """The difference between two recorded calls, without their texts."""

    identical: bool
    system: Comparison
    tools: list[ToolChange]
    values: list[ValueChange]
    messages: MessagesDiff


class CaptureSettings(Struct):
    """The switch of capture."""

    capture_enabled: bool
    retention_days: int
    retention_choices: list[int]


class ListedSnippet(Struct):
    """A snippet without its text."""

    identifier: str
    name: str
    description: str
    tags: list[str]
    state: str
    active: bool
    hidden: bool
    sorting: int
    data_class: str | None
    bytes: int
    metadata: dict[str, Any]


class Snippet(ListedSnippet):
    """A snippet."""

    metadata_text: str
    text: str


class ListedSkill(Struct):
    """A skill without its body."""

    identifier: str
    source: str | None
    reference: str
    name: str
    description: str
    trust: str
    state: str
    checksum: str | None
    enabled: bool
    orphaned: bool
    data_class: str | None
    bytes: int


class Skill(ListedSkill):
    """A skill."""

    body: str


class Tag(Struct):
    """A tag, and what it gets into a prompt."""

    tag: str
    snippets: list[str]
    carried_by: int


class Warning(Struct):  # noqa: A001 - its name in the description
    """What a tag would be warned about."""

    code: str
    subject: str
    message: str


class SnippetList(Struct):
    """Snippets, skills and tags."""

    snippets: list[ListedSnippet]
    skills: list[ListedSkill]
    tags: list[Tag]
    warning: Warning | None


class SnippetDetail(Struct):
    """One snippet."""

    snippet: Snippet


class SkillDetail(Struct):
    """One skill."""

    skill: Skill


class PlayConfiguration(Struct):
    """A configuration that may be played."""

    identifier: str
    provider: str
    model: str
    tools: list[str]


class PlayConfigurations(Struct):
    """The configurations that this reader may play."""

    configurations: list[PlayConfiguration]
