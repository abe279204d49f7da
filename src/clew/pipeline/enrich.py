"""Fold spans of other instrumentations for a model call that is a round of ours.

One span carries the `gen_ai.usage.*` of a model call, so that a plain sum over a trace counts each
token once: our round, or, where there is none, the innermost foreign span that tells of it; that
one is priced when it is exported. The foreign spans above are remembered; on their exported copies
usage is removed and `clew.aggregate` set.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from clew import semconv
from clew.facts import CALL_OPERATIONS, ROUND_OPERATIONS, Usage
from clew.pipeline.late import add_cost
from clew.pricing import PENDING, Prices, compute

_REMEMBERED = 10_000
_ROUNDS_REMEMBERED = 128
_DEPTH = 32
_SIBLINGS = 64
_PATIENCE_S = 5.0
_SYSTEM = "gen_ai.system"
"""What `gen_ai.provider.name` was called before."""
_NO_USAGE = Usage()
_USAGE = "gen_ai.usage."
_COST = "clew.cost."


class Folds:
    """Foreign spans that are open, and which of them tell of a call that another span carries."""

    def __init__(self) -> None:
        self.open: OrderedDict[int, int | None] = OrderedDict()
        """Foreign spans that are open, each with its parent."""
        self._children: dict[int | None, dict[int, int]] = {}
        """The same by parent: span id to the thread that opened it."""
        self._folded: OrderedDict[int, None] = OrderedDict()
        self._beside: OrderedDict[int, set[str | None]] = OrderedDict()
        """Open spans beside which rounds opened, with the models that those asked for."""
        self._told: OrderedDict[tuple[int, int | None, int | None], set[str | None]] = OrderedDict()
        """What rounds told lately: trace and tokens, with their models."""
        self.seen = False
        """True once there was a foreign span at all."""

    def opened(self, span_id: int, parent_id: int | None) -> None:
        """Note that a foreign span has started."""
        self.open[span_id] = parent_id
        self._children.setdefault(parent_id, {})[span_id] = threading.get_ident()
        if len(self.open) > _REMEMBERED:
            oldest, its_parent = self.open.popitem(last=False)
            self._forget(oldest, its_parent)
            self._folded.pop(oldest, None)
            self._beside.pop(oldest, None)

    def fold(self, span_id: int | None, model: str | None) -> None:
        """Note that a round opened under a span.

        Foreign ancestors are folded with it. Some instrumentations do not make their span current:
        it then stands beside the round, and is known by the model when it ends.

        Args:
            span_id: the span that the round opens under; None where it is a root.
            model: the model that the round asks for.
        """
        current = span_id
        self._mark_beside(current, model)
        for _ in range(_DEPTH):
            if current is None or current not in self.open:
                return
            self._folded[current] = None
            current = self.open[current]
            if current is not None:  # what stands beside a root is another request
                self._mark_beside(current, model)

    def _mark_beside(self, parent_id: int | None, model: str | None) -> None:
        children = self._children.get(parent_id)
        if not children:
            return
        thread = threading.get_ident()
        for child, opened_by in list(itertools.islice(reversed(children.items()), _SIBLINGS)):
            if parent_id is not None or opened_by == thread:
                self._beside.setdefault(child, set()).add(model)

    def told(self, record: Any) -> None:
        """Note what a round (a `clew.endings.RoundRecord`) told: an observer of rounds."""
        usage: Usage | None = record.ending.response.usage
        if usage is not None:
            key = (record.trace_id, usage.input_tokens, usage.output_tokens)
            models = {record.request.model, record.ending.response.model, record.route.model}
            self._told[key] = models - {None}
            if len(self._told) > _ROUNDS_REMEMBERED:
                self._told.popitem(last=False)

    def ended(self, span_id: int, trace_id: int, attributes: Mapping[str, Any]) -> bool:
        """Forget a foreign span; tell whether it is folded.

        One that is not and tells of usage is the carrier: those above it are folded. It may also
        come after the call (Logfire tells of a stream so): it is known by trace, model and tokens.
        """
        parent = self.open.pop(span_id, None)
        self._forget(span_id, parent)
        is_folded = self._folded.pop(span_id, False) is None
        models = self._beside.pop(span_id, None)
        if is_folded or semconv.USAGE_INPUT not in attributes:
            return is_folded
        told = (attributes.get(semconv.REQUEST_MODEL), attributes.get(semconv.RESPONSE_MODEL))
        if models is not None and not models.isdisjoint(told):
            return True
        tokens = (attributes[semconv.USAGE_INPUT], attributes.get(semconv.USAGE_OUTPUT))
        models = self._told.get((trace_id, *tokens))
        if models is not None and not models.isdisjoint(told):
            return True
        while parent is not None and parent in self.open:
            self._folded[parent] = None
            parent = self.open[parent]
        return False

    def _forget(self, span_id: int, parent_id: int | None) -> None:
        children = self._children.get(parent_id)
        if children is not None:
            children.pop(span_id, None)
            if not children:
                self._children.pop(parent_id, None)


def folded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a folded span's attributes, without what the round below it carries."""
    kept = {key: value for key, value in attributes.items() if not key.startswith((_USAGE, _COST))}
    if len(kept) != len(attributes):
        kept[semconv.AGGREGATE] = True
    return kept


def priced(attributes: Mapping[str, Any], prices: Prices) -> Mapping[str, Any]:
    """Return the attributes of a foreign model call that is no round of ours, with its cost.

    Called on the export thread; waits for the prices, boundedly.
    """
    operation = attributes.get(semconv.OPERATION, "chat")
    if operation not in ROUND_OPERATIONS and operation not in CALL_OPERATIONS:
        return attributes
    usage = Usage(
        input_tokens=_count(attributes, semconv.USAGE_INPUT),
        output_tokens=_count(attributes, semconv.USAGE_OUTPUT),
        cache_read_tokens=_count(attributes, semconv.USAGE_CACHE_READ),
        cache_write_tokens=_count(attributes, semconv.USAGE_CACHE_WRITE),
        reasoning_tokens=_count(attributes, semconv.USAGE_REASONING),
    )
    if usage == _NO_USAGE:
        return attributes
    provider = _text(attributes, semconv.PROVIDER) or _text(attributes, _SYSTEM)
    models = (_text(attributes, semconv.RESPONSE_MODEL), _text(attributes, semconv.REQUEST_MODEL))
    prices.wait(_PATIENCE_S)
    price = prices.find_for(provider, *models, _text(attributes, semconv.RESPONSE_SERVICE_TIER))
    if price is PENDING:
        return attributes
    found = dict(attributes)
    add_cost(found, compute(price, usage, complete=True))
    return found


def _text(attributes: Mapping[str, Any], key: str) -> str | None:
    value = attributes.get(key)
    return value if isinstance(value, str) else None


def _count(attributes: Mapping[str, Any], key: str) -> int | None:
    value = attributes.get(key)
    return value if type(value) is int and value >= 0 else None
