"""How many tokens each block of a prompt takes: estimated, or scaled to what was reported.

No provider says what a part of its input cost. A quarter of the bytes is an estimate. Where the
provider has reported the tokens of the whole input and the size of the rest is known too, the
report is divided by size: nearer, and still no measurement. Each figure says which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Basis = Literal["estimated", "scaled"]
_BYTES_PER_TOKEN = 4


class Share(Struct, frozen=True, kw_only=True):
    """One block's part."""

    tokens: int
    basis: Basis
    """`estimated`: a token for every four bytes. `scaled`: a part of the reported input."""
    part: float
    """The block's bytes over those of all blocks, 0 to 1."""
    of_input: float | None = None
    """The block's tokens over the reported input's, 0 to 1; None where none was reported."""


def shares(
    sizes: Sequence[int],
    *,
    reported_input: int | None = None,
    rest_bytes: int | None = None,
) -> list[Share]:
    """Return the share of each block, in their order.

    Args:
        sizes: UTF-8 bytes of each block.
        reported_input: input tokens that the provider reported, cached ones included.
        rest_bytes: bytes of everything else in the input: tool definitions, messages. Without it
            nothing can be scaled, for the report is about the whole.

    Returns:
        Estimates; or, where both are given, parts of `reported_input`: rounded so that the blocks
        and the rest add up to it.
    """
    total = sum(sizes)
    parts = [size / total if total else 0.0 for size in sizes]
    if reported_input is None or rest_bytes is None or total + rest_bytes <= 0:
        known = reported_input or None
        estimates = [-(-size // _BYTES_PER_TOKEN) for size in sizes]
        return [
            Share(
                tokens=tokens,
                basis="estimated",
                part=part,
                of_input=None if known is None else min(1.0, tokens / known),
            )
            for tokens, part in zip(estimates, parts, strict=True)
        ]
    scaled = divided(reported_input, [*sizes, rest_bytes])[:-1]
    return [
        Share(
            tokens=tokens,
            basis="scaled",
            part=part,
            of_input=tokens / reported_input if reported_input else 0.0,
        )
        for tokens, part in zip(scaled, parts, strict=True)
    ]


def divided(whole: int, weights: Sequence[int]) -> list[int]:
    """Divide a number by weights into whole numbers that add up to it (largest remainders first).

    Where all weights are zero, all parts are.
    """
    total = sum(weights)
    if total <= 0:
        return [0] * len(weights)
    parts = [whole * weight // total for weight in weights]
    missing = whole - sum(parts)
    by_remainder = sorted(range(len(weights)), key=lambda i: -(whole * weights[i] % total))
    for index in by_remainder[:missing]:
        parts[index] += 1
    return parts
