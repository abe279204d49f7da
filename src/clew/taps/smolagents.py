"""The tap on smolagents: wraps `MultiStepAgent.run` and `Tool.__call__`, which are public.

Its step callbacks are given to one agent at a time and know no beginning of a tool; these two
methods are what every agent and tool go through. Rounds come from the wire.
https://huggingface.co/docs/smolagents/reference/agents
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from clew._guard import guard
from clew.pipeline import runtime as _runtime
from clew.runs import Run, run
from clew.taps.names import named
from clew.tools import ToolCall
from clew.wrapping import wrap_function


def _run(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    name = named(getattr(instance, "name", None), type(instance).__name__)
    streaming = args[1] if len(args) > 1 else kwargs.get("stream")
    made = run(name)
    if not streaming:
        with made:
            result = wrapped(*args, **kwargs)
            _judge(made, instance)
        return result
    steps: Generator[Any, Any, Any] = wrapped(*args, **kwargs)

    def follow() -> Generator[Any, Any, Any]:
        result = yield from steps
        _judge(made, instance)
        return result

    return wrap_function(follow, lambda: made)()


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
    with ToolCall(named(getattr(instance, "name", None), type(instance).__name__)) as call:
        result = wrapped(*args, **kwargs)
        call.returned(result)
    return result


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    "smolagents.agents": (("MultiStepAgent", "run", _run),),
    "smolagents.tools": (("Tool", "__call__", _call), ("PipelineTool", "__call__", _call)),
}
"""What is wrapped in which module: class, method, wrapper."""
