"""A streamed answer in the chat completions shape, put together."""

from __future__ import annotations

from clew.dialects._errors import error_of
from clew.dialects._openai_shape import RESPONSE, ChatResponse, Choice, call_name
from clew.dialects._openai_usage import RawUsage, usage_of
from clew.dialects._read import EMPTY, decode, is_empty, text
from clew.dialects._sse import SseReader
from clew.dialects._stream import COUNTS, QUIET, TELLS
from clew.dialects._template import holes
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ErrorFacts, ResponseFacts, ToolCall
from clew.typing import Route


class ChatReader(SseReader):
    """Puts a streamed answer together; keeps names, ids and counts, never text."""

    __slots__ = (
        "_calls",
        "_error",
        "_fingerprint",
        "_finishes",
        "_id",
        "_model",
        "_provider",
        "_served",
        "_tier",
        "_usage",
    )
    holes = holes(
        *("content", "text", "reasoning", "reasoning_content", "thinking", "refusal"),
        *("arguments", "input", "data", "transcript", "value", "obfuscation", "p"),
    )

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._provider = route.provider
        self._id: str | None = None
        self._model: str | None = None
        self._tier: str | None = None
        self._fingerprint: str | None = None
        self._served: str | None = None
        self._usage: RawUsage | None = None
        self._error: ErrorFacts | None = None
        self._finishes: dict[int, str | None] = {}
        self._calls: list[_OpenCall] = []

    def apply(self, payload: bytes) -> int:
        """Take one chunk."""
        chunk = decode(RESPONSE, payload)
        if chunk is None:
            return TELLS
        if not self._id:
            self._id = chunk.id or None
        if not self._model:
            self._model = chunk.model or None
        if not self._fingerprint:
            self._fingerprint = chunk.system_fingerprint or None
        if not self._served:
            self._served = chunk.provider or None
        answer = QUIET
        for choice in chunk.choices or ():
            if self._choice(choice):
                answer = TELLS
        if chunk.service_tier and chunk.service_tier != self._tier:
            # The tier asked for stands in the first chunks, the tier served in the later ones.
            self._tier, answer = chunk.service_tier, TELLS
        if self._report(chunk) and answer == QUIET:
            # Without a choice it is the report of the whole, and no other like it will follow.
            answer = COUNTS if chunk.choices else TELLS
        if chunk.error is not EMPTY and not is_empty(chunk.error):
            self._error, answer = error_of(chunk.error), TELLS
        return answer

    def _report(self, chunk: ChatResponse) -> bool:
        usage = chunk.usage
        if usage is None and chunk.x_groq is not None:
            usage = chunk.x_groq.usage
        if usage is None or usage.is_empty():
            return False
        self._usage = usage
        return True

    def _choice(self, choice: Choice) -> bool:
        """Take one choice of a chunk; tell whether it said anything besides text."""
        index = choice.index or 0
        finish = choice.finish_reason
        if finish or not self._finishes.get(index):
            self._finishes[index] = finish
        told = bool(finish)
        if choice.error is not EMPTY and not is_empty(choice.error):
            self._error, told = self._error or error_of(choice.error), True
        if choice.text is not EMPTY and not is_empty(choice.text):
            self.started = True
        # A server that answers in one piece sends `message` where others send `delta`.
        piece = choice.delta if choice.delta is not None else choice.message
        if piece is None:
            return told
        if not self.started and piece.has_output():
            self.started = True
        for call in piece.tool_calls or ():
            told = self._call(index, call.index, text(call.id), call_name(call)) or told
        if piece.function_call is not None:
            told = self._call(index, 0, None, text(piece.function_call.name)) or told
        return told

    def _call(self, choice: int, index: int | None, call_id: str | None, name: str | None) -> bool:
        if call_id is None and name is None:
            return False
        current = next(
            (
                call
                for call in reversed(self._calls)
                if call.choice == choice and (index is None or call.index == index)
            ),
            None,
        )
        # Some servers give every parallel call the index 0, or none: then the id tells them apart.
        if current is None or (call_id and current.id and call_id != current.id):
            position = index if index is not None else len(self._calls)
            self._calls.append(_OpenCall(choice, position, call_id, name))
            return True
        current.id = current.id or call_id
        if current.name is None:
            current.name = name
        elif name is not None and name != current.name:
            current.name += name
        return True

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        finishes = self._finishes
        words = tuple([finishes[index] for index in sorted(finishes)])
        calls = sorted(self._calls, key=lambda call: (call.choice, call.index))
        return ResponseFacts(
            id=self._id,
            model=self._model,
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            tool_calls=tuple([ToolCall(call.id, call.name) for call in calls]),
            usage=usage_of(self._usage, self._provider),
            error=self._error,
            service_tier=self._tier,
            system_fingerprint=self._fingerprint,
            served_provider=self._served,
            complete=self.done or (bool(words) and None not in words),
        )


class _OpenCall:
    __slots__ = ("choice", "id", "index", "name")

    def __init__(self, choice: int, index: int, call_id: str | None, name: str | None) -> None:
        self.choice = choice
        self.index = index
        self.id = call_id
        self.name = name
