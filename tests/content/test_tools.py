"""Arguments and results of tool calls on their spans, when asked for."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import clew
from clew.testing import CaptureExporter, captured

SPANS: Any = frozenset({"spans"})
SECRET = "ghp_zqsecretzqsecret1234"


@dataclass
class Place:
    """A value that a tool may be given."""

    name: str
    rank: int = 1


class Opaque:
    """A value without a form in JSON, whose text says too much."""

    def __repr__(self) -> str:
        return SECRET


@clew.tool("look-up")
def look_up(place: Any, *, limit: int = 3) -> Any:
    """Return what it was given."""
    return {"found": place, "limit": limit}


@clew.tool("look-up-later")
async def look_up_later(place: Any) -> str:
    """Return a text that is JSON."""
    return json.dumps({"found": place})


@clew.tool("pieces")
def pieces(place: str) -> Iterator[str]:
    """Give a text in pieces."""
    yield place


@clew.tool("pieces-later")
async def pieces_later(place: str) -> AsyncIterator[str]:
    """Give a text in pieces."""
    yield place


def content(exporter: CaptureExporter, name: str) -> tuple[Any, Any]:
    attributes = exporter.by_name(f"execute_tool {name}")[-1].attributes or {}
    held = [attributes.get(f"gen_ai.tool.call.{each}") for each in ("arguments", "result")]
    return tuple(None if each is None else json.loads(str(each)) for each in held)  # type: ignore[return-value]


async def test_every_kind_of_tool_shows_what_it_takes_and_gives() -> None:
    """Functions and coroutines give a result, generators the items that they have given."""
    with captured(instrument=False, capture="full", content_to=SPANS) as exporter:
        assert {"found": Place("x"), "limit": 5} == look_up(Place("x"), limit=5)
        expected = {"place": {"name": "x", "rank": 1}, "limit": 5}
        assert (expected, {"found": expected["place"], "limit": 5}) == content(exporter, "look-up")
        await look_up_later("x")
        assert ({"place": "x"}, {"found": "x"}) == content(exporter, "look-up-later")
        assert ["x"] == list(pieces("x"))
        assert ({"place": "x"}, ["x"]) == content(exporter, "pieces")
        assert ["x"] == [one async for one in pieces_later("x")]
        assert ({"place": "x"}, ["x"]) == content(exporter, "pieces-later")


async def test_a_generator_that_is_left_shows_what_it_gave() -> None:
    """Items up to where its caller went away, and never more than a bound."""

    @clew.tool("endless")
    def endless() -> Iterator[str]:
        yield from map(str, range(10**9))

    @clew.tool("endless-later")
    async def endless_later() -> AsyncIterator[str]:
        for number in range(10**9):
            yield str(number)

    with captured(instrument=False, capture="full", content_to=SPANS) as exporter:
        running = endless()
        assert [next(running), next(running)] == ["0", "1"]
        running.close()  # type: ignore[attr-defined]
        assert ({}, ["0", "1"]) == content(exporter, "endless")
        later = endless_later()
        assert [await anext(later), await anext(later)] == ["0", "1"]
        await later.aclose()  # type: ignore[attr-defined]
        assert ({}, ["0", "1"]) == content(exporter, "endless-later")
        for number in endless():
            if number == "1500":
                break
        _, result = content(exporter, "endless")
        assert [str(number) for number in range(1000)] == result


def test_a_block_shows_what_it_is_told() -> None:
    """`arguments` when it begins, `result` before it ends."""
    with captured(instrument=False, capture="full", content_to=SPANS) as exporter:
        with clew.tool("block", arguments='{"a": 1}') as call:
            call.result = ["x", b"\x00\x01"]
        arguments, result = content(exporter, "block")
        assert {"a": 1} == arguments
        assert "x" == result[0]
        assert result[1].startswith("[data, 2 bytes")


def test_secrets_are_masked_and_objects_are_named_by_their_type() -> None:
    """At `redacted` as in messages; a `repr` is never asked for."""
    with captured(instrument=False, capture="redacted", content_to=SPANS) as exporter:
        look_up({"token": "short", "note": f"use {SECRET}", "odd": Opaque()})
        arguments, result = content(exporter, "look-up")
        expected = {"token": "***", "note": "use ***", "odd": "[Opaque]"}
        assert expected == arguments["place"] == result["found"]
        assert b"zqsecret" not in exporter.otlp_bytes()


@pytest.mark.parametrize("level", ["none", "metadata"])
def test_below_redacted_there_is_none(level: Any) -> None:
    """Neither arguments nor results are looked at."""
    with captured(instrument=False, capture=level, content_to=SPANS) as exporter:
        look_up("x")
        assert (None, None) == content(exporter, "look-up")


def test_the_tool_gets_and_gives_the_objects_themselves() -> None:
    """Capturing copies nothing that the tool sees, and an error passes as it is."""
    given: dict[str, Any] = {}

    @clew.tool("fails")
    def fails(place: Any) -> None:
        assert place is given
        raise KeyError("zqsecret")

    with captured(instrument=False, capture="full", content_to=SPANS) as exporter:
        found = look_up(given)
        assert found["found"] is given
        with pytest.raises(KeyError):
            fails(given)
        with pytest.raises(TypeError):
            look_up()
        assert ({"place": {}}, None) == content(exporter, "fails")
        assert b"zqsecret" not in exporter.otlp_bytes()
