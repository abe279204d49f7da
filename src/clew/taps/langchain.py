"""The tap on LangChain and LangGraph: graphs (and so agents) are runs, tools tool spans.

Wrapped are the public methods that every graph and tool goes through: `Pregel.stream`, `astream`
(`invoke` and `ainvoke` read them), `BaseTool.run` and `arun`. Callbacks would not do: those that
end an asynchronous step are called in a task of their own, which cannot restore the context that
the step began in. Rounds come from the wire. https://docs.langchain.com/oss/python/langgraph
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any, cast

from clew._guard import guard
from clew.pipeline import runtime as _runtime
from clew.runs import Run, run
from clew.taps.names import named
from clew.tools import ToolCall
from clew.wrapping import wrap_function

_INTERRUPT = "__interrupt__"
"""The key under which a graph hands out what it waits for."""


def _run_of(graph: Any) -> Run:
    return run(named(getattr(graph, "name", None), "LangGraph"))


def _look(made: Run, item: Any) -> None:
    """Take note of an item that says that the graph waits for somebody's input."""
    with guard("look at an item of a graph"):
        parts = cast("tuple[Any, ...]", item) if isinstance(item, tuple) else (item,)
        if any(isinstance(part, dict) and _INTERRUPT in part for part in parts):
            made.suspend("waiting_for_input")


def _stream(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    made = _run_of(instance)

    def follow() -> Generator[Any, Any, None]:
        for item in wrapped(*args, **kwargs):
            _look(made, item)
            yield item

    return wrap_function(follow, lambda: made)()


def _astream(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    made = _run_of(instance)

    async def follow() -> AsyncGenerator[Any, Any]:
        items = wrapped(*args, **kwargs)
        try:
            async for item in items:
                _look(made, item)
                yield item
        finally:
            await items.aclose()

    return wrap_function(follow, lambda: made)()


def _call_of(tool: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        named(getattr(tool, "name", None), "tool"),
        call_id=kwargs.get("tool_call_id"),
        arguments=_arguments_of(tool, args[0] if args else kwargs.get("tool_input")),
    )


def _arguments_of(tool: Any, given: Any) -> Any:
    """Return what the model gave a tool, without what the framework has put beside it."""
    if isinstance(given, str):
        return {"input": given}
    if isinstance(given, dict) and _governed():
        with guard("look at a tool's arguments"):
            names: Any = tool.args
            arguments = cast("dict[str, Any]", given)
            return {name: value for name, value in arguments.items() if name in names}
    return cast("Any", given)


def _governed() -> bool:
    runtime = _runtime.get()
    return runtime is not None and runtime.governor is not None


def _judge(call: ToolCall, result: Any) -> None:
    """Take note of a tool's result: a message, or what the tool returned."""
    with guard("look at a tool's result"):
        if getattr(result, "status", None) == "error":
            call.outcome = "error"
        call.returned(getattr(result, "content", result))


def _waits(error: BaseException) -> str | None:
    return "awaiting_input" if type(error).__name__ in ("GraphInterrupt", "NodeInterrupt") else None


def _tool(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    with _call_of(instance, args, kwargs) as call:
        try:
            result = wrapped(*args, **kwargs)
        except Exception as error:
            call.outcome = _waits(error)
            raise
        _judge(call, result)
    return result


async def _atool(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return await wrapped(*args, **kwargs)
    async with _call_of(instance, args, kwargs) as call:
        try:
            result = await wrapped(*args, **kwargs)
        except Exception as error:
            call.outcome = _waits(error)
            raise
        _judge(call, result)
    return result


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    "langgraph.pregel": (("Pregel", "stream", _stream), ("Pregel", "astream", _astream)),
    "langchain_core.tools.base": (("BaseTool", "run", _tool), ("BaseTool", "arun", _atool)),
}
"""What is wrapped in which module: class, method, wrapper."""
