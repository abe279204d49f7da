"""What is current: the node of ours that a new span hangs under.

The node travels in the OpenTelemetry context, so everything that carries that context
(asyncio tasks, `contextvars.copy_context`, threading instrumentations) carries the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from contextvars import Token as ContextToken
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.trace import INVALID_SPAN, Span, set_span_in_context

from clew._guard import record_failure

if TYPE_CHECKING:
    from clew.spans import Node

P = ParamSpec("P")
T = TypeVar("T")
Token = ContextToken[Context]

NODE: str = otel_context.create_key("clew")
"""The key under which the innermost node of ours is kept in a context."""

_LEVEL = otel_context.create_key("clew-capture")

SPAN: str = next(iter(set_span_in_context(INVALID_SPAN, Context())))
"""The key under which OpenTelemetry keeps the current span in a context."""


def entrance(runtime_context: Any) -> tuple[Callable[[], Context], Callable[[Context], Token]]:
    """Return how to read and how to set the current context.

    OpenTelemetry's own functions go through two more calls to the same context variable; where
    another implementation was chosen (OTEL_PYTHON_CONTEXT), they are the way.
    """
    variable = getattr(runtime_context, "_current_context", None)
    if type(runtime_context) is ContextVarsRuntimeContext and isinstance(variable, ContextVar):
        known = cast("ContextVar[Context]", variable)
        return known.get, known.set
    return otel_context.get_current, otel_context.attach


current, attach = entrance(getattr(otel_context, "_RUNTIME_CONTEXT", None))
"""`current()` returns the current context; `attach(context)` makes one current, and returns the
token for `detach`."""


def node_in(within: Context) -> Node | None:
    """Return the innermost node of ours in a context that is at hand."""
    return within.get(NODE)  # type: ignore[return-value]


def span_in(within: Context) -> Span:
    """Return the span that is current in a context that is at hand."""
    return within.get(SPAN) or INVALID_SPAN  # type: ignore[return-value]


def current_node(within: Context | None = None) -> Node | None:
    """Return the innermost node of ours in a context, by default the current one."""
    return node_in(current() if within is None else within)


def with_node(node: Node, span: Span, base: Context | None = None) -> Context:
    """Return a context in which `node` and its span are current."""
    return Context({**(current() if base is None else base), SPAN: span, NODE: node})


def asked_level(within: Context) -> int | None:
    """Return the strictest capture level that is asked for in a context; None: none is."""
    return cast("int | None", within.get(_LEVEL))


def with_level(level: int, base: Context) -> Context:
    """Return a context in which a capture level is asked for, beside those that are already."""
    asked = asked_level(base)
    return Context({**base, _LEVEL: level if asked is None else min(asked, level)})


def detach(token: Token) -> None:
    """Undo `attach`; a token of another task or thread is ignored, there is nothing to undo.

    Unlike OpenTelemetry's own `detach`, this logs nothing then: a stream or a generator that is
    closed in another task is ordinary.
    """
    try:
        token.var.reset(token)
    except (ValueError, RuntimeError):
        return


def bind(function: Callable[P, T]) -> Callable[P, T]:
    """Carry the current context (and so the run) into a thread or an executor.

    `executor.submit(clew.bind(work), item)` runs `work` as if it were called here. The returned
    function may be called from several threads at once.
    """
    context = otel_context.get_current()

    @functools.wraps(function)
    def bound(*args: P.args, **kwargs: P.kwargs) -> T:
        token = otel_context.attach(context)
        try:
            return function(*args, **kwargs)
        finally:
            detach(token)

    return bound


class Block:
    """The `with` and `async with` of what makes a context current for a block.

    A subclass attaches in `__enter__`, keeps the token in `_token`, and closes in `_left`.
    """

    __slots__ = ()
    _token: Token | None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            detach(self._token)
            self._token = None
        try:
            self._left(exc)
        except Exception:
            record_failure("leave a block")

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)

    def _left(self, error: BaseException | None) -> None:
        """Close, when the block was left: by an exception, or with None."""


class Stepper:
    """Makes a context current only while a generator's body runs.

    Between two steps the consumer's context is untouched; what the body attached is found again
    at the next step.
    """

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def enter(self) -> Token:
        """Make the body's context current, for one step."""
        return otel_context.attach(self._context)

    def leave(self, token: Token) -> None:
        """Remember the body's context and restore the consumer's."""
        self._context = otel_context.get_current()
        detach(token)
