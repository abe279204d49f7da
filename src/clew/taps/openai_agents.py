"""The tap on OpenAI Agents: a tracing processor.

Agents become run spans (nested in the workflow's, where no run is around), function tools tool
spans; rounds come from the wire. https://openai.github.io/openai-agents-python/tracing/

A tracing processor can stop nothing. So that gates can, the one function of the SDK that invokes
function tools is wrapped, and the one around its other local tools, of which no arguments are
known. They are private: where they are missing, a workflow is denied (`tool_calls_unseen`) if a
gate that is enforced looks at tool calls. What the provider executes itself nobody here can stop.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

from clew import context
from clew._guard import guard
from clew.errors import ClewError
from clew.governance import passages
from clew.pipeline import runtime as _runtime
from clew.runs import Run, run
from clew.taps.names import named
from clew.taps.refusals import refusal_in
from clew.tools import ToolCall

_KEPT = 10_000


class Processor:
    """Makes spans of the SDK's traces and spans. Its methods never raise."""

    def __init__(self) -> None:
        self.active = True
        self._open: OrderedDict[str, tuple[Run | ToolCall, context.Token]] = OrderedDict()
        """What is open, by the SDK's ids, with what restores the context."""
        self._fresh: set[int] = set()
        """Tool calls about which the gates have not been asked."""
        self._refused: OrderedDict[str, ClewError] = OrderedDict()
        """What gates have said about tools of workflows, by the SDK's ids of these."""

    def on_trace_start(self, trace: Any) -> None:
        """A workflow begins."""
        if not self.active or _runtime.get() is None or context.current_node() is not None:
            return
        with guard("take note of a workflow"):
            conversation = getattr(trace, "group_id", None)
            made = run(named(trace.name, "workflow"), conversation_id=conversation)
            self._begin(trace.trace_id, made)

    def on_trace_end(self, trace: Any) -> None:
        """A workflow has ended."""
        with guard("take note of a workflow's end"):
            self._end(trace.trace_id, trace.trace_id)
            self._refused.pop(trace.trace_id, None)

    def admits(self, call: ToolCall) -> bool:
        """Tell, once, whether a tool call has been begun here."""
        fresh = id(call) in self._fresh
        self._fresh.discard(id(call))
        return fresh

    def refuse(self, trace_id: str, error: ClewError) -> None:
        """Take note that a gate has stopped a workflow: its runs end so."""
        self._refused[trace_id] = error
        if len(self._refused) > _KEPT:
            self._refused.popitem(last=False)

    def on_span_start(self, span: Any) -> None:
        """An agent, a tool or something else begins."""
        if not self.active or _runtime.get() is None:
            return
        with guard("take note of a span"):
            data = span.span_data
            if data.type == "agent":
                self._begin(span.span_id, run(named(data.name, "agent")))
            elif data.type == "function":
                call = ToolCall(named(data.name, "tool"))
                self._begin(span.span_id, call)
                self._fresh.add(id(call))

    def on_span_end(self, span: Any) -> None:
        """An agent, a tool or something else has ended."""
        with guard("take note of a span's end"):
            node = self._node(span.span_id)
            failed = span.error is not None
            if isinstance(node, ToolCall):
                if failed and node.outcome is None:
                    node.outcome = "error"
                node.returned(span.span_data.output)
            elif isinstance(node, Run) and failed:
                # The SDK ends the span while what a model call has raised is on its way out.
                refusal = refusal_in(sys.exc_info()[1])
                if refusal is not None:
                    self.refuse(span.trace_id, refusal)
                too_many = "max turns" in str(span.error.get("message", "")).lower()
                node.terminate("max_rounds" if too_many else "error")
                outer = self._node(span.trace_id)
                if isinstance(outer, Run):
                    outer.terminate("max_rounds" if too_many else "error")
            self._end(span.span_id, span.trace_id)

    def shutdown(self) -> None:
        """End what is open."""
        while self._open:
            with guard("end what was left open"):
                self._end(next(reversed(self._open)))

    def force_flush(self) -> None:
        """Do nothing: spans are exported elsewhere."""

    def stop(self) -> None:
        """Take note of nothing any more; the SDK has no way to take a processor off."""
        self.active = False
        self.shutdown()

    def _begin(self, key: str, node: Run | ToolCall) -> None:
        opened = node.begin()
        if opened is not None:
            self._open[key] = (node, context.attach(opened))
            if len(self._open) > _KEPT:
                self._open.popitem(last=False)

    def _node(self, key: str) -> Run | ToolCall | None:
        entry = self._open.get(key)
        return entry[0] if entry is not None else None

    def _end(self, key: str, trace_id: str = "") -> None:
        entry = self._open.pop(key, None)
        if entry is not None:
            node, token = entry
            context.detach(token)
            self._fresh.discard(id(node))
            node.finish(self._refused.get(trace_id) if isinstance(node, Run) else None)


_processor: Processor | None = None


def install(module: ModuleType) -> Callable[[], None]:
    """Add the processor to `agents.tracing`; return what silences it."""
    global _processor  # noqa: PLW0603 - it can be added only once, and never taken off
    if not hasattr(module, "add_trace_processor"):
        return lambda: None  # another package of that name, or another module of this one
    if _processor is None:
        _processor = type("ClewProcessor", (Processor, module.TracingProcessor), {})()
        module.add_trace_processor(_processor)
    _processor.active = True
    return _processor.stop


# --- gates ---------------------------------------------------------------------------------------


def _governed() -> bool:
    runtime = _runtime.get()
    active = _processor is not None and _processor.active
    return active and runtime is not None and runtime.governor is not None


async def _gated(
    name: str, call_id: str | None, arguments: Any, work: Callable[[], Awaitable[Any]]
) -> Any:
    """Ask the gates about a tool, and execute it.

    Raises:
        PolicyDenied: a gate denies it.
        ApprovalRequired: a gate wants an approval first.
    """
    node = context.current_node()
    try:
        if isinstance(node, ToolCall) and _processor is not None and _processor.admits(node):
            node.take(arguments, call_id)
            await node.aadmit(None, (), {})
        else:  # the SDK's tracing is off
            async with ToolCall(name, call_id=call_id, arguments=arguments) as call:
                result = await work()
                call.returned(result)
            return result
    except ClewError as error:
        _take_note(error)
        raise
    return await work()


def _take_note(error: ClewError) -> None:
    with guard("take note of a denial"):
        trace = sys.modules["agents.tracing"].get_current_trace()
        if _processor is not None and trace is not None:
            _processor.refuse(trace.trace_id, error)


async def _invoke(
    wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Ask the gates before a function tool is invoked."""
    if not _governed():
        return await wrapped(*args, **kwargs)
    name = named(getattr(kwargs.get("function_tool"), "name", None), "tool")
    call_id = getattr(kwargs.get("context"), "tool_call_id", None)
    arguments = kwargs.get("arguments")
    return await _gated(name, call_id, arguments, lambda: wrapped(*args, **kwargs))


async def _native(
    wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Ask the gates before a tool of the SDK's own: a computer, a shell, a patch."""
    if not _governed():
        return await wrapped(*args, **kwargs)
    function = kwargs["fn"]
    name = named(kwargs.get("tool_name"), "tool")

    async def admitted(span: Any) -> Any:
        async def work() -> Any:
            found = function(span)
            return await found if inspect.isawaitable(found) else found

        return await _gated(name, None, None, work)

    return await wrapped(*args, **{**kwargs, "fn": admitted})


def _check_seen() -> None:
    """Let a workflow begin only if its tools can be stopped where a gate may want to."""
    runtime = _runtime.get()
    if runtime is None or not _governed():
        return
    missing = any(
        not hasattr(sys.modules.get(module), name)
        for module, patches in PATCHES.items()
        for owner, name, _ in patches
        if not owner
    )
    if missing:
        passages.refuse_unseen_tools(runtime)


async def _run(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _check_seen()
    try:
        return await wrapped(*args, **kwargs)
    except Exception as error:
        refusal = refusal_in(error) if _governed() else None
        if refusal is None or refusal is error:
            raise
    raise refusal


def _run_sync(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _check_seen()
    try:
        return wrapped(*args, **kwargs)
    except Exception as error:
        refusal = refusal_in(error) if _governed() else None
        if refusal is None or refusal is error:
            raise
    raise refusal


def _streamed(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _check_seen()
    return wrapped(*args, **kwargs)


def _events(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    events = wrapped(*args, **kwargs)
    return _followed(events) if _governed() else events


async def _followed(events: Any) -> AsyncGenerator[Any]:
    refusal: ClewError | None = None
    try:
        async for event in events:
            yield event
    except Exception as error:
        refusal = refusal_in(error)
        if refusal is None or refusal is error:
            raise
    finally:
        await events.aclose()
    if refusal is not None:
        raise refusal


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    "agents.tool": (("", "_invoke_function_tool_with_metadata", _invoke),),
    "agents.run_internal.tool_execution": (("", "_invoke_function_tool_with_metadata", _invoke),),
    "agents.run_internal.tool_actions": (("", "with_tool_function_span", _native),),
    "agents.run": (
        ("Runner", "run", _run),
        ("Runner", "run_sync", _run_sync),
        ("Runner", "run_streamed", _streamed),
    ),
    "agents.result": (("RunResultStreaming", "stream_events", _events),),
}
"""What is wrapped in which module: class (none for a function), name, wrapper."""


def patches(module: ModuleType) -> tuple[tuple[str, str, Any], ...]:
    """Return what is wrapped in a module; nothing in one of another package of that name."""
    tracing = sys.modules.get("agents.tracing")
    return PATCHES.get(module.__name__, ()) if hasattr(tracing, "add_trace_processor") else ()
