"""Bounds on the size of prompts, checked against recorded calls: `clew prompt budget`.

    rules:
      - of: system            # the whole system prompt
        max_tokens: 4000
        max_growth: 20        # percent, within one run, over the first round
      - of: block skills      # one block; a name may end in *
        agent: triage
        max_bytes: 2000
      - of: tools
        max_chars: 8000
      - of: request
        max_bytes: 100000
      - of: history
        max_messages: 40

A rule that nothing was measured against fails, for it may be misspelled; `optional: true` says that
this is fine. Tokens are an estimate: a token for every four bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from clew.errors import ConfigurationError
from clew.prompts.documents import Document, parse, read_text
from clew.store.prompt_records import PromptRow

_UNITS: Final[Mapping[str, tuple[str, ...]]] = {
    "system": ("tokens", "bytes", "chars", "growth"),
    "block": ("tokens", "bytes", "chars", "growth"),
    "tools": ("tokens", "chars", "growth"),
    "request": ("bytes", "growth"),
    "history": ("messages",),
}
"""What can be bounded, and in which units. `growth` is in percent of the first round of a run."""
_MEASURE: Final[Mapping[str, str]] = {"tools": "chars", "history": "messages"}
_KEYS: Final = frozenset({"of", "agent", "optional"})
_BYTES_PER_TOKEN: Final = 4


class Bound(Struct, frozen=True, kw_only=True):
    """One bound of a rule."""

    of: str
    """`system`, `tools`, `request`, `history`, or `block NAME`."""
    unit: str
    limit: float
    agent: str | None = None
    """The agent that it is for; None: any."""
    optional: bool = False

    @property
    def name(self) -> str | None:
        """The block's name, where it is about one."""
        return self.of.partition(" ")[2] or None


class Verdict(Struct, frozen=True, kw_only=True):
    """What became of one bound."""

    bound: Bound
    largest: float | None
    """The largest value that was measured; None: there was nothing to measure."""
    request_id: str | None
    """The record that has it."""

    @property
    def word(self) -> str:
        """`ok`, `exceeded`, or `unmatched` for a rule that nothing was measured against."""
        if self.largest is None:
            return "ok" if self.bound.optional else "unmatched"
        return "ok" if self.largest <= self.bound.limit else "exceeded"


class Judge:
    """Measures records against bounds, oldest first or in any other order."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self._bounds = bounds
        self._largest: list[tuple[float, str] | None] = [None] * len(bounds)
        self._series: dict[tuple[int, str, str, str], list[tuple[int, float, str]]] = {}
        self.records = 0
        """How many records were looked at."""

    def look(self, row: PromptRow) -> None:
        """Measure one record."""
        self.records += 1
        for place, bound in enumerate(self._bounds):
            if bound.agent is not None and bound.agent != row.agent:
                continue
            if bound.unit == "growth":
                self._note(place, bound, row)
                continue
            for _, value in _values(row, bound, bound.unit):
                self._measured(place, value, row.request_id)

    def verdicts(self) -> tuple[Verdict, ...]:
        """Return what became of each bound, in the order of the rules."""
        for (place, *_), series in self._series.items():
            _, first, _ = min(series)
            for _, value, request_id in series:
                if first:
                    self._measured(place, (value - first) / first * 100, request_id)
        self._series.clear()
        found: list[Verdict] = []
        for bound, largest in zip(self._bounds, self._largest, strict=True):
            value, request_id = largest or (None, None)
            found.append(Verdict(bound=bound, largest=value, request_id=request_id))
        return tuple(found)

    @property
    def fine(self) -> bool:
        """Whether no bound is exceeded and every rule was measured against something."""
        return all(verdict.word == "ok" for verdict in self.verdicts())

    def _measured(self, place: int, value: float, request_id: str) -> None:
        known = self._largest[place]
        if known is None or value > known[0]:
            self._largest[place] = (value, request_id)

    def _note(self, place: int, bound: Bound, row: PromptRow) -> None:
        """Keep a value for the growth within a run; outside a run nothing grows."""
        if row.run_id is None or row.round is None:
            return
        kind = bound.of.partition(" ")[0]
        for key, value in _values(row, bound, _MEASURE.get(kind, "bytes")):
            series = self._series.setdefault((place, row.run_id, row.agent_id or "", key), [])
            series.append((row.start_ns, value, row.request_id))


def _values(row: PromptRow, bound: Bound, unit: str) -> Iterator[tuple[str, float]]:
    """Yield what a bound is about, each with a key that is the same in the next round."""
    kind = bound.of.partition(" ")[0]
    sizes: dict[str, int | None]
    if kind == "block":
        counts: dict[str, int] = {}
        for block in row.blocks:
            counts[block.id] = counts.get(block.id, 0) + 1
            if _matches(bound.name or "", block.id):
                sizes = {"bytes": block.bytes, "chars": block.chars, "tokens": block.tokens}
                yield f"{block.id} {counts[block.id]}", sizes[unit] or 0
        return
    if kind == "system":
        sizes = {"bytes": row.system_bytes, "chars": row.system_chars, "tokens": row.system_tokens}
    elif kind == "tools":
        chars = row.tool_chars if row.tool_count else 0
        sizes = {"chars": chars, "tokens": None if chars is None else -(-chars // _BYTES_PER_TOKEN)}
    elif kind == "request":
        sizes = {"bytes": row.request_bytes}
    else:
        sizes = {"messages": row.history_length}
    value = sizes[unit]
    if value is not None:
        yield "", value


def _matches(pattern: str, name: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def read(path: Path) -> tuple[Bound, ...]:
    """Read a file of rules: YAML, or JSON where its name ends in .json.

    Raises:
        ConfigurationError: it cannot be read, or holds something that is no rule.
        MissingExtraError: it is YAML and PyYAML is not installed.
    """
    text = read_text(path)
    if path.suffix.lower() == ".json":
        try:
            document = Document(path, json.loads(text), None, 0)
        except (ValueError, RecursionError):
            raise ConfigurationError(f"{path}: no JSON") from None
    else:
        document = parse(text, path)
    data = document.data
    rules: Any = cast("dict[Any, Any]", data).get("rules") if isinstance(data, dict) else None
    if not isinstance(rules, list) or not rules or len(cast("Any", data)) != 1:
        raise ConfigurationError(f"{path}: write `rules:`, with a list of rules, and nothing else")
    bounds: list[Bound] = []
    for place, rule in enumerate(cast("list[Any]", rules)):
        bounds += _bounds(rule, document.where(("rules", place)))
    return tuple(bounds)


def _bounds(rule: Any, where: str) -> Iterator[Bound]:
    if not isinstance(rule, dict):
        raise ConfigurationError(f"{where}: a rule is a mapping with `of` and a bound")
    given = cast("dict[str, Any]", rule)
    of, agent, optional = given.get("of"), given.get("agent"), given.get("optional", False)
    kind, _, name = of.partition(" ") if isinstance(of, str) else ("", "", "")
    if kind not in _UNITS or (kind == "block") != bool(name.strip()):
        known = ", ".join(_UNITS).replace("block", "block NAME")
        raise ConfigurationError(f"{where}: `of` is one of {known}, not {of!r}")
    if not (agent is None or isinstance(agent, str)) or not isinstance(optional, bool):
        raise ConfigurationError(f"{where}: `agent` is a name, `optional` is true or false")
    limits = {key: value for key, value in given.items() if key not in _KEYS}
    if not limits:
        raise ConfigurationError(f"{where}: there is no bound, such as max_{_UNITS[kind][0]}")
    for key, limit in limits.items():
        unit = str(key).removeprefix("max_")
        if not str(key).startswith("max_") or unit not in _UNITS[kind]:
            known = ", ".join(f"max_{each}" for each in _UNITS[kind])
            raise ConfigurationError(f"{where}: {key!r} is none of {known}")
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 0:
            raise ConfigurationError(f"{where}: {key} is a number from 0, not {limit!r}")
        subject = f"block {name.strip()}" if kind == "block" else kind
        yield Bound(of=subject, unit=unit, limit=float(limit), agent=agent, optional=optional)


def form(judge: Judge) -> dict[str, Any]:
    """Return the verdicts as JSON has them."""
    return {
        "ok": judge.fine,
        "records": judge.records,
        "verdicts": [
            {
                "verdict": each.word,
                "largest": each.largest,
                "request_id": each.request_id,
                **msgspec.to_builtins(each.bound),
            }
            for each in judge.verdicts()
        ],
    }
