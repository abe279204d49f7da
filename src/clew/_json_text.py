"""What may stand inside a JSON string, told from bytes.

https://www.rfc-editor.org/rfc/rfc8259#section-7
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

STRING: Final = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
"""A pattern for the inside of a string."""


@functools.lru_cache(maxsize=64)
def texts_of(keys: frozenset[bytes]) -> re.Pattern[bytes]:
    """Return a pattern that finds the strings that are values of some keys, at any depth.

    A mark that is not escaped is structure, so what it encloses before a colon is a key.
    """
    return re.compile(_opening(keys) + rb"(" + STRING + rb')"', re.DOTALL)


@functools.lru_cache(maxsize=64)
def some_text_of(keys: frozenset[bytes]) -> re.Pattern[bytes]:
    """Return a pattern that finds the beginning of such a string that is not empty."""
    return re.compile(_opening(keys) + rb'(?!")')


def _opening(keys: frozenset[bytes]) -> bytes:
    """Return a pattern for one of the keys, and for the mark that its string begins with."""
    return rb'"(?:' + b"|".join(map(re.escape, sorted(keys))) + rb')"\s*+:\s*+"'


def are_inside(texts: Sequence[bytes]) -> bool:
    """Tell whether each of the texts may stand inside a JSON string, up to its closing mark."""
    said = b"\n".join(texts)
    if b"\\" in said:
        # What is left of a backslash escapes what follows it: no mark, and no end of a text.
        said = said.replace(b"\\\\", b"").replace(b'\\"', b"")
        if b"\\\n" in said or said.endswith(b"\\"):
            return False
    return b'"' not in said
