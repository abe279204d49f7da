"""Runs: `with clew.run(agent)`, nested agents, and resuming in another process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Link, SpanContext, TraceFlags

from clew import capturing, context, levels, semconv, spans
from clew._guard import guard, record_failure, warn_once
from clew.actors import Actor
from clew.errors import ApprovalRequired, ClewError, PolicyDenied
from clew.ids import RunIdGenerator, hex_64, parse_run_id
from clew.levels import LevelName
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.pipeline.stamp import Segment
from clew.pipeline.totals import Totals
from clew.references import Reference
from clew.sealing import add_totals, beat_from_now_on, mark_started, seal_later
from clew.spans import Agent, Node, error_type, identifier, is_cancellation, put, ungrouped
from clew.terms import BEFORE, Terms, identify
from clew.typing import Gate
from clew.wrapping import wrap_function

F = TypeVar("F", bound=Callable[..., Any])

_STATUS_OF_REASON = {
    "completed": "completed",
    "max_rounds": "completed",
    "context_truncated": "completed",
    "cancelled": "cancelled",
    "approval_denied": "cancelled",
    "budget_exhausted": "failed",
    "policy_denied": "failed",
    "provider_failed": "failed",
    "retries_exhausted": "failed",
    "error": "failed",
}
_REASON_OF_DENIAL = {"approval_denied": "approval_denied"}
_REASON_OF_GATE = {"budget": "budget_exhausted"}
_REMOTE = True
_WAITING = ("waiting_for_approval", "waiting_for_input")


class Run(context.Block, Node):
    """One execution of an agent: a context manager and a decorator, sync and async.

    Attributes:
        run_id: the run's uuid; its 128 bits are the trace id.
        agent_name: name of the agent.
    """

    __slots__ = (
        "_asked_level",
        "_given",
        "_made",
        "_options",
        "_own_id",
        "_reference",
        "_root",
        "_status",
        "_termination_reason",
        "_token",
        "agent_name",
        "run_id",
        "terms",
    )
    governor = None
    """Nobody admits a run itself: its model calls and tool calls are what gates look at."""

    def __init__(
        self,
        agent: str,
        *,
        run_id: uuid.UUID | str | None,
        options: dict[str, Any],
        reference: Reference | None = None,
        terms: Terms | None = None,
    ) -> None:
        Node.__init__(self)
        self.agent_name = agent
        self.run_id = parse_run_id(run_id)
        self._given = run_id
        self._own_id = run_id is not None and run_id != ""
        self._options = options
        self._reference = reference
        self.terms = terms or Terms(options=options)
        self._root = True
        self._status: str | None = None
        self._termination_reason: str | None = None
        self._token: context.Token | None = None
        self._made = False
        self._asked_level: int | None = None

    # --- what the user asks of a run -------------------------------------------------------------

    @property
    def trace_id(self) -> str:
        """The trace id: 32 hexadecimal digits, the run id without its dashes."""
        return self.run_id.hex

    @property
    def totals(self) -> Totals:
        """Totals of the run until now, earlier segments included.

        A run that is sampled out has its calls counted, and read only where something needs what
        they say: metrics, gates, keep rules, capture. Else their usage is unknown, not zero.
        """
        try:
            return self.counted()
        except Exception:
            record_failure("add a run up")
            return Totals()

    def counted(self) -> Totals:
        """Return the totals, or raise: gates must not take a fault for a run that used nothing."""
        return Totals() if self.agent is None else self.agent.segment.cumulative()

    def terminate(self, reason: str) -> None:
        """Say why the run ends, when it is neither plain completion nor an exception.

        Args:
            reason: one of the contract's termination reasons, such as `max_rounds`,
                `budget_exhausted` or `policy_denied`; the status follows from it.

        Raises:
            ClewError: an unknown reason.
        """
        if reason not in _STATUS_OF_REASON:
            known = ", ".join(_STATUS_OF_REASON)
            raise ClewError(f"termination reason {reason!r} is unknown; give one of: {known}")
        self._status = _STATUS_OF_REASON[reason]
        self._termination_reason = reason

    def suspend(self, status: str = "waiting_for_approval") -> str:
        """Say that the run waits, and return the reference that resumes it.

        The segment ends with the `with` block. Call this last: what happens after it is not in
        the reference's totals.

        Args:
            status: `waiting_for_approval` or `waiting_for_input`.

        Raises:
            ClewError: another status.
        """
        if status not in _WAITING:
            raise ClewError(f"a run cannot wait with status {status!r}; give one of: {_WAITING}")
        self._status = status
        self._termination_reason = None
        return self.reference()

    def reference(self) -> str:
        """Return a small text with which `clew.resume` continues this run elsewhere."""
        agent = self.agent
        if self.runtime is not None:
            self.runtime.settle()
        span = self.span.get_span_context()
        return str(
            Reference(
                run_id=self.run_id,
                span_id=span.span_id,
                flags=int(span.trace_flags),
                segment=agent.segment.number if agent else 1,
                segment_id=agent.segment.id if agent else "0" * 16,
                rounds=agent.rounds if agent else 0,
                totals=self.totals,
                agent=identifier(self.agent_name, semconv.AGENT_NAME, "agent name"),
                capture=self._asked_level,
                data_class=self.terms.strictest()[1],
            )
        )

    def uses(self, source: str, data_class: str) -> None:
        """Say that a source of this class of data goes into the prompts, from now on.

        Args:
            source: name of a document, snippet or tool, an identifier.
            data_class: one of `clew.typing.DATA_CLASSES`.

        Raises:
            ConfigurationError: there is no such class.
        """
        self.terms.uses(source, data_class)

    def labels(self) -> tuple[str, str | None]:
        """Return the agent's name, and the tenant: a nested agent has that of the outer one."""
        tenant = self._options.get(semconv.TENANT)
        outer = self.parent_node
        if tenant is None and not self._root and outer is not None and outer.agent is not None:
            return self.agent_name, outer.agent.run.labels()[1]
        return self.agent_name, tenant

    # --- life ------------------------------------------------------------------------------------

    def begin(self) -> Context | None:
        """Start the run; return the context in which its work belongs."""
        if self._made:
            raise ClewError("this run has been entered before; make a new one with clew.run(...)")
        self._made = True
        runtime = _runtime.active
        if self.terms.gates:
            _govern(runtime)
        if runtime is None:
            return None
        try:
            return self._open(runtime)
        except Exception:
            record_failure("start a run")
            return None

    def _open(self, runtime: Runtime) -> Context:
        node = context.current_node()
        outer = node.agent if node is not None else None
        self.parent_node = node
        if outer is not None:
            self.terms.outer = outer.run.terms
        level = self.terms.capture
        if level is None and self._reference is not None:
            level = self._reference.capture
        asked, base = capturing.around(runtime, level, self.terms.actor)
        if runtime.capturing:
            self.level = runtime.level_in(base)
            self._asked_level = context.asked_level(base)
        if outer is not None and self._is_nested(outer):
            inner = self._open_nested(runtime, outer, base)
        else:
            inner = self._open_segment(runtime, outer, base)
        if asked is not None:
            capturing.record(runtime, asked, self.terms.actor, inner)
        return inner

    def _is_nested(self, outer: Agent) -> bool:
        if self._reference is not None:
            return False
        return not self._own_id or self.run_id == outer.segment.run_id

    def _open_nested(self, runtime: Runtime, outer: Agent, base: Context) -> Context:
        self._root = False
        self.run_id = outer.segment.run_id
        self.agent = Agent(self, outer.segment, hex_64())
        self.agent.unread = outer.unread and not self.terms.gates
        self._begin_with(runtime, *self._named())
        return context.with_node(self, self.span, base)

    def _open_segment(self, runtime: Runtime, outer: Agent | None, base: Context) -> Context:
        reference = self._reference
        segment = runtime.segments.open(
            self.run_id,
            number=reference.segment + 1 if reference else None,
            carried=reference.totals if reference else None,
        )
        self.agent = Agent(self, segment, hex_64(), reference.rounds if reference else 0)
        name, attributes = self._named()
        attributes[semconv.RUN_ROOT] = True
        if segment.restart:
            attributes[semconv.SEGMENT_RESTART] = True
        if reference is not None:
            attributes[semconv.SEGMENT_PREVIOUS_ID] = reference.segment_id
        if outer is not None:
            attributes[semconv.RUN_PARENT_ID] = str(outer.segment.run_id)
        token = RunIdGenerator.with_trace_id(segment.trace_id)
        try:
            self._begin_with(runtime, name, attributes, parent=Context(), links=self._links())
        finally:
            RunIdGenerator.reset(token)
        self.agent.unread = not (self.span.is_recording() or self.terms.gates or runtime.reads())
        inner = context.with_node(self, self.span, base)
        if runtime.metrics is not None and self.span is not INVALID_SPAN:
            runtime.metrics.run_began(self.agent, resumed=reference is not None)
        if not self.agent.unread:
            previous = None if reference is None else reference.segment_id
            mark_started(runtime, self.agent_name, self.agent, inner, previous)
            beat_from_now_on(runtime, self.agent_name, self.span, self.agent)
        return inner

    def _named(self) -> tuple[str, dict[str, Any]]:
        name = identifier(self.agent_name, semconv.AGENT_NAME, "agent name")
        attributes = {
            semconv.OPERATION: "invoke_agent",
            semconv.AGENT_NAME: name,
            semconv.CAPTURE_LEVEL: levels.name_of(getattr(self, "level", levels.METADATA)),
        }
        for key, value in self._options.items():
            if value is not None:
                put(attributes, key, value)
        return f"invoke_agent {name}", attributes

    def _links(self) -> list[Link]:
        """Link to the span around the run, and to the segment before this one."""
        links: list[Link] = []
        around = trace.get_current_span().get_span_context()
        if around.is_valid:
            links.append(Link(around))
        reference = self._reference
        if reference is not None and reference.span_id:
            flags = TraceFlags(reference.flags)
            previous = SpanContext(self.run_id.int, reference.span_id, _REMOTE, flags)
            links.append(Link(previous, {semconv.SEGMENT_ID: reference.segment_id}))
        return links

    def admit(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Do nothing: see `governor`."""

    async def aadmit(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Do nothing: see `governor`."""

    def returned(self, value: Any) -> None:
        """Take no note: what an agent returns is content."""

    def finish(self, error: BaseException | None = None) -> None:
        """End the run; only the first call counts."""
        runtime, agent = self.runtime, self.agent
        if runtime is None or agent is None or self.span is INVALID_SPAN or not self._claim():
            return
        with guard("finish a run"):
            if error is not None:
                error = ungrouped(error)
            if runtime.unsettled:
                runtime.settle(everywhere=self._root)
            status, reason = self._ending(error)
            values: dict[str, Any] = {semconv.RUN_STATUS: status}
            if reason is not None:
                values[semconv.RUN_TERMINATION_REASON] = reason
            if error is not None and (status == "failed" or isinstance(error, spans.Terminated)):
                values[semconv.ERROR_TYPE] = error_type(error)
            kept = self._root and not agent.unread
            if kept:
                if runtime.metrics is not None:
                    runtime.metrics.run_ended(agent, status, reason)
                self._add_final(values, runtime, agent.segment)
            self._end_with(values, failed=status == "failed")
            if agent.conversation is not None:
                agent.conversation.forget()
            if kept:
                seal_later(runtime, self.agent_name, self.span, agent)
            elif self._root:
                runtime.segments.close(agent.segment)

    def _add_final(self, values: dict[str, Any], runtime: Runtime, segment: Segment) -> None:
        add_totals(values, runtime, self.span, segment)
        still_open = [seq for seq in list(segment.open_seqs) if seq != self.seq]
        if still_open:
            values[semconv.RUN_OPEN_SEQS] = tuple(still_open[:256])

    def _ending(self, error: BaseException | None) -> tuple[str, str | None]:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            if self._status in _WAITING:
                return self._status, None
            return self._status or "completed", self._termination_reason or "completed"
        if is_cancellation(error):
            return "cancelled", "cancelled"
        if isinstance(error, ApprovalRequired):
            return "waiting_for_approval", None
        if isinstance(error, PolicyDenied):
            reason = _REASON_OF_DENIAL.get(error.reason) or _REASON_OF_GATE.get(error.gate)
            reason = reason or "policy_denied"
            return _STATUS_OF_REASON[reason], reason
        if self._termination_reason is not None and self._status == "failed":
            return "failed", self._termination_reason
        return "failed", "error"

    # --- as a context manager and a decorator ---------------------------------------------------

    def __enter__(self) -> Self:
        opened = self.begin()
        if opened is not None:
            self._token = context.attach(opened)
        return self

    def _left(self, error: BaseException | None) -> None:
        self.finish(error)

    def __call__(self, function: F) -> F:
        """Make each call of `function` a run of its own."""

        def make() -> Run:
            return Run(
                self.agent_name,
                run_id=self._given,
                options=self._options,
                reference=self._reference,
                terms=self.terms.copy(),
            )

        return wrap_function(function, make)


def _govern(runtime: Runtime | None) -> None:
    if runtime is None:
        warn_once(
            "ask the gates of a run",
            "A run brings gates, and Clew is not configured: nobody asks them.",
        )
    elif runtime.governor is None and runtime.govern is not None:
        runtime.govern()


def run(
    agent: str,
    *,
    run_id: uuid.UUID | str | None = None,
    conversation_id: str | None = None,
    actor: Actor | str | None = None,
    tenant: str | None = None,
    configuration: str | None = None,
    kind: str | None = None,
    trigger: str | None = None,
    message_id: str | None = None,
    gates: Sequence[Gate] = (),
    capture: LevelName | None = None,
) -> Run:
    """Return a run of an agent, to be used in `with`, `async with`, or as a decorator.

    A run inside another is a nested agent of the same trace, unless it is given a `run_id` of its
    own: then it is a trace of its own, linked to the outer one. A trace around the run (of an HTTP
    request, say) is kept as a link.

    Args:
        agent: name of the agent, an identifier.
        run_id: a uuid, or its text with or without dashes; None or empty text mints a fresh one.
        conversation_id: the conversation that the run belongs to.
        actor: who the run acts for, with rights (`Actor`) or as a plain id; the id is exported
            as a keyed digest only.
        tenant: the tenant.
        configuration: identifier of the agent's configuration.
        kind: the kind of process, such as `channel` or `worker`.
        trigger: what started the run, such as `user_message`.
        message_id: the message that started it.
        gates: gates for this run, on top of those of the settings.
        capture: capture level of this run (`none`, `metadata`, `redacted` or `full`). The
            strictest of all that apply wins; above the settings' level, see `clew.capture`.

    Raises:
        RunIdError: `run_id` is nil or malformed.
        ConfigurationError: there is no such capture level.
    """
    options: dict[str, Any] = {
        semconv.CONVERSATION_ID: conversation_id,
        semconv.TENANT: tenant,
        semconv.CONFIGURATION: configuration,
        semconv.RUN_KIND: kind,
        semconv.TRIGGER: trigger,
        semconv.MESSAGE_ID: message_id,
    }
    known = identify(actor, options)
    level = None if capture is None else levels.number_of(capture)
    terms = Terms(actor=known, gates=tuple(gates), options=options, capture=level)
    return Run(agent, run_id=run_id, options=options, terms=terms)


def resume(
    reference: str,
    *,
    actor: Actor | str | None = None,
    tenant: str | None = None,
    configuration: str | None = None,
    gates: Sequence[Gate] = (),
    capture: LevelName | None = None,
) -> Run:
    """Return the next segment of a run that was suspended, here or in another process.

    Args:
        reference: what `run.reference()` or `run.suspend()` returned.
        actor: who the run acts for; a reference does not carry that, nor the next three. It does
            carry the strictest class of data that `Run.uses` has declared.
        tenant: the tenant.
        configuration: identifier of the agent's configuration.
        gates: gates for this run, on top of those of the settings.
        capture: capture level of this segment; by default the one that the reference carries.
            A reference carries a lowered level, and the stricter of the two wins.

    Raises:
        RunReferenceError: the text is not a run reference.
        ConfigurationError: there is no such capture level.
    """
    parsed = Reference.parse(reference)
    options: dict[str, Any] = {semconv.TENANT: tenant, semconv.CONFIGURATION: configuration}
    level = None if capture is None else levels.number_of(capture)
    if level is not None and parsed.capture is not None:
        level = min(level, parsed.capture)
    known = identify(actor, options)
    terms = Terms(actor=known, gates=tuple(gates), options=options, capture=level)
    if parsed.data_class is not None:
        terms.uses(BEFORE, parsed.data_class)
    return Run(parsed.agent, run_id=parsed.run_id, options=options, reference=parsed, terms=terms)


def current_run() -> Run | None:
    """Return the innermost run that is current here, or None."""
    node = context.current_node()
    return node.agent.run if node is not None and node.agent is not None else None
