"""Totals of a run: what is summed over its rounds, tool calls and decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

_COUNTS = (
    "rounds",
    "tool_calls",
    "decisions",
    "denials",
    "rounds_unpriced",
    "rounds_without_usage",
)
_TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


_KEYS = {
    prefix: (
        *(prefix + name for name in _COUNTS),
        *(f"{prefix}usage.{name}" for name in _TOKENS),
        prefix + "cost.usd",
        prefix + "cost.status",
    )
    for prefix in ("clew.run.", "clew.segment.")
}
"""The attributes of totals, in the order of the fields."""
_MAX = 2**63 - 1  # OpenTelemetry's integers have 64 bits


class Totals(Struct, kw_only=True):
    """Sums of one segment or, cumulative, of a run. Tokens are None until one was reported."""

    rounds: int = 0
    tool_calls: int = 0
    decisions: int = 0
    denials: int = 0
    rounds_unpriced: int = 0
    rounds_without_usage: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    cost_status: str | None = None
    """The status that all rounds share, else `partial`."""

    def add_usage(self, usage: Any) -> None:
        """Add the token counts of a `Usage`; what it does not tell adds nothing."""
        if usage.input_tokens is not None:
            self.input_tokens = (self.input_tokens or 0) + usage.input_tokens
        if usage.output_tokens is not None:
            self.output_tokens = (self.output_tokens or 0) + usage.output_tokens
        if usage.cache_read_tokens is not None:
            self.cache_read_tokens = (self.cache_read_tokens or 0) + usage.cache_read_tokens
        if usage.cache_write_tokens is not None:
            self.cache_write_tokens = (self.cache_write_tokens or 0) + usage.cache_write_tokens
        if usage.reasoning_tokens is not None:
            self.reasoning_tokens = (self.reasoning_tokens or 0) + usage.reasoning_tokens

    def add_cost(self, status: str, usd: float | None) -> None:
        """Add a cost, of a round or of other totals."""
        if usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + usd
        if self.cost_status is None:
            self.cost_status = status
        elif self.cost_status != status:
            self.cost_status = "partial"

    def add_cost_of(self, round_: Any) -> None:
        """Add the `Cost` of one round or call."""
        status, usd = round_.status, round_.usd
        if usd is not None:
            self.cost_usd = usd + (self.cost_usd or 0.0)
        if self.cost_status != status:
            self.cost_status = status if self.cost_status is None else "partial"
        if status == "unpriced":
            self.rounds_unpriced += 1

    def plus(self, other: Totals) -> Totals:
        """Return the sum of two totals."""
        result = Totals()
        for totals in (self, other):
            for name in _COUNTS:
                setattr(result, name, getattr(result, name) + getattr(totals, name))
            result.add_usage(totals)
            if totals.cost_status is not None:
                result.add_cost(totals.cost_status, totals.cost_usd)
        return result

    def attributes(self, *prefixes: str) -> dict[str, int | float | str]:
        """Return the totals as attributes under `clew.run.`, `clew.segment.`, or both.

        A sum that is too large for an attribute is left out.
        """
        values = astuple(self)
        found: dict[str, Any] = {}
        for prefix in prefixes:
            found.update(zip(_KEYS[prefix], values, strict=True))
        for place, value in enumerate(values):
            if value is None or (value.__class__ is not str and value > _MAX):
                for prefix in prefixes:
                    del found[_KEYS[prefix][place]]
        return found

    def to_fields(self) -> str:
        """Encode for a run reference: fields in order, `.` between them, `-` for None."""
        fields: list[object] = [getattr(self, name) for name in (*_COUNTS, *_TOKENS)]
        fields.append(None if self.cost_usd is None else round(self.cost_usd * 1e12))
        fields.append(self.cost_status)
        return ".".join("-" if field is None else str(field) for field in fields)

    @classmethod
    def from_fields(cls, text: str, statuses: Mapping[str, Any] | tuple[str, ...]) -> Totals:
        """Decode what `to_fields` wrote; raises ValueError for anything else."""
        fields = text.split(".")
        names = (*_COUNTS, *_TOKENS)
        if len(fields) != len(names) + 2:
            raise ValueError("wrong number of totals")
        result = cls()
        for name, field in zip(names, fields, strict=False):
            if field != "-":
                if not field.isdigit():
                    raise ValueError("a total is not a number")
                setattr(result, name, int(field))
        if fields[-2] != "-":
            if not fields[-2].isdigit():
                raise ValueError("the cost is not a number")
            result.cost_usd = int(fields[-2]) / 1e12
        if fields[-1] != "-":
            if fields[-1] not in statuses:
                raise ValueError("unknown cost status")
            result.cost_status = fields[-1]
        return result
