"""A streamed body that is in memory, as its events."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Iterator
from typing import Any, TypedDict, cast

import msgspec

from clew.content.joining import joined
from clew.content.shapes import loads

_BLANK = re.compile(rb"\r?\n\r?\n|\r\r")


def decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Return what decodes some members of an object, and passes over the others."""
    members: dict[str, Any] = dict.fromkeys(names, Any)
    return msgspec.json.Decoder(TypedDict("Event", members, total=False))  # pyright: ignore[reportArgumentType]


def events_of(
    content_type: str,
    body: bytes,
    some: msgspec.json.Decoder[Any] | None = None,
    growing: frozenset[bytes] = frozenset(),
    closing: bytes = b"",
) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream: server-sent events, JSON lines, Amazon's frames.

    Events of Amazon's frames get their event type under `:event-type`. What cannot be read is
    passed over; a last event that was cut off is no event.

    Args:
        content_type: the stream's media type.
        body: the stream.
        some: decodes the members that are wanted (`decoder`), where not all are: a hint only.
        growing: members whose texts are put together: events that go on with one may come as one.
        closing: the type of an event that, as the last one, is given first, too: where it says all,
            the others need not be decoded.
    """
    if "amazon.eventstream" in content_type:
        yield from _frames(body)
        return
    if body.lstrip()[:1] == b"[":
        yield from _loaded_list(body)
        return
    if body.lstrip()[:1] == b"{":
        for line in body.split(b"\n"):
            yield from _loaded(line)
        return
    decode = loads if some is None else some.decode
    ends = b"\r" in body
    if closing and not ends:
        whole = body.rstrip(b"\n").removesuffix(b"data: [DONE]").rstrip(b"\n")
        last = whole.rpartition(b"\n\n")[2]
        if closing in last:
            yield from _loaded(_data(last, ends=False))
    if growing and not ends:
        body = joined(body, growing)
    for event in _BLANK.split(body) if ends else body.split(b"\n\n"):
        if event.startswith(b"data: {") and not ends and b"\n" not in event:
            data = event[6:]
        else:
            data = _data(event, ends=ends)
            if not data or data == b"[DONE]":
                continue
        try:
            found = decode(data)
        except (ValueError, RecursionError):
            yield from _loaded(data)
        else:
            if isinstance(found, dict):
                yield cast("dict[str, Any]", found)


def _data(event: bytes, *, ends: bool) -> bytes:
    """Return what a server-sent event carries; `ends`: its lines may end in a carriage return."""
    if not ends:
        name, _, data = event.partition(b"\ndata: ")
        if data and b"\n" not in data and b"\n" not in name and name.startswith(b"event:"):
            return data
    lines = [line[5:].removeprefix(b" ") for line in event.splitlines() if line[:5] == b"data:"]
    return b"\n".join(lines)


def _loaded(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        event = loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(event, dict):
        yield cast("dict[str, Any]", event)


def _loaded_list(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        events = loads(data)
    except (ValueError, RecursionError):
        return
    for event in cast("list[Any]", events) if isinstance(events, list) else ():
        if isinstance(event, dict):
            yield cast("dict[str, Any]", event)


def _frames(body: bytes) -> Iterator[dict[str, Any]]:
    position = 0
    parts: list[bytes] = []
    while position + 16 <= len(body):
        total, size = struct.unpack_from(">II", body, position)
        if total < 16 + size or position + total > len(body):
            break
        headers = body[position + 12 : position + 12 + size]
        payload = body[position + 12 + size : position + total - 4]
        position += total
        kind = re.search(rb":event-type\x07(..)", headers, re.DOTALL)
        name = ""
        if kind is not None:
            length = struct.unpack(">H", kind[1])[0]
            name = headers[kind.end() : kind.end() + length].decode("ascii", "replace")
        if name == "PayloadPart":  # a piece of a stream inside the stream, cut anywhere
            parts.append(payload)
            continue
        for event in _loaded(payload):
            wrapped = event.get("bytes")
            if isinstance(wrapped, str):
                yield from _unwrapped(wrapped)
            else:
                yield {**event, ":event-type": name}
    if parts:
        yield from events_of("", b"".join(parts))


def _unwrapped(text: str) -> Iterator[dict[str, Any]]:
    try:
        data = base64.b64decode(text)
    except ValueError:
        return
    yield from _loaded(data)
