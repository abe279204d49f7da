"""A request and an answer in one normal form, whatever wire format they came in.

The system prompt is what `clew.dialects.system_text` says: the provider's own field and the system
messages that the conversation begins with, piece after piece without anything between, so that its
bytes are the ones on the wire. A later system message stays in the history. What is no message,
system prompt or tool stays as it was sent, under `parameters`. Where something has no place in it,
and in formats without a reader, the whole body is kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct

from clew import content
from clew.content.shapes import Content, loads, mapping, objects, text_of
from clew.dialects.system_text import system_text
from clew.store.prompt_records import AskedTool, RecordedResponse

_SYSTEM_ROLES: Final = ("system", "developer")
_SYSTEM: Final = ("system", "systemInstruction", "system_instruction", "instructions", "preamble")
_ELSEWHERE: Final = frozenset({"messages", "input", "contents", "prompt", "tools", *_SYSTEM})
_WHOLE_ANSWER: Final = ("text", "reasoning", "tool_call")


class Request(Struct, frozen=True, kw_only=True):
    """A request in its normal form. None: there is none, or it could not be read."""

    system: str | None = None
    tools: tuple[dict[str, Any], ...] | None = None
    """Definitions with `type`, `name`, and where they have them `description`, `parameters`."""
    messages: list[dict[str, Any]] | None = None
    parameters: dict[str, Any] | None = None
    body: Any = None


def request_of(dialect: str, body: bytes | None) -> Request:
    """Return the normal form of a request body."""
    data = _object(body)
    if data is None or body is None:
        return Request()
    reader = content.READERS.get(_reader_for(dialect, data))
    if reader is None:
        return Request(system=system_text(dialect, body) or _any_system(data), body=data)
    found = reader.request(data)
    leading, messages = _split(found.input_messages)
    # Half a surrogate pair is JSON, and nothing that a strict decoder takes.
    system = system_text(dialect, body) or _text([*(found.system_instructions or ()), *leading])
    return Request(
        system=system or None,
        tools=tuple(found.tool_definitions or ()),
        messages=messages,
        parameters=_parameters(data) or None,
        body=data if _loses(found) else None,
    )


def response_of(dialect: str, stream_type: str | None, body: bytes | None) -> RecordedResponse:
    """Return the normal form of an answer, as far as it has come.

    Args:
        dialect: the wire format.
        stream_type: the media type where it is a stream of events, else None.
        body: the bytes; None where they are not known.
    """
    if body is None:
        return RecordedResponse()
    if stream_type is not None:
        answers = content.of_stream(_streamed(dialect, body), stream_type, body)
    else:
        data = _object(body)
        known = "" if data is None else _reader_for(dialect, data, answer=True)
        if data is not None and known not in content.READERS:
            return RecordedResponse(body=data)
        answers = content.of_response(known, body)
    return _answer(answers or [])


def _answer(answers: list[dict[str, Any]]) -> RecordedResponse:
    if not answers:
        return RecordedResponse()
    parts = list(objects(answers[0].get("parts")))
    calls = tuple(
        AskedTool(
            name=text_of(part.get("name")),
            id=part["id"] if isinstance(part.get("id"), str) else None,
            arguments=part.get("arguments"),
        )
        for part in parts
        if part.get("type") == "tool_call"
    )
    whole = len(answers) == 1 and all(part.get("type") in _WHOLE_ANSWER for part in parts)
    return RecordedResponse(
        text=_text(parts),
        thinking=_text(parts, "reasoning"),
        tool_calls=calls,
        # More than one answer, or parts of other kinds: all of them as they are.
        choices=() if whole else tuple(answers),
    )


def _text(parts: list[dict[str, Any]], kind: str = "text") -> str | None:
    found = [text_of(part.get("content")) for part in parts if part.get("type") == kind]
    return "".join(found) if found else None


def _split(
    messages: list[dict[str, Any]] | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    """Return the parts of the system messages that a conversation begins with, and the rest."""
    leading: list[dict[str, Any]] = []
    first = 0
    for message in messages or ():
        if message.get("role") not in _SYSTEM_ROLES:
            break
        leading += objects(message.get("parts"))
        first += 1
    return leading, messages[first:] if messages else messages


def _parameters(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is neither history nor tools, nor a field that a system prompt stands in."""
    kept = {key: value for key, value in data.items() if key not in _ELSEWHERE}
    config = mapping(kept.get("toolConfig"))
    if "tools" in config:  # Amazon's converse has its tools in there
        rest = {key: value for key, value in config.items() if key != "tools"}
        kept["toolConfig"] = rest
        if not rest:
            del kept["toolConfig"]
    return kept


def _loses(found: Content) -> bool:
    """Tell whether something has no place in the normal form but its type."""
    parts = (part for message in found.input_messages or () for part in objects(message["parts"]))
    tools = found.tool_definitions or ()
    return any(part.keys() == {"type"} for part in parts) or any(
        tool.get("type") != "function" for tool in tools
    )


def _any_system(data: Mapping[str, Any]) -> str | None:
    """Return the system prompt of a format without a reader, where it is a plain text."""
    return next((value for key in _SYSTEM if (value := text_of(data.get(key)))), None)


def _reader_for(dialect: str, data: Mapping[str, Any], *, answer: bool = False) -> str:
    """Return whose reader reads a body: Amazon's `invoke` carries the formats of others."""
    if dialect != "bedrock_invoke":
        return dialect
    if "anthropic_version" in data or (answer and data.get("type") == "message"):
        return "anthropic_messages"
    return dialect


def _streamed(dialect: str, body: bytes) -> str:
    """Return whose reader reads a stream."""
    wrapped = dialect == "bedrock_invoke" and b'"bytes"' in body
    return "anthropic_messages" if wrapped else dialect


def _object(body: bytes | None) -> dict[str, Any] | None:
    if not body:
        return None
    try:
        data = loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None
