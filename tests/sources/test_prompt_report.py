"""What the rounds of a run say about its prompts: cache breaks, growth, evicted blocks, tools."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from prompt_rows import block, row

from clew import semconv
from clew.digests import Digests
from clew.prompts import Prompt
from clew.prompts.registry import block_map, whole
from clew.sources.prompt_report import (
    AgentReport,
    Spending,
    lost_usd,
    report,
    report_of_rows,
)
from clew.store.prompt_records import PromptRow, ToolDefinition
from clew.store.records import Resource, RunRecord, RunSummary, Scope, SpanRecord

DIGESTS = Digests(b"key")
TRACE = "6fa459eaee8a4ca4894edb77e160355e"


def attributes_of(prompt: str | None) -> dict[str, Any]:
    if prompt is None:
        return {}
    data = prompt.encode()
    if isinstance(prompt, Prompt):
        return block_map(prompt.blocks, data, DIGESTS)
    return whole(data, DIGESTS, mapped=False)


def span(number: int, prompt: str | None = None, **more: Any) -> SpanRecord:
    """Return the span of a round; keyword arguments are attributes, by the end of their key."""
    keys = {
        "read": semconv.USAGE_CACHE_READ,
        "written": semconv.USAGE_CACHE_WRITE,
        "input": semconv.USAGE_INPUT,
        "input_usd": semconv.COST_INPUT_USD,
        "read_usd": semconv.COST_CACHE_READ_USD,
        "written_usd": semconv.COST_CACHE_WRITE_USD,
        "model": semconv.RESPONSE_MODEL,
        "agent": semconv.AGENT_ID,
        "name": semconv.AGENT_NAME,
        "tools": semconv.REQUEST_TOOLS,
        "tool_tokens": "clew.context.tool_schema_tokens",
    }
    given = {keys[name]: value for name, value in more.items()}
    return SpanRecord(
        trace_id=TRACE,
        span_id=f"{number:016x}",
        parent_id=None,
        type="round",
        name="chat m",
        kind=3,
        start_ns=number,
        end_ns=number + 1,
        attributes={
            semconv.ROUND: number,
            semconv.SEQ: number,
            semconv.SEGMENT: 1,
            semconv.AGENT_ID: "a" * 16,
            **attributes_of(prompt),
            **given,
        },
        resource=Resource(attributes={}),
        scope=Scope(name="clew"),
    )


def run(*spans: SpanRecord) -> RunRecord:
    summary = RunSummary(trace_id=TRACE, is_run=True, start_ns=0, end_ns=9)
    return RunRecord(summary=summary, spans=spans)


def only(*spans: SpanRecord, rows: tuple[PromptRow, ...] = ()) -> AgentReport:
    (found,) = report(run(*spans), rows)
    return found


def breaks(found: AgentReport) -> list[tuple[Any, ...]]:
    return [
        (each.round, each.cause, None if each.block is None else each.block.id, each.lost_tokens)
        for each in found.breaks
    ]


FIRST = Prompt.of(identity="You are a clerk.", skills="One skill.", memory="Nothing yet.")
SECOND = Prompt.of(identity="You are a clerk.", skills="One skill.", memory="Order 7 was late.")
THIRD = Prompt.of(identity="You are a clerk!", skills="One skill.", memory="Order 7 was late.")


def test_a_break_names_the_block_that_changed_first() -> None:
    """With the cached tokens that it cost; a round like the one before breaks nothing."""
    found = only(
        span(1, FIRST, read=0, written=900),
        span(2, FIRST, read=900, written=0),
        span(3, SECOND, read=600, written=320),
        span(4, THIRD, read=0, written=930),
    )
    assert [(3, "block", "memory", 300), (4, "block", "identity", 920)] == breaks(found)
    assert 1220 == found.lost_tokens
    place = found.breaks[0].block
    assert place is not None
    assert (2, 28, len(SECOND.encode()) - 28) == (place.index, place.kept_bytes, place.lost_bytes)


def test_what_a_break_costs_in_money() -> None:
    """The lost tokens at the rate that was paid for them, less what reading them would have cost."""
    before = Spending(input_tokens=1000, cache_read_tokens=900, cache_read_usd=900 * 3e-7)
    plain = Spending(
        input_tokens=1000, cache_read_tokens=0, cache_write_tokens=0, input_usd=1000 * 3e-6
    )
    assert pytest.approx(900 * (3e-6 - 3e-7)) == lost_usd(before, plain, 900)
    written = Spending(
        input_tokens=1000, cache_read_tokens=0, cache_write_tokens=800, input_usd=200 * 3e-6,
        cache_write_usd=800 * 3.75e-6,
    )  # fmt: skip
    expected = 800 * 3.75e-6 + 100 * 3e-6 - 900 * 3e-7
    assert pytest.approx(expected) == lost_usd(before, written, 900)
    assert 0.0 == lost_usd(before, plain, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Spending(), Spending(input_tokens=10, cache_read_tokens=0, input_usd=1.0)),
        (Spending(cache_read_tokens=0, cache_read_usd=0.0), Spending(input_tokens=9, input_usd=1)),
        (Spending(cache_read_tokens=9, cache_read_usd=0.1), Spending(input_tokens=9)),
        (Spending(cache_read_tokens=9, cache_read_usd=0.1),
         Spending(input_tokens=9, cache_write_tokens=9)),
    ],
)  # fmt: skip
def test_a_cost_without_a_rate_is_unknown(before: Spending, after: Spending) -> None:
    """Never 0, never guessed from a table of today."""
    assert lost_usd(before, after, 9) is None


def test_the_cost_of_a_run_is_summed() -> None:
    """Over the breaks whose cost is known; none known, no sum."""
    money = {"read_usd": 900 * 1e-6, "input": 1000}
    found = only(
        span(1, FIRST, read=900, **money),
        span(2, THIRD, read=0, input=1000, input_usd=1000 * 1e-5),
    )
    assert pytest.approx(900 * 9e-6, abs=1e-12) == found.lost_usd
    unknown = only(span(1, FIRST, read=900), span(2, THIRD, read=0))
    assert (900, None) == (unknown.lost_tokens, unknown.lost_usd)
    quiet = only(span(1, FIRST), span(2, FIRST))
    assert (None, None, ()) == (quiet.lost_tokens, quiet.lost_usd, quiet.breaks)


def test_another_model_comes_before_any_block() -> None:
    """No provider's cache serves another model."""
    found = only(span(1, FIRST, model="a", read=900), span(2, THIRD, model="b", read=0))
    assert [(2, "model", "identity", 900)] == breaks(found)


def test_other_tools_come_before_any_block() -> None:
    """Where the index knows their digests; with different keys nothing is claimed."""
    rows = [
        row(
            number,
            span_id=f"{number:016x}",
            digest_key="k",
            tools=(ToolDefinition(name="t", digest=digest),),
        )
        for number, digest in ((1, "x"), (2, "y"))
    ]
    spans = span(1, FIRST, read=900), span(2, FIRST, read=0)
    assert [(2, "tools", None, 900)] == breaks(only(*spans, rows=tuple(rows)))
    other_key = replace(rows[1], digest_key="other")
    assert [(2, "elsewhere", None, 900)] == breaks(only(*spans, rows=(rows[0], other_key)))


def test_a_loss_with_the_same_prompt_is_elsewhere() -> None:
    """The history changed, or the cache expired: the system prompt is not blamed."""
    found = only(span(1, FIRST, read=900), span(2, FIRST, read=100))
    assert [(2, "elsewhere", None, 800)] == breaks(found)


def test_an_unmapped_prompt_is_compared_as_a_whole() -> None:
    """It changed, or did not; no block is named."""
    found = only(span(1, "one"), span(2, "two"), span(3, "two"))
    assert [(2, "prompt", None, None)] == breaks(found)


def test_rounds_without_any_map_say_nothing() -> None:
    """At capture level `none` there is no map: tokens alone tell of a loss."""
    assert [] == breaks(only(span(1), span(2)))
    assert [(2, "elsewhere", None, 5)] == breaks(only(span(1, read=5), span(2, read=0)))


def test_growth_of_each_block_over_the_rounds() -> None:
    """Sizes in bytes by round; the same id twice is two blocks; what is absent is None."""
    twice = Prompt.concat(Prompt.of(note="ä"), Prompt.of(note="bb"))
    found = only(span(1, Prompt.of(note="a")), span(2, twice), span(3, "plain"), span(4, twice))
    sizes = {(each.id, each.occurrence): each.sizes for each in found.growth}
    assert {("note", 1): (1, 2, None, 2), ("note", 2): (None, 2, None, 2)} == sizes
    first, second = found.growth
    assert (1, 2, 1) == (first.first, first.last, first.grown)
    assert (2, 2, 0) == (second.first, second.last, second.grown)
    assert "runtime" == first.layer


def test_blocks_that_went() -> None:
    """Named with their size and the round that they are missing from."""
    without = Prompt.of(identity="You are a clerk.", memory="Nothing yet.")
    found = only(span(1, FIRST), span(2, without), span(3, FIRST))
    (gone,) = found.evicted
    assert ("skills", 1, 12, 2) == (gone.id, gone.occurrence, gone.bytes, gone.round)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"input": 400}, 0.0),
        ({"input": 400, "tools": 3}, None),
        ({"input": 400, "tools": 3, "tool_tokens": 100}, 0.25),
        ({"tools": 3, "tool_tokens": 100}, None),
        ({"input": 0, "tools": 1, "tool_tokens": 100}, None),
        ({"input": 50, "tools": 1, "tool_tokens": 100}, 1.0),
    ],
)
def test_the_share_of_the_tool_definitions(
    attributes: dict[str, int], expected: float | None
) -> None:
    """Of the reported input; unknown where either is, none where no tool was offered."""
    assert expected == only(span(1, **attributes)).rounds[0].tool_share


def test_the_index_tells_the_size_of_tools() -> None:
    """Characters as a quarter of so many tokens, rounded up."""
    known = row(1, span_id=f"{1:016x}", tool_chars=41, history_length=5)
    (each,) = only(span(1, input=44, tools=1), rows=(known,)).rounds
    assert (11, 0.25, 5, known.request_id) == (
        *(each.tool_tokens, each.tool_share, each.history_length, each.request_id),
    )


def test_agents_of_a_run_are_apart() -> None:
    """A nested agent's prompt is no break of the outer one's, whatever the order."""
    other = {"agent": "b" * 16}
    spans = (span(1, FIRST), span(2, THIRD, **other), span(3, FIRST), span(4, THIRD, **other))
    found = report(run(*spans))
    assert ["a" * 16, "b" * 16] == [each.agent_id for each in found]
    assert [[1, 3], [2, 4]] == [[one.round for one in each.rounds] for each in found]
    assert [(), ()] == [each.breaks for each in found]


def test_a_resumed_agent_goes_on() -> None:
    """In another segment it has another id, the same name and the next round: one report."""
    resumed = {"agent": "c" * 16, "name": "desk"}
    spans = [
        span(1, FIRST, name="desk", read=900),
        span(2, THIRD, read=0, **resumed),
        span(3, THIRD, **resumed),
    ]
    found = only(*spans)
    assert [1, 2, 3] == [one.round for one in found.rounds]
    assert [(2, "block", "identity", 900)] == breaks(found)
    other = report(run(spans[0], span(2, THIRD, agent="c" * 16, name="clerk")))
    assert 2 == len(other)


def test_a_run_without_rounds_has_no_report() -> None:
    """Nothing to say is no error."""
    assert () == report(run())


def test_rows_alone_make_a_report() -> None:
    """Where the spans went elsewhere, the index has block maps and tokens too."""
    blocks = (block("a", 0, 10, 10, digest="1"), block("b", 10, 30, 20, digest="2"))
    changed = (blocks[0], replace(blocks[1], digest="3"))
    given: dict[str, Any] = {"digest_key": "k", "system_bytes": 30, "agent_id": "x"}
    rows = [
        row(2, round=2, blocks=changed, cache_read_tokens=0, **given),
        row(1, round=1, blocks=blocks, cache_read_tokens=50, **given),
        row(3, round=None, operation="embeddings"),
    ]
    (found,) = report_of_rows(rows)
    assert [1, 2] == [each.round for each in found.rounds]
    assert [(2, "block", "b", 50)] == breaks(found)
