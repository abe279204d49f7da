"""What may stand inside a JSON string, told from bytes.

https://www.rfc-editor.org/rfc/rfc8259#section-7
"""

from __future__ import annotations

from collections.abc import Sequence


def are_inside(texts: Sequence[bytes]) -> bool:
    """Tell whether each of the texts may stand inside a JSON string, up to its closing mark."""
    said = b"\n".join(texts)
    if b"\\" in said:
        # What is left of a backslash escapes what follows it: no mark, and no end of a text.
        said = said.replace(b"\\\\", b"").replace(b'\\"', b"")
        if b"\\\n" in said or said.endswith(b"\\"):
            return False
    return b'"' not in said
