"""Putting the content of an answer together, from a whole body or event by event.

Facts (usage, finish reason, model, id) come from the dialects; here is only what they leave out:
text, thinking and the arguments of tool calls.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final, cast

from clew.providers.base import StreamEvent, Thinking, ToolRequest

_OPENING: Final = "<think>"
_CLOSING: Final = "</think>"


def mapping(value: Any) -> dict[str, Any]:
    """Return an object of a body as it is, and anything else as an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def entries(value: Any) -> list[Any]:
    """Return a list of a body as it is, and anything else as an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string(value: Any) -> str:
    """Return a string of a body as it is, and anything else as an empty one."""
    return value if isinstance(value, str) else ""


def arguments_of(text: str) -> dict[str, Any] | None:
    """Return the arguments that a model wrote; None when they are no JSON object."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _no_json(name: str) -> Any:
    raise ValueError(name)


class ThinkTags:
    """Tells apart thinking that a model writes into its text, `<think>...</think>` in front."""

    __slots__ = ("_held", "_state")

    def __init__(self) -> None:
        self._state = "start"
        self._held = ""

    def feed(self, piece: str) -> Iterator[tuple[str, str]]:
        """Take a piece of text; yield (`text` or `thinking`, piece) for what is certain."""
        if self._state == "text":
            yield "text", piece
            return
        held = self._held + piece
        self._held = ""
        if self._state == "start":
            opened = held.lstrip()
            if opened.startswith(_OPENING):
                self._state = "opened"
                held = opened[len(_OPENING) :]
            elif _OPENING.startswith(opened):
                self._held = held
                return
            else:
                self._state = "text"
                yield "text", held
                return
        if self._state == "opened":
            held = held.lstrip("\n")
            if not held:
                return
            self._state = "thinking"
        if self._state == "thinking":
            before, closed, held = held.partition(_CLOSING)
            if not closed:
                sure = len(before) - _overlap(before)
                self._held = before[sure:]
                if sure:
                    yield "thinking", before[:sure]
                return
            self._state = "between"
            if before:
                yield "thinking", before
        held = held.lstrip()
        if held:
            self._state = "text"
            yield "text", held

    def end(self) -> Iterator[tuple[str, str]]:
        """Yield what was held back."""
        held, self._held = self._held, ""
        if held:
            yield "thinking" if self._state == "thinking" else "text", held


def _overlap(text: str) -> int:
    """Return how many characters at the end may begin a closing tag."""
    for size in range(min(len(_CLOSING) - 1, len(text)), 0, -1):
        if _CLOSING.startswith(text[-size:]):
            return size
    return 0


class OpenCall:
    """A tool call that is being put together."""

    __slots__ = ("id", "key", "name", "signature", "value", "written")

    def __init__(self, key: Any = None, call_id: str | None = None, name: str = "") -> None:
        self.key = key
        self.id = call_id
        self.name = name
        self.written: list[str] = []
        """The arguments as text, in pieces."""
        self.value: Any = None
        """The arguments as an object, where the provider sends one."""
        self.signature: str | None = None

    def request(self) -> ToolRequest:
        """Return the tool call."""
        if self.value is not None and not self.written:
            value: Any = self.value
            arguments = mapping(value) if isinstance(value, dict) else None
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        else:
            text = "".join(self.written)
            arguments = arguments_of(text)
        return ToolRequest(
            id=self.id,
            name=self.name,
            arguments=arguments,
            arguments_text=text,
            signature=self.signature,
        )


class Gatherer(ABC):
    """Puts one answer together. What is not of the expected shape is passed over, never raised.

    Args:
        provider: name of the adapter.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.calls: list[OpenCall] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._tags = ThinkTags()
        self._events: list[StreamEvent] = []

    @abstractmethod
    def whole(self, body: dict[str, Any]) -> None:
        """Take a whole answer."""

    @abstractmethod
    def event(self, event: dict[str, Any]) -> None:
        """Take one event of a streamed answer."""

    def blocks(self) -> list[Thinking]:
        """Return the thinking in the blocks in which the provider gave it."""
        thinking = self.thinking
        return [Thinking(text=thinking, provider=self.provider)] if thinking else []

    def finish_reason(self) -> tuple[str, str] | None:
        """Return why there is no answer, in the convention's word and the provider's."""
        return None

    def take_events(self) -> list[StreamEvent]:
        """Return what the last events brought."""
        events, self._events = self._events, []
        return events

    def end(self) -> list[StreamEvent]:
        """Return what is complete only at the end: held-back text, the tool calls."""
        for kind, piece in self._tags.end():
            self._add(kind, piece)
        for call in self.calls:
            self._events.append(StreamEvent(kind="tool_call", tool_call=call.request()))
        return self.take_events()

    @property
    def text(self) -> str:
        """The text until now."""
        return "".join(self._texts)

    @property
    def thinking(self) -> str:
        """The thinking until now."""
        return "".join(self._thoughts)

    def add_text(self, piece: Any) -> None:
        """Take a piece of text."""
        if isinstance(piece, str) and piece:
            for kind, part in self._tags.feed(piece):
                self._add(kind, part)

    def add_thinking(self, piece: Any) -> None:
        """Take a piece of thinking that the provider sends apart from the text."""
        if isinstance(piece, str) and piece:
            self._add("thinking", piece)

    def _add(self, kind: str, piece: str) -> None:
        if kind == "text":
            self._texts.append(piece)
            self._events.append(StreamEvent(kind="text", text=piece))
        else:
            self._thoughts.append(piece)
            self._events.append(StreamEvent(kind="thinking", text=piece))
