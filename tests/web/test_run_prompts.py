"""The page about the prompts of a run: cache breaks, growth, tools, evicted blocks."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sample_calls as calls
import sample_messages
import sample_runs
from page_text import words

from clew.prompts.compare import CacheBreak
from clew.sources.prompt_report import RoundBreak, of_rounds, round_of_row
from clew.sources.wording import UNKNOWN
from clew.store.prompt_index import RecordStore
from clew.web.run_prompts import MOST_ROUNDS, cost_of, view_of, why
from clew.web.server import Running, start


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def served(folder: Path) -> Iterator[Running]:
    with start(port=0, store_path=folder / "clew.db") as running:
        yield running


def send(viewer: httpx.Client, run: sample_runs.Sample) -> None:
    viewer.post(
        "/v1/traces",
        content=sample_messages.protobuf(run),
        headers={"content-type": "application/x-protobuf"},
    ).raise_for_status()


def test_breaks_are_attributed_with_capture_off(viewer: httpx.Client) -> None:
    """From spans alone: which block changed first, what it lost, what that cost; what grew, went."""
    run = calls.developing()
    send(viewer, run)
    page = viewer.get(f"/runs/{run.run_id}/prompts").text
    shown = words(page)
    for expected in (
        "Rounds 8 Cache breaks 7 Cached tokens lost 800 That cost $0.0003",
        "Largest system prompt 5 243 bytes Blocks evicted 1",
        "knowledge_synthesis changed, 2 723 bytes before it kept 0 tokens, $0",
        "skills_prompt changed, 1 440 bytes before it kept 800 tokens, $0.0003",
        "knowledge_synthesis knowledge 1 443 1 611 +168",
        "identity_context identity 97 97 0",
        "status_text 25 bytes, gone in round 7",
    ):
        assert expected in shown
    # Nothing was recorded: no links to an inspector.
    assert "inspect" not in shown
    twin = viewer.get(f"/api/runs/{run.run_id}/prompts").json()["agents"]
    assert (8, 7, 800) == (
        len(twin[0]["rounds"]), len(twin[0]["breaks"]), twin[0]["lost_tokens"],
    )  # fmt: skip
    assert "never guess" not in page


def test_recorded_calls_add_tools_and_links(viewer: httpx.Client, folder: Path) -> None:
    """Where calls were recorded: the share of tool definitions, inspector and comparison."""
    run = calls.developing(rounds=2)
    send(viewer, run)
    rounds = [each for each in run.spans if each.name.startswith("chat")]
    made = [calls.call(span_id=each.span_id, round=n) for n, each in enumerate(rounds, 1)]
    store = RecordStore(folder)
    store.save(made)
    store.close()
    page = viewer.get(f"/runs/{run.run_id}/prompts").text
    one, two = (each[0].request_id for each in made)
    assert f'href="/prompts/{one}?run={run.run_id}"' in page
    assert f'href="/prompts/{one}/diff/{two}"' in page
    assert "5.5 %" in words(page)


def test_a_run_without_maps_says_what_it_can(viewer: httpx.Client) -> None:
    """No map, no tokens: dashes; no rounds at all: a sentence."""
    run = sample_runs.failed()
    send(viewer, run)
    assert f"Rounds 1 Cache breaks 0 Cached tokens lost {UNKNOWN}" in words(
        viewer.get(f"/runs/{run.run_id}/prompts").text
    )
    foreign = sample_runs.foreign()
    send(viewer, foreign)
    assert "No rounds" in words(viewer.get(f"/runs/{foreign.run_id}/prompts").text)
    assert 404 == viewer.get(f"/runs/{'0' * 31}1/prompts").status_code


def test_agents_are_apart(viewer: httpx.Client) -> None:
    """Each agent of a run has its own rounds."""
    run = sample_runs.triage()
    send(viewer, run)
    page = viewer.get(f"/runs/{run.run_id}/prompts").text
    assert 2 == page.count('<section class="agent"')
    assert [3, 1] == [
        len(each["rounds"])
        for each in viewer.get(f"/api/runs/{run.run_id}/prompts").json()["agents"]
    ]


def test_the_timeline_leads_there(viewer: httpx.Client) -> None:
    """Runs have the tab, traces of others have not."""
    run, foreign = sample_runs.triage(), sample_runs.foreign()
    send(viewer, run)
    send(viewer, foreign)
    link = 'href="/runs/{}/prompts"'
    assert link.format(run.run_id) in viewer.get(f"/runs/{run.run_id}").text
    assert link.format(foreign.run_id) not in viewer.get(f"/runs/{foreign.run_id}").text


def test_a_very_long_run_is_bounded() -> None:
    """The newest rounds are shown, and how many are not is said."""
    rows = [calls.call(level="metadata")[0] for _ in range(MOST_ROUNDS + 5)]
    (report,) = of_rounds(round_of_row(each) for each in rows)
    view = view_of(report)
    assert (5, MOST_ROUNDS, MOST_ROUNDS) == (view.left_out, len(view.rows), len(view.columns))
    assert rows[-1].round == view.rows[-1].round.round
    assert MOST_ROUNDS == len(view.growth[0].bars)


def test_a_column_is_the_whole_prompt() -> None:
    """Blocks stand on each other from the bottom; the largest prompt fills the height."""
    rows = [calls.call(level="metadata")[0], calls.call(calls.PROMPT[:3], level="metadata")[0]]
    (report,) = of_rounds(round_of_row(each) for each in rows)
    full, part = view_of(report).columns
    assert 100 == pytest.approx(sum(each.height for each in full.stretches), abs=0.01)
    assert 0 == pytest.approx(full.stretches[-1].y, abs=0.01)
    assert 100 == pytest.approx(full.stretches[0].y + full.stretches[0].height, abs=0.01)
    share = 100 * rows[1].system_bytes / rows[0].system_bytes
    assert share == pytest.approx(sum(each.height for each in part.stretches), abs=0.01)
    assert ((False, False), (True, False)) == (
        (full.broken, full.costly),
        (part.broken, part.costly),
    )
    assert "other" == full.stretches[-1].look
    assert ("identity", "other") == (view_of(report).looks[0], view_of(report).looks[-1])


def test_without_any_map_there_is_no_chart() -> None:
    """Columns of one colour say nothing that the table does not."""
    rows = [
        calls.call(system=calls.SystemPrompt(bytes=9, chars=9), level="metadata")[0]
        for _ in range(2)
    ]
    (report,) = of_rounds(round_of_row(each) for each in rows)
    assert () == view_of(report).looks


@pytest.mark.parametrize(
    ("cause", "block", "said"),
    [
        ("model", None, "another model"),
        ("tools", None, "other tool definitions"),
        ("prompt", CacheBreak(outcome="changed", what="whole"),
         "the system prompt changed (no map)"),
        ("block", CacheBreak(outcome="changed", what="added", id="news", kept_bytes=1),
         "news added, 1 byte before it kept"),
        ("elsewhere", None,
         "not by the system prompt: the history changed, or the cache expired"),
    ],
)  # fmt: skip
def test_causes_in_words(cause: str, block: CacheBreak | None, said: str) -> None:
    """Each cause is a sentence of its own."""
    found = RoundBreak(
        span_id="1" * 16,
        round=2,
        after_round=1,
        cause=cause,
        block=block,  # type: ignore[arg-type]
    )
    assert said == why(found)
    assert "" == cost_of(found)


def test_everything_is_escaped(viewer: httpx.Client) -> None:
    """Names of blocks are what they are; markup in them is text."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 100)
    hostile = "<img/src=x>"
    block = (hostile, hostile, hostile, hostile, "text")
    run.model(1, 1, 9, root, **calls.attributes((block,)))
    run.model(2, 10, 19, root, **calls.attributes((calls.IDENTITY,)))
    send(viewer, run)
    page = viewer.get(f"/runs/{run.run_id}/prompts").text
    assert "<img" not in page
    assert not re.search(r'<[^>]+\sstyle="', page)
