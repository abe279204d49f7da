"""Tool calls: `with clew.tool(name)` and `@clew.tool`, sync and async, functions and generators."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast, overload

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN

from clew import captured, context, semconv
from clew._guard import guard, record_failure
from clew.errors import ApprovalRequired, AuditError, ClewError
from clew.pipeline import runtime as _runtime
from clew.pipeline.asked import Asked
from clew.pipeline.light import LightSpan
from clew.pipeline.runtime import Governing, Runtime
from clew.pipeline.totals import Totals
from clew.rules import OTHER
from clew.spans import Agent, Node, Terminated, error_type, identifier, is_cancellation, put
from clew.wrapping import wrap_function

F = TypeVar("F", bound=Callable[..., Any])

REGISTERED: set[str] = set()
"""Names of tools given in code, by `@clew.tool`: identifiers, whatever a model says."""


class ToolCall(context.Block, Node):
    """One execution of a tool: a context manager, sync and async.

    Attributes:
        outcome: set it to say more than whether an exception passed:
            `error`, `denied`, `not_offered`, `unknown`, `timeout`, ... (see the contract).
        result: set it in a `with` block: what the tool gave, for where content is captured.
    """

    __slots__ = (
        "_arguments",
        "_before",
        "_call_id",
        "_effect",
        "_name",
        "_round",
        "_token",
        "arguments_bytes",
        "governor",
        "keeps_content",
        "outcome",
        "result",
        "result_bytes",
    )

    def __init__(
        self,
        name: str | None,
        *,
        call_id: str | None = None,
        effect: str | None = None,
        arguments: Any = None,
    ) -> None:
        Node.__init__(self)
        self._arguments = arguments
        self.governor: Governing | None = None
        """Who has to admit the call first; None where nobody has."""
        # What is no text is no name; nor may it be asked what it is: that may raise, or block.
        self._name = name if name is None or isinstance(name, str) else OTHER
        self._call_id = call_id
        self._effect = effect
        self._token: context.Token | None = None
        self._before = 0
        """Number of the round before it."""
        self._round = 0
        """Number of the round that asked for it, or of the one before it; 0: not known yet."""
        self.keeps_content = False
        self.result: Any = None
        self.outcome: str | None = None
        self.arguments_bytes: int | None = None
        self.result_bytes: int | None = None

    @property
    def name(self) -> str | None:
        """The tool's name, as it was given."""
        return self._name

    def __call__(self, function: F) -> F:
        """Record each execution of `function` as a call of this tool."""
        name = self._name or function.__name__
        REGISTERED.add(name)
        return wrap_function(
            function, lambda: ToolCall(name, call_id=self._call_id, effect=self._effect)
        )

    def returned(self, value: Any) -> None:
        """Take the size of a result that is plain text or bytes; others have no cheap size."""
        try:
            if self.keeps_content:
                self.result = value
            if self.outcome is None and says_error(value):
                self.outcome = "error"
            if self.result_bytes is None:
                if isinstance(value, str):
                    ascii_ = value.isascii()  # known at once, however long
                    self.result_bytes = (
                        len(value) if ascii_ else len(value.encode("utf-8", "surrogatepass"))
                    )
                elif isinstance(value, (bytes, bytearray)):
                    self.result_bytes = len(value)
        except Exception:
            record_failure("take the result of a tool")

    def gave(self, items: list[Any]) -> None:
        """Take the items that a generator gave, up to its end or to where its caller left it."""
        if self.keeps_content:
            self.result = items

    def take(self, arguments: Any, call_id: str | None = None) -> None:
        """Take arguments and id that became known after the call had begun; for gates alone."""
        self._arguments = arguments
        self._call_id = self._call_id or call_id

    def keep(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Keep the arguments by name, for where content is captured."""
        with guard("keep the arguments of a tool"):
            try:
                given = inspect.signature(function).bind(*args, **kwargs).arguments
            except (TypeError, ValueError):  # the call itself will say so
                return
            self._arguments = captured.taken(given)

    def begin(self) -> Context | None:
        """Start the span; return the context in which the tool's work belongs."""
        runtime = _runtime.active
        if runtime is None:
            return None
        self.governor = runtime.governor
        try:
            return self._open(runtime)
        except Exception:
            record_failure("start a tool call")
            return None if self.governor is None else context.current()

    def admit(self, function: Callable[..., Any] | None, args: Any, kwargs: Any) -> None:
        """Ask the gates whether the tool may be executed.

        Raises:
            PolicyDenied: a gate denies it.
            ApprovalRequired: a gate wants an approval first.
        """
        if self.governor is not None:
            arguments = self._given(function, args, kwargs)
            try:
                self.governor.admit_tool(self._name or "", self._call_id, self._effect, arguments)
            except ClewError as error:
                self._refused(error)
                raise
            self._write_down()

    async def aadmit(self, function: Callable[..., Any] | None, args: Any, kwargs: Any) -> None:
        """Do what `admit` does, in asynchronous code."""
        if self.governor is not None:
            given = self._given(function, args, kwargs)
            try:
                await self.governor.aadmit_tool(
                    self._name or "", self._call_id, self._effect, given
                )
            except ClewError as error:
                self._refused(error)
                raise
            self._write_down()

    def _write_down(self) -> None:
        """Have a call that may write on the disk before it is carried out.

        Raises:
            AuditError: it could not be written, and must not happen then.
        """
        runtime = self.runtime
        journal = runtime.journal if runtime is not None else None
        if journal is None or self._effect == "read_only" or self.span is INVALID_SPAN:
            return
        facts: dict[str, Any] = {semconv.TOOL_NAME: OTHER}
        with guard("say which tool is called"):
            put(facts, semconv.TOOL_NAME, self._name)
            put(facts, semconv.TOOL_CALL_ID, self._call_id)
            put(facts, semconv.TOOL_EFFECT, self._effect)
        if not self.write_to(journal, "tool", facts) and journal.fail_closed:
            self.outcome = "denied"
            raise AuditError("the tool call")

    def _given(self, function: Callable[..., Any] | None, args: Any, kwargs: Any) -> bytes | None:
        """Return the arguments as the gates see them; None where they are not known."""
        try:
            if function is None:
                return canonical(self._arguments)
            return canonical(inspect.signature(function).bind(*args, **kwargs).arguments)
        except (TypeError, ValueError):
            return None
        except Exception:
            record_failure("show the arguments of a tool to the gates")
            return None

    def _refused(self, error: ClewError) -> None:
        waits = isinstance(error, ApprovalRequired)
        self.outcome = "awaiting_approval" if waits else "denied"

    def _open(self, runtime: Runtime) -> Context | None:
        here = context.current()
        node = self.parent_node = context.node_in(here)
        agent = self.agent = node.agent if node is not None else None
        if agent is not None and agent.unread and self.governor is None:
            # Of a run that is sampled out, and that nobody looks at, calls are counted.
            agent.segment.ended(agent.segment.next_tool_call())
            return None
        name = identifier(self._name, semconv.TOOL_NAME, "tool name")
        later = False
        if agent is None:
            asked = runtime.loose.execute(self._call_id, self._name)
            if asked is not None:
                here = joined(here, asked)
                self._round = asked.round or 0
        else:
            self._before = agent.rounds
            later = self._call_id is not None and not runtime.capturing
            if not later:
                agent.segment.count_up()
                self.count(agent.segment.totals)
            offered = self._name in agent.offered or self._name in REGISTERED
            if not offered and self._is_invented(agent):
                name = OTHER
        attributes: dict[str, Any] = {
            semconv.OPERATION: "execute_tool",
            semconv.TOOL_TYPE: "function",
            semconv.TOOL_NAME: name,
        }
        if self._call_id is not None:
            put(attributes, semconv.TOOL_CALL_ID, self._call_id)
        if self._effect is not None:
            put(attributes, semconv.TOOL_EFFECT, self._effect)
        if self._round and not later:
            attributes[semconv.ROUND] = self._round
        if name == OTHER:
            attributes[semconv.TOOL_NAME_DIGEST] = runtime.digests.get().of(self._name or "")
        if agent is not None:
            self.seq = agent.segment.next_tool_call()
        self._begin_with(runtime, f"execute_tool {name}", attributes, parent=here)
        if later and agent is not None:
            self._find_round_later(agent)
        if runtime.capturing:
            self.keeps_content = captured.wanted(runtime, self.level)
            if self.keeps_content and self._arguments is not None:
                # The tool may change them.
                self._arguments = captured.taken(self._arguments)
        return context.with_node(self, self.span, None if agent is None else here)

    def _is_invented(self, agent: Agent) -> bool:
        """Tell whether the name is a model's, which chose a tool that nobody had offered."""
        agent.segment.count_up()
        return agent.asked.model_chose(self._name)

    def _find_round_later(self, agent: Agent) -> None:
        """Leave that to whoever looks at the span: what the model said may not be read yet."""
        span = self.span
        agent.segment.uncounted.append(self)
        agent.account_for(self._call_id or "")
        if type(span) is LightSpan:
            span.describer, span.plain = self, True
            return
        values: dict[str, Any] = {}
        self.describe(values)  # also where nothing is recorded: it is not to wait for anybody
        if span.is_recording():
            span.set_attributes(values)
            self.born.update(values)

    def count(self, totals: Totals) -> None:
        """Note that the call is recorded, and find the round that asked for it."""
        agent = self.agent
        asked = None if agent is None else agent.asked.execute(self._call_id, self._name)
        self._round = (asked is not None and asked.round) or self._before

    def count_up(self) -> None:
        """Count what has ended until now, this call included."""
        if self.agent is not None:
            self.agent.segment.count_up()

    def describe(self, attributes: dict[str, Any]) -> None:
        """Add the number of the round that asked for it."""
        if not self._round:
            self.count_up()
        if self._round:
            attributes[semconv.ROUND] = self._round

    def finish(self, error: BaseException | None = None) -> None:
        """End the span; only the first call counts."""
        if self.span is INVALID_SPAN or not self._claim():
            return
        values: dict[str, Any] = {}
        failed = error is not None
        try:
            failed = self._describe(values, error)
        except Exception:
            record_failure("finish a tool call")
        self._arguments = self.result = None  # the host's: not to be kept until the export
        try:
            self._end_with(values, failed=failed)
        except Exception:
            record_failure("finish a tool call")

    def _describe(self, values: dict[str, Any], error: BaseException | None) -> bool:
        """Add how the call has ended; return whether it failed."""
        outcome, failed = self.outcome, False
        if outcome is None:
            if error is not None:
                outcome = _tool_outcome(error)
            elif self.result is not None and says_error(self.result):
                outcome = "error"
        if outcome is None:
            values[semconv.TOOL_OUTCOME] = outcome = "ok"
        else:
            failed = outcome in ("error", "timeout", "unknown", "not_offered")
            put(values, semconv.TOOL_OUTCOME, outcome)
        if self.arguments_bytes is not None:
            put(values, semconv.TOOL_ARGUMENTS_BYTES, self.arguments_bytes)
        if self.result_bytes is not None:
            put(values, semconv.TOOL_RESULT_BYTES, self.result_bytes)
        if failed or isinstance(error, Terminated):
            values[semconv.ERROR_TYPE] = error_type(error) if error is not None else outcome
        if self.keeps_content and self.runtime is not None:
            with guard("capture a tool call"):
                given, result = captured.taken(self._arguments), captured.taken(self.result)
                content = captured.ToolContent(self.runtime, self.level, given, result)
                if type(self.span) is LightSpan:
                    self.span.describer = content  # later, off the caller's path
                else:
                    content.describe(values)
        if self.runtime is not None and self.runtime.metrics is not None:
            name = self._name if self._name in REGISTERED else OTHER
            spent = self.now_ns() - self.start_ns
            self.runtime.metrics.tool_ended(self.agent, name, outcome, spent)
        return failed

    def __enter__(self) -> Self:
        opened = self.begin()
        if opened is not None:
            self._token = context.attach(opened)
        if self.governor is not None:
            try:
                self.admit(None, (), {})
            except BaseException as error:
                self.__exit__(type(error), error, None)
                raise
        return self

    def _left(self, error: BaseException | None) -> None:
        self.finish(error)

    async def __aenter__(self) -> Self:
        opened = self.begin()
        if opened is not None:
            self._token = context.attach(opened)
        if self.governor is not None:
            try:
                await self.aadmit(None, (), {})
            except BaseException as error:
                self.__exit__(type(error), error, None)
                raise
        return self


def canonical(arguments: Any) -> bytes | None:
    """Return a tool call's arguments as JSON in one form, whichever way they were given.

    None where they are not known, or are no JSON.
    """
    if arguments is None:
        return None
    try:
        if isinstance(arguments, (str, bytes, bytearray)):
            arguments = json.loads(arguments or "{}")
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return None
    return text.encode()


def joined(here: Context, asked: Asked) -> Context:
    """Return the context in which what answers a tool call belongs, where there is no run.

    A span that is current stays the parent; otherwise the trace is that of the call.
    """
    if trace.get_current_span(here).get_span_context().is_valid:
        return here
    return trace.set_span_in_context(trace.NonRecordingSpan(asked.anchor), here)


def infer(runtime: Runtime, agent: Agent | None, asked: Asked, parent: Context) -> None:
    """Add the span of a tool call whose result is seen on the wire and that nobody recorded.

    It is bounded by the round that asked for it and by now; how the tool fared is not known.
    """
    node = Node()
    node.agent = agent
    name = identifier(asked.name, semconv.TOOL_NAME, "tool name") if asked.known else OTHER
    attributes: dict[str, Any] = {
        semconv.OPERATION: "execute_tool",
        semconv.TOOL_TYPE: "function",
        semconv.TOOL_NAME: name,
        semconv.TOOL_INFERRED: True,
    }
    put(attributes, semconv.TOOL_CALL_ID, asked.id)
    put(attributes, semconv.ROUND, asked.round)
    if name == OTHER:
        attributes[semconv.TOOL_NAME_DIGEST] = runtime.digests.get().of(str(asked.name))
    if agent is not None:
        node.seq = agent.segment.next_tool_call()
    node.begin_and_end(runtime, f"execute_tool {name}", attributes, parent, asked.ended_ns)


def says_error(result: Any) -> bool:
    """Tell whether a result of the Model Context Protocol is flagged as an error.

    An object of an SDK's `CallToolResult`, or the result as JSON; no other object is looked into,
    for looking may be what it is not made for.
    https://modelcontextprotocol.io/specification/2025-06-18/server/tools#error-handling
    """
    kind = cast("type[Any]", type(result))
    if kind is dict:
        found = cast("dict[Any, Any]", result)
        return "content" in found and found.get("isError") is True
    if kind.__name__ != "CallToolResult":
        return False
    # Snake case since the second version of the SDK.
    return getattr(result, "is_error", None) is True or getattr(result, "isError", None) is True


def _tool_outcome(error: BaseException) -> str:
    if is_cancellation(error):
        return "cancelled"
    return "timeout" if isinstance(error, TimeoutError) else "error"


@overload
def tool(name: F) -> F: ...
@overload
def tool(
    name: str | None = None,
    *,
    call_id: str | None = None,
    effect: str | None = None,
    arguments: Any = None,
) -> ToolCall: ...
def tool(
    name: F | str | None = None,
    *,
    call_id: str | None = None,
    effect: str | None = None,
    arguments: Any = None,
) -> F | ToolCall:
    """Record a tool call.

    `@clew.tool` and `@clew.tool("name")` record each execution of a function, coroutine
    function, generator or async generator; `with clew.tool("name", call_id=...)` records a block.

    Args:
        name: the tool's name; by default the function's.
        call_id: the id of the tool call that the model asked for.
        effect: `read_only`, `idempotent_write` or `non_idempotent_write`.
        arguments: the arguments, as JSON text or as what it says: for gates alone, never
            recorded. A decorated function's own are used.

    Raises:
        PolicyDenied: on entering, where a gate denies the call; the tool is not executed.
        ApprovalRequired: on entering, where a gate wants an approval first.
    """
    if callable(name):
        return ToolCall(name.__name__)(name)
    return ToolCall(name, call_id=call_id, effect=effect, arguments=arguments)
