"""Records of model calls: what was sent and what came back, as a file and as a row of the index.

A `PromptRow` is what the index knows of a call: sizes, tokens and the block map, no content. A
`PromptRecord` is the whole: the content too, where the capture level of the call let it through.
None means unknown, never zero. A reader takes words that it does not know (layers, levels,
statuses), for a newer Clew may have written them.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from clew.errors import ClewError
from clew.prompts.blocks import Block
from clew.store import scopes
from clew.store.records import QueryError

Scope = scopes.Scope
EVERYTHING: Final = scopes.EVERYTHING
VERSION: Final = 1
STATUSES: Final = ("ok", "error")
SHORT: Final = 8
"""Digits of a request id that are shown, where they are enough."""


class RecordNotFoundError(ClewError, LookupError):
    """No record has this id or begins so, or its payload is gone."""


class AmbiguousRecordError(ClewError, LookupError):
    """More than one record begins with these digits."""


class RecordedBlock(Block, frozen=True, kw_only=True):
    """One block of a system prompt; offsets are into the text that was recorded."""

    digest: str | None = None
    """Keyed digest of its text."""


class SystemPrompt(Struct, frozen=True, kw_only=True):
    """The system prompt: the provider's own field, and the system messages at the beginning."""

    text: str | None = None
    """None where the capture level kept it out."""
    bytes: int = 0
    """Size in UTF-8, of the text as it was sent."""
    chars: int = 0
    """Length in code points, of the text as it was sent."""
    digest: str | None = None
    """Keyed digest of the text as it was sent."""
    blocks: tuple[RecordedBlock, ...] = ()
    """The map of the text; empty where there is none."""

    @property
    def tokens(self) -> int:
        """An estimate: a token for every four bytes, rounded up."""
        return -(-self.bytes // 4)


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool that was offered to the model."""

    name: str
    type: str = "function"
    description: str | None = None
    schema: Any = None
    """The JSON Schema of its parameters, whole."""
    chars: int = 0
    """Characters of name, description and serialised schema, as sent."""
    digest: str | None = None
    """Keyed digest of the definition."""


class AskedTool(Struct, frozen=True, kw_only=True):
    """A tool call that the model asked for."""

    name: str
    id: str | None = None
    arguments: Any = None


class RecordedError(Struct, frozen=True, kw_only=True):
    """How a call failed: types and codes, never an error's text."""

    type: str | None = None
    code: str | int | None = None
    status: int | None = None
    """HTTP status of the last attempt."""


class RecordedResponse(Struct, frozen=True, kw_only=True):
    """What came back."""

    text: str | None = None
    thinking: str | None = None
    tool_calls: tuple[AskedTool, ...] = ()
    finish_reason: str | None = None
    error: RecordedError | None = None
    outcome: str | None = None
    """How a stream ended (`clew.stream.outcome`); None for a plain response."""
    choices: tuple[Any, ...] = ()
    """All answers as messages, where there is more than one, or one with parts of other kinds."""
    body: Any = None
    """The whole answer, where its format has no reader."""
    id: str | None = None
    """The provider's id of the response."""
    bytes: int | None = None


class RecordedUsage(Struct, frozen=True, kw_only=True):
    """Tokens, under the inclusive rule of the conventions, and what they cost."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    cost_status: str | None = None
    """`clew.cost.status`."""


class Attempt(Struct, frozen=True, kw_only=True):
    """One HTTP request of the call."""

    number: int
    """From 1."""
    start_ms: float
    """Milliseconds after the call began."""
    duration_ms: float | None = None
    status: int | None = None
    error: str | None = None
    """Type of the error; None for an attempt that answered."""
    request_bytes: int | None = None


class RunOfRecord(Struct, frozen=True, kw_only=True):
    """Where a call belongs: the run, the agent, the round; all unknown outside a run."""

    kind: str = "unknown"
    """`clew.run.kind`; `unknown` outside a run, or where the run has none."""
    run_id: str | None = None
    trace_id: str | None = None
    """32 hex digits; with `span_id` it names the call's span in the timeline."""
    span_id: str | None = None
    segment_id: str | None = None
    round: int | None = None
    hop: int | None = None
    agent: str | None = None
    agent_id: str | None = None
    tenant: str | None = None
    actor: str | None = None
    """Keyed digest of the actor's id."""
    configuration: str | None = None
    conversation_id: str | None = None
    service: str | None = None


class Trigger(Struct, frozen=True, kw_only=True):
    """What made the run happen."""

    kind: str | None = None
    message_id: str | None = None
    parent: str | None = None
    """The run above this one."""


class ModelOfRecord(Struct, frozen=True, kw_only=True):
    """The model that was asked, and the one that answered."""

    name: str | None = None
    provider: str | None = None
    answered: str | None = None
    """The model that the response names."""
    served_by: str | None = None
    """The provider that a gateway says it used."""
    max_tokens: int | None = None
    temperature: float | None = None


class PromptRecord(Struct, frozen=True, kw_only=True):
    """One model call: the payload file is this, as JSON."""

    version: int = VERSION
    request_id: str
    """32 hex digits."""
    level: str
    """The capture level of the call, which decides what is in here."""
    operation: str
    started_at: str
    """UTC, ISO 8601."""
    start_ns: int
    duration_ms: float
    """From before the first attempt to the end of the answer, by a monotonic clock."""
    partial: bool = False
    """True where the stream did not come to its end."""
    run: RunOfRecord = RunOfRecord()
    trigger: Trigger = Trigger()
    model: ModelOfRecord = ModelOfRecord()
    system: SystemPrompt = SystemPrompt()
    tools: tuple[ToolDefinition, ...] = ()
    messages: list[Any] | None = None
    """The history in the shapes of the GenAI conventions, without the system prompt; None where it
    could not be read, or was kept out."""
    history_length: int | None = None
    """Messages of the history, the system prompt not counted."""
    parameters: dict[str, Any] | None = None
    """The rest of the request as sent: whatever is no message, system prompt or tool."""
    body: Any = None
    """The whole request as sent, where its format has no reader."""
    request_bytes: int | None = None
    response: RecordedResponse = RecordedResponse()
    usage: RecordedUsage | None = None
    """None where the provider reported none."""
    attempts: tuple[Attempt, ...] = ()


class PromptRow(Struct, frozen=True, kw_only=True):
    """What the index knows of one call: no content."""

    request_id: str
    start_ns: int
    duration_ns: int
    level: str
    operation: str
    status: str
    """`ok` or `error`."""
    error_type: str | None = None
    outcome: str | None = None
    partial: bool = False
    kind: str = "unknown"
    run_id: str | None = None
    trace_id: str | None = None
    span_id: str | None = None
    segment_id: str | None = None
    round: int | None = None
    hop: int | None = None
    agent: str | None = None
    agent_id: str | None = None
    tenant: str | None = None
    actor: str | None = None
    configuration: str | None = None
    conversation_id: str | None = None
    service: str | None = None
    trigger: str | None = None
    message_id: str | None = None
    parent: str | None = None
    model: str | None = None
    provider: str | None = None
    answered: str | None = None
    served_by: str | None = None
    system_bytes: int = 0
    system_chars: int = 0
    system_digest: str | None = None
    digest_key: str | None = None
    """Which key the digests were made with; those of different keys are not comparable."""
    history_length: int | None = None
    tool_count: int | None = None
    tool_chars: int | None = None
    request_bytes: int | None = None
    response_bytes: int | None = None
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    cost_status: str | None = None
    attempts: int = 1
    path: str | None = None
    """The payload file, relative to the data folder; None where the level kept content out."""
    payload_bytes: int = 0
    blocks: tuple[RecordedBlock, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()
    """Name, size and digest of each tool that was offered."""

    @property
    def system_tokens(self) -> int:
        """An estimate: a token for every four bytes of the system prompt, rounded up."""
        return -(-self.system_bytes // 4)

    @property
    def has_usage(self) -> bool:
        """Whether the provider reported any tokens."""
        return self.input_tokens is not None or self.output_tokens is not None


class PromptFilter(Struct, frozen=True, kw_only=True):
    """Which records a list shows. Times are nanoseconds since 1970 and compare with the start."""

    agent: str | None = None
    run_id: str | None = None
    """A run's uuid, with or without dashes."""
    trace_id: str | None = None
    conversation_id: str | None = None
    message_id: str | None = None
    """Wins over all others here: every record of that message."""
    model: str | None = None
    """The model that was asked, or the one that answered."""
    operation: str | None = None
    status: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None

    def __post_init__(self) -> None:
        if self.status is not None and self.status not in STATUSES:
            raise QueryError(f"status {self.status!r} is unknown; give one of: ok, error")


class PromptPage(Struct, frozen=True, kw_only=True):
    """One page of records, newest first; `next` is None at the end."""

    records: tuple[PromptRow, ...]
    next: str | None = None


def cursor(row: PromptRow) -> str:
    """Return the `Page.after` that continues behind `row`."""
    return f"{row.start_ns:x}-{row.request_id}"
