"""Messages and parts as the conventions write them, from values of any type.

The readers look at foreign JSON: every helper takes whatever stands there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import Struct

Part = dict[str, Any]
Message = dict[str, Any]


class Content(Struct, frozen=True, kw_only=True):
    """The content of one model call. None: the call has none, or it could not be read."""

    system_instructions: list[Part] | None = None
    input_messages: list[Message] | None = None
    tool_definitions: list[dict[str, Any]] | None = None
    output_messages: list[Message] | None = None


class Field(NamedTuple):
    """One member of a request that holds content, and how each entry of it is read."""

    name: str
    to: str
    """The field of `Content` that it is a part of."""
    entry: Callable[[dict[str, Any]], list[Any]]
    """Reads an object of the member's list; of nothing else, so that it may be read by itself."""
    other: Callable[[Any], list[Any]]
    """Reads the member where it is no list."""
    unless: str | None = None
    """Another spelling of the member: this one counts only where that one is absent."""
    often_listed: bool = True
    """Whether it is a list as a rule: a hint for reading it quickly."""


class Reader(NamedTuple):
    """What reads the content of one wire format."""

    request: Callable[[dict[str, Any]], Content]
    response: Callable[[dict[str, Any]], list[Message]]
    events: Callable[[Iterable[dict[str, Any]]], list[Message]]
    fields: tuple[Field, ...] = ()
    """The members of a request, where it can be read member by member."""
    told: tuple[str, ...] = ()
    """The members of events that `events` looks at, where those are few of them."""
    growing: frozenset[bytes] = frozenset()
    """Members, at any depth, whose texts `events` puts together from event to event."""
    closing: bytes = b""
    """The type of an event that, as the last one, may say again all that those before it did."""


def nothing(_: Any) -> list[Any]:
    """Read a member that has content as a list only."""
    return []


def by_fields(*fields: Field) -> Callable[[dict[str, Any]], Content]:
    """Return what reads requests whose members are read each by itself, in this order."""

    def request(data: dict[str, Any]) -> Content:
        found: dict[str, list[Any]] = {}
        for field in fields:
            if field.name in data and (field.unless is None or field.unless not in data):
                value = data[field.name]
                into = found.setdefault(field.to, [])
                if isinstance(value, list):
                    for item in objects(cast("list[Any]", value)):
                        into += field.entry(item)
                else:
                    into += field.other(value)
        return Content(**{key: value or None for key, value in found.items()})

    return request


_decode: Final = msgspec.json.Decoder().decode


def loads(data: bytes | str | msgspec.Raw) -> Any:
    """Return what JSON says, as `json.loads` does, which also reads what is not quite JSON.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        return _decode(data)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        given = data if isinstance(data, (bytes, str)) else bytes(data)
        return json.loads(given)


_BLANKS: Final = " \t\n\r"
_BEGINNINGS: Final = frozenset('{["-0123456789tfnNI')
"""What JSON begins with, `NaN` and `Infinity` included."""


def mapping(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Return the objects of a list."""
    if isinstance(value, list):
        for item in cast("list[Any]", value):
            if isinstance(item, dict):
                yield cast("dict[str, Any]", item)


def place_of(value: Any) -> int | str | None:
    """Return an index as it may be a key; one that is of no such type counts as the first."""
    return value if value is None or isinstance(value, int | str) else 0


def listed(value: Any) -> list[Any]:
    """Return a list; of anything else, a list of that one thing."""
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def text_of(value: Any) -> str:
    """Return a text, or an empty one."""
    return value if isinstance(value, str) else ""


def parsed(value: Any) -> Any:
    """Return what a JSON text says; other texts and values as they are."""
    if isinstance(value, str) and value.lstrip(_BLANKS)[:1] in _BEGINNINGS:
        try:
            return loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def text(content: Any) -> list[Part]:
    """Return a text part; none for no text."""
    return [{"type": "text", "content": content}] if isinstance(content, str) and content else []


def reasoning(content: Any) -> list[Part]:
    """Return a reasoning part; none for no text."""
    return [{"type": "reasoning", "content": content}] if text_of(content) else []


def tool_call(name: Any, arguments: Any, call_id: Any = None) -> Part:
    """Return a tool call; one without any arguments has an empty object."""
    part: Part = {"type": "tool_call", "name": text_of(name), "arguments": _arguments(arguments)}
    return {**part, "id": call_id} if isinstance(call_id, str) else part


def _arguments(value: Any) -> Any:
    # Providers stream no piece of arguments, or an empty text, where there are none.
    return {} if value is None or value == "" else parsed(value)


def tool_response(response: Any, call_id: Any = None) -> Part:
    """Return the result of a tool call."""
    part: Part = {"type": "tool_call_response", "response": response}
    return {**part, "id": call_id} if isinstance(call_id, str) else part


def modality(mime_type: str) -> str:
    """Return what kind of content a media type is of."""
    kind = mime_type.partition("/")[0]
    return kind if kind in ("image", "video", "audio") else "document"


def blob(mime_type: Any, data: Any, kind: str | None = None) -> Part:
    """Return bytes (in base64); the writer replaces them by their size and a digest."""
    mime = text_of(mime_type)
    part: Part = {"type": "blob", "modality": kind or modality(mime), "content": text_of(data)}
    return {**part, "mime_type": mime} if mime else part


def uri(address: Any, kind: str = "image") -> Part:
    """Return content that stands elsewhere; a data URL is bytes."""
    where = text_of(address)
    if where.startswith("data:"):
        head, _, data = where[5:].partition(",")
        return blob(head.partition(";")[0], data)
    return {"type": "uri", "modality": kind, "uri": where}


def other(part: Any) -> Part:
    """Return a part that the conventions have no shape for: its type, nothing else."""
    return {"type": text_of(mapping(part).get("type")) or "unknown"}


def message(role: Any, parts: list[Part], **more: Any) -> Message:
    """Return a message."""
    extra = {key: value for key, value in more.items() if value is not None}
    return {"role": text_of(role) or "user", "parts": parts, **extra}


def function(name: Any, description: Any = None, parameters: Any = None) -> dict[str, Any]:
    """Return a tool definition."""
    definition: dict[str, Any] = {"type": "function", "name": text_of(name)}
    if isinstance(description, str):
        definition["description"] = description
    if isinstance(parameters, dict):
        definition["parameters"] = parameters
    return definition


def one_of(tool: dict[str, Any]) -> dict[str, Any]:
    """Return the definition of a tool that the provider brings: its type and name."""
    kind = text_of(tool.get("type")) or "unknown"
    return {"type": kind, "name": text_of(tool.get("name")) or kind}


class _Text(list[str]):
    """Pieces of one text, in order."""


class Pieces:
    """Parts of one streamed message, put together from pieces, in the order of their places."""

    def __init__(self) -> None:
        self.parts: dict[Any, Part] = {}
        self.finish_reason: str | None = None
        self.role = "assistant"

    def add(self, place: Any, kind: str, field: str, piece: Any) -> None:
        """Add a piece of text to a field of the part at a place."""
        if isinstance(piece, str):
            part = self.parts.get(place)
            if part is None:
                part = self.parts[place] = {"type": kind}
            text = part.get(field)
            if text is None:
                text = part.setdefault(field, _Text())
            if isinstance(text, _Text):
                text.append(piece)

    def put(self, place: Any, part: Part) -> None:
        """Set fields of the part at a place; what has begun to be collected stays."""
        mine = self.parts.setdefault(place, {})
        for key, value in part.items():
            if value is not None:
                mine.setdefault(key, value)

    def message(self) -> Message:
        """Return the message as far as it has come."""
        parts = [_joined(part) for part in self.parts.values()]
        return message(self.role, parts, finish_reason=self.finish_reason)


def _joined(part: Part) -> Part:
    joined = {
        key: "".join(value) if isinstance(value, _Text) else value for key, value in part.items()
    }
    if joined.get("type") == "tool_call":
        joined["arguments"] = _arguments(joined.get("arguments"))
    return joined
