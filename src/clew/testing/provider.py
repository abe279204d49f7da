"""A provider that answers what a script says, in the real wire formats."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from clew.testing.anthropic_format import AnthropicMessages
from clew.testing.bedrock_format import BedrockConverse, BedrockInvoke
from clew.testing.cohere_format import CohereChat
from clew.testing.gemini_format import GeminiContent
from clew.testing.loopback import MAX_WAIT, Connection, LoopbackServer, ReceivedRequest
from clew.testing.ollama_format import OllamaChat
from clew.testing.openai_format import OpenAIChatCompletions
from clew.testing.script import Reply, ScriptedError
from clew.testing.wire import WireFormat

Script: TypeAlias = Iterable[Reply] | Callable[[ReceivedRequest], Reply]
"""Replies in the order of the requests, or a function that is asked for each."""

FORMATS: Final[tuple[WireFormat, ...]] = (
    OpenAIChatCompletions(),
    AnthropicMessages(),
    GeminiContent(),
    OllamaChat(),
    CohereChat(),
    BedrockConverse(),
    BedrockInvoke(),
)

EXHAUSTED: Final = Reply.failure(
    500,
    "The script has no more replies.",
    code="script_exhausted",
    headers={"x-should-retry": "false"},
)


class ScriptedProvider(LoopbackServer):
    """A model provider on loopback, for tests: real HTTP, real formats, scripted answers.

        with ScriptedProvider([Reply(text="Hello")]) as provider:
            client = openai.OpenAI(base_url=provider.openai_base_url, api_key="any")

    Args:
        script: replies in the order of the requests, or a function that is asked for each. A list
            that has run out answers 500 with `x-should-retry: false`.
        formats: the APIs that are spoken; OpenAI chat completions, Anthropic messages, Gemini's
            content, Ollama's and Cohere's chat and Bedrock's two if not given. Other paths are
            answered with 404.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        formats: Iterable[WireFormat] = FORMATS,
    ) -> None:
        super().__init__()
        self._formats = tuple(formats)
        self._replies: deque[Reply] = deque() if callable(script) else deque(script)
        self._choose = script if callable(script) else self._next

    @property
    def openai_base_url(self) -> str:
        """The `base_url` of an OpenAI client; an Anthropic client takes plain `base_url`."""
        return f"{self.base_url}/v1"

    @property
    def left(self) -> int:
        """How many replies of a list have not been asked for yet."""
        return len(self._replies)

    def add(self, *replies: Reply) -> None:
        """Append replies to the list."""
        self._replies.extend(replies)

    def replace(self, *replies: Reply) -> None:
        """Answer these from now on, and nothing of what was left."""
        self._replies = deque(replies)
        self._choose = self._next

    def _next(self, _request: ReceivedRequest) -> Reply:
        try:
            return self._replies.popleft()
        except IndexError:
            return EXHAUSTED

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        """Answer with the next reply of the script."""
        path = request.path.partition("?")[0]
        spoken = next((one for one in self._formats if one.matches(request.method, path)), None)
        if spoken is None:
            body = b'{"error": {"message": "This path is not scripted.", "type": "not_found"}}'
            connection.head(404, {"content-type": "application/json"}, len(body))
            connection.send(body)
            return
        reply = self._choose(request)
        if reply.silent:
            connection.pause(MAX_WAIT)
            connection.cut()
            return
        pieces, streamed, content_type = _wire(reply, request, spoken)
        headers = {"content-type": reply.content_type or content_type}
        headers |= spoken.headers(request.number)
        if reply.error is not None and reply.error_after is None:
            headers |= spoken.error_headers(reply.error, reply.status)
        headers |= dict(reply.headers)
        connection.pause(reply.delay)
        length = None if streamed else sum(map(len, pieces))
        connection.head(reply.status, headers, length)
        _send(reply, pieces, connection)


def _wire(
    reply: Reply, request: ReceivedRequest, spoken: WireFormat
) -> tuple[list[bytes], bool, str]:
    """Return the pieces to send, whether they are a stream, and their media type."""
    if reply.raw is not None:
        return list(reply.raw), True, "text/event-stream; charset=utf-8"
    if reply.error is not None and reply.error_after is None:
        body = json.dumps(spoken.error_body(reply.error, reply.status, request.number))
        return _halves(body.encode()), False, "application/json"
    if not spoken.streams(request):
        return _halves(json.dumps(spoken.body(reply, request)).encode()), False, "application/json"
    events = spoken.events(reply, request)
    if reply.error_after is not None:
        error = spoken.error_event(reply.error or ScriptedError(), request.number)
        events = [*events[: reply.error_after], error]
    return events, True, spoken.stream_type


def _halves(body: bytes) -> list[bytes]:
    middle = len(body) // 2
    return [body[:middle], body[middle:]]


def _send(reply: Reply, pieces: list[bytes], connection: Connection) -> None:
    for index, piece in enumerate(pieces):
        if index == reply.cut_after:
            break
        if index == reply.hang_after:
            connection.pause(MAX_WAIT)
            break
        connection.pause(reply.pause_before(index))
        connection.send(piece)
    else:
        if reply.cut_after is None and reply.hang_after is None:
            connection.end()
            return
        # The script asked for more events than there are: it still cuts, or hangs, at the end.
        if reply.hang_after is not None:
            connection.pause(MAX_WAIT)
    connection.cut(reset=reply.reset)
