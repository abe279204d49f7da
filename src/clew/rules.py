"""Value rules: what an allowed attribute may hold.

A key on the allow-list has one rule. A rule takes a value and answers with the value to keep,
or `DROPPED`. Rules never raise and never look at anything but the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, cast

OTHER: Final = "_OTHER"
"""Stands for a value outside a closed set (the conventions' own catch-all)."""


class _Dropped:
    __slots__ = ()

    def __repr__(self) -> str:
        return "DROPPED"

    def __bool__(self) -> bool:
        return False


DROPPED: Final = _Dropped()
"""A rule's answer for a value that may not pass."""


class Rule(Protocol):
    """One value rule; `name` is what is counted and shown when it drops something."""

    @property
    def name(self) -> str:
        """The rule's name, for counters and `clew policy`."""
        ...

    def apply(self, value: Any) -> Any:
        """Return the value to keep, or `DROPPED`."""
        ...


_OPAQUE = re.compile(r"[A-Za-z0-9_.:/@+=~#-]+")
_HEX = re.compile(r"[0-9a-f]+")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Identifier:
    """ASCII letters, digits and `_ . : / @ + = ~ # -`, no spaces, at most `max_length` long.

    The name of a resource of Amazon's (`arn:...`) is kept without the number of the account.
    """

    __slots__ = ("fits", "known", "max_length")
    name = "identifier"

    def __init__(self, max_length: int = 128) -> None:
        self.max_length = max_length
        self.known: dict[str, None] = {}
        """Strings that were found to be identifiers: most come again and again."""
        rest = max(0, max_length - 1)
        self.fits = re.compile(f"[A-Za-z0-9_][A-Za-z0-9_.:/@+=~#-]{{0,{rest}}}").fullmatch
        """Tells for a string whether it is an identifier, by what it returns being not None."""

    def apply(self, value: Any) -> Any:
        """Keep a string that is an identifier."""
        if type(value) is not str:
            return DROPPED
        if value in self.known:
            return value
        if self.fits(value) is None:
            return DROPPED
        if value.startswith("arn:"):
            return without_account(value)
        if len(self.known) < 1024:
            self.known[value] = None
        return value


def without_account(arn: str) -> str:
    """Return the name of a resource of Amazon's without the account that it belongs to.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference-arns.html:
    `arn:partition:service:region:account-id:resource`; names without an account exist, too.
    """
    parts = arn.split(":", 5)
    if len(parts) == 6 and parts[4].isdigit():
        parts[4] = ""
    return ":".join(parts)


class Opaque(Identifier):
    """An identifier with many distinct values (response ids, call ids): not remembered."""

    __slots__ = ()

    def apply(self, value: Any) -> Any:
        """Keep a string that is an identifier."""
        return value if type(value) is str and self.fits(value) is not None else DROPPED


class Hex:
    """Lower-case hexadecimal digits."""

    __slots__ = ("max_length",)
    name = "hex"

    def __init__(self, max_length: int = 64) -> None:
        self.max_length = max_length

    def apply(self, value: Any) -> Any:
        """Keep a string of hexadecimal digits."""
        if type(value) is str and len(value) <= self.max_length and _HEX.fullmatch(value):
            return value
        return DROPPED


class Uuid:
    """A lower-case uuid with dashes."""

    __slots__ = ()
    name = "uuid"

    def apply(self, value: Any) -> Any:
        """Keep a uuid in its canonical form."""
        return value if type(value) is str and _UUID.fullmatch(value) else DROPPED


class Closed:
    """One of a fixed set of strings; `other`, when given, replaces every other string."""

    __slots__ = ("other", "values")
    name = "closed_set"

    def __init__(self, *values: str, other: str | None = None) -> None:
        self.values = frozenset(values)
        self.other = other

    def apply(self, value: Any) -> Any:
        """Keep a member of the set."""
        if type(value) is not str:
            return DROPPED
        if value in self.values or value == self.other:
            return value
        return DROPPED if self.other is None else self.other


class Number:
    """An integer or a finite float within bounds."""

    __slots__ = ("high", "low")
    name = "number_range"

    def __init__(self, low: float = 0, high: float = 2**63 - 1) -> None:
        self.low = low
        self.high = high

    def apply(self, value: Any) -> Any:
        """Keep a number within the bounds."""
        if type(value) is int:  # by far the most frequent
            return value if self.low <= value <= self.high else DROPPED
        if isinstance(value, float) and math.isfinite(value):
            return value if self.low <= value <= self.high else DROPPED
        return DROPPED


class Flag:
    """True or false."""

    __slots__ = ()
    name = "flag"

    def apply(self, value: Any) -> Any:
        """Keep a boolean."""
        return value if type(value) is bool else DROPPED


class KeyedDigest:
    """A text that leaves as its keyed digest only: for identifiers of people and the like.

    Args:
        digest: makes the digest of a text; without it nothing passes. `AllowList.bound` gives it.
    """

    __slots__ = ("digest",)
    name = "keyed_digest"

    def __init__(self, digest: Callable[[str], str] | None = None) -> None:
        self.digest = digest

    def apply(self, value: Any) -> Any:
        """Return the digest of a text; drop everything else."""
        if self.digest is None or type(value) is not str:
            return DROPPED
        try:
            return self.digest(value)
        except Exception:
            return DROPPED


class CapturedText(str):
    """Content that was captured on purpose: the only text that `Captured` lets pass."""

    __slots__ = ()


class Captured:
    """Lets content through that the capture level has let through, and nothing that looks alike."""

    __slots__ = ()
    name = "captured"

    def apply(self, value: Any) -> Any:
        """Keep captured content."""
        return str(value) if type(value) is CapturedText else DROPPED


class Each:
    """A sequence, each entry of which obeys `rule`; `fill` stands in for those that do not."""

    __slots__ = ("fill", "max_items", "rule")

    def __init__(self, rule: Rule, *, max_items: int = 256, fill: str | None = None) -> None:
        self.rule = rule
        self.max_items = max_items
        self.fill = fill

    @property
    def name(self) -> str:
        """The rule's name, with the entries' rule."""
        return f"each_{self.rule.name}"

    def apply(self, value: Any) -> Any:
        """Keep the sequence (as a tuple) when every entry obeys the rule or can be filled in."""
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return DROPPED
        entries = cast("Sequence[Any]", value)
        if len(entries) > self.max_items:
            return DROPPED
        kept: list[Any] = []
        for entry in entries:
            result = self.rule.apply(entry)
            if result is DROPPED:
                if self.fill is None:
                    return DROPPED
                result = self.fill
            kept.append(result)
        return tuple(kept)
