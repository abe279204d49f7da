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
    either = b"|".join(re.escape(key) for key in sorted(keys))
    return re.compile(rb'"(?:' + either + rb')"\s*+:\s*+"(' + STRING + rb')"', re.DOTALL)


def are_inside(texts: Sequence[bytes]) -> bool:
    """Tell whether each of the texts may stand inside a JSON string, up to its closing mark."""
    said = b"\n".join(texts)
    if b"\\" in said:
        # What is left of a backslash escapes what follows it: no mark, and no end of a text.
        said = said.replace(b"\\\\", b"").replace(b'\\"', b"")
        if b"\\\n" in said or said.endswith(b"\\"):
            return False
    return b'"' not in said
