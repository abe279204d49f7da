"""The protocols between the floors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from clew.actors import Actor
from clew.closed_sets import TOOL_EFFECTS
from clew.facts import RequestFacts, ResponseFacts, Usage


class Route(NamedTuple):
    """A recognised model endpoint: what a method and a path stand for."""

    dialect: Dialect
    operation: str
    """`chat`, `generate_content`, `embeddings`, ...; `unknown` on a known host only."""
    provider: str | None
    """`gen_ai.provider.name` if the host or the path tells it, else None."""
    model: str | None = None
    """The model or deployment named in the path, percent-decoded."""
    stream: bool = False
    """True when the path itself asks for a streamed answer."""


@runtime_checkable
class StreamReader(Protocol):
    """Reads one streamed response, in whatever pieces it arrives."""

    started: bool
    """True once generated output of any kind (text, reasoning, tool call) was seen."""
    chunks: int
    """How many events the stream has carried so far."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the (decompressed) body. Never raises."""
        ...

    def result(self) -> ResponseFacts:
        """Return what has been learnt so far; callable at any time, more than once."""
        ...


class Dialect(Protocol):
    """What one wire format means: bytes in, facts out. Pure, without spans or I/O."""

    name: str
    conversation: str | None
    """The member of a request that is a list of what was said, to which each request adds; its
    entries are counted as messages, and each may carry results of tool calls. None: there is none.
    """

    def request(self, body: bytes, route: Route) -> RequestFacts:
        """Read a request body. Any bytes give facts, never an exception."""
        ...

    def response(
        self, body: bytes, status: int, route: Route, headers: Mapping[str, str] | None = None
    ) -> ResponseFacts:
        """Read a whole response body. Any bytes give facts, never an exception.

        `headers` are the response's, under any spelling of their names; some providers put an
        error's type or token counts there.
        """
        ...

    def may_wait(self, body: bytes) -> bool:
        """Tell whether an answer with a status of success surely is none that has failed."""
        ...

    def shows_output(self, route: Route, content_type: str) -> Callable[[bytes], object] | None:
        """Return what finds output in the first bytes of a streamed answer, without reading them.

        None where that cannot be told. Where it finds any, `started` is true once they are read.
        """
        ...

    def stream(self, route: Route, content_type: str) -> StreamReader:
        """Return a reader for a streamed answer of this dialect."""
        ...


class Beginning(NamedTuple):
    """What the long requests of one conversation begin with, and what that says."""

    dialect: Dialect
    prefix: bytes
    """A request up to the last entry that is known, with the comma after it."""
    head: bytes
    """The same up to the bracket before the first entry."""
    opening: bytes
    """What the head ends with: the list's name, and the bracket."""
    entries: int
    """How many are known."""
    result_ids: tuple[str, ...]
    """Ids of the tool calls whose results are among them."""
    written: dict[Any, Any]
    """What those who captured the entries have made of them."""

    def rest_of(self, body: bytes) -> bytes | None:
        """Return a request without the entries that are known; None where it begins otherwise."""
        if not body.startswith(self.prefix):
            return None
        rest = body[len(self.prefix) :]
        if self.opening in rest:
            return None  # twice the same member, of which the last one counts; or it is inside
        return self.head + rest

    def listed(self) -> bytes:
        """Return the known entries as a JSON list."""
        return b"[%s]" % self.prefix[len(self.head) :].rstrip(b", ")


DATA_CLASSES: Final = (
    "public_content",
    "editor_content",
    "source_code",
    "internal_configuration",
    "system_diagnostics",
    "secret_adjacent",
)
"""Classes of data, the strictest last."""

ZONE_CEILINGS: Final[Mapping[str, str]] = {
    "local": "secret_adjacent",
    "private_hosted": "system_diagnostics",
    "external_eu": "internal_configuration",
    "external_global": "editor_content",
}
"""Trust zones, each with the strictest class of data that may go there."""

UNKNOWN_ZONE: Final = "external_global"
"""The zone of a host that nobody has named."""

ProposalKind = Literal["model_call", "model_input", "model_output", "tool_call"]
VerdictOutcome = Literal["allow", "deny", "require_approval", "redact", "retry"]
GateMode = Literal["enforce", "observe"]


class Spent(Struct, frozen=True, kw_only=True):
    """What a run has used until now, earlier segments included."""

    rounds: int = 0
    tool_calls: int = 0
    tokens: int = 0
    """Input and output tokens that were reported."""
    cost_usd: float = 0.0
    """The sum of the known costs: a lower bound where some are unknown."""


class PendingCall(Struct, frozen=True, kw_only=True):
    """One tool call of a turn that has not been executed yet."""

    name: str
    id: str | None = None
    arguments: bytes | None = None
    """The arguments, for gates alone: never exported; None when they are not known."""
    effect: str | None = None
    """`read_only`, `idempotent_write` or `non_idempotent_write`."""

    @property
    def feared_effect(self) -> str:
        """The effect to reckon with: what nobody declared writes, and cannot be repeated."""
        declared = self.effect is not None and self.effect in TOOL_EFFECTS
        return str(self.effect) if declared else TOOL_EFFECTS[-1]

    def __repr__(self) -> str:
        return f"PendingCall(name={self.name!r}, id={self.id!r}, effect={self.effect!r})"


class Proposal(Struct, frozen=True, kw_only=True):
    """What is about to happen, as a gate sees it. None means unknown or not applicable."""

    kind: ProposalKind
    number: int
    """Tells the proposals of this process apart: what is reserved for one is settled by it."""
    run_id: str | None = None
    agent: str | None = None
    actor: Actor | None = None
    configuration: str | None = None
    tenant: str | None = None
    reference: Callable[[], str] | None = None
    """Returns the reference that resumes the run; None outside a run."""
    provider: str | None = None
    """`gen_ai.provider.name`."""
    host: str | None = None
    """Host, with its port where that is not the scheme's own."""
    model: str | None = None
    operation: str | None = None
    stream: bool = False
    offered: tuple[str, ...] = ()
    """Names of the tools that a model call offers."""
    request_bytes: int | None = None
    max_output_tokens: int | None = None
    planned_input_tokens: int | None = None
    """An estimate by size: a quarter of the bytes of the request."""
    planned_cost: Callable[[int, int], float | None] | None = None
    """Prices planned input and output tokens in US dollars; None: there is no price."""
    spent: Spent = Spent()
    """What the run has used until now."""
    tool: str | None = None
    registered: bool = False
    """Whether the tool's name was given in code, and not only chosen by a model."""
    call_id: str | None = None
    effect: str | None = None
    """Of a tool call; one that nobody declared is `non_idempotent_write`."""
    arguments_bytes: int | None = None
    turn: tuple[PendingCall, ...] = ()
    """The tool calls that are decided on together, this one included."""
    executing: bool = False
    """True where an allowed tool call is executed at once, False where a turn is looked at."""
    data_class: str | None = None
    """The strictest class of what the run says that went into its prompts."""
    source: str | None = None
    """Which source that class is of."""
    trust_zone: str | None = None
    """The zone of the provider."""
    content: Callable[[], bytes | None] | None = None
    """Returns the body of the request or the answer, or the arguments of the tool call, as JSON;
    None where it is not in memory. For guardrails: a gate that does not call it sees no content."""

    @property
    def subject(self) -> str | None:
        """What is decided on: the tool, or else the model."""
        return self.tool or self.model


class Verdict(Struct, frozen=True, kw_only=True):
    """What a gate says about a proposal."""

    outcome: VerdictOutcome
    reason: str | None = None
    """A code (identifier), never prose."""
    policy: str | None = None
    policy_version: str | None = None
    subject: str | None = None
    """What was decided on, where it is not the proposal's tool or model."""
    by: str = "policy"
    """`policy`, `self`, `second_person`, `initiator_unknown` or `unresolved`."""
    replacement: bytes | None = None
    """The whole new body, of a `redact`."""
    approval_id: str | None = None
    """The pending approval, of a `require_approval`."""
    actor: str | None = None
    """Id of the person who decided, if one did; exported as a keyed digest only."""
    proposed_ns: int | None = None
    """When that person was asked (ns since the epoch), if not now."""
    decided_ns: int | None = None
    """When that person decided (ns since the epoch), if not now."""
    enforced: bool = True
    """False for a finding that the gate only observes, whatever its mode is."""


ALLOW = Verdict(outcome="allow")


class Settlement(Struct, frozen=True, kw_only=True):
    """How a proposal that was allowed has ended."""

    usage: Usage | None = None
    cost_usd: float | None = None
    failed: bool = False
    cancelled: bool = False
    """True where the caller stopped the work; then nothing is said about the provider."""
    status: int | None = None
    """HTTP status of the last attempt."""
    duration_s: float = 0.0


class Gate(Protocol):
    """Looks at what is about to happen, and says whether it may.

    A gate may have more: `acheck(proposal)`, awaited instead of `check` in asynchronous code;
    `settle(proposal, settlement)`, called when what it allowed has ended; `release(proposal)`,
    called when what it allowed did not happen after all; `suspended(approval_id, reference)`,
    called with what resumes a run that waits for its approval; `rank`, by which gates are ordered
    (cheap ones first, 50 if absent); `looks_at_offers`, true where it denies a tool by name and
    effect alone, so that the loop asks it before a tool is offered. A gate of `model_output` that
    has `window` (a number of characters) and `check_text(proposal, text)`, or `acheck_text`, looks
    at streams by window; `overlap` says how many characters it sees again. Without these a stream
    is held back whole. `check` may be called from several threads at once.
    """

    @property
    def name(self) -> str:
        """The gate's name on its decisions: an identifier."""
        ...

    @property
    def mode(self) -> GateMode:
        """`enforce`, or `observe`: recorded, and nothing is stopped."""
        ...

    @property
    def mandatory(self) -> bool:
        """Whether a crash of the gate denies (`gate_error`) instead of allowing."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of proposal that it looks at."""
        ...

    def check(self, proposal: Proposal) -> Verdict | None:
        """Decide. None says nothing and records nothing."""
        ...
