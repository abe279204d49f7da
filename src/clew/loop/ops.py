"""What a run of the loop does to the world, each in two forms: `do` and, awaited, `ado`.

The run itself is one generator that yields these; so sync and async code go through the same steps.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, TypeVar

from clew._guard import guard
from clew.errors import ConfigurationError
from clew.governance.governor import TOOL_KINDS, Governor, Result, governor_of
from clew.governance.passages import acheck_turn, check_turn
from clew.loop import calls
from clew.loop.calls import Done, Hooks, Planned
from clew.loop.chain import http_providers
from clew.loop.tools import Tool
from clew.pipeline import runtime as _runtime
from clew.pricing import Prices
from clew.providers.base import ChatRequest, ChatResponse, Provider, StreamEvent
from clew.providers.http import HttpProvider
from clew.rounds import Hops
from clew.taps import httpx as tap
from clew.typing import Gate, PendingCall, Proposal

T = TypeVar("T")
NOTHING: Final[frozenset[str]] = frozenset()


class Ended(Exception):  # noqa: N818 - how a run ends, not a fault
    """The run ends here, for a reason that is no fault."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Op(ABC):
    """One thing to be done."""

    @abstractmethod
    def do(self) -> Any:
        """Do it."""

    async def ado(self) -> Any:
        """Do it, in asynchronous code."""
        return self.do()


Walk = Generator[Op, Any, T]


def drive(walk: Walk[T]) -> T:
    """Do what a walk wants, until it has a result."""
    try:
        op = next(walk)
        while True:
            try:
                answer = op.do()
            except BaseException as error:
                op = walk.throw(error)
            else:
                op = walk.send(answer)
    except StopIteration as stop:
        return stop.value
    finally:
        walk.close()


async def adrive(walk: Walk[T]) -> T:
    """Do what a walk wants, in asynchronous code."""
    try:
        op = next(walk)
        while True:
            try:
                answer = await op.ado()
            except BaseException as error:
                op = walk.throw(error)
            else:
                op = walk.send(answer)
    except StopIteration as stop:
        return stop.value
    finally:
        walk.close()


class Ask(Op):
    """Ask the model."""

    def __init__(self, provider: Provider, request: ChatRequest, hops: Hops) -> None:
        self._provider = provider
        self._request = request
        self._hops = hops

    def do(self) -> ChatResponse:
        """Ask, and wait for the whole answer."""
        return self._provider.chat(self._request, hops=self._hops)

    async def ado(self) -> ChatResponse:
        """Ask, and wait for the whole answer."""
        return await self._provider.achat(self._request, hops=self._hops)


class AskStreamed(Op):
    """Ask the model for a stream, and read it to its end.

    Attributes:
        text: what had come when it ended early.
    """

    def __init__(
        self,
        provider: Provider,
        request: ChatRequest,
        hops: Hops,
        *,
        heard: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._provider = provider
        self._request = request
        self._hops = hops
        self._heard = heard
        self._stopped = stopped
        self.text = ""

    def do(self) -> ChatResponse:
        """Ask, and read.

        Raises:
            Ended: the run was cancelled meanwhile.
        """
        with self._provider.stream(self._request, hops=self._hops) as stream:
            for event in stream:
                self._take(event)
        return _whole(stream.response)

    async def ado(self) -> ChatResponse:
        """Ask, and read."""
        async with self._provider.astream(self._request, hops=self._hops) as stream:
            async for event in stream:
                self._take(event)
        return _whole(stream.response)

    def _take(self, event: StreamEvent) -> None:
        if event.kind == "text":
            self.text += event.text
            self._heard(event.text)
        if event.kind != "end" and self._stopped():
            raise Ended("cancelled")


def _whole(answer: ChatResponse | None) -> ChatResponse:
    assert answer is not None  # noqa: S101 - a stream without its end raises
    return answer


class CheckTurn(Op):
    """Find out whether the calls of a turn need an approval."""

    def __init__(self, turn: Sequence[PendingCall]) -> None:
        self._turn = turn

    def do(self) -> None:
        """Raise `ApprovalRequired` if one does."""
        check_turn(self._turn)

    async def ado(self) -> None:
        """Raise `ApprovalRequired` if one does."""
        await acheck_turn(self._turn)


class ExecuteAll(Op):
    """Execute the tool calls of a turn."""

    def __init__(
        self,
        turn: Sequence[Planned],
        run_id: str,
        hooks: Hooks,
        *,
        workers: int,
        stopped: Callable[[], bool],
    ) -> None:
        self._turn = turn
        self._run_id = run_id
        self._hooks = hooks
        self._workers = workers
        self._stopped = stopped

    def do(self) -> list[Done]:
        """Execute them; return what became of those that were."""
        return calls.execute_all(
            self._turn, self._run_id, self._hooks, workers=self._workers, stopped=self._stopped
        )

    async def ado(self) -> list[Done]:
        """Execute them; return what became of those that were."""
        return await calls.aexecute_all(
            self._turn, self._run_id, self._hooks, workers=self._workers, stopped=self._stopped
        )


# --- gates ---------------------------------------------------------------------------------------


def governor() -> Governor | None:
    """Return who asks the gates; None where nobody does."""
    runtime = _runtime.get()
    return None if runtime is None or runtime.governor is None else governor_of(runtime)


class Offer(Op):
    """Find out which tools may be offered; those that may not leave a decision."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools

    def do(self) -> frozenset[str]:
        """Return the names of those that may be."""
        asked = governor()
        if asked is None:
            return frozenset(tool.name for tool in self._tools)
        return frozenset(
            tool.name
            for tool, proposal, gates in self._proposals(asked)
            if _allowed(asked, asked.ask(proposal, gates, TOOL_KINDS, redact=False, only=NOTHING))
        )

    async def ado(self) -> frozenset[str]:
        """Return the names of those that may be."""
        asked = governor()
        if asked is None:
            return frozenset(tool.name for tool in self._tools)
        permitted: set[str] = set()
        for tool, proposal, gates in self._proposals(asked):
            result = await asked.aask(proposal, gates, TOOL_KINDS, redact=False, only=NOTHING)
            if _allowed(asked, result):
                permitted.add(tool.name)
        return frozenset(permitted)

    def _proposals(self, asked: Governor) -> list[tuple[Tool, Proposal, list[Gate]]]:
        found: list[tuple[Tool, Proposal, list[Gate]]] = []
        for tool in self._tools:
            call = PendingCall(name=tool.name, effect=tool.effect)
            proposal, gates = asked.of_tool(call, (call,), executing=False)
            found.append(
                (tool, proposal, [one for one in gates if getattr(one, "looks_at_offers", False)])
            )
        return found


def _allowed(asked: Governor, result: Result) -> bool:
    """Tell whether a tool may be offered; record the decisions where a gate says no."""
    if any(step.verdict.outcome == "deny" for step in result.steps):
        asked.conclude(result)
    stopped = result.stopped is not None and result.stopped.verdict.outcome == "deny"
    asked.release(result)
    return not stopped


class Approvals(Op):
    """Find out what was decided about the calls of a turn that had to wait; records nothing."""

    def __init__(self, turn: Sequence[PendingCall]) -> None:
        self._turn = turn

    def do(self) -> tuple[bool, str | None] | None:
        """Return whether all were approved, and by whom; None where nothing was decided."""
        asked = governor()
        if asked is None:
            return None
        results: list[Result] = []
        for call in self._turn:
            proposal, gates = asked.of_tool(call, tuple(self._turn), executing=False)
            results.append(asked.ask(proposal, gates, TOOL_KINDS, redact=False, only=NOTHING))
        return _decided(asked, results)

    async def ado(self) -> tuple[bool, str | None] | None:
        """Return whether all were approved, and by whom; None where nothing was decided."""
        asked = governor()
        if asked is None:
            return None
        results: list[Result] = []
        for call in self._turn:
            proposal, gates = asked.of_tool(call, tuple(self._turn), executing=False)
            results.append(
                await asked.aask(proposal, gates, TOOL_KINDS, redact=False, only=NOTHING)
            )
        return _decided(asked, results)


def _decided(asked: Governor, results: Sequence[Result]) -> tuple[bool, str | None] | None:
    verdicts = [step.verdict for result in results for step in result.steps]
    for result in results:
        asked.release(result)
    found = [one for one in verdicts if one.reason in ("approved", "approval_denied")]
    if not found:
        return None
    approved = all(one.reason == "approved" for one in found)
    return approved, next((one.actor for one in found if one.actor is not None), None)


class Listening(Op):
    """Refuse to begin where there are gates that nobody would ask.

    Raises:
        ConfigurationError: Clew is not configured, or does not listen to the provider's client.
    """

    def __init__(self, provider: Provider, *, governed: bool) -> None:
        self._provider = provider
        self._governed = governed

    def do(self) -> None:
        """Look at the clients of synchronous calls."""
        if self._is_governed():
            _insist((one, one.client()) for one in http_providers(self._provider))

    async def ado(self) -> None:
        """Look at the clients of asynchronous calls."""
        if self._is_governed():
            _insist((one, one.async_client()) for one in http_providers(self._provider))

    def _is_governed(self) -> bool:
        found = governor() is not None
        if self._governed and not found:
            raise ConfigurationError(
                "the loop has gates, and nobody would ask them: call clew.configure() first"
            )
        return found


def _insist(clients: Iterable[tuple[HttpProvider, Any]]) -> None:
    unheard = [one.name for one, client in clients if not tap.listens(client)]
    if unheard:
        raise ConfigurationError(
            "gates are configured, and nobody would ask them about calls to "
            f"{', '.join(unheard)}: call clew.instrument() first"
        )


# --- context lengths -----------------------------------------------------------------------------

_own_prices: list[Prices] = []


def prices() -> Prices:
    """Return the prices of the configured Clew, else those of this module, loaded when needed."""
    runtime = _runtime.get()
    if runtime is not None:
        return runtime.prices
    if not _own_prices:
        _own_prices.append(Prices())
    return _own_prices[0]


class ContextLength(Op):
    """Look up the context length of models, in the price data."""

    def __init__(self, models: Sequence[tuple[str | None, str]]) -> None:
        self._models = models

    def do(self) -> int | None:
        """Return the smallest that is known."""
        found: list[int | None] = []
        with guard("look up a context length"):
            known = prices()
            found += [known.context_length(*model) for model in self._models]
        return min((one for one in found if one), default=None)

    async def ado(self) -> int | None:
        """Return the smallest that is known; the price library may have to be loaded first."""
        loaded = False
        with guard("look up a context length"):
            loaded = prices().loaded
        return self.do() if loaded else await asyncio.to_thread(self.do)
