"""What an examination finds: one statement each, in plain words, with what to do about it."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

Level = Literal["ok", "note", "warning", "problem"]
LEVELS: Final[tuple[Level, ...]] = ("ok", "note", "warning", "problem")
"""From harmless to harmful. A note is worth knowing; a warning costs data or privacy under some
condition; a problem costs it now."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was looked at."""

    check: str
    """What was looked at, a word: `exporter`, `clock`, `store`."""
    level: Level
    message: str
    """One sentence. It never has a secret or content in it."""
    advice: str | None = None
    """What to do, where something should be done."""
    facts: dict[str, Any] = {}
    """The same for programs."""


class Report(Struct, frozen=True, kw_only=True):
    """All that was found."""

    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        """The worst level."""
        for level in reversed(LEVELS):
            if any(each.level == level for each in self.findings):
                return level
        return "ok"

    def of(self, check: str) -> tuple[Finding, ...]:
        """Return what one check has found."""
        return tuple(each for each in self.findings if each.check == check)


def ok(check: str, message: str, **facts: Any) -> Finding:
    """Return a finding that all is well."""
    return Finding(check=check, level="ok", message=message, facts=facts)


def note(check: str, message: str, advice: str | None = None, **facts: Any) -> Finding:
    """Return something worth knowing."""
    return Finding(check=check, level="note", message=message, advice=advice, facts=facts)


def warning(check: str, message: str, advice: str | None = None, **facts: Any) -> Finding:
    """Return something that costs data or privacy under some condition."""
    return Finding(check=check, level="warning", message=message, advice=advice, facts=facts)


def problem(check: str, message: str, advice: str | None = None, **facts: Any) -> Finding:
    """Return something that costs data or privacy now."""
    return Finding(check=check, level="problem", message=message, advice=advice, facts=facts)
