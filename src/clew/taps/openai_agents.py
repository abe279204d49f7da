"""The tap on OpenAI Agents: a tracing processor.

Agents become run spans (nested in the workflow's, where no run is around), function tools tool
spans; rounds come from the wire. https://openai.github.io/openai-agents-python/tracing/
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any

from clew import context
from clew._guard import guard
from clew.pipeline import runtime as _runtime
from clew.runs import Run, run
from clew.taps.names import named
from clew.tools import ToolCall

_KEPT = 10_000


class Processor:
    """Makes spans of the SDK's traces and spans. Its methods never raise."""

    def __init__(self) -> None:
        self.active = True
        self._open: OrderedDict[str, tuple[Run | ToolCall, context.Token]] = OrderedDict()
        """What is open, by the SDK's ids, with what restores the context."""

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
            self._end(trace.trace_id)

    def on_span_start(self, span: Any) -> None:
        """An agent, a tool or something else begins."""
        if not self.active or _runtime.get() is None:
            return
        with guard("take note of a span"):
            data = span.span_data
            if data.type == "agent":
                self._begin(span.span_id, run(named(data.name, "agent")))
            elif data.type == "function":
                self._begin(span.span_id, ToolCall(named(data.name, "tool")))

    def on_span_end(self, span: Any) -> None:
        """An agent, a tool or something else has ended."""
        with guard("take note of a span's end"):
            node = self._node(span.span_id)
            failed = span.error is not None
            if isinstance(node, ToolCall):
                if failed:
                    node.outcome = "error"
                node.returned(span.span_data.output)
            elif isinstance(node, Run) and failed:
                too_many = "max turns" in str(span.error.get("message", "")).lower()
                node.terminate("max_rounds" if too_many else "error")
                outer = self._node(span.trace_id)
                if isinstance(outer, Run):
                    outer.terminate("max_rounds" if too_many else "error")
            self._end(span.span_id)

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

    def _end(self, key: str) -> None:
        entry = self._open.pop(key, None)
        if entry is not None:
            node, token = entry
            context.detach(token)
            node.finish()


_processor: Processor | None = None


def install(module: ModuleType) -> Callable[[], None]:
    """Add the processor to `agents.tracing`; return what silences it."""
    global _processor  # noqa: PLW0603 - it can be added only once, and never taken off
    if not hasattr(module, "add_trace_processor"):
        return lambda: None  # another package of that name
    if _processor is None:
        _processor = type("ClewProcessor", (Processor, module.TracingProcessor), {})()
        module.add_trace_processor(_processor)
    _processor.active = True
    return _processor.stop
