"""Knowing a segmented prompt again in a request: the block map of a round, without any content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clew._guard import record_failure
from clew.dialects.system_text import system_text
from clew.digests import LazyDigests
from clew.prompts import registry

NOTHING: Final[Mapping[str, Any]] = {}


def attributes_of(dialect: str, body: bytes, digests: LazyDigests) -> Mapping[str, Any]:
    """Return what a round says of its system text; the attributes obey their rules.

    The text is decoded, hashed and dropped. A registered prompt of exactly this text gives its
    blocks; a text that is none, or has more behind it, gives only its own digest and size and
    that it is not mapped; no system text gives nothing. Never raises.

    Args:
        dialect: the wire format's name.
        body: the request's body.
        digests: made with the configured key.
    """
    try:
        text = system_text(dialect, body)
    except Exception:
        record_failure("look for a prompt's blocks")
        return NOTHING
    return NOTHING if text is None else attributes_of_text(text, digests)


def attributes_of_text(text: str, digests: LazyDigests) -> Mapping[str, Any]:
    """Return what a round says of a system text that is at hand. Never raises."""
    try:
        if not text:
            return NOTHING
        held = registry.find_held(text)
        made = None if held is None else held.made(digests.get())
        if made is not None:
            return made
        data = text.encode("utf-8", "surrogatepass")
        found = registry.find(data)
        if found is None:
            return registry.whole(data, digests.get(), mapped=False)
        return found.attributes(data, digests.get())
    except Exception:
        record_failure("look for a prompt's blocks")
        return NOTHING
