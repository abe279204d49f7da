"""Record each call of a function as a node: plain, coroutine, generator and async generator.

No context token is held across a `yield`: a generator's body runs in the node's context, its
consumer never does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, Protocol, TypeVar, cast

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from clew import context

F = TypeVar("F", bound=Callable[..., Any])

_KEPT_ITEMS = 1000
"""Items of a generator that are kept at the most, where content is captured."""


class Recording(Protocol):
    """A node as the wrappers use it."""

    @property
    def governor(self) -> Any:
        """Who has to admit the call first; None where nobody has."""
        ...

    def admit(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Ask the gates, and raise what they say."""
        ...

    async def aadmit(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Ask the gates, in asynchronous code."""
        ...

    def begin(self) -> Context | None:
        """Start; return the context for the work, or None when nothing is recorded."""
        ...

    @property
    def keeps_content(self) -> bool:
        """Whether arguments and result are captured; known once it has begun."""
        ...

    def keep(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Keep the arguments."""
        ...

    def returned(self, value: Any) -> None:
        """Take note of a result."""
        ...

    def gave(self, items: list[Any]) -> None:
        """Keep the items that a generator gave."""
        ...

    def finish(self, error: BaseException | None = None) -> None:
        """End."""
        ...


def wrap_function(function: F, make: Callable[[], Recording]) -> F:
    """Return `function` recorded by a new node from `make` for each call."""
    if inspect.isasyncgenfunction(function):
        wrapper: Any = _async_generator(function, make)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, make)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, make)
    else:
        wrapper = _plain(function, make)
    return cast("F", functools.wraps(function)(wrapper))


def _plain(function: Callable[..., Any], make: Callable[[], Recording]) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        node = make()
        opened = node.begin()
        if opened is None:
            return function(*args, **kwargs)
        token = context.attach(opened)
        error: BaseException | None = None
        try:
            if node.keeps_content:
                node.keep(function, args, kwargs)
            if node.governor is not None:
                node.admit(function, args, kwargs)
            result = function(*args, **kwargs)
            node.returned(result)
        except BaseException as raised:
            error = raised
            raise
        else:
            return result
        finally:
            context.detach(token)
            node.finish(error)

    return wrapper


def _coroutine(function: Callable[..., Any], make: Callable[[], Recording]) -> Any:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        node = make()
        opened = node.begin()
        if opened is None:
            return await function(*args, **kwargs)
        token = context.attach(opened)
        error: BaseException | None = None
        try:
            if node.keeps_content:
                node.keep(function, args, kwargs)
            if node.governor is not None:
                await node.aadmit(function, args, kwargs)
            result = await function(*args, **kwargs)
            node.returned(result)
        except BaseException as raised:
            error = raised
            raise
        else:
            return result
        finally:
            context.detach(token)
            node.finish(error)

    return wrapper


def _generator(function: Callable[..., Any], make: Callable[[], Recording]) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        node = make()
        body: Generator[Any, Any, Any] = function(*args, **kwargs)
        stepper = context.Stepper(node.begin() or otel_context.get_current())
        given: list[Any] | None = None
        if node.keeps_content:
            node.keep(function, args, kwargs)
            given = []
        resume: Callable[[Any], Any] = body.send
        value: Any = None
        error: BaseException | None = None
        try:
            if node.governor is not None:
                token = stepper.enter()
                try:
                    node.admit(function, args, kwargs)
                finally:
                    stepper.leave(token)
            while True:
                token = stepper.enter()
                try:
                    item = resume(value)
                except StopIteration as stop:
                    return stop.value
                finally:
                    stepper.leave(token)
                if given is not None and len(given) < _KEPT_ITEMS:
                    given.append(item)
                try:
                    value = yield item
                    resume = body.send
                except GeneratorExit:
                    token = stepper.enter()
                    try:
                        body.close()
                    finally:
                        stepper.leave(token)
                    raise
                except BaseException as thrown:
                    resume, value = body.throw, thrown
        except BaseException as raised:
            error = raised
            raise
        finally:
            if given is not None:
                node.gave(given)
            node.finish(error)

    return wrapper


def _async_generator(function: Callable[..., Any], make: Callable[[], Recording]) -> Any:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        node = make()
        body: AsyncGenerator[Any, Any] = function(*args, **kwargs)
        stepper = context.Stepper(node.begin() or otel_context.get_current())
        given: list[Any] | None = None
        if node.keeps_content:
            node.keep(function, args, kwargs)
            given = []
        resume: Callable[[Any], Any] = body.asend
        value: Any = None
        error: BaseException | None = None
        try:
            if node.governor is not None:
                token = stepper.enter()
                try:
                    await node.aadmit(function, args, kwargs)
                finally:
                    stepper.leave(token)
            while True:
                token = stepper.enter()
                try:
                    item = await resume(value)
                except StopAsyncIteration:
                    return
                finally:
                    stepper.leave(token)
                if given is not None and len(given) < _KEPT_ITEMS:
                    given.append(item)
                try:
                    value = yield item
                    resume = body.asend
                except GeneratorExit:
                    token = stepper.enter()
                    try:
                        await body.aclose()
                    finally:
                        stepper.leave(token)
                    raise
                except BaseException as thrown:
                    resume, value = body.athrow, thrown
        except BaseException as raised:
            error = raised
            raise
        finally:
            if given is not None:
                node.gave(given)
            node.finish(error)

    return wrapper
