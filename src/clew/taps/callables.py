"""The tap on a callable of your own: an in-house provider's function, method or class.

Each call is one round; what it is known by comes from a mapping, `facts`: fact name to where it
stands (see `clew.taps.places`). A place is a path (names joined by dots: attributes, keys,
indices) or a function. What is said about the request is looked up among the arguments, by name
(`model`, `self.model`); the rest in the result, or, when the result is a stream, in each of its
items. Requests that the callable sends are part of its round, not rounds of their own.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import wrapt
from opentelemetry import context as otel_context
from opentelemetry.context import Context

from clew import context, exchange, semconv
from clew._guard import guard, record_failure
from clew.dialects._unknown import unknown
from clew.errors import ClewError
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.rounds import Ending, Round
from clew.rules import OTHER
from clew.spans import allowed, is_cancellation
from clew.taps.items import AsyncItems, Follower, Opened, SyncItems
from clew.taps.places import Gathered, Places
from clew.typing import Route


class Recorder:
    """Wraps one callable (a `wrapt` wrapper): records each call of it as a round."""

    def __init__(self, function: Callable[..., Any], places: Places) -> None:
        self.active = True
        self.places = places
        self._names: list[str] = []
        self._defaults: dict[str, Any] = {}
        self._route = Route(unknown, places.operation, places.provider)
        born = {semconv.OPERATION: places.operation, semconv.PROVIDER: places.provider or OTHER}
        self._born = allowed(born)
        with guard("read the signature of a callable"):
            for name, parameter in _parameters(function).items():
                if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                    self._names.append(name)
                if parameter.default is not parameter.empty:
                    self._defaults[name] = parameter.default

    def __call__(
        self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call `wrapped`, and record it."""
        if not self.active or _runtime.get() is None:
            return wrapped(*args, **kwargs)
        if inspect.iscoroutinefunction(wrapped):
            return self._await(wrapped, instance, args, kwargs)

        def start() -> Opened | None:
            return self._open(instance, args, kwargs)

        if inspect.isgeneratorfunction(wrapped) or inspect.isasyncgenfunction(wrapped):
            # Its body runs when it is iterated over, and not before.
            return self._stream(wrapped(*args, **kwargs), start, self.places.gather())
        opened = start()
        if opened is None:
            return wrapped(*args, **kwargs)
        token = context.attach(opened.inner)
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            _failed(opened, error)
            raise
        finally:
            context.detach(token)
        if inspect.isawaitable(result):
            return self._settle(opened, result)
        return self._answered(opened, result)

    async def _await(
        self, wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        opened = self._open(instance, args, kwargs)
        if opened is None:
            return await wrapped(*args, **kwargs)
        return await self._settle(opened, wrapped(*args, **kwargs))

    async def _settle(self, opened: Opened, result: Any) -> Any:
        token = context.attach(opened.inner)
        try:
            result = await result
        except BaseException as error:
            _failed(opened, error)
            raise
        finally:
            context.detach(token)
        return self._answered(opened, result)

    def _open(
        self, instance: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Opened | None:
        runtime = _runtime.get()
        if runtime is None:
            return None
        try:
            return self._opened(runtime, instance, args, kwargs)
        except Exception:
            record_failure("look at a call")
            return None

    def _opened(
        self, runtime: Runtime, instance: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Opened:
        given = dict(zip(self._names, args, strict=False))
        arguments = {"self": instance, **self._defaults, **given, **kwargs}
        request = self.places.request(arguments)
        started = time.perf_counter_ns()
        round_ = Round(self._route, request, grouped=True, resend=0)
        round_.open(runtime, self._born, None)
        round_.attempts = 1
        outer: Context = otel_context.get_current()
        return Opened(runtime, round_, exchange.covered_by(round_, outer), started)

    def _answered(self, opened: Opened, result: Any) -> Any:
        """Take note of a result: end the round, or follow the stream that it is."""
        try:
            gathered = self.places.gather()
            wanted = self.places.stream
            if isinstance(wanted, str):
                gathered.take(result)
                return self._stream_inside(opened, result, wanted, gathered)
            if wanted or (wanted is None and _is_stream(result)):
                return self._stream(result, lambda: opened, gathered, begun=True)
            gathered.take(result)
            opened.round.finish(Ending(response=gathered.facts(complete=True)))
        except Exception:
            record_failure("look at a result")
        return result

    def _stream(
        self,
        stream: Any,
        start: Callable[[], Opened | None],
        gathered: Gathered,
        *,
        begun: bool = False,
    ) -> Any:
        follower = Follower(start, gathered.take, gathered.facts)
        if begun:
            follower.begin()
        asynchronous = hasattr(stream, "__anext__") or hasattr(stream, "__aiter__")
        if not asynchronous and not hasattr(stream, "__iter__"):
            asynchronous = hasattr(stream, "__aenter__")
        return (AsyncItems if asynchronous else SyncItems)(stream, follower)

    def _stream_inside(self, opened: Opened, result: Any, name: str, gathered: Gathered) -> Any:
        """Follow a stream that is an attribute or a key of the result."""
        keyed: dict[str, Any] | None = None
        if isinstance(result, dict):
            keyed = result = cast("dict[str, Any]", result)
        inside = getattr(result, name, None) if keyed is None else keyed.get(name)
        if inside is None:
            opened.round.finish(Ending(response=gathered.facts(complete=True)))
            return result
        stream = self._stream(inside, lambda: opened, gathered, begun=True)
        if keyed is None:
            setattr(result, name, stream)
        else:
            keyed[name] = stream
        return result


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a callable; a method's `self` is among the arguments anyway."""
    parameters = dict(inspect.signature(function).parameters)
    if next(iter(parameters), None) == "self":
        del parameters["self"]
    return parameters


def _failed(opened: Opened, error: BaseException) -> None:
    with guard("record a failed call"):
        outcome = "cancelled" if is_cancellation(error) else None
        opened.round.finish(Ending(error=error, outcome=outcome))


def _is_stream(result: Any) -> bool:
    return any(hasattr(result, name) for name in ("__next__", "__anext__", "__aiter__"))


def wrap(function: Any, facts: Mapping[str, Any]) -> Any:
    """Return a callable that records each call of `function` as a round.

    Raises:
        ClewError: `function` is not callable, or `facts` is not understood.
    """
    if not callable(function):
        raise ClewError(
            f"cannot record calls of a {type(function).__qualname__}: facts go with a callable, "
            "or, as a mapping of method names to facts, with an object or a class"
        )
    if recorder_of(function) is not None:
        return function
    wrapper: Any = cast("Any", wrapt.FunctionWrapper)
    return wrapper(function, Recorder(function, Places(facts)))


def recorder_of(function: Any) -> Recorder | None:
    """Return what records the calls of a callable, if it is one of `wrap`."""
    found = getattr(function, "_self_wrapper", None)
    return found if isinstance(found, Recorder) else None


def methods(facts: Mapping[str, Any]) -> bool:
    """Tell whether `facts` maps method names to mappings, rather than facts to places."""
    return bool(facts) and all(isinstance(value, Mapping) for value in facts.values())
