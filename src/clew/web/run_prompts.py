"""The page about the prompts of one run: growth, cache breaks, tools, evicted blocks, per agent.

It needs no content: block maps and tokens are on the spans. Where calls were recorded, their rows
add the sizes of tools, and links to the inspector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from clew.prompts.blocks import LAYERS
from clew.sources.prompt_report import AgentReport, BlockGrowth, PromptRound, RoundBreak
from clew.web import prompt_words
from clew.web.parts import OTHER_LAYER, look_of

MOST_ROUNDS: Final = 300
"""Rounds of one agent on the page; the newest are shown."""
COLUMN: Final = 20
"""Width of a round in the chart, in its own units; its height is 100."""
_LEAST_COLUMNS: Final = 16


class Stretch(Struct, frozen=True, kw_only=True):
    """One block in a column of the chart, in percent of its height from the top."""

    look: str
    y: float
    height: float
    words: str


class Column(Struct, frozen=True, kw_only=True):
    """One round of the chart."""

    x: int
    stretches: tuple[Stretch, ...]
    broken: bool
    costly: bool
    """The break lost cached tokens, or nothing tells that it did not."""
    words: str


class RoundRow(Struct, frozen=True, kw_only=True):
    """One round of the table."""

    round: PromptRound
    broken: RoundBreak | None
    why: str
    cached: float | None
    """The part of the input that came from the cache, 0 to 1."""
    compare: str | None
    """Where this call and the one before are side by side."""


class GrowthRow(Struct, frozen=True, kw_only=True):
    """One block over the rounds."""

    growth: BlockGrowth
    look: str
    bars: tuple[tuple[int, float], ...]
    """Place and height in percent of each round that has the block."""
    grown: str


class AgentView(Struct, frozen=True, kw_only=True):
    """What is shown of one agent."""

    report: AgentReport
    left_out: int
    """Rounds that are not shown because there are too many."""
    columns: tuple[Column, ...]
    rows: tuple[RoundRow, ...]
    growth: tuple[GrowthRow, ...]
    largest: int
    """Bytes that the full height of the chart stands for."""
    width: int
    """Of the chart, in its units: few rounds do not fill it."""
    looks: tuple[str, ...]
    """Colours in the chart; none where no prompt has a map, and there is no chart."""


def view_of(report: AgentReport) -> AgentView:
    """Lay out the report of one agent."""
    left_out = max(0, len(report.rounds) - MOST_ROUNDS)
    rounds = report.rounds[left_out:]
    breaks = {each.span_id: each for each in report.breaks}
    largest = max([_size(each) for each in rounds], default=0)
    before: PromptRound | None = None
    rows: list[RoundRow] = []
    for each in rounds:
        rows.append(_row(each, before, breaks.get(each.span_id)))
        before = each
    growth = [_growth(each, left_out) for each in report.growth]
    growth.sort(key=lambda each: -abs(each.growth.grown))
    columns = tuple(
        _column(each, place, largest, breaks.get(each.span_id)) for place, each in enumerate(rounds)
    )
    used = {part.look for column in columns for part in column.stretches}
    mapped = any(each.prompt is not None and each.prompt.mapped for each in rounds)
    return AgentView(
        report=report,
        left_out=left_out,
        columns=columns,
        width=max(_LEAST_COLUMNS, len(columns)) * COLUMN,
        looks=tuple(look for look in (*LAYERS, OTHER_LAYER) if look in used) if mapped else (),
        rows=tuple(rows),
        growth=tuple(each for each in growth if each.bars),
        largest=largest,
    )


def _size(each: PromptRound) -> int:
    return 0 if each.prompt is None else each.prompt.size or 0


def _column(each: PromptRound, place: int, largest: int, broken: RoundBreak | None) -> Column:
    stretches: list[Stretch] = []
    scale = 100 / largest if largest else 0
    prompt = each.prompt
    y = 100.0
    if prompt is not None and prompt.mapped:
        parts = list(zip(prompt.ids, prompt.layers, prompt.sizes, strict=True))
    else:
        parts = [("whole prompt", "other", _size(each))]
    # The beginning of a prompt is at the bottom, where a cache keeps it the longest.
    for name, layer, size in parts:
        height = size * scale
        y -= height
        stretches.append(
            Stretch(
                look=look_of(layer),
                y=round(max(0.0, y), 3),
                height=round(height, 3),
                words=f"{name}: {prompt_words.count(size, 'byte')}",
            )
        )
    return Column(
        x=place * COLUMN,
        stretches=tuple(stretches),
        broken=broken is not None,
        costly=broken is not None and broken.lost_tokens != 0,
        words=f"round {each.round}" if each.round is not None else "round",
    )


def _row(each: PromptRound, before: PromptRound | None, broken: RoundBreak | None) -> RoundRow:
    spent = each.spending
    cached = None
    if spent.input_tokens and spent.cache_read_tokens is not None:
        cached = min(1.0, spent.cache_read_tokens / spent.input_tokens)
    compare = None
    if before is not None and before.request_id and each.request_id:
        compare = f"/prompts/{before.request_id}/diff/{each.request_id}"
    return RoundRow(
        round=each,
        broken=broken,
        why="" if broken is None else why(broken),
        cached=cached,
        compare=compare,
    )


def why(broken: RoundBreak) -> str:
    """Say what broke a cache, and what it cost."""
    block = broken.block
    match broken.cause:
        case "model":
            said = "another model"
        case "tools":
            said = "other tool definitions"
        case "block":
            what = "changed" if block is None or block.what is None else block.what
            said = f"{'' if block is None else block.id} {what}"
        case "prompt":
            said = "the system prompt changed (no map)"
        case _:
            said = "not by the system prompt: the history changed, or the cache expired"
    if broken.cause == "block" and block is not None and block.kept_bytes is not None:
        said += f", {prompt_words.count(block.kept_bytes, 'byte')} before it kept"
    return said


def cost_of(broken: RoundBreak) -> str:
    """Say how many cached tokens a break lost, in money where that is known."""
    if broken.lost_tokens is None:
        return ""
    said = f"{prompt_words.tokens(broken.lost_tokens)} tokens"
    return said if broken.lost_usd is None else f"{said}, {prompt_words.cost(broken.lost_usd)}"


def _growth(each: BlockGrowth, left_out: int) -> GrowthRow:
    sizes: Sequence[int | None] = each.sizes[left_out:]
    most = max([size for size in sizes if size is not None], default=0)
    return GrowthRow(
        growth=each,
        look=look_of(each.layer),
        bars=tuple(
            (place, round(100 * size / most, 2))
            for place, size in enumerate(sizes)
            if size is not None and most
        ),
        grown=f"{each.grown:+,}".replace(",", "\u202f").replace("-", "\u2212")
        if each.grown
        else "0",
    )
