"""The tap on a callable of your own: an in-house provider's function, method or class.

Each call is one round; what it is known by comes from a mapping, `facts`: fact name to where it
stands (see `clew.taps.places`). A place is a path (names joined by dots: attributes, keys,
indices) or a function. What is said about the request is looked up among the arguments, by name
(`model`, `self.model`); the rest in the result, or, when the result is a stream, in each of its
items. Requests that the callable sends are part of its round, not rounds of their own.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

import wrapt
from opentelemetry import context as otel_context
from opentelemetry.context import Context

from clew import captured, context, exchange, semconv
from clew._guard import guard, record_failure
from clew.dialects._unknown import unknown
from clew.endings import Ending
from clew.errors import ClewError
from clew.exchange import Target
from clew.facts import RequestFacts
from clew.governance import passages
from clew.governance.passages import Passage
from clew.pipeline import runtime as _runtime
from clew.pipeline.runtime import Runtime
from clew.prompts.registry import known
from clew.rounds import Round
from clew.rules import OTHER
from clew.spans import allowed, is_cancellation
from clew.taps.items import AsyncItems, Follower, Opened, SyncItems
from clew.taps.places import Gathered, Places
from clew.tools import canonical
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
        runtime = _runtime.get()
        if not self.active or runtime is None:
            return wrapped(*args, **kwargs)
        call = _Call(self, runtime, self._arguments(instance, args, kwargs))
        if inspect.iscoroutinefunction(wrapped):
            return self._await(call, wrapped, args, kwargs)
        if inspect.isgeneratorfunction(wrapped) or inspect.isasyncgenfunction(wrapped):
            # Its body runs when it is iterated over, and not before.
            admission = None if runtime.governor is None else call
            gathered = self.places.gather()
            stream = wrapped(*args, **kwargs)
            return self._stream(stream, call.open, gathered, call, admission=admission)
        call.admit()
        opened = call.open()
        if opened is None:
            return call.look_at(wrapped(*args, **kwargs))
        token = context.attach(opened.inner)
        try:
            result = wrapped(*args, **kwargs)
        except BaseException as error:
            _failed(opened, error)
            raise
        finally:
            context.detach(token)
        if inspect.isawaitable(result):
            return self._settle(call, opened, result)
        return call.look_at(self._answered(call, opened, result))

    async def _await(
        self, call: _Call, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        await call.aadmit()
        opened = call.open()
        if opened is None:
            return await call.alook_at(await wrapped(*args, **kwargs))
        return await self._settle(call, opened, wrapped(*args, **kwargs))

    async def _settle(self, call: _Call, opened: Opened, result: Any) -> Any:
        token = context.attach(opened.inner)
        try:
            result = await result
        except BaseException as error:
            _failed(opened, error)
            raise
        finally:
            context.detach(token)
        return await call.alook_at(self._answered(call, opened, result))

    def _arguments(
        self, instance: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        given = dict(zip(self._names, args, strict=False))
        return {"self": instance, **self._defaults, **given, **kwargs}

    @property
    def target(self) -> Target:
        """What the callable stands for."""
        return Target(self._route, self._born, propagates=False)

    def opened(
        self, runtime: Runtime, request: RequestFacts, arguments: Mapping[str, Any]
    ) -> Opened:
        """Open a round."""
        started = time.perf_counter_ns()
        round_ = Round(self._route, request, grouped=True, resend=0)
        born = self._born
        if known and (text := self.places.system_text(arguments)):
            born = exchange.with_prompt(runtime, round_, born, text)
        round_.open(runtime, born, None)
        if runtime.capturing:
            round_.capture(runtime, None)
            if round_.content is not None:
                round_.content.called_with(arguments, self.places.system_text(arguments))
        round_.attempts = 1
        outer: Context = otel_context.get_current()
        return Opened(runtime, round_, exchange.covered_by(round_, outer), started)

    def _answered(self, call: _Call, opened: Opened, result: Any) -> Any:
        """Take note of a result: end the round, or follow the stream that it is."""
        try:
            gathered = self.places.gather()
            wanted = self.places.stream
            if isinstance(wanted, str):
                gathered.take(result)
                call.streams = True
                return self._stream_inside(call, opened, result, wanted, gathered)
            if wanted or (wanted is None and _is_stream(result)):
                call.streams = True
                return self._stream(result, lambda: opened, gathered, call, begun=True)
            gathered.take(result)
            if opened.round.content is not None:
                opened.round.content.returned(result)
            opened.round.finish(Ending(response=gathered.facts(complete=True)))
        except Exception:
            record_failure("look at a result")
        return result

    def _stream(
        self,
        stream: Any,
        start: Callable[[], Opened | None],
        gathered: Gathered,
        call: _Call,
        *,
        begun: bool = False,
        admission: _Call | None = None,
    ) -> Any:
        holder = None if call.runtime.governor is None else call
        follower = Follower(start, gathered.take, gathered.facts, admission, holder)
        if begun:
            follower.begin()
        asynchronous = hasattr(stream, "__anext__") or hasattr(stream, "__aiter__")
        if not asynchronous and not hasattr(stream, "__iter__"):
            asynchronous = hasattr(stream, "__aenter__")
        return (AsyncItems if asynchronous else SyncItems)(stream, follower)

    def _stream_inside(
        self, call: _Call, opened: Opened, result: Any, name: str, gathered: Gathered
    ) -> Any:
        """Follow a stream that is an attribute or a key of the result."""
        keyed: dict[str, Any] | None = None
        if isinstance(result, dict):
            keyed = result = cast("dict[str, Any]", result)
        inside = getattr(result, name, None) if keyed is None else keyed.get(name)
        if inside is None:
            call.streams = False
            opened.round.finish(Ending(response=gathered.facts(complete=True)))
            return result
        stream = self._stream(inside, lambda: opened, gathered, call, begun=True)
        if keyed is None:
            setattr(result, name, stream)
        else:
            keyed[name] = stream
        return result


class _Call:
    """One call of a recorded callable: the gates in front of it and behind it, and its round."""

    def __init__(self, recorder: Recorder, runtime: Runtime, arguments: dict[str, Any]) -> None:
        self._recorder = recorder
        self.runtime = runtime
        self._arguments = arguments
        self._request: RequestFacts | None = None
        self._passage: Passage | None = None
        self.streams = False
        """Whether the result is a stream, or has one."""

    def admit(self) -> None:
        """Ask the gates whether the call may be made.

        Raises:
            PolicyDenied: a gate denies it; the callable is not called.
            ApprovalRequired: a gate wants an approval first.
        """
        runtime = self.runtime
        if runtime.governor is not None:
            target, (request, given) = self._recorder.target, self._asked()
            self._passage = passages.before_call(runtime, target, request, given)

    async def aadmit(self) -> None:
        """Do what `admit` does, in asynchronous code."""
        runtime = self.runtime
        if runtime.governor is not None:
            target, (request, given) = self._recorder.target, self._asked()
            self._passage = await passages.abefore_call(runtime, target, request, given)

    def _asked(self) -> tuple[RequestFacts, bytes | None]:
        self._request = self._recorder.places.request(self._arguments)
        arguments = {name: each for name, each in self._arguments.items() if name != "self"}
        return self._request, _json(arguments)

    def open(self) -> Opened | None:
        """Open the round."""
        opened = None
        with guard("look at a call"):
            request = self._request or self._recorder.places.request(self._arguments)
            opened = self._recorder.opened(self.runtime, request, self._arguments)
        if self._passage is not None:
            round_ = None if opened is None else opened.round
            passages.after_begin(self.runtime, self._passage, round_)
        return opened

    def look_at(self, result: Any) -> Any:
        """Ask the gates about a result; return it. A stream is looked at when it is read.

        Raises:
            PolicyDenied: a gate denies it.
            ApprovalRequired: a gate wants an approval first.
        """
        passage, runtime = self._passage, self.runtime
        if passage is None or self.streams or not passages.wants_answer(runtime, passage):
            return result
        passages.after_answer(runtime, passage, _json(result), retried=True, redact=False)
        return result

    async def alook_at(self, result: Any) -> Any:
        """Do what `look_at` does, in asynchronous code."""
        passage, runtime = self._passage, self.runtime
        if passage is None or self.streams or not passages.wants_answer(runtime, passage):
            return result
        await passages.aafter_answer(runtime, passage, _json(result), retried=True, redact=False)
        return result

    def holds(self) -> bool:
        """Tell whether a gate that is enforced wants to look at a stream."""
        return self._passage is not None and passages.holds(self.runtime, self._passage)

    def look(self, items: list[Any]) -> None:
        """Ask the gates about a stream that is there as a whole."""
        if self._passage is not None:
            body = _of_items(items)
            passages.after_answer(self.runtime, self._passage, body, retried=True, redact=False)

    async def alook(self, items: list[Any]) -> None:
        """Do what `look` does, in asynchronous code."""
        if self._passage is not None:
            body, passage = _of_items(items), self._passage
            await passages.aafter_answer(self.runtime, passage, body, retried=True, redact=False)


def _of_items(items: list[Any]) -> bytes | None:
    """Return the items of a stream as lines of JSON; None where one has no such form."""
    lines = [_json(item) for item in items]
    if None in lines:
        return None
    return b"\n".join(b'{"item":%b}' % line for line in lines if line is not None)


def _json(value: Any) -> bytes | None:
    with guard("write a call as JSON"):
        if isinstance(value, str):
            return json.dumps(value).encode()
        if hasattr(value, "model_dump"):
            value = value.model_dump()
        found = canonical(captured.plain(value))
        if found is None and hasattr(value, "__dict__"):
            found = canonical(captured.plain(vars(value)))
        return found
    return None


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
