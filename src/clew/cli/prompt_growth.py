"""The report of a run's prompts as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clew.cli.output import clean, print_table, say
from clew.sources import wording
from clew.sources.prompt_report import AgentReport, PromptRound, RoundBreak

_CAUSES: Final = {
    "model": "another model",
    "tools": "other tool definitions",
    "block": "block",
    "prompt": "the system prompt (no map)",
    "elsewhere": "no part of the system prompt: the history changed, or the cache expired",
}
_COLUMNS: Final = (
    "round", "model", "system", "blocks", "history", "tools", "input", "cached", "record",
)  # fmt: skip


def print_report(agents: Sequence[AgentReport]) -> None:
    """Print the report of each agent of a run."""
    if not agents:
        say("this run had no rounds")
    for place, agent in enumerate(agents):
        if place:
            print()
        print(f"agent      {clean(agent.agent or wording.UNKNOWN)}")
        print_table(_COLUMNS, [_cells(each) for each in agent.rounds], right=range(2, 8))
        _print_breaks(agent)
        _print_growth(agent)
        for gone in agent.evicted:
            print(clean(f"evicted    {gone.id} ({gone.bytes} bytes) before round {gone.round}"))


def _cells(one: PromptRound) -> tuple[str, ...]:
    share = one.tool_share
    tools = wording.UNKNOWN if one.tool_tokens is None else f"~{wording.tokens(one.tool_tokens)}"
    prompt = one.prompt
    return (
        wording.count(one.round),
        one.model or wording.UNKNOWN,
        wording.UNKNOWN if prompt is None else wording.count(prompt.size),
        wording.UNKNOWN if prompt is None or not prompt.mapped else str(len(prompt.ids)),
        wording.count(one.history_length),
        tools if share is None else f"{tools} {share:.1%}",
        wording.tokens(one.spending.input_tokens),
        wording.tokens(one.spending.cache_read_tokens),
        (one.request_id or "")[:8],
    )


def _print_breaks(agent: AgentReport) -> None:
    for each in agent.breaks:
        print(clean(f"break      round {each.round}: {_cause(each)}{_loss(each)}"))
    if len(agent.breaks) > 1 and agent.lost_tokens:
        cost = "" if agent.lost_usd is None else f", {wording.cost(agent.lost_usd, None)}"
        print(f"lost       {wording.count(agent.lost_tokens)} cached tokens in all{cost}")


def _cause(one: RoundBreak) -> str:
    block = one.block
    if one.cause == "block" and block is not None:
        return f"block {block.id} {block.what}, {block.kept_bytes} bytes before it are the same"
    return _CAUSES[one.cause]


def _loss(one: RoundBreak) -> str:
    if one.lost_tokens is None:
        return ""
    cost = f" ({wording.cost(one.lost_usd, None)})" if one.lost_usd else ""
    return f"; {wording.count(one.lost_tokens)} cached tokens lost{cost}"


def _print_growth(agent: AgentReport) -> None:
    grown = [each for each in agent.growth if each.grown]
    for each in sorted(grown, key=lambda one: -abs(one.grown)):
        name = each.id if each.occurrence == 1 else f"{each.id} #{each.occurrence}"
        sign = "+" if each.grown > 0 else "\u2212"
        print(clean(f"growth     {name}  {each.first} → {each.last} bytes "
                    f"({sign}{abs(each.grown)})"))  # fmt: skip
