"""A chain of providers: the next one is asked when one cannot answer.

Every provider tried is a span of its own with the round's number and its place in the chain; one
that is left out because it failed too often just now is a `decide circuit` span.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from clew import context
from clew._guard import guard
from clew.decisions import decide
from clew.pipeline import runtime as _runtime
from clew.providers import errors
from clew.providers.base import ChatRequest, ChatResponse, Provider
from clew.providers.errors import ProviderError
from clew.providers.streams import AsyncChatStream, AsyncOpened, ChatStream, Opened
from clew.rounds import Hops

THRESHOLD: Final = 5
COOLDOWN_S: Final = 30.0


class Choice(Struct, frozen=True, kw_only=True):
    """A provider of a chain, and the model that is asked for there."""

    provider: Provider
    model: str | None = None
    """None: the model that the request names."""
    name: str | None = None
    """What a chain calls it by; by default where it sends and the model."""
    active: bool = True


class Attempt(Struct, frozen=True, kw_only=True):
    """One try of a chain, as far as it is told."""

    provider: str
    model: str
    failure_class: str
    status: int | None = None


class FallbackError(ProviderError):
    """Every provider of a chain failed. The class is that of the last try.

    Attributes:
        attempts: the tries in order, those left out by their circuit included.
    """

    def __init__(self, last: ProviderError, attempts: Sequence[Attempt]) -> None:
        tried = ", ".join(f"{one.provider} {one.failure_class}" for one in attempts)
        super().__init__(
            last.failure_class,
            f"was the last of {len(attempts)} providers that failed: {tried}",
            provider=last.provider,
            model=last.model,
            status=last.status,
            retry_after=last.retry_after,
            raw=last.raw,
        )
        self.attempts = tuple(attempts)


class Circuits:
    """Circuit breakers, one for each provider and model.

    After `threshold` failures in a row a circuit is open for `cooldown_s`; then one call may try
    each such time until one succeeds. Safe to share between threads and chains.

    Args:
        threshold: failures in a row.
        cooldown_s: seconds.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        *,
        threshold: int = THRESHOLD,
        cooldown_s: float = COOLDOWN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._threshold = threshold
        self._cooldown_s = cooldown_s
        self._clock = clock
        self._failures: dict[tuple[str, str], int] = {}
        self._closed_until: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    def allows(self, identity: str, model: str) -> bool:
        """Tell whether a call may be tried now; taking the one trial of an open circuit."""
        key = (identity, model)
        with self._lock:
            until = self._closed_until.get(key)
            if until is None:
                return True
            now = self._clock()
            if now < until:
                return False
            self._closed_until[key] = now + self._cooldown_s
            return True

    def settle(self, identity: str, model: str, error: ProviderError | None) -> None:
        """Take note of how a call ended."""
        key = (identity, model)
        with self._lock:
            if error is None:
                self._failures.pop(key, None)
                self._closed_until.pop(key, None)
            elif error.failure_class in errors.TRIPPING:
                failures = self._failures[key] = self._failures.get(key, 0) + 1
                if failures >= self._threshold:
                    self._closed_until[key] = self._clock() + self._cooldown_s


class _Hop(NamedTuple):
    provider: Provider
    request: ChatRequest


class _Turn:
    """One call of a chain: which provider is next, and what became of the last."""

    def __init__(
        self, chain: FallbackProvider, request: ChatRequest, given: Hops | None = None
    ) -> None:
        self._circuits = chain.circuits
        self._choices = chain.choices(request)
        born, watch = (None, None) if given is None else (given.born, given.watch)
        self.hops = Hops(errors.of_ending, 0, born=born, watch=watch)
        self._attempts: list[Attempt] = []
        self._last: ProviderError | None = None

    def __iter__(self) -> Iterator[_Hop]:
        for place, (provider, request) in enumerate(self._choices):
            if not self._circuits.allows(provider.identity, request.model):
                decide("circuit", "deny", reason="circuit_open", subject=request.model)
                self._note(
                    ProviderError(
                        "circuit_open",
                        "was not tried: it failed too often just now",
                        provider=provider.name,
                        model=request.model,
                    )
                )
                continue
            if place:
                _count(self._choices[place - 1].provider)
            self.hops.index = place
            yield _Hop(provider, request)

    def _note(self, error: ProviderError) -> None:
        self._last = error
        self._attempts.append(
            Attempt(
                provider=error.provider,
                model=error.model or "",
                failure_class=error.failure_class,
                status=error.status,
            )
        )

    def settle(self, hop: _Hop, error: ProviderError | None) -> None:
        """Take note of how a try ended, for its circuit."""
        self._circuits.settle(hop.provider.identity, hop.request.model, error)

    def failed(self, hop: _Hop, error: ProviderError) -> None:
        """Take note of a failed try; raise what no other provider would mend."""
        self.settle(hop, error)
        if not error.retryable:
            raise error
        self._note(error)

    def exhausted(self) -> ProviderError:
        """Return what is raised when nobody answered."""
        assert self._last is not None  # noqa: S101 - there is always a first choice
        if len(self._choices) == 1:
            return self._last
        return FallbackError(self._last, self._attempts)


def _count(failed: Provider) -> None:
    """Count a move to the next provider."""
    runtime = _runtime.get()
    if runtime is not None and runtime.metrics is not None:
        with guard("count a fallback"):
            node = context.current_node()
            agent = node.agent if node is not None else None
            runtime.metrics.fell_back(agent, failed.semconv_name)


class FallbackProvider(Provider):
    """A chain of providers that is a provider itself.

    A chain is shallow: of a choice that is a chain, only its first counts. Choices that are the
    first one again, or not found, or not active, are passed over.

    Args:
        first: the first choice.
        others: the next ones, in order; a name is looked up with `find` for each call.
        find: finds a choice by its name, None where there is none.
        circuits: circuit breakers to be shared with other chains; its own when it is None.
    """

    def __init__(
        self,
        first: Choice | Provider,
        *others: Choice | Provider | str,
        find: Callable[[str], Choice | None] | None = None,
        circuits: Circuits | None = None,
    ) -> None:
        self.first = first if isinstance(first, Choice) else Choice(provider=first)
        self._others = others
        self._find = find
        self.circuits = circuits or Circuits()
        self.name = self.first.provider.name
        self.semconv_name = self.first.provider.semconv_name

    @property
    def identity(self) -> str:
        """That of the first choice."""
        return self.first.provider.identity

    def choices(self, request: ChatRequest) -> list[_Hop]:
        """Return what is to be tried for a request, in order."""
        found = [_flat(self.first)]
        for other in self._others:
            choice: Choice | None = None
            if isinstance(other, Choice):
                choice = other
            elif isinstance(other, Provider):
                choice = Choice(provider=other)
            elif self._find is not None:
                choice = self._find(other)
            if choice is not None and choice.active:
                found.append(_flat(choice))
        seen: set[str] = set()
        hops: list[_Hop] = []
        for choice in found:
            model = choice.model or request.model
            name = choice.name or f"{choice.provider.identity} {model}"
            if name not in seen:
                seen.add(name)
                hops.append(_Hop(choice.provider, replace(request, model=model)))
        return hops

    def wire_body(self, request: ChatRequest, *, stream: bool = False) -> bytes:
        """Return the body that the first choice would be sent."""
        first = self.choices(request)[0]
        return first.provider.wire_body(first.request, stream=stream)

    def chat(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatResponse:
        """Ask one provider after the other until one answers."""
        turn = _Turn(self, request, hops)
        for hop in turn:
            try:
                answer = hop.provider.chat(hop.request, hops=turn.hops)
            except ProviderError as error:
                turn.failed(hop, error)
            else:
                turn.settle(hop, None)
                return answer
        raise turn.exhausted()

    async def achat(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatResponse:
        """Ask one provider after the other until one answers."""
        turn = _Turn(self, request, hops)
        for hop in turn:
            try:
                answer = await hop.provider.achat(hop.request, hops=turn.hops)
            except ProviderError as error:
                turn.failed(hop, error)
            else:
                turn.settle(hop, None)
                return answer
        raise turn.exhausted()

    def stream(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatStream:
        """Return the stream of the first provider that begins one; later failures are raised."""
        return ChatStream(lambda: self._open(request, hops))

    def astream(self, request: ChatRequest, *, hops: Hops | None = None) -> AsyncChatStream:
        """Return the stream of the first provider that begins one; later failures are raised."""
        return AsyncChatStream(lambda: self._aopen(request, hops))

    def _open(self, request: ChatRequest, hops: Hops | None) -> Opened:
        turn = _Turn(self, request, hops)
        for hop in turn:
            try:
                opened = hop.provider.stream(hop.request, hops=turn.hops).opened()
            except ProviderError as error:
                turn.failed(hop, error)
            else:
                return opened._replace(settle=_settling(turn, hop))
        raise turn.exhausted()

    async def _aopen(self, request: ChatRequest, hops: Hops | None) -> AsyncOpened:
        turn = _Turn(self, request, hops)
        for hop in turn:
            try:
                opened = await hop.provider.astream(hop.request, hops=turn.hops).opened()
            except ProviderError as error:
                turn.failed(hop, error)
            else:
                return opened._replace(settle=_settling(turn, hop))
        raise turn.exhausted()

    def close(self) -> None:
        """Close the connections of every provider of the chain."""
        for provider in self.providers():
            provider.close()

    async def aclose(self) -> None:
        """Close the connections of every provider of the chain on the running loop."""
        for provider in self.providers():
            await provider.aclose()

    def providers(self) -> list[Provider]:
        """Return every provider of the chain; those that are looked up by name are not known."""
        given: list[Any] = [self.first, *self._others]
        found = [one.provider if isinstance(one, Choice) else one for one in given]
        return [one for one in found if isinstance(one, Provider)]


def _settling(turn: _Turn, hop: _Hop) -> Callable[[ProviderError | None], None]:
    return lambda error: turn.settle(hop, error)


def _flat(choice: Choice) -> Choice:
    """Return a choice that is no chain."""
    while isinstance(choice.provider, FallbackProvider):
        inner = choice.provider.first
        choice = replace(choice, provider=inner.provider, model=choice.model or inner.model)
    return choice
