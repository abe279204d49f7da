"""The tap on pydantic-ai: a capability, given to each agent run.

Agent runs become run spans, function tools tool spans; rounds come from the wire.
https://ai.pydantic.dev/capabilities/
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

from clew._guard import record_failure, warn_once
from clew.pipeline import runtime as _runtime
from clew.runs import run
from clew.taps.names import named
from clew.tools import ToolCall

_WAITING = {"ApprovalRequired": "awaiting_approval", "CallDeferred": "awaiting_input"}
"""Exceptions by which a tool says that its result comes later."""
_RETRIES = ("ModelRetry", "ToolRetryError", "ToolFailed")
"""Exceptions by which a tool tells the model that it failed."""


class Hooks:
    """What is done around an agent's run and around each execution of a tool."""

    async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
        """Record a run."""
        name = named(getattr(getattr(ctx, "agent", None), "name", None), "agent")
        conversation = getattr(ctx, "conversation_id", None)
        with run(name, conversation_id=conversation) as made:
            try:
                return await handler()
            except Exception as error:
                if type(error).__name__ == "UsageLimitExceeded":
                    made.terminate("budget_exhausted")
                raise

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
    ) -> Any:
        """Record a tool call."""
        name, given = named(call.tool_name, "tool"), getattr(call, "args", None)
        made = ToolCall(name, call_id=call.tool_call_id, arguments=given or {})
        async with made as recorded:
            try:
                result = await handler(args)
            except Exception as error:
                name = type(error).__name__
                recorded.outcome = _WAITING.get(name) or ("error" if name in _RETRIES else None)
                raise
            recorded.returned(result)
            return result


@functools.cache
def _capability() -> Any:
    base: Any = importlib.import_module("pydantic_ai.capabilities").AbstractCapability
    return type("ClewCapability", (Hooks, base), {})


def _iter(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Add the capability to those of one run (every way of running an agent comes by here)."""
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    try:
        given = kwargs.get("capabilities") or ()
        kwargs = {**kwargs, "capabilities": [*given, _capability()()]}
    except ImportError:
        warn_once(
            "find pydantic_ai.capabilities",
            "This version of pydantic-ai has no capabilities: its agents and tools are not "
            "recorded, model calls are.",
        )
    except Exception:
        record_failure("look at an agent run")
    return wrapped(*args, **kwargs)


PATCHES: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    "pydantic_ai.agent": (("Agent", "iter", _iter),),
}
"""What is wrapped in which module: class, method, wrapper."""
