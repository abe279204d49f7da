"""What a surface is: all public methods of one SDK, and what is known of each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from clew.testing import ScriptedProvider, WireFormat
from clew.testing.provider import FORMATS

ASK = [{"role": "user", "content": "zqmark"}]
AUDIO = ("a.wav", b"zqmark", "audio/wav")
IMAGE = ("a.png", b"zqmark", "image/png")

JOBS = "jobs whose results come later and elsewhere"
AGENTS = "the provider runs the agent; its model calls are not on this wire"
SOCKETS = "web sockets: one connection carries a conversation, no request is a call"
VERDICTS = "verdicts about an input, in a format of their own"


@dataclass(frozen=True, kw_only=True)
class Surface:
    """The public methods of one SDK's clients, by their dotted names.

    An asynchronous twin that has a name of its own (`complete_async`) goes by the name of the
    blocking one.
    """

    sdk: str
    client: Callable[[ScriptedProvider, bool], Any]
    """Makes a client (or what gives one when awaited): of which server, and whether async."""
    names: Callable[[Any, bool], Iterator[str]]
    """Gives the names of all methods of a client."""
    listened: dict[str, tuple[str, dict[str, Any]]]
    """Methods that make one model call: the operation of its span, and what the call needs."""
    unheard: dict[str, tuple[str, ...]]
    """What reaches a model and is not listened to, by the reason."""
    no_model: tuple[str, ...]
    """What keeps, lists or administers things."""
    only: dict[str, bool] = field(default_factory=dict[str, bool])
    """Methods that only the asynchronous client (True) or only the blocking one (False) has."""
    provider: str | None = None
    """The name of the provider, where the paths alone do not tell."""
    formats: tuple[WireFormat, ...] = FORMATS

    def method(self, client: Any, name: str, asynchronous: bool) -> Any:
        """Return a method by its dotted name."""
        found = self.root(client, asynchronous)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def has(self, name: str, asynchronous: bool) -> bool:
        """Tell whether the blocking client or the asynchronous one has a method."""
        return self.only.get(name, asynchronous) is asynchronous

    def root(self, client: Any, asynchronous: bool) -> Any:
        """Return that from which the names go out."""
        return getattr(client, "aio", client) if asynchronous else client


def stands_in(name: str, lists: tuple[str, ...]) -> bool:
    """Tell whether a name, or what it is a part of, stands in a list."""
    return any(name == entry or name.startswith(f"{entry}.") for entry in lists)


def below(
    owner: Any, prefix: str = "", *, packages: tuple[str, ...], skip: set[str]
) -> Iterator[str]:
    """Give the names of the methods of an object of one of these packages, and of those in it."""
    for name in sorted(dir(owner)):
        if name.startswith(("_", "with_")) or name in skip:
            continue
        inner = getattr(owner, name)
        if isinstance(inner, type):
            continue
        if inspect.isroutine(inner):
            yield prefix + name.removesuffix("_async")
        elif type(inner).__module__.startswith(packages) and hasattr(inner, "__dict__"):
            yield from below(inner, f"{prefix}{name}.", packages=packages, skip=skip)


async def read(result: Any) -> None:
    """Wait for a result, and read what it gives, whichever way that is."""
    if inspect.isawaitable(result):
        result = await result
    if hasattr(result, "until_done"):
        result = result.until_done()
        if inspect.isawaitable(result):
            await result
    elif type(result).__name__.endswith("StreamManager"):
        await _entered(result)
    elif isinstance(result, dict):
        for value in result.values():
            if type(value).__name__ in ("EventStream", "AioEventStream"):
                await read(value)
            elif hasattr(value, "read"):
                await read(value.read())
    elif hasattr(result, "__aiter__"):
        async for _ in result:
            pass
    elif hasattr(result, "__next__") or "Stream" in type(result).__name__:
        for _ in result:
            pass


async def _entered(manager: Any) -> None:
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            _ = [event async for event in stream]
    else:
        with manager as stream:
            _ = list(stream)
