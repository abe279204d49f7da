"""The texts of a request, an answer or an event, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

NO_CONTENT: Final = frozenset(
    {
        "call_id",
        "cache_control",
        "created",
        "createTime",
        "created_at",
        "done_reason",
        "encoding_format",
        "finish_reason",
        "finishReason",
        "id",
        "item_id",
        "media_type",
        "mimeType",
        "modality",
        "model",
        "modelVersion",
        "name",
        "native_finish_reason",
        "object",
        "responseId",
        "role",
        "service_tier",
        "status",
        "stop_reason",
        "system_fingerprint",
        "tool_call_id",
        "tool_use_id",
        "trafficType",
        "type",
        "usage",
    }
)
"""Members of requests and answers that hold identifiers and words of the protocol."""


class Place(NamedTuple):
    """A text, and where it stands: `holder[key]`."""

    holder: Any
    key: Any
    text: str


def places(value: Any, skipped: frozenset[str] = frozenset()) -> Iterator[Place]:
    """Give the texts in JSON that are not empty and no words of the protocol.

    Args:
        value: an object or an array; a text by itself stands nowhere.
        skipped: members to leave out, whatever they hold.
    """
    items: Any = ()
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
    elif isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
    for key, item in items:
        if key in skipped:
            continue
        if isinstance(item, str):
            if item and key not in NO_CONTENT:
                yield Place(value, key, item)
        else:
            yield from places(item, skipped)


def leaves(value: Any, skipped: frozenset[str] = frozenset()) -> Iterator[str]:
    """Give the texts in JSON; see `places`."""
    if isinstance(value, str):
        if value:
            yield value
    else:
        for place in places(value, skipped):
            yield place.text


def change(value: Any, old: str, new: str) -> None:
    """Put a text in the place of another, wherever it stands in an object or an array."""
    for place in list(places(value)):
        if place.text == old:
            place.holder[place.key] = new
