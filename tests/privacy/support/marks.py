"""Marker words: one for each place in which content can stand.

They are single words, so that they look like identifiers wherever a rule only looks at the charset.
What they are found by is `PREFIX`.
"""

from __future__ import annotations

import base64

PREFIX = "zqleakmarkword"


def mark(place: str) -> str:
    """Return the marker word of a place."""
    return f"{PREFIX}-{place}"


def odd(place: str) -> str:
    """Return a marker that no identifier can be: for places where identifiers are expected."""
    return f"{PREFIX} {place} with spaces"


DATA_URL = "data:image/png;base64," + base64.b64encode(mark("pixels").encode() * 3).decode()
SCHEMA = {
    "type": "object",
    "title": mark("schema-title"),
    "properties": {
        "place": {
            "type": "string",
            "description": mark("schema-description"),
            "enum": [mark("schema-enum")],
        }
    },
}
ARGUMENTS = {"place": mark("arguments"), mark("argument-key"): [1, mark("argument-item")]}
