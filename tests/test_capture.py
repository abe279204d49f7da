"""Capture levels: the strictest wins, a raise is a decision, and no level loses a fact."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from run_spans import attributes

import clew
from clew import levels
from clew.actors import Actor
from clew.errors import ConfigurationError
from clew.levels import effective, name_of, number_of
from clew.testing import CaptureExporter, captured

ADMIN = Actor(id="root-1", admin=True)
SERVICE = Actor(id="svc", kind="service", scopes=frozenset({"capture:raise"}))
LEVELS = st.integers(0, 3)


@given(st.none() | LEVELS, LEVELS, LEVELS)
def test_the_level_in_force_is_never_above_what_applies(
    asked: int | None, setting: int, ceiling: int
) -> None:
    """Not above the ceiling, not above what was asked for, and the setting where nobody asks."""
    level = effective(asked, setting, ceiling)
    assert level <= max(setting, ceiling)
    if asked is None:
        assert setting == level
    else:
        assert level <= asked
        assert level == asked or level == max(setting, ceiling)


def test_levels_have_names() -> None:
    """Names and order fit; an unknown name is an error that lists them."""
    names = ("none", "metadata", "redacted", "full")
    assert names == tuple(name_of(number_of(name)) for name in names)
    assert (levels.NONE, levels.METADATA, levels.REDACTED, levels.FULL) == (0, 1, 2, 3)
    with pytest.raises(ConfigurationError, match="'all' is unknown; give one of: none, metadata"):
        clew.capture("all")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        clew.run("a", capture="all")  # type: ignore[arg-type]


def run_level(exporter: CaptureExporter) -> Any:
    return attributes(exporter.by_name("invoke_agent")[-1])["clew.capture.level"]


def verdicts(exporter: CaptureExporter) -> list[tuple[Any, ...]]:
    keys = ("outcome", "reason", "subject", "executed")
    return [
        tuple(attributes(span).get(f"clew.decision.{key}") for key in keys)
        for span in exporter.by_name("decide capture")
    ]


@pytest.mark.parametrize(
    ("setting", "ceiling", "asked", "actor", "expected", "verdict"),
    [
        ("metadata", None, None, None, "metadata", None),
        ("none", None, None, None, "none", None),
        ("full", None, "redacted", None, "redacted", None),
        ("metadata", "full", "none", None, "none", None),
        ("metadata", None, "full", ADMIN, "metadata", ("deny", "above_maximum", "full", False)),
        ("metadata", "full", "full", ADMIN, "full", ("allow", "raised", "full", True)),
        ("metadata", "full", "full", SERVICE, "full", ("allow", "raised", "full", True)),
        (
            *("metadata", "redacted", "full", ADMIN, "metadata"),
            ("deny", "above_maximum", "full", False),
        ),
        (
            *("metadata", "full", "full", "a-person", "metadata"),
            ("deny", "actor_not_permitted", "full", False),
        ),
        (
            *("metadata", "full", "redacted", None, "metadata"),
            ("deny", "actor_not_permitted", "redacted", False),
        ),
    ],
)
def test_a_run_has_the_strictest_level_and_a_raise_is_a_decision(
    setting: Any,
    ceiling: Any,
    asked: Any,
    actor: Any,
    expected: str,
    verdict: tuple[Any, ...] | None,
) -> None:
    """Lowering is free; a raise needs the switch and an actor who may, and is recorded."""
    with captured(instrument=False, capture=setting, capture_max=ceiling) as exporter:
        with clew.run("a", actor=actor, capture=asked):
            pass
        assert expected == run_level(exporter)
        assert ([] if verdict is None else [verdict]) == verdicts(exporter)
        if verdict is not None:
            span = exporter.by_name("decide capture")[0]
            run = exporter.by_name("invoke_agent")[0]
            assert span.parent is not None
            assert run.context is not None
            assert run.context.span_id == span.parent.span_id


def tool_level(exporter: CaptureExporter) -> Any:
    return attributes(exporter.by_name("execute_tool")[-1]).get("clew.capture.level")


def test_blocks_and_runs_nest_and_the_strictest_wins() -> None:
    """An inner block or run may only lower what an outer one asked for."""
    with captured(instrument=False, capture="full") as exporter:
        with clew.run("a"), clew.capture("redacted"):
            with clew.tool("t"):
                pass
            assert "redacted" == tool_level(exporter)
            with clew.capture("full"), clew.tool("t"):
                pass
            assert "redacted" == tool_level(exporter)
            with clew.run("nested", capture="none"), clew.tool("t"):
                pass
            assert tool_level(exporter) is None
            assert "none" == run_level(exporter)
        with clew.run("b"), clew.tool("t"):
            pass
        assert tool_level(exporter) is None
        assert "full" == run_level(exporter)


async def test_a_block_works_in_asynchronous_code() -> None:
    """Tasks that a block starts have its level; tasks beside it do not."""
    with captured(instrument=False, capture="redacted") as exporter:

        async def work(name: str) -> None:
            await asyncio.sleep(0)
            with clew.tool(name):
                pass

        async with clew.run("a"):
            beside = asyncio.create_task(work("beside"))
            async with clew.capture("none"):
                await asyncio.create_task(work("inside"))
            await beside
        found = {
            span.name: attributes(span).get("clew.capture.level")
            for span in exporter.by_name("execute_tool")
        }
        assert {"execute_tool beside": None, "execute_tool inside": "none"} == found


def test_a_raise_in_a_block_is_by_the_actor_of_its_run() -> None:
    """Where the block names nobody, it is the run's actor who asks."""
    with captured(instrument=False, capture_max="full") as exporter:
        with clew.run("a", actor=ADMIN), clew.capture("full"), clew.tool("t"):
            pass
        assert "full" == tool_level(exporter)
        with clew.run("a", actor="somebody"), clew.capture("full"), clew.tool("t"):
            pass
        assert tool_level(exporter) is None
        with clew.capture("redacted", actor=SERVICE), clew.tool("t"):
            pass
        assert "redacted" == tool_level(exporter)
        assert ["allow", "deny", "allow"] == [one[0] for one in verdicts(exporter)]


def test_a_lowered_level_survives_a_suspension() -> None:
    """A run that asked for no digests has none in its next segment, in any process."""
    with captured(instrument=False) as exporter:
        with clew.run("a", capture="none") as run:
            reference = run.suspend()
        assert reference.startswith("clew1n~")
        with clew.resume(reference):
            pass
        assert "none" == run_level(exporter)


def digests(exporter: CaptureExporter) -> set[str]:
    found: set[str] = set()
    for span in exporter.spans:
        # A span's digest is about its facts, which `none` leaves; it says nothing of a word.
        keys = set(attributes(span)) - {"clew.span.digest", "clew.segment.digest"}
        found |= {key for key in keys if "digest" in key or key == "clew.actor"}
    return found


def act(level: Any) -> tuple[set[str], list[set[str]]]:
    """Return the digests that a run leaves, and the keys of each of its spans."""
    with captured(instrument=False, capture=level) as exporter:
        with clew.run("a", actor="somebody", tenant="t-1"):
            clew.decide("tool", "deny", subject="not an identifier")
            with clew.tool("not an identifier"):
                pass
        return digests(exporter), [set(attributes(span)) for span in exporter.spans]


def test_none_has_no_digests_and_the_other_levels_lose_nothing() -> None:
    """From level to level facts are added, never taken away."""
    found = [act(level) for level in ("none", "metadata", "redacted", "full")]
    assert set() == found[0][0]
    expected = {
        *("clew.actor", "clew.digest.key_id"),
        *("clew.decision.subject.digest", "clew.tool.name.digest"),
    }
    assert expected == found[1][0]
    for lower, higher in itertools.pairwise(found):
        for fewer, more in zip(lower[1], higher[1], strict=True):
            assert fewer <= more


def test_without_clew_a_block_is_nothing() -> None:
    """Unconfigured, everything is a no-op."""
    with clew.capture("full", actor=ADMIN), clew.run("a", capture="none"):
        pass


# --- resuming at another level -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("carried", "asked", "level"),
    [
        (None, None, "metadata"),
        (None, "none", "none"),
        ("none", None, "none"),
        ("none", "metadata", "none"),
        ("metadata", "none", "none"),
        ("none", "full", "none"),
    ],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_resumed_segment_may_be_stricter(carried: Any, asked: Any, level: str, mode: str) -> None:
    """Of what the reference carries and what `clew.resume` asks for the stricter wins."""
    with captured() as exporter:
        with clew.run("a", capture=carried) as run:
            reference = run.suspend()
        segment = clew.resume(reference, capture=asked)
        if mode == "sync":
            with segment:
                pass
        else:

            async def resumed() -> None:
                async with segment:
                    pass

            asyncio.run(resumed())
        assert level == run_level(exporter)
        assert [] == verdicts(exporter)


@pytest.mark.parametrize(
    ("actor", "level", "said"),
    [(ADMIN, "full", ("allow", "raised")), (None, "metadata", ("deny", "actor_not_permitted"))],
)
def test_a_raise_on_resuming_is_a_decision(actor: Any, level: str, said: tuple[str, str]) -> None:
    """It needs the settings' switch and an actor with the right, as it does in `clew.run`."""
    with captured(capture_max="full") as exporter:
        with clew.run("a") as run:
            reference = run.suspend()
        with clew.resume(reference, actor=actor, capture="full"):
            pass
        assert level == run_level(exporter)
        assert [said] == [
            (found["clew.decision.outcome"], found["clew.decision.reason"])
            for found in map(attributes, exporter.by_name("decide"))
        ]


def test_an_unknown_level_is_refused_on_resuming() -> None:
    """Before anything has started."""
    with captured():
        with clew.run("a") as run:
            reference = run.suspend()
        with pytest.raises(ConfigurationError):
            clew.resume(reference, capture="all")  # type: ignore[arg-type]


# --- spans of other libraries --------------------------------------------------------------------


def foreign(name: str) -> None:
    """Make a span of another library, with a person's id on it, an event and a link."""
    tracer = trace.get_tracer("another.library")
    link = trace.Link(trace.SpanContext(1, 2, is_remote=True), {"user.id": "alice"})
    with tracer.start_as_current_span(name, attributes={"user.id": "alice"}, links=[link]) as span:
        span.add_event("seen", {"user.id": "alice"})


def keys_of_people(exporter: CaptureExporter, name: str) -> list[int]:
    """Return how many ids of people a span, its events and its links carry."""
    (span,) = exporter.by_name(name)
    places = [span, *span.events, *span.links]
    return [
        len([key for key in dict(each.attributes or {}) if key == "user.id"]) for each in places
    ]


def test_foreign_spans_carry_no_digests_at_none() -> None:
    """In a run, a block or a process at `none`; elsewhere an id leaves as its digest."""
    with captured() as exporter:
        foreign("outside")
        with clew.run("a"):
            foreign("inside")
            with clew.capture("none"):
                foreign("block")
        with clew.run("b", capture="none"):
            foreign("run")
        with clew.capture("none"):
            foreign("nowhere")
        found = {
            name: keys_of_people(exporter, name)
            for name in ("outside", "inside", "block", "run", "nowhere")
        }
        assert "alice" not in str(exporter.otlp_bytes())
    assert found == {
        "outside": [1, 1, 1],
        "inside": [1, 1, 1],
        "block": [0, 0, 0],
        "run": [0, 0, 0],
        "nowhere": [0, 0, 0],
    }
    with captured(capture="none") as exporter:
        foreign("process")
        assert keys_of_people(exporter, "process") == [0, 0, 0]
