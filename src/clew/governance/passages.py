"""Where the gates stand in front of a model call, behind its answer, and in front of a turn.

`before_send` and `after_answer` are called by the taps. A denial leaves an SDK as `Refusal`, which
no SDK catches, retries or wraps, and is `PolicyDenied` again at the SDK's logical entry
(`clew.taps.entries`); where there is no entry it is raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import msgspec

from clew._guard import guard, record_failure
from clew.attempts import LogicalCall, current_call
from clew.errors import ApprovalRequired, ClewError, PolicyDenied
from clew.exchange import Exchange, Target, is_covered
from clew.facts import CALL_OPERATIONS, ROUND_OPERATIONS, RequestFacts
from clew.governance.governor import (
    TOOL_KINDS,
    Governor,
    Result,
    Step,
    acheck_text,
    check_text,
    governor_of,
)
from clew.governance.proposals import NUMBERS, here, of_request
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.rounds import Round
from clew.runs import Run
from clew.tools import canonical
from clew.typing import Gate, PendingCall, Proposal, Verdict

if TYPE_CHECKING:
    from clew.governance.windows import Walk, Window

_MODEL_KINDS = ("model_call", "model_input")
_OUTPUT_KINDS = ("model_output",)
_APPROVALS = frozenset({"require_approval"})


class Refusal(BaseException):
    """Carries a denial through an SDK that retries and wraps every `Exception`."""

    def __init__(self, error: ClewError) -> None:
        super().__init__()
        self.error = error


class Passage(NamedTuple):
    """A model call that may be sent."""

    result: Result
    facts: RequestFacts
    body: bytes | None
    """As it was given; `result.replacement` is what is sent instead."""
    run: Run | None

    @property
    def streams(self) -> bool:
        """Whether a stream was asked for."""
        return self.result.proposal.stream


def _raise(error: ClewError) -> NoReturn:
    call = current_call()
    if call is not None and call.owner is not None:
        raise Refusal(error)
    raise error


def _again(call: LogicalCall | None, body: bytes | None) -> Passage | None:
    """Return how another attempt of a call passes, which has been decided on before."""
    if call is None or call.round is None or not call.may_try_again():
        return None
    passage = call.passage
    return passage if isinstance(passage, Passage) and passage.body == body else None


def _prepare(
    runtime: Runtime, target: Target, body: bytes | None
) -> tuple[Proposal, RequestFacts, list[Gate], Run | None]:
    route = target.route
    facts = route.dialect.request(body, route) if body else RequestFacts()
    proposal, gates, run = _prepared(runtime, target, facts, body)
    return proposal, facts, gates, run


def _all_crashed(runtime: Runtime, run: Run | None, kinds: Sequence[str]) -> None:
    gates = list(governor_of(runtime).gates)
    with guard("find the gates of a run"):
        gates += run.terms.added() if run is not None else ()
    for gate in gates:
        if gate.mandatory and not gate.kinds.isdisjoint(kinds):
            _raise(PolicyDenied(gate.name, "gate_error"))


def refuse_unredacted(passage: Passage) -> NoReturn:
    """Deny what a gate wants changed and what could not be, for a fault of ours."""
    record_failure("redact what a gate wants redacted")
    steps = [step for step in passage.result.steps if step.verdict.replacement is not None]
    _raise(PolicyDenied(steps[-1].gate.name if steps else "gate", "redact_not_possible"))


def _unprepared(runtime: Runtime, body: bytes | None) -> Passage:
    """Say how a call passes that could not be described to the gates, for a fault of ours.

    It is as if each gate had crashed: a mandatory one denies.
    """
    record_failure("describe a call to the gates")
    run = None
    with guard("find the run of a call"):
        run = here()
    _all_crashed(runtime, run, _MODEL_KINDS)
    proposal = Proposal(kind="model_call", number=next(NUMBERS))
    return Passage(Result(proposal), RequestFacts(), body, None)


def governs(target: Target, method: str) -> bool:
    """Tell whether the gates are asked about a request.

    Nothing leaves by asking for a list, and what a recorded callable sends was decided on with it.
    """
    if is_covered():
        return False
    operation = target.route.operation
    return operation in ROUND_OPERATIONS or operation in CALL_OPERATIONS or method == "POST"


def before_send(
    runtime: Runtime, target: Target, body: bytes | None, *, redact: bool = False
) -> Passage:
    """Ask the gates about a model call, once for all its attempts.

    Args:
        runtime: the runtime; it has a governor.
        target: where the request goes.
        body: the request's body, None where it is not in memory.
        redact: whether the body can still be changed: nothing has been signed over it.

    Raises:
        PolicyDenied: a gate denies it (through an SDK as `Refusal`).
        ApprovalRequired: a gate wants an approval first (likewise).
    """
    try:
        known = _again(current_call(), body)
        if known is not None:
            return known
        proposal, facts, gates, run = _prepare(runtime, target, body)
        result = governor_of(runtime).ask(proposal, gates, _MODEL_KINDS, redact=redact)
        return _passed(result, facts, body, run)
    except ClewError:
        raise
    except Exception:
        return _unprepared(runtime, body)


async def abefore_send(
    runtime: Runtime, target: Target, body: bytes | None, *, redact: bool = False
) -> Passage:
    """Do what `before_send` does, in asynchronous code."""
    try:
        known = _again(current_call(), body)
        if known is not None:
            return known
        proposal, facts, gates, run = _prepare(runtime, target, body)
        result = await governor_of(runtime).aask(proposal, gates, _MODEL_KINDS, redact=redact)
        return _passed(result, facts, body, run)
    except ClewError:
        raise
    except Exception:
        return _unprepared(runtime, body)


def _passed(result: Result, facts: RequestFacts, body: bytes | None, run: Run | None) -> Passage:
    if result.error is not None:
        _raise(result.error)
    passage = Passage(result, facts, body, run)
    call = current_call()
    if call is not None:
        call.passage = passage
        hops, sent = call.hops, result.replacement or body
        if hops is not None and hops.watch is not None and sent is not None:
            hops.watch(sent, hops.index or 0)
    return passage


def before_call(
    runtime: Runtime, target: Target, facts: RequestFacts, arguments: bytes | None
) -> Passage:
    """Ask the gates about a call of a callable; nothing of it can be redacted.

    Args:
        runtime: the runtime; it has a governor.
        target: what the callable stands for.
        facts: what its arguments say.
        arguments: its arguments as JSON, None where they have no such form.

    Raises:
        PolicyDenied: a gate denies it.
        ApprovalRequired: a gate wants an approval first.
    """
    try:
        proposal, gates, run = _prepared(runtime, target, facts, arguments)
    except Exception:
        return _unprepared(runtime, arguments)
    result = governor_of(runtime).ask(proposal, gates, _MODEL_KINDS, redact=False)
    if result.error is not None:
        _raise(result.error)
    return Passage(result, facts, arguments, run)


async def abefore_call(
    runtime: Runtime, target: Target, facts: RequestFacts, arguments: bytes | None
) -> Passage:
    """Do what `before_call` does, in asynchronous code."""
    try:
        proposal, gates, run = _prepared(runtime, target, facts, arguments)
    except Exception:
        return _unprepared(runtime, arguments)
    result = await governor_of(runtime).aask(proposal, gates, _MODEL_KINDS, redact=False)
    if result.error is not None:
        _raise(result.error)
    return Passage(result, facts, arguments, run)


def _prepared(
    runtime: Runtime, target: Target, facts: RequestFacts, body: bytes | None
) -> tuple[Proposal, list[Gate], Run | None]:
    run = here()
    gates = governor_of(runtime).gates_for(run, _MODEL_KINDS)
    return of_request(runtime, run, target, facts, body), gates, run


def after_begin(runtime: Runtime, passage: Passage, begun: Exchange | Round | None) -> None:
    """Tell who wants to know the end of the round that has begun."""
    with guard("follow a model call"):
        if passage.result.asked:
            round_ = begun.round if isinstance(begun, Exchange) else begun
            governor_of(runtime).follow(passage.result, round_)


# --- answers -------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What becomes of a whole answer."""

    replacement: bytes | None = None
    again: bool = False
    """True where a gate wants the model to be asked once more."""


def wants_answer(runtime: Runtime, passage: Passage) -> bool:
    """Tell whether a gate is asked about the answer."""
    return bool(governor_of(runtime).gates_for(passage.run, _OUTPUT_KINDS))


def holds(runtime: Runtime, passage: Passage) -> bool:
    """Tell whether a streamed answer is held back until it was looked at; so it is in doubt."""
    try:
        gates = governor_of(runtime).gates_for(passage.run, _OUTPUT_KINDS)
        return any(gate.mode == "enforce" for gate in gates)
    except Exception:
        record_failure("find the gates of an answer")
        return True


def window_of(
    runtime: Runtime, passage: Passage, begun: Exchange | None, content_type: str
) -> Window | None:
    """Return what looks at an answer as it comes.

    None where no gate wants to. None, too, where one that is enforced has to see the answer as a
    whole, or where the events of the wire format are not known: it is then to be held back whole.
    So it is where the exchange could not be begun, by a fault of ours, or the window not made.
    """
    try:
        return _window_of(runtime, passage, begun, content_type)
    except Exception:
        record_failure("open a window")
        return None


def _window_of(
    runtime: Runtime, passage: Passage, begun: Exchange | None, content_type: str
) -> Window | None:
    governor = governor_of(runtime)
    gates = governor.gates_for(passage.run, _OUTPUT_KINDS)
    if not gates or begun is None:
        return None
    from clew.content.frames import framing
    from clew.governance import windows

    dialect = begun.route.dialect.name
    known = windows.knows(dialect) and begun.streams(content_type)
    sse = framing(content_type) if known else None
    enforced = [gate for gate in gates if gate.mode == "enforce"]
    if enforced and (sse is None or not all(map(windows.width_of, enforced))):
        return None
    return windows.Window(governor, _of_answer(passage), gates, dialect, sse=sse)


def look(window: Window, walk: Walk) -> bytes:
    """Ask the gates what a window wants to know; return the bytes that may go on.

    Raises:
        PolicyDenied: a gate denies the stream; nothing more of it goes on.
        ApprovalRequired: a gate wants an approval first.
    """
    out = b""
    try:
        question = next(walk)
        while True:
            question = walk.send(check_text(*question))
    except StopIteration as stop:
        out = stop.value
    except Exception:
        out = window.broken()
    if window.error is not None:
        _raise(window.error)
    return out


async def alook(window: Window, walk: Walk) -> bytes:
    """Do what `look` does, in asynchronous code."""
    out = b""
    try:
        question = next(walk)
        while True:
            question = walk.send(await acheck_text(*question))
    except StopIteration as stop:
        out = stop.value
    except Exception:
        out = window.broken()
    if window.error is not None:
        _raise(window.error)
    return out


def _of_answer(passage: Passage, body: bytes | None = None) -> Proposal:
    return msgspec.structs.replace(
        passage.result.proposal,
        kind="model_output",
        number=next(NUMBERS),
        content=lambda: body,
    )


def _output(
    runtime: Runtime, passage: Passage, body: bytes | None
) -> tuple[Proposal, list[Gate]] | None:
    gates = governor_of(runtime).gates_for(passage.run, _OUTPUT_KINDS)
    if not gates or (body is None and not holds(runtime, passage)):
        return None
    return _of_answer(passage, body), gates


def _unseen(runtime: Runtime, passage: Passage) -> Answer:
    """Say what becomes of an answer that could not be shown to the gates, for a fault of ours."""
    record_failure("show an answer to the gates")
    _all_crashed(runtime, passage.run, _OUTPUT_KINDS)
    return Answer()


def _answered(result: Result) -> Answer:
    if result.stopped is not None and result.stopped.verdict.outcome == "retry":
        return Answer(again=True)
    if result.error is not None:
        _raise(result.error)
    return Answer(result.replacement)


def after_answer(
    runtime: Runtime,
    passage: Passage,
    body: bytes | None,
    *,
    retried: bool = False,
    redact: bool = True,
) -> Answer:
    """Ask the gates about a whole answer before the caller sees it.

    Args:
        runtime: the runtime; it has a governor.
        passage: how the request passed.
        body: the answer's body, decompressed; None where it is a stream that cannot be held back,
            which only gates that are enforced are asked about.
        retried: whether the model has been asked once more already; a second wish denies.
        redact: whether another body can be put in its place.

    Raises:
        PolicyDenied: a gate denies it (through an SDK as `Refusal`).
        ApprovalRequired: a gate wants an approval first (likewise).
    """
    redact = redact and not passage.streams
    try:
        wanted = _output(runtime, passage, body)
        if wanted is None:
            return Answer()
        result = governor_of(runtime).ask(*wanted, _OUTPUT_KINDS, redact=redact, retry=not retried)
        return _answered(result)
    except ClewError:
        raise
    except Exception:
        return _unseen(runtime, passage)


async def aafter_answer(
    runtime: Runtime,
    passage: Passage,
    body: bytes | None,
    *,
    retried: bool = False,
    redact: bool = True,
) -> Answer:
    """Do what `after_answer` does, in asynchronous code."""
    redact = redact and not passage.streams
    try:
        wanted = _output(runtime, passage, body)
        if wanted is None:
            return Answer()
        result = await governor_of(runtime).aask(
            *wanted, _OUTPUT_KINDS, redact=redact, retry=not retried
        )
        return _answered(result)
    except ClewError:
        raise
    except Exception:
        return _unseen(runtime, passage)


# --- the tool calls of a turn --------------------------------------------------------------------


def check_turn(calls: Sequence[PendingCall]) -> None:
    """Find out whether any tool call of a turn needs an approval, before one of them is executed.

    Only that is decided and recorded here; each call is looked at again when it is executed.

    Raises:
        ApprovalRequired: one does; the approval is for the turn as a whole.
    """
    governor, turn = _turn(calls)
    if governor is None:
        return
    for call in turn:
        proposal, gates = governor.of_tool(call, turn, executing=False)
        result = governor.ask(proposal, gates, TOOL_KINDS, redact=False, only=_APPROVALS)
        _after_look(governor, result)


async def acheck_turn(calls: Sequence[PendingCall]) -> None:
    """Do what `check_turn` does, in asynchronous code."""
    governor, turn = _turn(calls)
    if governor is None:
        return
    for call in turn:
        proposal, gates = governor.of_tool(call, turn, executing=False)
        result = await governor.aask(proposal, gates, TOOL_KINDS, redact=False, only=_APPROVALS)
        _after_look(governor, result)


def refuse_unseen_tools(runtime: Runtime) -> None:
    """Deny where tool calls could not be stopped, if a gate that is enforced looks at them.

    Raises:
        PolicyDenied: one does (`tool_calls_unseen`).
    """
    governor = governor_of(runtime)
    proposal, gates = governor.of_tool(PendingCall(name=""), (), executing=False)
    gate = next((gate for gate in gates if gate.mode == "enforce"), None)
    if gate is not None:
        result = Result(proposal)
        verdict = Verdict(outcome="deny", reason="tool_calls_unseen")
        result.stopped = Step(gate, verdict, time.time_ns(), enforced=True)
        result.steps.append(result.stopped)
        governor.conclude(result)
        if result.error is not None:
            raise result.error


def _turn(calls: Sequence[PendingCall]) -> tuple[Governor | None, tuple[PendingCall, ...]]:
    runtime = _runtime.get()
    if runtime is None or runtime.governor is None:
        return None, ()
    turn = tuple(
        msgspec.structs.replace(call, arguments=canonical(call.arguments)) for call in calls
    )
    return governor_of(runtime), turn


def _after_look(governor: Governor, result: Result) -> None:
    if isinstance(result.error, ApprovalRequired):
        raise result.error
    governor.release(result)
