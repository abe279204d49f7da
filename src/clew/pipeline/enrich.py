"""Fold spans of other instrumentations for a model call that is a round of ours.

Only rounds and calls of ours carry `gen_ai.usage.*`, so that a plain sum over a trace counts each
token once. The foreign spans above a round are remembered when the round opens; on their exported
copies usage is removed and `clew.aggregate` set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from clew import semconv

_REMEMBERED = 10_000
_DEPTH = 32
_USAGE = "gen_ai.usage."
_COST = "clew.cost."


class Folds:
    """Foreign spans that are open, with their parents, and which of them have a round below."""

    def __init__(self) -> None:
        self._parents: OrderedDict[int, int | None] = OrderedDict()
        self._folded: OrderedDict[int, None] = OrderedDict()

    def opened(self, span_id: int, parent_id: int | None) -> None:
        """Note that a foreign span has started."""
        self._parents[span_id] = parent_id
        if len(self._parents) > _REMEMBERED:
            self._parents.popitem(last=False)

    def fold(self, span_id: int) -> None:
        """Note that a round opened under a span; foreign ancestors are folded with it."""
        current: int | None = span_id
        for _ in range(_DEPTH):
            if current is None or current not in self._parents:
                return
            self._folded[current] = None
            current = self._parents[current]

    def ended(self, span_id: int) -> bool:
        """Forget a foreign span; tell whether it was folded."""
        self._parents.pop(span_id, None)
        return self._folded.pop(span_id, False) is None


def folded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a folded span's attributes, without what the round below it carries."""
    kept = {key: value for key, value in attributes.items() if not key.startswith((_USAGE, _COST))}
    if len(kept) != len(attributes):
        kept[semconv.AGGREGATE] = True
    return kept
