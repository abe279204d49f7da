"""What tools take and give, kept at the call: plain, bounded, quick, and no code of the host's run."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel, Field

import clew
from clew.content import snapshots
from clew.content.snapshots import taken
from clew.settings import Settings
from clew.testing import CaptureExporter, captured

MILLION = 1_000_000


class Colour(Enum):
    RED = "red"


class Rank(IntEnum):
    FIRST = 1


class Account(BaseModel):
    """A model whose one field is never to be shown."""

    name: str = "zqname"
    secret: str = Field("zqsecret", exclude=True)


@dataclass
class Place:
    name: str
    at: dt.date


class Record(msgspec.Struct):
    name: str


class Loud(dict[str, Any]):
    """A mapping whose own methods must never be asked."""

    def __iter__(self) -> Any:
        raise AssertionError("zqloud")

    items = __len__ = __getitem__ = __iter__


class LoudList(list[Any]):
    """A list whose own methods must never be asked."""

    def __iter__(self) -> Any:
        raise AssertionError("zqloud")

    __len__ = __getitem__ = __iter__


class Proxy:
    """An object that says that it is another's, and is asked by nobody."""

    @property
    def __class__(self) -> Any:
        raise AssertionError("zqloud")


class Point(NamedTuple):
    x: int
    y: int


LATER = dt.timezone(dt.timedelta(hours=2))
SAFE: list[tuple[Any, Any]] = [
    (2**70, "1180591620717411303424"),
    (math.nan, "nan"),
    (-math.inf, "-inf"),
    ("half a pair \ud83d", "half a pair ?"),
    (Decimal("0.10"), "0.10"),
    (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (Colour.RED, "red"),
    (Rank.FIRST, 1),
    ({1}, [1]),
    (frozenset({"a"}), ["a"]),
    (deque([1, 2]), [1, 2]),
    (Point(1, 2), [1, 2]),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    ({1: "a", None: "b", Colour.RED: "c", uuid.UUID(int=7): "d"},
     {"1": "a", "None": "b", "red": "c", "00000000-0000-0000-0000-000000000007": "d"}),
    (dt.datetime(2026, 8, 7, 1, 2, 3, tzinfo=LATER), "2026-08-07T01:02:03+02:00"),
    (dt.date(2026, 8, 7), "2026-08-07"),
    (dt.timedelta(seconds=90), "PT90S"),
    (Place("here", dt.date(2026, 8, 7)), {"name": "here", "at": "2026-08-07"}),
    (Record(name="a"), {"name": "a"}),
    (Account(), "[Account]"),
    (print, "[builtin_function_or_method]"),
    (Account, "[ModelMetaclass]"),
    ({Proxy: 1}, {"[type]": 1}),
    (Proxy(), "[Proxy]"),
    (Loud(a=1), {"a": 1}),
    (LoudList([1]), [1]),
    ("007", "007"),
    ("12", "12"),
    ('{"a": [1]}', {"a": [1]}),
    ([None] * 4001, {"type": "clew.omitted", "of": "list", "count": 4001}),
    (bytearray(1 << 20), {"type": "clew.omitted", "of": "bytearray", "bytes": 1 << 20}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), SAFE, ids=lambda each: type(each).__name__)
def test_each_value_has_its_form(value: Any, expected: Any) -> None:
    """As an argument, in a list, and as its entry; the JSON that leaves is strict."""
    with captured(instrument=False, capture="full", content_to=frozenset({"spans"})) as exporter:
        with clew.tool("search", arguments={"a": value, "b": [value], "c": 1}):
            pass
        (span,) = exporter.by_name("execute_tool search")
    text = str((span.attributes or {})["gen_ai.tool.call.arguments"])
    found = json.loads(text, parse_constant=pytest.fail)
    assert {"a": expected, "b": [value if value == '{"a": [1]}' else expected], "c": 1} == found


def test_bytes_leave_as_their_size_and_digest() -> None:
    """Like other media."""
    with captured(instrument=False, capture="full", content_to=frozenset({"spans"})) as exporter:
        with clew.tool("search", arguments={"a": b"\xff\x00"}):
            pass
        (span,) = exporter.by_name("execute_tool search")
    found = json.loads(str((span.attributes or {})["gen_ai.tool.call.arguments"]))
    assert found["a"].startswith("[data, 2 bytes, digest ")


def test_what_holds_itself_is_cut_where_it_comes_again() -> None:
    """In lists, mappings and records; the same value twice is no recursion."""
    endless: list[Any] = [1]
    endless.append(endless)
    assert [1, "[recursion]"] == taken(endless)
    mapping: dict[str, Any] = {"a": 1}
    mapping["self"] = {"again": mapping}
    assert {"a": 1, "self": {"again": "[recursion]"}} == taken(mapping)
    shared = [1]
    assert [[1], [1]] == taken([shared, shared])
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert json.dumps(taken(deep)).count("[") == 32 + 1  # and the name of a type


def test_arrays_of_other_libraries_tell_their_shape() -> None:
    """Of an object of a library that is known for it; of others nothing is asked."""
    numpy = pytest.importorskip("numpy")
    expected = {"type": "clew.omitted", "of": "ndarray", "shape": [1000, 1000]}
    assert expected == taken(numpy.zeros((1000, 1000)))

    class Shaped:
        @property
        def shape(self) -> Any:
            raise AssertionError("zqloud")

    assert "[Shaped]" == taken(Shaped())


async def _later() -> None:
    """Be a coroutine that nobody awaits."""


def _rows(number: int) -> list[Any]:
    return [{"id": each, "name": "x", "score": 1.5, "tags": ["a"]} for each in range(number)]


def _endless() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


UNWIELDY: dict[str, Callable[[Path], Any]] = {
    "a million numbers": lambda _: list(range(MILLION)),
    "a million texts": lambda _: dict.fromkeys(map(str, range(MILLION)), "x"),
    "a set of a million": lambda _: set(range(MILLION)),
    "rows": lambda _: _rows(50_000),
    "wide and deep": lambda _: [[[[each]] for each in range(60)] for _ in range(60)],
    "a text of 20 MB": lambda _: "x" * (20 * MILLION),
    "20 MB of bytes": lambda _: bytearray(20 * MILLION),
    "a model with an excluded field": lambda _: Account(),
    "a list that holds itself": lambda _: _endless(),
    "a file": lambda path: path.open("w"),
    "a coroutine": lambda _: _later(),
}


@pytest.mark.parametrize("level", ["metadata", "full"])
@pytest.mark.parametrize("provider", ["own", "joined"])
@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("what", UNWIELDY)
def test_an_unwieldy_argument_costs_the_call_next_to_nothing(
    what: str, twin: str, provider: str, level: Any, tmp_path: Path
) -> None:
    """At most a millisecond, and the tool gets and gives the object itself; it leaves as a summary.

    In a provider of others content is read when the call ends, not later: no bound there.
    """
    value = UNWIELDY[what](tmp_path / "file")

    @clew.tool("look-up")
    def look_up(given: Any) -> Any:
        assert given is value
        return given

    @clew.tool("look-up")
    async def alook_up(given: Any) -> Any:
        assert given is value
        return given

    exporter = CaptureExporter()
    settings = Settings(
        digest_key="k", capture=level, content_to=frozenset({"spans"}), export_delay_ms=60_000,
        seal_grace_s=60, batch_size=10_000,
    )  # fmt: skip
    clew.configure(
        "tests", settings=settings, span_exporters=[exporter],
        tracer_provider=TracerProvider() if provider == "joined" else None,
    )  # fmt: skip

    def call() -> float:
        began = time.perf_counter()
        assert look_up(value) is value
        return time.perf_counter() - began

    async def acall() -> list[float]:
        found: list[float] = []
        for _ in range(5):
            began = time.perf_counter()
            assert await alook_up(value) is value
            found.append(time.perf_counter() - began)
        return found

    with clew.run("desk"):
        best = min(asyncio.run(acall()) if twin == "async" else [call() for _ in range(5)])
    clew.shutdown()
    if what == "a coroutine":
        value.close()
    if what == "a file":
        value.close()
    if provider == "own" or level == "metadata":
        assert best < 0.0015 + 0.0005 * (level == "full")
    spans = exporter.by_name("execute_tool look-up")
    assert len(spans) == 5
    sent = exporter.otlp_bytes()
    assert not [mark for mark in (b"zqname", b"zqsecret") if mark in sent]
    for span in spans:
        text = (span.attributes or {}).get("gen_ai.tool.call.arguments")
        assert (text is None) == (level == "metadata")
        if text is not None:
            json.loads(str(text))
            assert len(str(text)) <= settings.content_limit


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    )
)
def test_json_values_are_taken_as_they_are(value: Any) -> None:
    """What is JSON already, and not too large, stays what it is."""

    def listed(each: Any) -> Any:
        if isinstance(each, dict):
            return {key: listed(item) for key, item in each.items()}
        return [listed(item) for item in each] if isinstance(each, (list, tuple)) else each

    assert repr(listed(value)) == repr(taken(value))


def test_a_later_change_is_not_taken() -> None:
    """What was taken shares no list and no mapping with the value."""
    value: dict[str, Any] = {"a": [1], "b": {"c": [{"d": 1}]}}
    found = taken(value)
    value["a"].append(2)
    value["b"]["c"][0]["d"] = 2
    assert {"a": [1], "b": {"c": [{"d": 1}]}} == found
    assert snapshots.LONGEST == 4000
