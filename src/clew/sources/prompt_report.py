"""How the prompts of one run developed, round by round: what grew, what went, what broke the cache.

It needs no content. The spans of a run carry the block map of each round's system prompt, its
tokens and its cost; where calls were recorded, the rows of the index add the sizes of tools and
history. What neither tells is None.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

from msgspec import Struct

from clew import semconv
from clew.digests import Digests
from clew.prompts import compare
from clew.prompts.compare import CacheBreak
from clew.prompts.maps import BlockMap, of_attributes, of_text
from clew.store.prompt_records import PromptRecord, PromptRow
from clew.store.records import RunRecord, SpanRecord, integer, number, span_order, text

Cause = Literal["model", "tools", "block", "prompt", "elsewhere"]
_BYTES_PER_TOKEN: Final = 4


class Spending(Struct, frozen=True, kw_only=True):
    """What a round's tokens were, and what they cost by kind (US dollars)."""

    input_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    input_usd: float | None = None
    """The input that neither came from nor went to a cache."""
    cache_read_usd: float | None = None
    cache_write_usd: float | None = None

    def rate(self) -> float | None:
        """Return what a token cost that had nothing to do with a cache."""
        total = self.input_tokens
        if total is None:
            return None
        rest = total - (self.cache_read_tokens or 0) - (self.cache_write_tokens or 0)
        return _per_token(self.input_usd, rest)

    def read_rate(self) -> float | None:
        """Return what a token cost that came from the cache."""
        return _per_token(self.cache_read_usd, self.cache_read_tokens)

    def write_rate(self) -> float | None:
        """Return what a token cost that was written to the cache."""
        return _per_token(self.cache_write_usd, self.cache_write_tokens)


class PromptRound(Struct, frozen=True, kw_only=True):
    """One round, as far as its prompt is concerned."""

    span_id: str
    agent_id: str | None = None
    agent: str | None = None
    round: int | None = None
    start_ns: int = 0
    provider: str | None = None
    model: str | None = None
    prompt: BlockMap | None = None
    """The system prompt's map or size; None where nothing is known of it."""
    spending: Spending = Spending()
    tool_tokens: int | None = None
    """An estimate of what the tool definitions took."""
    tool_digests: tuple[str, ...] | None = None
    """Keyed digests of the tool definitions; None where they are not known."""
    history_length: int | None = None
    request_bytes: int | None = None
    request_id: str | None = None
    """The record of this round, where there is one."""

    @property
    def tool_share(self) -> float | None:
        """The part of the input that tool definitions took, 0 to 1 (an estimate)."""
        total = self.spending.input_tokens
        if self.tool_tokens is None or not total:
            return None
        return min(1.0, self.tool_tokens / total)


class RoundBreak(Struct, frozen=True, kw_only=True):
    """Where a round's prompt stopped being the one of the round before it."""

    span_id: str
    round: int | None
    after_round: int | None
    cause: Cause
    """What comes first in what a provider caches: the model, the tools, then the system prompt
    (`block`: a block is named; `prompt`: there is no map). `elsewhere`: the system prompt is the
    same, and still cached tokens were lost: the history changed, or the cache expired."""
    block: CacheBreak | None = None
    """The first block that is not as it was."""
    lost_tokens: int | None = None
    """Tokens that were in the cache and had to be read anew; None where the rounds do not tell."""
    lost_usd: float | None = None
    """What that cost more than reading them from the cache; None where no rate is known."""


class BlockGrowth(Struct, frozen=True, kw_only=True):
    """One block over the rounds of an agent."""

    id: str
    occurrence: int
    """From 1: which of the blocks of this id."""
    layer: str
    sizes: tuple[int | None, ...]
    """UTF-8 bytes in each round; None where the prompt has no such block, or no map."""

    @property
    def first(self) -> int | None:
        """Its size when it first came."""
        return next((size for size in self.sizes if size is not None), None)

    @property
    def last(self) -> int | None:
        """Its size when it was last there."""
        return next((size for size in reversed(self.sizes) if size is not None), None)

    @property
    def grown(self) -> int:
        """By how many bytes it grew; negative where it shrank."""
        return (self.last or 0) - (self.first or 0)


class Evicted(Struct, frozen=True, kw_only=True):
    """A block that was there in one round and not in the next."""

    id: str
    occurrence: int
    bytes: int
    span_id: str
    round: int | None
    """The round that it was missing from."""


class AgentReport(Struct, frozen=True, kw_only=True):
    """The rounds of one agent of a run, in their order."""

    agent_id: str | None
    agent: str | None
    rounds: tuple[PromptRound, ...]
    breaks: tuple[RoundBreak, ...]
    growth: tuple[BlockGrowth, ...]
    """In the order in which the blocks first came; what grew most is for the reader to find."""
    evicted: tuple[Evicted, ...]

    @property
    def lost_tokens(self) -> int | None:
        """Cached tokens that were lost in all; None where no round tells."""
        return _sum(each.lost_tokens for each in self.breaks)

    @property
    def lost_usd(self) -> float | None:
        """What that cost; a lower bound where a rate is missing. None where none is known."""
        return _sum(each.lost_usd for each in self.breaks)


def report(run: RunRecord, rows: Iterable[PromptRow] = ()) -> tuple[AgentReport, ...]:
    """Return the report of a run, one for each of its agents that had rounds.

    Args:
        run: the run with its spans.
        rows: the rows of recorded calls of that run, where there are any.
    """
    by_span = {row.span_id: row for row in rows if row.span_id is not None}
    spans = [span for span in run.spans if span.type == "round"]
    return of_rounds(
        round_of(span, by_span.get(span.span_id)) for span in sorted(spans, key=span_order)
    )


def report_of_rows(rows: Iterable[PromptRow]) -> tuple[AgentReport, ...]:
    """Return the report of recorded calls alone, where the spans of the run are elsewhere."""
    known = [row for row in rows if row.round is not None]
    return of_rounds(round_of_row(row) for row in sorted(known, key=lambda row: row.start_ns))


def of_rounds(rounds: Iterable[PromptRound]) -> tuple[AgentReport, ...]:
    """Return the reports of rounds that are in their order; agents in the order of their first.

    An agent that was resumed has another id: it is known by its name and by going on with the next
    number, where a new agent begins with round 1.
    """
    by_agent: dict[str | None, list[PromptRound]] = {}
    for each in rounds:
        mine = by_agent.get(each.agent_id) or _before(each, by_agent.values())
        if mine is None:
            mine = []
        by_agent.setdefault(each.agent_id, mine).append(each)
    distinct = {id(mine): mine for mine in by_agent.values()}
    return tuple(
        AgentReport(
            agent_id=mine[0].agent_id,
            agent=mine[0].agent,
            rounds=tuple(mine),
            breaks=tuple(_breaks(mine)),
            growth=_growth(mine),
            evicted=tuple(_evicted(mine)),
        )
        for mine in distinct.values()
    )


def _before(first: PromptRound, agents: Iterable[list[PromptRound]]) -> list[PromptRound] | None:
    """Return the rounds that an agent's first round goes on with."""
    if first.agent is None or first.round is None or first.round <= 1:
        return None
    for mine in agents:
        if mine[-1].agent == first.agent and mine[-1].round == first.round - 1:
            return mine
    return None


# --- rounds -------------------------------------------------------------------------------------


def round_of(span: SpanRecord, row: PromptRow | None = None) -> PromptRound:
    """Return what a round's span says of its prompt, and its row where there is one."""
    found = span.attributes
    tokens = integer(found, f"{semconv.CONTEXT}tool_schema_tokens")
    prompt = of_attributes(found)
    if row is not None:
        tokens = tokens if row.tool_chars is None else -(-row.tool_chars // _BYTES_PER_TOKEN)
        prompt = prompt or map_of(row)
    elif found.get(semconv.REQUEST_TOOLS) is None and tokens is None:
        tokens = 0  # a request without tools says so by having no count of them
    return PromptRound(
        span_id=span.span_id,
        agent_id=text(found, semconv.AGENT_ID),
        agent=text(found, semconv.AGENT_NAME) or (None if row is None else row.agent),
        round=integer(found, semconv.ROUND),
        start_ns=span.start_ns,
        provider=text(found, semconv.PROVIDER),
        model=text(found, semconv.RESPONSE_MODEL) or text(found, semconv.REQUEST_MODEL),
        prompt=prompt,
        spending=_spending(found),
        tool_tokens=tokens,
        tool_digests=None if row is None else _digests(row),
        history_length=integer(found, semconv.REQUEST_MESSAGES)
        if row is None
        else row.history_length,
        request_bytes=integer(found, semconv.REQUEST_BYTES),
        request_id=None if row is None else row.request_id,
    )


def round_of_row(row: PromptRow) -> PromptRound:
    """Return what a row of the index says of a round's prompt."""
    return PromptRound(
        span_id=row.span_id or row.request_id,
        agent_id=row.agent_id,
        agent=row.agent,
        round=row.round,
        start_ns=row.start_ns,
        provider=row.provider,
        model=row.answered or row.model,
        prompt=map_of(row),
        spending=Spending(
            input_tokens=row.input_tokens,
            cache_read_tokens=row.cache_read_tokens,
            cache_write_tokens=row.cache_write_tokens,
        ),
        tool_tokens=None if row.tool_chars is None else -(-row.tool_chars // _BYTES_PER_TOKEN),
        tool_digests=_digests(row),
        history_length=row.history_length,
        request_bytes=row.request_bytes,
        request_id=row.request_id,
    )


def map_of(row: PromptRow) -> BlockMap:
    """Return what a row knows of a system prompt."""
    blocks = row.blocks if all(block.digest is not None for block in row.blocks) else ()
    return BlockMap(
        ids=tuple(block.id for block in blocks),
        layers=tuple(block.layer for block in blocks),
        stabilities=tuple(block.stability for block in blocks),
        sources=tuple(block.source for block in blocks),
        sizes=tuple(block.bytes for block in blocks),
        digests=tuple(block.digest or "" for block in blocks),
        size=row.system_bytes,
        digest=row.system_digest,
        key_id=row.digest_key,
    )


def maps_of(
    before: tuple[PromptRow, PromptRecord], after: tuple[PromptRow, PromptRecord]
) -> tuple[BlockMap, BlockMap]:
    """Return the maps of two recorded calls, as comparable as what is there makes them.

    Digests of different keys say nothing about each other. Where both texts are there as they were
    sent, the maps are made of these, with one key for both.
    """
    rows = before[0], after[0]
    if rows[0].digest_key == rows[1].digest_key:
        return map_of(rows[0]), map_of(rows[1])
    whole = [_whole_text(*each) for each in (before, after)]
    if None in whole:
        return map_of(rows[0]), map_of(rows[1])
    digests = Digests(os.urandom(32))
    one, other = (
        of_text(text or "", record.system.blocks, digests)
        for text, (_, record) in zip(whole, (before, after), strict=True)
    )
    return one, other


def _whole_text(row: PromptRow, record: PromptRecord) -> str | None:
    """Return a system prompt that was recorded as it was sent; None where it was not."""
    if not row.system_bytes:
        return ""
    said = record.system.text
    exact = said is not None and record.level == "full"
    return said if exact and len((said or "").encode()) == row.system_bytes else None


def _spending(found: Mapping[str, Any]) -> Spending:
    return Spending(
        input_tokens=integer(found, semconv.USAGE_INPUT),
        cache_read_tokens=integer(found, semconv.USAGE_CACHE_READ),
        cache_write_tokens=integer(found, semconv.USAGE_CACHE_WRITE),
        input_usd=number(found, semconv.COST_INPUT_USD),
        cache_read_usd=number(found, semconv.COST_CACHE_READ_USD),
        cache_write_usd=number(found, semconv.COST_CACHE_WRITE_USD),
    )


def _digests(row: PromptRow) -> tuple[str, ...] | None:
    digests = tuple(tool.digest for tool in row.tools if tool.digest is not None)
    complete = len(digests) == (row.tool_count or 0)
    return (row.digest_key or "", *digests) if complete else None


# --- what broke the cache -----------------------------------------------------------------------


def _breaks(rounds: Sequence[PromptRound]) -> Iterable[RoundBreak]:
    for before, after in pairwise(rounds):
        lost = _lost(before, after)
        found = _break(before, after, lost)
        if found is None:
            continue
        cause, block = found
        yield RoundBreak(
            span_id=after.span_id,
            round=after.round,
            after_round=before.round,
            cause=cause,
            block=block,
            lost_tokens=lost,
            lost_usd=None if lost is None else lost_usd(before.spending, after.spending, lost),
        )


def _lost(before: PromptRound, after: PromptRound) -> int | None:
    return compare.lost_tokens(
        read_before=before.spending.cache_read_tokens,
        written_before=before.spending.cache_write_tokens,
        read_after=after.spending.cache_read_tokens,
    )


def _break(
    before: PromptRound, after: PromptRound, lost: int | None
) -> tuple[Cause, CacheBreak | None] | None:
    """Return what comes first of what changed; None where nothing did and nothing was lost."""
    block = None
    if before.prompt is not None and after.prompt is not None:
        block = compare.first_break(before.prompt, after.prompt)
    if (before.provider, before.model) != (after.provider, after.model):
        return "model", block
    if _others(before.tool_digests, after.tool_digests):
        return "tools", block
    if block is not None and block.outcome == "changed":
        return ("prompt" if block.what == "whole" else "block"), block
    return ("elsewhere", block) if lost else None


def _others(before: tuple[str, ...] | None, after: tuple[str, ...] | None) -> bool:
    """Tell whether digests, the key's id in front, are known to be of other definitions."""
    return before is not None and after is not None and before[0] == after[0] and before != after


def lost_usd(before: Spending, after: Spending, lost: int) -> float | None:
    """Return what tokens cost that could have come from the cache and did not, beyond that.

    They were paid at the rates of the later round: written to the cache again as far as it wrote
    there, else as plain input.

    Args:
        before: of the earlier round, for the rate of cached tokens where the later one read none.
        after: of the later round.
        lost: the tokens.
    """
    if not lost:
        return 0.0
    cached = after.read_rate()
    cached = before.read_rate() if cached is None else cached
    written = min(lost, after.cache_write_tokens or 0)
    plain = lost - written
    write_rate, rate = after.write_rate(), after.rate()
    if cached is None or (written and write_rate is None) or (plain and rate is None):
        return None
    return written * (write_rate or 0.0) + plain * (rate or 0.0) - lost * cached


# --- what grew, what went -------------------------------------------------------------------------


def _growth(rounds: Sequence[PromptRound]) -> tuple[BlockGrowth, ...]:
    sizes: dict[tuple[str, int], list[int | None]] = {}
    layers: dict[tuple[str, int], str] = {}
    for place, each in enumerate(rounds):
        for key, layer, size in _blocks(each.prompt):
            column = sizes.setdefault(key, [None] * len(rounds))
            column[place] = size
            layers.setdefault(key, layer)
    return tuple(
        BlockGrowth(id=key[0], occurrence=key[1], layer=layers[key], sizes=tuple(column))
        for key, column in sizes.items()
    )


def _blocks(prompt: BlockMap | None) -> Iterable[tuple[tuple[str, int], str, int]]:
    counts: dict[str, int] = {}
    if prompt is None:
        return
    for name, layer, size in zip(prompt.ids, prompt.layers, prompt.sizes, strict=True):
        counts[name] = counts.get(name, 0) + 1
        yield (name, counts[name]), layer, size


def _evicted(rounds: Sequence[PromptRound]) -> Iterable[Evicted]:
    for before, after in pairwise(rounds):
        if before.prompt is None or after.prompt is None:
            continue
        if not (before.prompt.mapped and after.prompt.mapped):
            continue
        for change in compare.compare(before.prompt, after.prompt).changes:
            if change.what == "removed":
                yield Evicted(
                    id=change.id,
                    occurrence=change.occurrence,
                    bytes=change.bytes_before or 0,
                    span_id=after.span_id,
                    round=after.round,
                )


def _per_token(usd: float | None, tokens: int | None) -> float | None:
    return None if usd is None or not tokens or tokens < 0 else usd / tokens


def _sum(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
