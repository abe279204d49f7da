"""The allow-list: which keys may leave the process, and what their values may hold.

It is data: a mapping from key to value rule for spans (attributes of spans, events and links),
and one for resources. An empty list passes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from clew.rules import (
    DROPPED,
    OTHER,
    Closed,
    Each,
    Flag,
    Hex,
    Identifier,
    Number,
    Opaque,
    Rule,
    Uuid,
)
from clew.semconv import FOREIGN_RULES, RESOURCE_RULES, RULES

__all__ = [
    "DROPPED",
    "OTHER",
    "AllowList",
    "Closed",
    "Each",
    "Flag",
    "Hex",
    "Identifier",
    "Number",
    "Opaque",
    "Rule",
    "Uuid",
]


class AllowList:
    """Keys that may leave, each with the rule for its value.

    Args:
        spans: rules for attributes of spans, events and links.
        resource: rules for resource attributes.
    """

    __slots__ = ("resource", "spans")

    def __init__(
        self,
        spans: Mapping[str, Rule] | None = None,
        *,
        resource: Mapping[str, Rule] | None = None,
    ) -> None:
        self.spans: dict[str, Rule] = dict(spans or {})
        self.resource: dict[str, Rule] = dict(resource or {})

    @classmethod
    def default(cls) -> AllowList:
        """Return the list of the attribute contract, with content-free keys of other libraries."""
        return cls({**RULES, **FOREIGN_RULES}, resource=RESOURCE_RULES)

    def extended(
        self,
        spans: Mapping[str, Rule] | None = None,
        *,
        resource: Mapping[str, Rule] | None = None,
    ) -> AllowList:
        """Return a new list with more keys, or other rules for the same keys."""
        return AllowList(
            {**self.spans, **(spans or {})}, resource={**self.resource, **(resource or {})}
        )

    def keep(self, attributes: Mapping[str, Any], dropped: Counter[str]) -> dict[str, Any]:
        """Return the attributes that may leave; count the others in `dropped`, by rule name."""
        return _keep(self.spans, attributes, dropped)

    def keep_resource(self, attributes: Mapping[str, Any], dropped: Counter[str]) -> dict[str, Any]:
        """Like `keep`, with the rules for resources."""
        return _keep(self.resource, attributes, dropped)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AllowList):
            return NotImplemented
        return self.spans == other.spans and self.resource == other.resource

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AllowList({len(self.spans)} span keys, {len(self.resource)} resource keys)"


def _keep(
    rules: Mapping[str, Rule], attributes: Mapping[str, Any], dropped: Counter[str]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in attributes.items():
        if value is None:  # said to be absent
            continue
        rule = rules.get(key)
        if rule is None:
            dropped["key"] += 1
            continue
        result = rule.apply(value)
        if result is DROPPED:
            dropped[rule.name] += 1
        else:
            kept[key] = result
    return kept
