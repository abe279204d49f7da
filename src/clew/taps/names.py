"""Names that frameworks give to agents and tools."""

from __future__ import annotations

import re
from typing import Any

_NO_IDENTIFIER = re.compile(r"[^A-Za-z0-9_.:/@+=~#-]+")


def named(text: Any, default: str) -> str:
    """Return a framework's name as an identifier: what may not stand in one becomes `_`."""
    if not isinstance(text, str) or not text.strip():
        return default
    return _NO_IDENTIFIER.sub("_", text.strip())[:128]
