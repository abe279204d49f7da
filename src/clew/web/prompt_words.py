"""Figures of the inspector in words."""

from __future__ import annotations

from typing import Final

from clew.sources.wording import UNKNOWN

_CENT: Final = 0.01
_LEAST: Final = 0.00005


def tokens(value: int | None) -> str:
    """Write tokens: below 1,000 as they are, else in thousands with one decimal."""
    if value is None:
        return UNKNOWN
    return str(value) if value < 1000 else f"{value / 1000:.1f}k"


def cost(usd: float | None) -> str:
    """Write a cost in dollars: four decimals below a cent, else three."""
    if usd is None:
        return UNKNOWN
    if usd == 0:
        return "$0"
    if usd < _LEAST:
        return "< $0.0001"
    return f"${usd:.4f}" if usd < _CENT else f"${usd:.3f}"


def share(part: float | None) -> str:
    """Write a part of a whole, 0 to 1, as a percentage with one decimal."""
    return UNKNOWN if part is None else f"{100 * part:.1f} %"


def count(value: int | None, one: str, many: str | None = None) -> str:
    """Write a number of things: `1 message`, `12 messages`."""
    if value is None:
        return f"{UNKNOWN} {many or one + 's'}"
    shown = f"{value:,}".replace(",", "\u202f")
    return f"{shown} {one if value == 1 else many or one + 's'}"
