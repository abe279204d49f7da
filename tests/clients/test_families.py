"""Which methods of the SDKs are listened to: every one stands in a list, and a new one is noticed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from either_way import settle
from surfaces import SURFACES, Surface
from surfaces.base import read, stands_in

from clew.testing import Reply, ScriptedProvider, captured

TEXT = '{"city": "zqmark", "text": "zqmark"}'


async def close(client: Any) -> None:
    """Close a client, where it can be closed."""
    for owner, name in ((client, "close"), (getattr(client, "aio", None), "aclose")):
        closing = getattr(owner, name, None)
        if callable(closing):
            await settle(closing())


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.sdk)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_every_method_stands_in_a_list(surface: Surface, asynchronous: bool):
    """A method of a newer SDK that nobody has looked at yet fails here."""
    with ScriptedProvider() as server:
        client = await settle(surface.client(server, asynchronous))
        found = set(surface.names(client, asynchronous))
        await close(client)
    unheard = tuple(name for names in surface.unheard.values() for name in names)
    known = unheard + surface.no_model
    listened = {name for name in surface.listened if surface.has(name, asynchronous)}
    assert [name for name in sorted(found - listened) if not stands_in(name, known)] == []
    assert listened - found == set()
    assert [name for name in listened if stands_in(name, known)] == []


CASES = [
    pytest.param(surface, name, asynchronous, id=f"{surface.sdk}-{name}-{kind}".replace(" ", "-"))
    for surface in SURFACES
    for name in surface.listened
    for kind, asynchronous in (("sync", False), ("async", True))
    if surface.has(name, asynchronous)
]


# The SDKs' own, of old calls and of new ones, and what botocore's body says when it is dropped.
@pytest.mark.filterwarnings(
    "ignore:.*deprecated.*:DeprecationWarning", "ignore:.*experimental.*:UserWarning",
    "ignore:unclosed:ResourceWarning", "ignore:Inheritance class:DeprecationWarning",
)  # fmt: skip
@pytest.mark.parametrize(("surface", "name", "asynchronous"), CASES)
async def test_each_call_is_one_span(surface: Surface, name: str, asynchronous: bool):
    """The method gives one span of its operation, whatever the server makes of the call."""
    operation, arguments = surface.listened[name]
    with ScriptedProvider(lambda _: Reply(text=TEXT), formats=surface.formats) as server:
        host = "{}:{}".format(*server.address)
        hosts = {host: surface.provider} if surface.provider else {}
        with captured(provider_hosts=hosts) as exporter:
            client = await settle(surface.client(server, asynchronous))
            # The scripted provider does not know every path: a 404 is an answer, too.
            with contextlib.suppress(Exception):
                await read(surface.method(client, name, asynchronous)(**arguments))
            await close(client)
            rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
            assert b"zqmark" not in exporter.otlp_bytes()
    assert [span.attributes["gen_ai.operation.name"] for span in rounds] == [operation]
