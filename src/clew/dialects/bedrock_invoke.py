"""Amazon Bedrock InvokeModel: each model family's own bodies behind one path.

https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html. The body's fields tell
the family; token counts that it leaves out stand in headers (`x-amzn-bedrock-*`), in a stream in
the metrics of the last chunk.
"""

from __future__ import annotations

import binascii
from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects import _converse_shape as converse
from clew.dialects import anthropic_messages as anthropic
from clew.dialects import bedrock_converse, openai_chat
from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._eventstream import EventStreamReader
from clew.dialects._openai_chat_stream import ChatReader
from clew.dialects._read import EMPTY, Count, count, decode, is_empty, loads
from clew.dialects._template import Template, holes, learn
from clew.dialects.by_paths import PATHS, Gathered, find
from clew.dialects.by_paths import read_request as read_by_paths
from clew.facts import RequestFacts, ResponseFacts, Usage
from clew.typing import Route

_PATHS: Final = PATHS["bedrock_text"]
_HEADER: Final = "x-amzn-bedrock-{}-token-count"


class _Request(Struct, rename="camel"):
    messages: msgspec.Raw = EMPTY
    anthropic_version: msgspec.Raw = msgspec.field(name="anthropic_version", default=EMPTY)
    inference_config: msgspec.Raw = EMPTY
    schema_version: msgspec.Raw = EMPTY
    texts: msgspec.Raw = EMPTY
    input_type: msgspec.Raw = msgspec.field(name="input_type", default=EMPTY)


class _Shape(Struct, rename="camel"):
    """The fields by which a whole body is told."""

    type: msgspec.Raw = EMPTY
    choices: msgspec.Raw = EMPTY
    output: msgspec.Raw = EMPTY
    content: msgspec.Raw = EMPTY


_REQUEST: Final = msgspec.json.Decoder(_Request)
_SHAPE: Final = msgspec.json.Decoder(_Shape)


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request; the operation is told by the body where the path does not tell it."""
    request = decode(_REQUEST, body)
    if request is None:
        return RequestFacts(model=route.model, stream=route.stream)
    if is_empty(request.messages):
        facts = read_by_paths(body, route, _PATHS)
        if route.operation == "text_completion" and not is_empty(request.texts):
            return msgspec.structs.replace(facts, operation="embeddings")
        return facts
    if not (is_empty(request.inference_config) and is_empty(request.schema_version)):
        facts = bedrock_converse.read_request(body, route)
    elif not is_empty(request.anthropic_version):
        facts = anthropic.read_request(body, route)
    else:
        facts = openai_chat.read_request(body, route)
    return msgspec.structs.replace(facts, model=route.model, operation="chat", stream=route.stream)


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response."""
    shape = decode(_SHAPE, answer.body) or _Shape()
    if not is_empty(shape.choices):
        facts = openai_chat.read_response(answer)
    elif not is_empty(shape.output):
        facts = converse.read_converse(answer.body)
    elif not is_empty(shape.type) and not is_empty(shape.content):
        facts = anthropic.read_response(answer)
    else:
        gathered = Gathered(_PATHS)
        gathered.take(loads(answer.body))
        facts = gathered.facts(complete=True)
    counts = {
        kind: _digits(answer.header(_HEADER.format(kind)))
        for kind in ("input", "output", "cache-read-input", "cache-write-input")
    }
    return _filled(facts, counts)


def _digits(value: str | None) -> int | None:
    return None if value is None else count(value.strip())


def _filled(facts: ResponseFacts, counts: dict[str, int | None]) -> ResponseFacts:
    """Fill in the counts that the body leaves out; the outer ones exclude cached input."""
    usage = facts.usage or Usage()
    if usage.input_tokens is not None and usage.output_tokens is not None:
        return facts
    read, written = counts["cache-read-input"], counts["cache-write-input"]
    uncached, output_tokens = counts["input"], counts["output"]
    whole = None if uncached is None else uncached + (read or 0) + (written or 0)
    if (
        usage.input_tokens is None
        and usage.output_tokens is None
        and whole is output_tokens is None
    ):
        return facts
    filled = msgspec.structs.replace(
        usage,
        input_tokens=whole if usage.input_tokens is None else usage.input_tokens,
        output_tokens=output_tokens if usage.output_tokens is None else usage.output_tokens,
        cache_read_tokens=read if usage.cache_read_tokens is None else usage.cache_read_tokens,
        cache_write_tokens=written
        if usage.cache_write_tokens is None
        else usage.cache_write_tokens,
    )
    return msgspec.structs.replace(facts, usage=filled)


class _Metrics(Struct, rename="camel", gc=False):
    input_token_count: Count | None = None
    output_token_count: Count | None = None
    cache_read_input_token_count: Count | None = None
    cache_write_input_token_count: Count | None = None


class _Chunk(Struct):
    bytes: str | None = None


class _Inner(Struct, rename="camel"):
    """The fields by which a chunk is told."""

    type: str | None = None
    choices: msgspec.Raw = EMPTY
    message_start: msgspec.Raw = EMPTY
    content_block_start: msgspec.Raw = EMPTY
    content_block_delta: msgspec.Raw = EMPTY
    content_block_stop: msgspec.Raw = EMPTY
    message_stop: msgspec.Raw = EMPTY
    metadata: msgspec.Raw = EMPTY
    metrics: _Metrics | None = msgspec.field(name="amazon-bedrock-invocationMetrics", default=None)


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_INNER: Final = msgspec.json.Decoder(_Inner)
_CONVERSE_EVENTS: Final = (
    ("message_start", "messageStart"),
    ("content_block_start", "contentBlockStart"),
    ("content_block_delta", "contentBlockDelta"),
    ("content_block_stop", "contentBlockStop"),
    ("message_stop", "messageStop"),
    ("metadata", "metadata"),
)
_QUIET_BEGINNINGS: Final = (
    b'{"bytes":"' + binascii.b2a_base64(b'{"type":"content_block_delta",', newline=False),
    b'{"bytes":"' + binascii.b2a_base64(b'{"contentBlockDelta":', newline=False),
)
"""Whole base64 groups, so that what follows cannot change them."""
_HOLES: Final = holes("generation", "outputText", "text", "completion")


def _body(payload: bytes) -> bytes | None:
    """Return the model's own chunk inside a frame's payload."""
    if payload.startswith(b'{"bytes":"'):
        encoded: bytes | str | None = payload[10 : payload.find(b'"', 10)]
    else:
        chunk = decode(_CHUNK, payload)
        encoded = chunk.bytes if chunk is not None else None
    try:
        return None if encoded is None else binascii.a2b_base64(encoded)
    except ValueError:  # not base64
        return None


class InvokeReader(EventStreamReader):
    """Follows a streamed answer of any family."""

    __slots__ = ("_chat", "_converse", "_counted", "_messages", "_metrics", "_quiet", "_texts")

    def __init__(self, route: Route) -> None:
        super().__init__()
        self._messages = anthropic.MessagesReader()
        self._chat = ChatReader(route)
        self._converse = converse.Gathered()
        self._texts = Gathered(_PATHS)
        self._metrics = _Metrics()
        self._quiet: Template | None = None
        self._counted: bytes | None = None

    def frame(self, kind: str, payload: bytes) -> bytes | None:
        """Take one chunk."""
        body = _body(payload) if kind == "chunk" else None
        if body is None:
            return None
        template = self._quiet
        if template is not None and body.startswith(template.head) and template.fits(body):
            self._counted = body
            return None
        inner = decode(_INNER, body)
        if inner is None:
            return None
        self._metrics = inner.metrics or self._metrics
        self._take(inner, body)
        return next((start for start in _QUIET_BEGINNINGS if payload.startswith(start)), None)

    def _take(self, inner: _Inner, body: bytes) -> None:
        if inner.type is not None:
            self._messages.apply(body)
            self.started = self.started or self._messages.started
            return
        if not is_empty(inner.choices):
            self._chat.apply(body)
            self.started = self.started or self._chat.started
            return
        events = [
            (kind, value)
            for field, kind in _CONVERSE_EVENTS
            if not is_empty(value := getattr(inner, field))
        ]
        for kind, value in events:
            self.started = self._converse.take(kind, value) or self.started
        if not events:
            self._text(body)

    def _text(self, body: bytes) -> None:
        """Take a chunk of a text model, and learn what the ones that say nothing look like."""
        self._settle_text()
        value = loads(body)
        told = self._texts.take(value)
        self.started = self.started or any(find(value, _PATHS.output))
        if told or not self.started:
            return
        siblings = [] if self._quiet is None else [self._quiet]
        self._quiet = learn(body, _HOLES, siblings, latest_counts=False) or self._quiet

    def _settle_text(self) -> None:
        """Read the counts of the last chunk that was only counted: they are cumulative."""
        if self._counted is not None:
            self._texts.take(loads(self._counted))
            self._counted = None

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        self._settle_text()
        options = (
            self._messages.facts(),
            self._chat.facts(),
            self._converse.facts(),
            self._texts.facts(complete=self._texts.closed),
        )
        facts = next((entry for entry in options if entry.finish_reasons_raw), options[3])
        if self.error is not None:
            facts = msgspec.structs.replace(facts, error=self.error)
        metrics = self._metrics
        return _filled(
            facts,
            {
                "input": metrics.input_token_count,
                "output": metrics.output_token_count,
                "cache-read-input": metrics.cache_read_input_token_count,
                "cache-write-input": metrics.cache_write_input_token_count,
            },
        )


bedrock_invoke: Final = WireDialect("bedrock_invoke", read_request, read_response, InvokeReader)
