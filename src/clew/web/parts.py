"""A recorded model call cut into the parts that an inspector shows, top to bottom.

Blocks are cut out of the system text by UTF-8 bytes, as their map counts them; a range that does
not fit the text becomes a placeholder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from msgspec import Struct

from clew.prompts.blocks import LAYERS, tiles
from clew.prompts.shares import Basis, Share, shares
from clew.store.prompt_records import (
    PromptRecord,
    PromptRow,
    RecordedBlock,
    RecordedResponse,
    ToolDefinition,
)

OTHER_LAYER: Final = "other"
"""Stands for a layer that this reader does not know, where a colour is chosen."""
_MOST_JSON: Final = 200_000


class BlockPart(Struct, frozen=True, kw_only=True):
    """One block of the system prompt."""

    place: int
    block: RecordedBlock
    look: str
    """The layer, where it is a known one; it chooses the colour."""
    text: str | None
    """None: kept out by the capture level, or the map does not fit."""
    broken: bool
    """The map names bytes that are not there, or that cut a character."""
    blank: bool
    """Nothing but white space: not listed, and counted all the same."""
    share: Share


class Piece(Struct, frozen=True, kw_only=True):
    """One part of a message: text, or something else as JSON."""

    kind: str
    label: str
    text: str
    is_json: bool = False


class MessagePart(Struct, frozen=True, kw_only=True):
    """One message of the history."""

    place: int
    """From 1."""
    role: str
    name: str | None
    pieces: tuple[Piece, ...]
    chars: int


class ToolPart(Struct, frozen=True, kw_only=True):
    """One tool definition."""

    tool: ToolDefinition
    schema: str | None
    part: float
    """Its characters over those of all tools, 0 to 1."""


class Parts(Struct, frozen=True, kw_only=True):
    """Everything that is shown of a call below its header."""

    mapped: bool
    fits: bool
    """False where the map leaves part of the text out, or more than covers it."""
    blocks: tuple[BlockPart, ...]
    blank: int
    """Blocks that are not listed because they are blank."""
    text: str | None
    """The whole system text; None where it was kept out, or where there is none."""
    kept_out: bool
    """The capture level let no content through."""
    basis: Basis
    """How the tokens of blocks are known."""
    tools: tuple[ToolPart, ...]
    tool_chars: int
    messages: tuple[MessagePart, ...] | None
    """None where the history was kept out, or could not be read."""
    answer: tuple[Piece, ...]
    """What came back, in order."""


def parts_of(row: PromptRow, record: PromptRecord) -> Parts:
    """Cut a record into what is shown."""
    system = record.system
    kept_out = row.path is None
    data = None if system.text is None else system.text.encode("utf-8", "surrogatepass")
    sizes = [max(0, each.bytes) for each in system.blocks]
    rest = None
    if row.request_bytes is not None and row.request_bytes >= sum(sizes):
        rest = row.request_bytes - sum(sizes)
    found = shares(sizes, reported_input=row.input_tokens, rest_bytes=rest)
    blocks = tuple(
        _block(place, block, data, share)
        for place, (block, share) in enumerate(zip(system.blocks, found, strict=True))
    )
    tool_chars = sum(each.chars for each in record.tools)
    return Parts(
        mapped=bool(blocks),
        fits=not blocks or data is None or tiles(system.blocks, len(data)),
        blocks=blocks,
        blank=sum(each.blank for each in blocks),
        text=system.text,
        kept_out=kept_out,
        basis=found[0].basis if found else "estimated",
        tools=tuple(_tool(each, tool_chars) for each in record.tools),
        tool_chars=tool_chars,
        messages=_messages(record.messages),
        answer=answer_pieces(record.response),
    )


def look_of(layer: str) -> str:
    """Return the layer that chooses a colour: a known one, or `other`."""
    return layer if layer in LAYERS else OTHER_LAYER


def cut(data: bytes, start: int, end: int) -> str | None:
    """Return the text between two byte offsets; None: they are no range of whole characters."""
    if not 0 <= start <= end <= len(data):
        return None
    try:
        return data[start:end].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _block(place: int, block: RecordedBlock, data: bytes | None, share: Share) -> BlockPart:
    text = None if data is None else cut(data, block.start, block.end)
    return BlockPart(
        place=place,
        block=block,
        look=look_of(block.layer),
        text=text,
        broken=data is not None and text is None,
        blank=text is not None and not text.strip(),
        share=share,
    )


def _tool(tool: ToolDefinition, total: int) -> ToolPart:
    return ToolPart(
        tool=tool,
        schema=None if tool.schema is None else pretty(tool.schema),
        part=tool.chars / total if total else 0.0,
    )


def pretty(value: Any) -> str:
    """Write JSON for reading; what is very long is cut, and says so."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    if len(text) <= _MOST_JSON:
        return text
    return f"{text[:_MOST_JSON]}\n… {len(text) - _MOST_JSON} more characters"


def _messages(found: Sequence[Any] | None) -> tuple[MessagePart, ...] | None:
    if found is None:
        return None
    return tuple(message_part(each, place) for place, each in enumerate(found, 1))


def message_part(message: Any, place: int) -> MessagePart:
    """Return one message of a history, whatever stands there."""
    if not isinstance(message, dict):
        piece = Piece(kind="json", label="", text=pretty(message), is_json=True)
        return MessagePart(
            place=place, role="unknown", name=None, pieces=(piece,), chars=len(piece.text)
        )
    known = cast("dict[str, Any]", message)
    pieces = pieces_of(known.get("parts"))
    if not pieces:
        rest = {key: value for key, value in known.items() if key not in ("role", "parts")}
        if rest:
            pieces = (Piece(kind="json", label="", text=pretty(rest), is_json=True),)
    name = known.get("name")
    return MessagePart(
        place=place,
        role=str(known.get("role") or "unknown"),
        name=name if isinstance(name, str) else None,
        pieces=pieces,
        chars=sum(len(each.text) for each in pieces),
    )


def pieces_of(parts: Any) -> tuple[Piece, ...]:
    """Return the parts of a message as text where they are text, else as JSON."""
    if isinstance(parts, str):
        return (Piece(kind="text", label="", text=parts),)
    if not isinstance(parts, list):
        return ()
    return tuple(_piece(each) for each in cast("list[Any]", parts))


def _piece(part: Any) -> Piece:
    if not isinstance(part, dict):
        return Piece(kind="json", label="", text=pretty(part), is_json=True)
    known = cast("dict[str, Any]", part)
    kind = str(known.get("type") or "unknown")
    text = known.get("content")
    if kind in ("text", "reasoning") and isinstance(text, str):
        return Piece(kind=kind, label="thinking" if kind == "reasoning" else "", text=text)
    if kind == "tool_call":
        return Piece(
            kind=kind,
            label=_called("calls", known),
            text=_value(known.get("arguments")),
            is_json=True,
        )
    if kind == "tool_call_response":
        answer = known.get("response", known.get("result"))
        return Piece(
            kind=kind,
            label=_called("result of", known),
            text=_value(answer),
            is_json=not isinstance(answer, str),
        )
    rest = {key: value for key, value in known.items() if key != "type"}
    return Piece(kind=kind, label=kind.replace("_", " "), text=pretty(rest), is_json=True)


def _called(verb: str, part: Mapping[str, Any]) -> str:
    said = [verb, *(str(part[key]) for key in ("name", "id") if part.get(key))]
    return " ".join(said)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else pretty(value)


def answer_pieces(response: RecordedResponse) -> tuple[Piece, ...]:
    """Return what came back, in the order of reading; empty where nothing is known of it."""
    found: list[Piece] = []
    if response.thinking:
        found.append(Piece(kind="reasoning", label="thinking", text=response.thinking))
    if response.text:
        found.append(Piece(kind="text", label="", text=response.text))
    found.extend(
        Piece(
            kind="tool_call",
            label=" ".join(filter(None, ("calls", call.name, call.id))),
            text=_value(call.arguments),
            is_json=True,
        )
        for call in response.tool_calls
    )
    found.extend(
        Piece(kind="choice", label=f"answer {place}", text=pretty(choice), is_json=True)
        for place, choice in enumerate(response.choices, 1)
    )
    if response.body is not None:
        found.append(
            Piece(kind="body", label="whole answer", text=pretty(response.body), is_json=True)
        )
    return tuple(found)
