"""What is current: the node of ours that a new span hangs under.

The node travels in the OpenTelemetry context, so everything that carries that context
(asyncio tasks, `contextvars.copy_context`, threading instrumentations) carries the run.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context

if TYPE_CHECKING:
    from clew.spans import Node

P = ParamSpec("P")
T = TypeVar("T")
Token = contextvars.Token[Context]

_NODE = otel_context.create_key("clew")


def current() -> Context:
    """Return the current context."""
    return otel_context.get_current()


def node_in(within: Context) -> Node | None:
    """Return the innermost node of ours in a context that is at hand."""
    return cast("Node | None", within.get(_NODE))


def current_node(within: Context | None = None) -> Node | None:
    """Return the innermost node of ours in a context, by default the current one."""
    return cast("Node | None", otel_context.get_value(_NODE, within))


def with_node(node: Node, span: Span, base: Context | None = None) -> Context:
    """Return a context in which `node` and its span are current."""
    return otel_context.set_value(_NODE, node, set_span_in_context(span, base))


def without_node(base: Context) -> Context:
    """Return the context with no node of ours in it."""
    return otel_context.set_value(_NODE, None, base)


def attach(context: Context) -> Token:
    """Make a context current; undo with `detach`."""
    return otel_context.attach(context)


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
