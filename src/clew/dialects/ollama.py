"""Ollama's own API: https://docs.ollama.com/api.

Streams are JSON lines and the default. `prompt_eval_count` is left out when the prompt was cached
whole, so an absent count stays unknown.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._lines import LinesReader
from clew.dialects._read import EMPTY, Count, count, decode, is_empty, number, text
from clew.dialects._stream import QUIET, TELLS
from clew.dialects._template import holes
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, ToolCall, Usage
from clew.typing import Route


class _Named(Struct, gc=False):
    name: str | None = None


class _Tool(Struct):
    function: _Named | None = None


class _Options(Struct, gc=False):
    num_predict: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None


class _Message(Struct, gc=False):
    tool_call_id: str | None = None


class _Request(Struct):
    model: str | None = None
    stream: bool | None = None
    messages: list[_Message] | None = None
    tools: list[_Tool] | None = None
    options: _Options | None = None
    format: msgspec.Raw = EMPTY
    think: msgspec.Raw = EMPTY
    dimensions: int | None = None


class _Call(Struct):
    id: str | None = None
    function: _Named | None = None


class _Answer(Struct):
    content: msgspec.Raw = EMPTY
    thinking: msgspec.Raw = EMPTY
    images: msgspec.Raw = EMPTY
    tool_calls: list[_Call] | None = None


class _Response(Struct):
    model: str | None = None
    message: _Answer | None = None
    response: msgspec.Raw = EMPTY
    thinking: msgspec.Raw = EMPTY
    done: bool | None = None
    done_reason: str | None = None
    prompt_eval_count: Count | None = None
    eval_count: Count | None = None
    error: msgspec.Raw = EMPTY


_REQUEST: Final = msgspec.json.Decoder(_Request)
_RESPONSE: Final = msgspec.json.Decoder(_Response)
_LEVELS: Final = {b'"low"': "low", b'"medium"': "medium", b'"high"': "high"}


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request; without `stream` the answer is streamed."""
    request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts()
    options = request.options or _Options()
    messages = request.messages
    names = [
        tool.function.name
        for tool in request.tools or ()
        if tool.function is not None and tool.function.name
    ]
    return RequestFacts(
        model=text(request.model),
        stream=request.stream is not False and route.operation != "embeddings",
        max_tokens=count(options.num_predict),
        temperature=number(options.temperature),
        top_p=number(options.top_p),
        top_k=number(options.top_k),
        frequency_penalty=number(options.frequency_penalty),
        presence_penalty=number(options.presence_penalty),
        seed=options.seed,
        reasoning_level=_LEVELS.get(bytes(request.think)),  # pyright: ignore[reportArgumentType]
        output_type=None if is_empty(request.format) else "json",
        dimensions=request.dimensions,
        messages=None if messages is None else len(messages),
        tools=tuple(names) if request.tools else None,
        tool_result_ids=tuple(
            [message.tool_call_id for message in messages or () if message.tool_call_id]
        ),
    )


class _Gathered:
    """What the lines of an answer have said; a whole response is one line."""

    __slots__ = ("calls", "done", "error", "last", "model", "seen")

    def __init__(self) -> None:
        self.model: str | None = None
        self.calls: list[ToolCall] = []
        self.last = _Response()
        self.done = False
        self.seen = False
        self.error: ErrorFacts | None = None

    def take(self, line: _Response) -> bool:
        """Add a line; tell whether it said anything besides output."""
        self.model = self.model or text(line.model)
        told = False
        calls = line.message.tool_calls if line.message is not None else None
        for call in calls or ():
            named = call.function
            name = text(named.name) if named is not None else None
            self.calls.append(ToolCall(text(call.id), name))
            told = True
        if line.done is not None or line.message is not None or not is_empty(line.response):
            self.seen = True
        if line.done or line.done_reason or line.eval_count is not None:
            self.last, self.done, told = line, self.done or bool(line.done), True
        if not is_empty(line.error):
            self.error, told = error_of(line.error), True
        return told

    def facts(self, operation: str, *, complete: bool) -> ResponseFacts:
        last = self.last
        words = (text(last.done_reason),) if self.seen and operation != "embeddings" else ()
        input_tokens, output_tokens = last.prompt_eval_count, last.eval_count
        known = input_tokens is not None or output_tokens is not None
        return ResponseFacts(
            model=self.model,
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            tool_calls=tuple(self.calls),
            usage=Usage(input_tokens=input_tokens, output_tokens=output_tokens) if known else None,
            error=self.error,
            complete=complete,
        )


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole answer: a chat, a generation, vectors."""
    response = decode(_RESPONSE, answer.body)
    if response is None:
        return ResponseFacts()
    gathered = _Gathered()
    gathered.take(response)
    if response.prompt_eval_count is not None:  # vectors come without `done`
        gathered.last = response
    return gathered.facts(answer.route.operation, complete=True)


class OllamaReader(LinesReader):
    """Follows a streamed answer."""

    __slots__ = ("_gathered", "_operation")
    holes = holes("content", "response", "thinking")

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._operation = route.operation
        self._gathered = _Gathered()

    def apply(self, payload: bytes) -> int:
        """Take one line."""
        line = decode(_RESPONSE, payload)
        if line is None:
            return TELLS
        if not self.started:
            message = line.message or _Answer()
            self.started = bool(message.tool_calls) or not (
                is_empty(message.content)
                and is_empty(message.thinking)
                and is_empty(message.images)
                and is_empty(line.response)
                and is_empty(line.thinking)
            )
        return TELLS if self._gathered.take(line) else QUIET

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        return self._gathered.facts(self._operation, complete=self._gathered.done)


ollama: Final = WireDialect(
    "ollama",
    read_request,
    read_response,
    OllamaReader,
    names_errors=True,
    conversation="messages",
)
