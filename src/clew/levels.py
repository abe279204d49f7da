"""Capture levels: how much of the content of model calls and tool calls may be let through.

`none` has no digests, `metadata` (the default) adds them, `redacted` adds content with secrets
masked, `full` adds content as it is. They are ordered; the strictest of all that apply wins.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from clew import semconv
from clew.errors import ConfigurationError

LevelName = Literal["none", "metadata", "redacted", "full"]

NONE: Final = 0
METADATA: Final = 1
REDACTED: Final = 2
FULL: Final = 3


NOT_AT_NONE: Final = frozenset(
    key
    for key in semconv.RULES
    if key in (semconv.ACTOR, semconv.DIGEST_KEY_ID)
    or key.startswith("clew.prompt.")
    or (
        key.endswith((".digest", ".digests"))
        and key not in ("clew.span.digest", "clew.segment.digest")
    )
)
"""Keys that a run at capture level `none` does not carry: digests, and maps of prompts."""


def number_of(level: Any) -> int:
    """Return a level's place in the order, 0 for `none`.

    Raises:
        ConfigurationError: there is no such level.
    """
    try:
        return semconv.CAPTURE_LEVELS.index(level)
    except ValueError:
        known = ", ".join(semconv.CAPTURE_LEVELS)
        raise ConfigurationError(
            f"capture level {level!r} is unknown; give one of: {known}"
        ) from None


def name_of(level: int) -> str:
    """Return a level's name."""
    return semconv.CAPTURE_LEVELS[level]


def effective(asked: int | None, setting: int, ceiling: int) -> int:
    """Return the level in force.

    Args:
        asked: the strictest level that runs and context managers here ask for; None: none does.
        setting: the level of the whole process.
        ceiling: the level up to which the setting may be exceeded.
    """
    if asked is None:
        return setting
    return min(asked, max(setting, ceiling))
