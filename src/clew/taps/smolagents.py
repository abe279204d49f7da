"""The tap on smolagents: wraps `MultiStepAgent.run` and `Tool.__call__`, which are public.

Its step callbacks are given to one agent at a time and know no beginning of a tool; these two
methods are what every agent and tool go through. Rounds come from the wire. What a gate says about
a tool passes the agent, which would make a step of it, and reaches who has run it as itself.
https://huggingface.co/docs/smolagents/reference/agents
"""

from __future__ import annotations

import contextvars
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from clew._guard import guard
from clew.errors import ClewError
from clew.governance.passages import Refusal
from clew.pipeline import runtime as _runtime
from clew.runs import Run, run
from clew.taps.names import named
from clew.taps.refusals import refusal_in
from clew.tools import ToolCall
from clew.wrapping import wrap_function


def _run(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    name = named(getattr(instance, "name", None), type(instance).__name__)
    streaming = args[1] if len(args) > 1 else kwargs.get("stream")
    made = run(name)
    if not streaming:
        with _handing_on(), made, _refusing():
            result = wrapped(*args, **kwargs)
            _judge(made, instance)
        return result
    steps: Generator[Any, Any, Any] = wrapped(*args, **kwargs)

    def follow() -> Generator[Any, Any, Any]:
        with _refusing():
            result = yield from _within(steps)
            _judge(made, instance)
        return result

    return wrap_function(follow, lambda: made)()


_running: contextvars.ContextVar[bool] = contextvars.ContextVar("clew_smolagents", default=False)
"""Whether an agent is running here, which would swallow what a gate says."""


@contextmanager
def _handing_on() -> Generator[None]:
    """Hand what a gate has said on to who has run the agent; past an agent that has, if one has."""
    outer = _running.get()
    token = _running.set(True)
    try:
        yield
    except ClewError as error:
        if outer:
            raise Refusal(error) from None
        raise
    finally:
        _running.reset(token)


@contextmanager
def _refusing() -> Generator[None]:
    """Raise what a gate has said instead of the error that an agent has made of it."""
    try:
        yield
    except (Exception, Refusal) as error:
        refusal = refusal_in(error)
        if refusal is None or refusal is error:
            raise
    else:
        return
    raise refusal


def _within(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Give the steps of an agent, whose own code knows that it is running."""
    while True:
        token = _running.set(True)
        try:
            step = next(steps)
        except StopIteration as stop:
            return stop.value
        finally:
            _running.reset(token)
        try:
            yield step
        except BaseException:
            steps.close()
            raise


def _judge(made: Run, agent: Any) -> None:
    """Take note of a run that ended because it had taken all its steps."""
    with guard("look at an agent's last step"):
        steps: list[Any] = agent.memory.steps
        error = getattr(steps[-1], "error", None) if steps else None
        if type(error).__name__ == "AgentMaxStepsError":
            made.terminate("max_rounds")


def _call(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    name = named(getattr(instance, "name", None), type(instance).__name__)
    admitted = False
    try:
        with ToolCall(name, arguments=_arguments_of(instance, args, kwargs)) as call:
            admitted = True
            result = wrapped(*args, **kwargs)
            call.returned(result)
    except ClewError as error:
        if admitted or not _running.get():
            raise
        raise Refusal(error) from None
    return result


def _arguments_of(tool: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return a tool's arguments by name, whichever way they were given."""
    given = {name: value for name, value in kwargs.items() if name != "sanitize_inputs_outputs"}
    if len(args) == 1 and not given and isinstance(args[0], dict):
        return cast("dict[str, Any]", args[0])
    names = list(getattr(tool, "inputs", None) or ())
    return {**dict(zip(names, args, strict=False)), **given}


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    "smolagents.agents": (("MultiStepAgent", "run", _run),),
    "smolagents.tools": (("Tool", "__call__", _call), ("PipelineTool", "__call__", _call)),
}
"""What is wrapped in which module: class, method, wrapper."""
