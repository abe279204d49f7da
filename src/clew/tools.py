"""Tool calls: `with clew.tool(name)` and `@clew.tool`, sync and async, functions and generators."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN

from clew import context, semconv
from clew._guard import guard, record_failure
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.rules import OTHER
from clew.spans import Agent, Node, error_type, identifier, is_cancellation
from clew.wrapping import wrap_function

F = TypeVar("F", bound=Callable[..., Any])

REGISTERED: set[str] = set()
"""Names of tools given in code, by `@clew.tool`: identifiers, whatever a model says."""


class ToolCall(Node):
    """One execution of a tool: a context manager, sync and async.

    Attributes:
        outcome: set it to say more than whether an exception passed:
            `error`, `denied`, `not_offered`, `unknown`, `timeout`, ... (see the contract).
    """

    __slots__ = (
        "_call_id",
        "_effect",
        "_name",
        "_token",
        "arguments_bytes",
        "outcome",
        "result_bytes",
    )

    def __init__(
        self, name: str | None, *, call_id: str | None = None, effect: str | None = None
    ) -> None:
        super().__init__()
        self._name = name
        self._call_id = call_id
        self._effect = effect
        self._token: context.Token | None = None
        self.outcome: str | None = None
        self.arguments_bytes: int | None = None
        self.result_bytes: int | None = None

    def __call__(self, function: F) -> F:
        """Record each execution of `function` as a call of this tool."""
        name = self._name or function.__name__
        REGISTERED.add(name)
        return wrap_function(
            function, lambda: ToolCall(name, call_id=self._call_id, effect=self._effect)
        )

    def returned(self, value: Any) -> None:
        """Take the size of a result that is plain text or bytes; others have no cheap size."""
        if self.result_bytes is None:
            if isinstance(value, str):
                self.result_bytes = len(value.encode("utf-8", "surrogatepass"))
            elif isinstance(value, (bytes, bytearray)):
                self.result_bytes = len(value)

    def begin(self) -> Context | None:
        """Start the span; return the context in which the tool's work belongs."""
        runtime = _runtime.get()
        if runtime is None:
            return None
        try:
            return self._open(runtime)
        except Exception:
            record_failure("start a tool call")
            return None

    def _open(self, runtime: Runtime) -> Context:
        node = context.current_node()
        self.parent_node = node
        agent = self.agent = node.agent if node is not None else None
        known_round = None
        attributes: dict[str, Any] = {
            semconv.OPERATION: "execute_tool",
            semconv.TOOL_TYPE: "function",
            semconv.TOOL_CALL_ID: self._call_id,
            semconv.TOOL_EFFECT: self._effect,
        }
        name = identifier(self._name, semconv.TOOL_NAME, "tool name")
        if agent is not None:
            asked = agent.asked.get(self._call_id) if self._call_id else None
            known_round = asked[0] if asked else (agent.rounds or None)
            if self._chosen_by_the_model(agent):
                name = OTHER
            agent.segment.count(tool_calls=1)
        if name == OTHER:
            attributes[semconv.TOOL_NAME_DIGEST] = runtime.digests.get().of(str(self._name))
        attributes[semconv.TOOL_NAME] = name
        attributes[semconv.ROUND] = known_round
        self._begin(runtime, f"execute_tool {name}", attributes)
        return context.with_node(self, self.span)

    def _chosen_by_the_model(self, agent: Agent) -> bool:
        """Tell whether the name is known only because a model said it."""
        name = self._name
        if name in agent.offered or name in REGISTERED:
            return False
        return any(asked == name for _, asked in agent.asked.values())

    def finish(self, error: BaseException | None = None) -> None:
        """End the span; only the first call counts."""
        if self.span is INVALID_SPAN or not self._claim():
            return
        outcome = self.outcome
        if outcome is None:
            outcome = "ok" if error is None else _tool_outcome(error)
        failed = outcome in ("error", "timeout", "unknown", "not_offered")
        values = {
            semconv.TOOL_OUTCOME: outcome,
            semconv.TOOL_ARGUMENTS_BYTES: self.arguments_bytes,
            semconv.TOOL_RESULT_BYTES: self.result_bytes,
        }
        if failed:
            values[semconv.ERROR_TYPE] = error_type(error) if error is not None else outcome
        with guard("finish a tool call"):
            if self.runtime is not None and self.runtime.metrics is not None:
                name = self._name if self._name in REGISTERED else OTHER
                spent = self.now_ns() - self.start_ns
                self.runtime.metrics.tool_ended(self.agent, name, outcome, spent)
            self._end(values, failed=failed)

    def __enter__(self) -> Self:
        opened = self.begin()
        if opened is not None:
            self._token = context.attach(opened)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            context.detach(self._token)
            self._token = None
        self.finish(exc)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)


def _tool_outcome(error: BaseException) -> str:
    if is_cancellation(error):
        return "cancelled"
    return "timeout" if isinstance(error, TimeoutError) else "error"


@overload
def tool(name: F) -> F: ...
@overload
def tool(
    name: str | None = None, *, call_id: str | None = None, effect: str | None = None
) -> ToolCall: ...
def tool(
    name: F | str | None = None, *, call_id: str | None = None, effect: str | None = None
) -> F | ToolCall:
    """Record a tool call.

    `@clew.tool` and `@clew.tool("name")` record each execution of a function, coroutine
    function, generator or async generator; `with clew.tool("name", call_id=...)` records a block.

    Args:
        name: the tool's name; by default the function's.
        call_id: the id of the tool call that the model asked for.
        effect: `read_only`, `idempotent_write` or `non_idempotent_write`.
    """
    if callable(name):
        return ToolCall(name.__name__)(name)
    return ToolCall(name, call_id=call_id, effect=effect)
