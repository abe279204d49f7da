"""Streams of objects: iterators, generators and their asynchronous twins, followed to their end.

The consumer gets a proxy of the stream it would have got. The stream's own code runs in the round's
context, its consumer never does.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import wrapt
from opentelemetry.context import Context

from clew._guard import guard
from clew.context import Stepper
from clew.endings import Ending
from clew.facts import ResponseFacts
from clew.pipeline.runtime import Runtime
from clew.rounds import Round
from clew.spans import is_cancellation

_Proxy: Any = wrapt.ObjectProxy


class Opened:
    """A round that has been opened for a stream."""

    def __init__(self, runtime: Runtime, round_: Round, inner: Context, started: int) -> None:
        self.runtime = runtime
        self.round = round_
        self.inner = inner
        self.started = started
        """`time.perf_counter_ns()` when it was opened."""


class Admission(Protocol):
    """Lets a call be made, or raises."""

    def admit(self) -> None:
        """Let it, or raise."""
        ...

    async def aadmit(self) -> None:
        """Do what `admit` does, in asynchronous code."""
        ...


class Holder(Protocol):
    """Looks at a whole stream before any of it is handed out."""

    def holds(self) -> bool:
        """Tell whether it wants to; asked when the stream begins."""
        ...

    def look(self, items: list[Any]) -> None:
        """Look at the items, or raise."""
        ...

    async def alook(self, items: list[Any]) -> None:
        """Do what `look` does, in asynchronous code."""
        ...


class Follower:
    """Follows one stream of objects, and ends its round exactly once.

    Args:
        start: opens the round; called at the first step. A generator that nobody iterates over
            has called no model.
        take: takes note of an item.
        facts: returns what has been learnt, given whether the stream is complete.
        admission: who has to let the stream begin, if anybody.
        holder: who looks at the stream as a whole, if anybody.
    """

    def __init__(
        self,
        start: Callable[[], Opened | None],
        take: Callable[[Any], None],
        facts: Callable[[bool], ResponseFacts],
        admission: Admission | None = None,
        holder: Holder | None = None,
    ) -> None:
        self._holder = holder
        self._kept: deque[Any] | None = None
        self._failure: Exception | None = None
        self._admission = admission
        self._refusal: BaseException | None = None
        self._start: Callable[[], Opened | None] | None = start
        self._take = take
        self._facts = facts
        self._opened: Opened | None = None
        self._stepper: Stepper | None = None
        self._first_ns = 0
        self._idle_chunks = -1
        self._idle_since = 0.0
        self._done = False
        self.chunks = 0

    @property
    def holding(self) -> bool:
        """Whether somebody may look at the stream as a whole."""
        return self._holder is not None

    def begin(self) -> None:
        """Open the round, unless that was done."""
        start, self._start = self._start, None
        opened = start() if start is not None else None
        if opened is not None:
            self._opened = opened
            self._stepper = Stepper(opened.inner)
            opened.runtime.watch(self)

    def step(self, function: Callable[..., Any], *args: Any) -> Any:
        """Make one step of a stream: an item, or its end."""
        if self._admission is not None:
            self._admit(self._admission)
        self.begin()
        stepper = self._stepper
        if stepper is None or self._done:
            return function(*args)
        token = stepper.enter()
        try:
            item = function(*args)
        except BaseException as error:
            self._over(error)
            raise
        finally:
            stepper.leave(token)
        self._took(item)
        return item

    async def astep(self, function: Callable[..., Any], *args: Any) -> Any:
        """Make one step of an asynchronous stream."""
        if self._admission is not None:
            await self._aadmit(self._admission)
        self.begin()
        stepper = self._stepper
        if stepper is None or self._done:
            return await function(*args)
        token = stepper.enter()
        try:
            item = await function(*args)
        except BaseException as error:
            self._over(error)
            raise
        finally:
            stepper.leave(token)
        self._took(item)
        return item

    def next(self, function: Callable[[], Any]) -> Any:
        """Give the next item; where somebody looks at the stream, once it is there as a whole."""
        if self._holder is None:
            return self.step(function)
        if self._admission is not None:
            self._admit(self._admission)
        if not self._holder.holds():
            self._holder = None
            return self.step(function)
        if self._kept is None:
            self._kept = deque()
            try:
                while True:
                    self._kept.append(self.step(function))
            except StopIteration:
                pass
            except Exception as error:
                self._failure = error
            try:
                self._holder.look(list(self._kept))
            except BaseException as error:
                self._refused(error)
                raise
        return self._handed_out(StopIteration())

    async def anext(self, function: Callable[[], Any]) -> Any:
        """Do what `next` does, of an asynchronous stream."""
        if self._holder is None:
            return await self.astep(function)
        if self._admission is not None:
            await self._aadmit(self._admission)
        if not self._holder.holds():
            self._holder = None
            return await self.astep(function)
        if self._kept is None:
            self._kept = deque()
            try:
                while True:
                    self._kept.append(await self.astep(function))
            except StopAsyncIteration:
                pass
            except Exception as error:
                self._failure = error
            try:
                await self._holder.alook(list(self._kept))
            except BaseException as error:
                self._refused(error)
                raise
        return self._handed_out(StopAsyncIteration())

    def _refused(self, error: BaseException) -> None:
        self._kept = deque()
        self._refusal = error

    def _handed_out(self, end: Exception) -> Any:
        if self._refusal is not None:
            raise self._refusal
        if self._kept:
            return self._kept.popleft()
        raise self._failure or end

    def _admit(self, admission: Admission) -> None:
        """Begin only if the stream may; what was refused once stays refused."""
        if self._refusal is not None:
            raise self._refusal
        try:
            admission.admit()
        except BaseException as error:
            self._refusal = error
            raise
        self._admission = None

    async def _aadmit(self, admission: Admission) -> None:
        if self._refusal is not None:
            raise self._refusal
        try:
            await admission.aadmit()
        except BaseException as error:
            self._refusal = error
            raise
        self._admission = None

    def _took(self, item: Any) -> None:
        self.chunks += 1
        if not self._first_ns:
            self._first_ns = time.perf_counter_ns()
        self._take(item)

    def _over(self, error: BaseException) -> None:
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            self._finish("complete")
        elif isinstance(error, GeneratorExit):
            self.closed()
        elif is_cancellation(error):
            self._finish("cancelled", error)
        elif "Timeout" in type(error).__name__ or isinstance(error, TimeoutError):
            self._finish("timeout", error)
        else:
            self._finish("failed", error)

    def closed(self) -> None:
        """The caller has closed the stream."""
        passing = sys.exc_info()[1]
        if passing is not None and is_cancellation(passing):
            gone = isinstance(passing, GeneratorExit)
            self._finish("abandoned" if gone else "cancelled", None if gone else passing)
        else:
            self._finish("closed")

    def dropped(self) -> None:
        """The stream was collected. Called from a finaliser: another thread does the work."""
        opened = self._opened
        if opened is not None and not self._done:
            when = opened.round.now_ns()
            opened.runtime.worker.call_soon(lambda: self._finish("abandoned", end_ns=when))

    def check_idle(self, now: float, limit: float) -> None:
        """End the round when nothing was read for `limit` seconds (monotonic)."""
        if self.chunks != self._idle_chunks:
            self._idle_chunks = self.chunks
            self._idle_since = now
        elif now - self._idle_since >= limit:
            self._finish("held")

    def hold(self) -> None:
        """End the round of a stream that is still half-read when Clew shuts down."""
        self._finish("held")

    def failed(self, error: BaseException) -> None:
        """End the round of a stream that something from outside has ended."""
        self._finish("cancelled" if is_cancellation(error) else "failed", error)

    def _finish(
        self, outcome: str, error: BaseException | None = None, end_ns: int | None = None
    ) -> None:
        opened = self._opened
        if self._done or opened is None:
            return
        self._done = True
        opened.runtime.unwatch(self)
        with guard("finish a stream"):
            first = (self._first_ns - opened.started) / 1e9 if self._first_ns else None
            ending = Ending(
                response=self._facts(outcome == "complete"),
                error=error,
                outcome=outcome,
                chunks=self.chunks,
                first_chunk_s=first,
                end_ns=end_ns,
            )
            opened.round.finish(ending)


class Items(_Proxy):
    """A stream of objects, listened to: an iterator, an iterable or a context manager of either."""

    _self_follower: Follower
    _self_outer: Any

    def __init__(self, wrapped: Any, follower: Follower, outer: Any = None) -> None:
        _Proxy.__init__(self, wrapped)
        self._self_follower = follower
        self._self_outer = outer  # kept, so that only the collection of both is the end

    def _again(self, other: Any) -> Any:
        """Return this proxy for the stream itself, another for another stream that it gave."""
        if other is self.__wrapped__:
            return self
        return type(self)(other, self._self_follower, self)

    def __del__(self) -> None:
        if self._self_outer is None:
            with guard("drop a stream"):
                self._self_follower.dropped()


class SyncItems(Items):
    """A stream that is read with `for`."""

    def __iter__(self) -> Any:
        return self._again(iter(self.__wrapped__))

    def __next__(self) -> Any:
        return self._self_follower.next(self.__wrapped__.__next__)

    def send(self, value: Any) -> Any:
        """Send a value into a generator; one that is held back as a whole takes none."""
        if self._self_follower.holding:
            return self.__next__()
        return self._self_follower.step(self.__wrapped__.send, value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception inside a generator."""
        return self._self_follower.step(self.__wrapped__.throw, *error)

    def close(self) -> Any:
        """Close the stream."""
        with guard("end a stream"):
            self._self_follower.closed()
        return self.__wrapped__.close()

    def __enter__(self) -> Any:
        return self._again(self.__wrapped__.__enter__())

    def __exit__(self, *error: object) -> Any:
        with guard("end a stream"):
            self._self_follower.closed()
        return self.__wrapped__.__exit__(*error)


class AsyncItems(Items):
    """A stream that is read with `async for`."""

    def __aiter__(self) -> Any:
        return self._again(self.__wrapped__.__aiter__())

    async def __anext__(self) -> Any:
        return await self._self_follower.anext(self.__wrapped__.__anext__)

    async def asend(self, value: Any) -> Any:
        """Send a value into a generator; one that is held back as a whole takes none."""
        if self._self_follower.holding:
            return await self.__anext__()
        return await self._self_follower.astep(self.__wrapped__.asend, value)

    async def athrow(self, *error: Any) -> Any:
        """Raise an exception inside a generator."""
        return await self._self_follower.astep(self.__wrapped__.athrow, *error)

    async def aclose(self) -> Any:
        """Close the stream."""
        with guard("end a stream"):
            self._self_follower.closed()
        return await self.__wrapped__.aclose()

    async def __aenter__(self) -> Any:
        return self._again(await self.__wrapped__.__aenter__())

    async def __aexit__(self, *error: object) -> Any:
        with guard("end a stream"):
            self._self_follower.closed()
        return await self.__wrapped__.__aexit__(*error)
