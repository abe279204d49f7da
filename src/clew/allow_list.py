"""The allow-list: which keys may leave the process, and what their values may hold.

It is data: a mapping from key to value rule for spans (attributes of spans, events and links),
and one for resources. An empty list passes nothing.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from clew import rule_data
from clew._guard import record_failure
from clew.errors import ConfigurationError, MissingExtraError
from clew.foreign_rules import FOREIGN_RULES, RESOURCE_RULES
from clew.rules import (
    DROPPED,
    OTHER,
    Closed,
    Each,
    Flag,
    Hex,
    Identifier,
    KeyedDigest,
    Number,
    Opaque,
    Rule,
    Uuid,
)
from clew.semconv import RULES

__all__ = [
    "DROPPED",
    "OTHER",
    "AllowList",
    "Closed",
    "Each",
    "Flag",
    "Hex",
    "Identifier",
    "KeyedDigest",
    "Number",
    "Opaque",
    "Rule",
    "Uuid",
]

_LARGEST_FILE: Final = 4 * 1024 * 1024


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

    def bound(self, digest: Callable[[str], str] | None) -> AllowList:
        """Return a list whose keyed digests are made by `digest`; by nothing, they drop."""
        return AllowList(_bound(self.spans, digest), resource=_bound(self.resource, digest))

    def to_data(self) -> dict[str, Any]:
        """Return the whole list as plain data, from which `from_data` makes an equal list.

        Raises:
            ConfigurationError: a rule of your own making cannot be written as data.
        """
        return {
            "version": 1,
            "spans": {key: rule_data.to_data(rule) for key, rule in self.spans.items()},
            "resource": {key: rule_data.to_data(rule) for key, rule in self.resource.items()},
        }

    @classmethod
    def from_data(cls, data: Any) -> AllowList:
        """Return the list that some data says: exactly its keys, nothing of the default list.

        Args:
            data: `{"version": 1, "spans": {key: rule}, "resource": {key: rule}}`; each part may
                be absent. See `clew.rule_data` for rules.

        Raises:
            ConfigurationError: the data is not a list; the message says where.
        """
        if not isinstance(data, Mapping):
            raise ConfigurationError("an allow-list is a mapping with `spans` and `resource`")
        parts = cast("Mapping[Any, Any]", data)
        unknown = [str(name) for name in parts if name not in ("version", "spans", "resource")]
        if unknown:
            raise ConfigurationError(
                f"an allow-list has no part {unknown[0]!r}; write keys under `spans` or `resource`"
            )
        if parts.get("version", 1) != 1:
            raise ConfigurationError(f"version {parts['version']!r} is unknown; this one reads 1")
        return cls(_rules_of(parts, "spans"), resource=_rules_of(parts, "resource"))

    @classmethod
    def read(cls, path: Path) -> AllowList:
        """Read a list from a file: YAML where its name ends in .yaml or .yml, else JSON.

        Raises:
            ConfigurationError: the file cannot be read, or is no list.
            MissingExtraError: it is YAML and PyYAML is not installed.
        """
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise ConfigurationError(f"{path} is larger than {_LARGEST_FILE} bytes")
            return cls.from_data(_load(path))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from None

    def keep(self, attributes: Mapping[str, Any], dropped: Counter[str]) -> dict[str, Any]:
        """Return the attributes that may leave; count the others in `dropped`, by rule name."""
        return _keep(self.spans, attributes, dropped)

    def keep_resource(self, attributes: Mapping[str, Any], dropped: Counter[str]) -> dict[str, Any]:
        """Like `keep`, with the rules for resources."""
        return _keep(self.resource, attributes, dropped)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AllowList):
            return NotImplemented
        if self.spans == other.spans and self.resource == other.resource:
            return True
        try:
            return self.to_data() == other.to_data()
        except ConfigurationError:
            return False

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AllowList({len(self.spans)} span keys, {len(self.resource)} resource keys)"


def _load(path: Path) -> Any:
    data = path.read_bytes()
    if path.suffix.lower() not in (".yaml", ".yml"):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"this is no JSON ({error})") from None
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise MissingExtraError("An allow-list in YAML", "yaml") from None
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"this is no YAML ({error})") from None


def _bound(rules: Mapping[str, Rule], digest: Callable[[str], str] | None) -> dict[str, Rule]:
    return {key: _bind(rule, digest) for key, rule in rules.items()}


def _bind(rule: Rule, digest: Callable[[str], str] | None) -> Rule:
    if isinstance(rule, KeyedDigest):
        return KeyedDigest(digest)
    if isinstance(rule, Each) and isinstance(rule.rule, (KeyedDigest, Each)):
        return Each(_bind(rule.rule, digest), max_items=rule.max_items, fill=rule.fill)
    return rule


def _rules_of(data: Mapping[Any, Any], part: str) -> dict[str, Rule]:
    given = data.get(part)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"`{part}` of an allow-list is a mapping from key to rule")
    rules: dict[str, Rule] = {}
    for key, rule in cast("Mapping[Any, Any]", given).items():
        if not isinstance(key, str) or not 1 <= len(key) <= 256:
            raise ConfigurationError(f"{key!r} in `{part}` is not an attribute key")
        rules[key] = rule_data.from_data(rule, key)
    return rules


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
        try:
            result = rule.apply(value)
        except Exception:  # of a rule of one's own
            record_failure("apply a rule of the allow-list", "The value is left out")
            result = DROPPED
        if result is DROPPED:
            dropped[rule.name] += 1
        else:
            kept[key] = result
    return kept
