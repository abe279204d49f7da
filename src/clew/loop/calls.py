"""The tool calls of one turn: which may be executed, executing them, and what the model is told.

A call that is not executed is refused: it has a result like any other, an error, with a sentence of
ours. What a tool raises is never told to the model.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from typing import Any, Final, NamedTuple

from msgspec import Struct

from clew.errors import ApprovalRequired, PolicyDenied
from clew.loop.fence import FenceRefusedError
from clew.loop.tools import Tool, ToolOutput, output_of
from clew.providers.base import ToolRequest
from clew.tools import ToolCall

SENTENCES: Final = {
    "unknown": "There is no tool of this name.",
    "not_offered": "This tool is not offered.",
    "invalid_arguments": "The arguments are no JSON object; the tool was not executed.",
    "denied": "This call is not permitted; the tool was not executed.",
    "approval_denied": "A person has denied this call; the tool was not executed.",
    "awaiting_approval": "This call needs an approval; the tool was not executed.",
    "awaiting_input": "This call needs input of a person; the tool was not executed.",
    "remote_calls": "No calls to the outside are left in this run; the tool was not executed.",
    "fence": "This call could not be made safely; the tool was not executed.",
    "error": "The tool failed.",
    "timeout": "The tool did not answer in time.",
}
"""What the model is told instead of a result."""

_OUTCOMES: Final = {
    "invalid_arguments": "error",
    "approval_denied": "denied",
    "remote_calls": "denied",
    "fence": "denied",
}


class Execution(Struct, frozen=True, kw_only=True):
    """One execution of a tool that is about to begin."""

    run_id: str
    round: int
    place: int
    """Which of the round's tool calls it is, from 0."""
    tool: str
    effect: str
    arguments: dict[str, Any]


class Planned(Struct, frozen=True, kw_only=True):
    """One tool call of a turn, and what stands against it."""

    request: ToolRequest
    round: int
    place: int
    tool: Tool | None = None
    arguments: dict[str, Any] | None = None
    """With what a person has given put over them."""
    refusal: str | None = None
    """A key of `SENTENCES`; None: it is executed."""


class Done(Struct, frozen=True, kw_only=True):
    """What became of a tool call."""

    planned: Planned
    output: ToolOutput
    seconds: float = 0.0
    refusal: str | None = None
    cancelled: bool = False

    @property
    def wrote(self) -> bool:
        """Whether a tool that writes was executed."""
        tool = self.planned.tool
        return self.refusal is None and tool is not None and tool.writes


class Hooks(NamedTuple):
    """What happens around an execution; each may be called from several threads at once."""

    before: Callable[[Execution], None]
    """Called before every execution, never for a refused call. What it raises refuses it."""
    after: Callable[[Execution], None]
    """Called when the tool has returned or raised by itself."""
    done: Callable[[Done], None]
    """Told of each call that was tried."""
    blocking: bool = False
    """Whether the first two may block, so that asynchronous code calls them in a thread."""


def refused(planned: Planned, refusal: str) -> Done:
    """Return what a refused call comes to."""
    output = ToolOutput(text=SENTENCES[refusal], is_error=True)
    return Done(planned=planned, output=output, refusal=refusal)


def record_refused(planned: Planned) -> None:
    """Leave a span of a call that no gate need look at: it is not executed."""
    node = _node(planned)
    outcome = planned.refusal or "error"
    node.outcome = _OUTCOMES.get(outcome, outcome)
    node.begin()
    node.finish()


def _node(planned: Planned) -> ToolCall:
    request, tool = planned.request, planned.tool
    arguments: Any = planned.arguments
    node = ToolCall(
        request.name,
        call_id=request.id,
        effect=None if tool is None else tool.effect,
        arguments=request.arguments_text if arguments is None else arguments,
    )
    node.arguments_bytes = len(request.arguments_text.encode("utf-8", "surrogatepass"))
    return node


class _Call:
    """One call while it is executed: what both twins share."""

    def __init__(self, planned: Planned, run_id: str, hooks: Hooks) -> None:
        assert planned.tool is not None  # noqa: S101 - refused otherwise
        self.planned = planned
        self.tool = planned.tool
        self.hooks = hooks
        self.node = _node(planned)
        self.entered = False
        self.begun = 0.0
        self.execution = Execution(
            run_id=run_id,
            round=planned.round,
            place=planned.place,
            tool=self.tool.name,
            effect=self.tool.effect,
            arguments=deepcopy(planned.arguments or {}),
        )

    def may_begin(self) -> None:
        """Ask what stands before the execution, after the gates."""
        try:
            self.hooks.before(self.execution)
        except BaseException:
            self.node.outcome = "denied"
            raise
        self.entered = True
        self.begun = time.perf_counter()

    def invoke(self) -> Any:
        """Call the function with what was admitted; it may take its arguments apart."""
        return self.tool.function(**deepcopy(self.planned.arguments or {}))

    def ended(self) -> None:
        """Tell that the tool has come to an end by itself."""
        if self.entered:
            self.hooks.after(self.execution)

    def gave(self, value: Any) -> Done:
        """Take note of what came back."""
        seconds = time.perf_counter() - self.begun
        output = output_of(value)
        self.node.returned(output.text)
        if output.is_error:
            self.node.outcome = "error"
        return Done(planned=self.planned, output=output, seconds=seconds)

    def failed(self, error: Exception) -> Done:
        """Return what the call comes to when something was raised."""
        if self.entered:
            kind = "timeout" if isinstance(error, TimeoutError) else "error"
            output = ToolOutput(text=SENTENCES[kind], is_error=True)
            seconds = time.perf_counter() - self.begun
            return Done(planned=self.planned, output=output, seconds=seconds)
        if isinstance(error, ApprovalRequired):
            return refused(self.planned, "awaiting_approval")
        if isinstance(error, PolicyDenied):
            denied = "approval_denied" if error.reason == "approval_denied" else "denied"
            return refused(self.planned, denied)
        return refused(self.planned, "fence" if _is_fence(error) else "denied")

    def interrupted(self) -> Done:
        """Return what the call comes to when the work was stopped in the middle."""
        seconds = time.perf_counter() - self.begun if self.entered else 0.0
        output = ToolOutput(is_error=True)
        return Done(planned=self.planned, output=output, seconds=seconds, cancelled=True)


def _is_fence(error: Exception) -> bool:
    from clew.errors import StoreError

    return isinstance(error, (FenceRefusedError, StoreError))


def execute(planned: Planned, run_id: str, hooks: Hooks) -> Done:
    """Execute one call, under its gates."""
    call = _Call(planned, run_id, hooks)
    try:
        with call.node:
            call.may_begin()
            value = call.invoke()
            if inspect.isawaitable(value):
                value = _completed(value)
            done = call.gave(value)
    except Exception as error:
        done = call.failed(error)
    except BaseException:
        hooks.done(call.interrupted())
        raise
    call.ended()
    hooks.done(done)
    return done


def _completed(value: Any) -> Any:
    """Return what a coroutine comes to, in synchronous code."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_awaited(value))
    # A loop is running in this thread: the coroutine gets one of its own in another.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, _awaited(value)).result()


async def _awaited(value: Any) -> Any:
    return await value


async def aexecute(planned: Planned, run_id: str, hooks: Hooks) -> Done:
    """Execute one call, under its gates; a plain function in a thread."""
    call = _Call(planned, run_id, hooks)
    try:
        async with call.node:
            await _step(call.may_begin, blocking=hooks.blocking)
            if inspect.iscoroutinefunction(call.tool.function):
                value = await call.invoke()
            else:
                value = await asyncio.to_thread(call.invoke)
                if inspect.isawaitable(value):
                    value = await value
            done = call.gave(value)
    except Exception as error:
        done = call.failed(error)
    except BaseException:
        hooks.done(call.interrupted())
        raise
    await _step(call.ended, blocking=hooks.blocking)
    hooks.done(done)
    return done


async def _step(step: Callable[[], None], *, blocking: bool) -> None:
    if blocking:
        await asyncio.to_thread(step)
    else:
        step()


def in_parallel(turn: Sequence[Planned]) -> bool:
    """Tell whether a turn's calls may be executed at the same time: none of them writes."""
    return len(turn) > 1 and not any(one.tool is not None and one.tool.writes for one in turn)


def execute_all(
    turn: Sequence[Planned],
    run_id: str,
    hooks: Hooks,
    *,
    workers: int,
    stopped: Callable[[], bool],
) -> list[Done]:
    """Execute the calls of a turn; return those that were, in order.

    Calls that only read are executed at the same time, others one after the other, until
    `stopped`.
    """
    if not in_parallel(turn):
        results: list[Done] = []
        for planned in turn:
            if stopped():
                break
            results.append(execute(planned, run_id, hooks))
        return results
    pool = ThreadPoolExecutor(min(workers, len(turn)), thread_name_prefix="clew-tool")
    try:
        waiting: list[Future[Done]] = [
            pool.submit(contextvars.copy_context().run, execute, planned, run_id, hooks)
            for planned in turn
        ]
        return [future.result() for future in waiting]
    finally:
        # After an interrupt nobody waits for tools that are still running.
        pool.shutdown(wait=False, cancel_futures=True)


async def aexecute_all(
    turn: Sequence[Planned],
    run_id: str,
    hooks: Hooks,
    *,
    workers: int,
    stopped: Callable[[], bool],
) -> list[Done]:
    """Do what `execute_all` does, in asynchronous code."""
    if not in_parallel(turn):
        results: list[Done] = []
        for planned in turn:
            if stopped():
                break
            results.append(await aexecute(planned, run_id, hooks))
        return results
    limit = asyncio.Semaphore(workers)

    async def one(planned: Planned) -> Done:
        async with limit:
            return await aexecute(planned, run_id, hooks)

    tasks = [asyncio.ensure_future(one(planned)) for planned in turn]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        # Whatever happens, no tool goes on behind the caller's back.
        await asyncio.gather(*tasks, return_exceptions=True)
