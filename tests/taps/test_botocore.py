"""The tap on botocore: boto3 and aioboto3 against a server that answers as Bedrock does."""

from __future__ import annotations

import asyncio
import binascii
import gc
import json
import struct
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from taken_off import check_taken_off

import clew
from clew.errors import PolicyDenied
from clew.gates.guardrail import InputGuardrail, redact
from clew.settings import Settings
from clew.testing import CaptureExporter, LoopbackServer, ReceivedRequest, Reply
from clew.testing.loopback import Connection
from clew.typing import Proposal, Verdict

boto3 = pytest.importorskip("boto3")
aiobotocore = pytest.importorskip("aiobotocore.session")
from botocore.config import Config  # noqa: E402
from botocore.exceptions import ClientError, EndpointConnectionError  # noqa: E402

MODEL = "eu.anthropic.claude-haiku-4-5-v1:0"
ASK: dict[str, Any] = {
    "modelId": MODEL,
    "messages": [{"role": "user", "content": [{"text": "SECRET"}]}],
}
JSON = "application/json"
EVENTS = "application/vnd.amazon.eventstream"
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "SECRET"}]}},
    "stopReason": "end_turn",
    "usage": {
        "inputTokens": 70,
        "outputTokens": 20,
        "totalTokens": 120,
        "cacheReadInputTokens": 30,
        "cacheWriteInputTokens": 0,
    },
    "metrics": {"latencyMs": 10},
}
INVOKED = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [{"type": "text", "text": "SECRET"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 100, "output_tokens": 20},
}


def frame(kind: str, payload: Any, message: str = "event") -> bytes:
    """Encode one frame of an event stream."""
    headers = b""
    names = {
        f":{message}-type": kind,
        ":content-type": JSON,
        ":message-type": message,
    }
    for name, value in names.items():
        headers += bytes([len(name)]) + name.encode() + b"\x07"
        headers += struct.pack(">H", len(value)) + value.encode()
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    text = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + body
    return text + struct.pack(">I", binascii.crc32(text))


STREAM = (
    frame("messageStart", {"role": "assistant"}),
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "SEC"}}),
    frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "RET"}}),
    frame("contentBlockStop", {"contentBlockIndex": 0}),
    frame("messageStop", {"stopReason": "tool_use"}),
    frame("metadata", {"usage": ANSWER["usage"], "metrics": {"latencyMs": 9}}),
)


def chunk(event: Any) -> bytes:
    """Encode a piece of an InvokeModel stream."""
    return frame("chunk", {"bytes": b64encode(json.dumps(event).encode()).decode()})


INVOKED_STREAM = (
    chunk({"type": "message_start", "message": {**INVOKED, "content": [], "stop_reason": None}}),
    chunk({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
    chunk(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "SECRET"},
        }
    ),
    chunk({"type": "content_block_stop", "index": 0}),
    chunk(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 20},
        }
    ),
    chunk({"type": "message_stop"}),
)


class Bedrock(LoopbackServer):
    """Answers what it is given, in order; no content length where a reply says so."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: list[Reply] = []
        self.held = 0

    def add(self, *replies: Reply) -> None:
        self.replies += replies

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        reply = self.replies.pop(0)
        pieces = reply.raw or ()
        chunked = reply.content_type == EVENTS
        connection.pause(reply.delay)
        length = None if chunked else sum(map(len, pieces)) + self.held
        headers = {"content-type": reply.content_type or JSON, **reply.headers}
        connection.head(reply.status, headers, length)
        for index, piece in enumerate(pieces):
            connection.pause(reply.pause_before(index))
            if index == reply.cut_after:
                connection.cut(reset=reply.reset)
                return
            connection.send(piece)
        if self.held:
            connection.cut()
            return
        connection.end()


def plain(body: Any, status: int = 200, **headers: str) -> Reply:
    return Reply.verbatim(
        json.dumps(body).encode(), status=status, content_type=JSON, headers=headers
    )


def streamed(*frames: bytes, **options: Any) -> Reply:
    return Reply.verbatim(*frames, content_type=EVENTS, **options)


@pytest.fixture
def server() -> Iterator[Bedrock]:
    with Bedrock() as bedrock:
        yield bedrock


OPTIONS: dict[str, Any] = {
    "region_name": "eu-west-1",
    "aws_access_key_id": "AKIDEXAMPLE",
    "aws_secret_access_key": "key",
}


@pytest.fixture(params=["boto3", "aiobotocore", "aioboto3"])
def kit(request: pytest.FixtureRequest, server: Bedrock) -> Kit:
    return Kit(request.param, server)


class Kit:
    """boto3 or one of its asynchronous twins, behind the same coroutine methods."""

    def __init__(self, library: str, server: Bedrock) -> None:
        self.asynchronous = library != "boto3"
        self.library = library
        self.server = server
        self.raw: Any = None

    @asynccontextmanager
    async def client(self, attempts: int = 1, seconds: float = 10) -> AsyncIterator[Any]:
        retries: Any = {"total_max_attempts": attempts, "mode": "standard"}
        options: dict[str, Any] = {"retries": retries, "read_timeout": seconds}
        if self.library.endswith("httpx"):
            from aiobotocore.config import AioConfig
            from aiobotocore.httpxsession import HttpxSession

            config: Any = AioConfig(http_session_cls=HttpxSession, **options)
        else:
            config = Config(**options)
        arguments = {**OPTIONS, "endpoint_url": self.server.base_url, "config": config}
        if not self.asynchronous:
            self.raw = boto3.Session().client("bedrock-runtime", **arguments)
            yield Awaited(self.raw)
            self.raw.close()
            return
        if self.library == "aioboto3":
            made = pytest.importorskip("aioboto3").Session().client("bedrock-runtime", **arguments)
        else:
            made = aiobotocore.get_session().create_client("bedrock-runtime", **arguments)
        async with made as self.raw:
            yield Awaited(self.raw)

    async def events(self, stream: Any, limit: int | None = None) -> list[Any]:
        read: list[Any] = []
        if self.asynchronous:
            async for event in stream:
                read.append(event)
                if len(read) == limit:
                    break
        else:
            for event in stream:
                read.append(event)
                if len(read) == limit:
                    break
        return read


class Awaited:
    """Makes a client's methods coroutine functions, whether they are or not."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        async def call(**kwargs: Any) -> Any:
            result = getattr(self._client, name)(**kwargs)
            return await result if asyncio.iscoroutine(result) else result

        return call


async def settle(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) else value


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in round_spans(exported)]


def round_spans(exported: CaptureExporter) -> list[ReadableSpan]:
    return [one for one in exported.spans if "clew.attempts" in (one.attributes or {})]


def tokens(found: dict[str, Any]) -> tuple[Any, Any, Any]:
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    first, second, third = (found.get(f"gen_ai.usage.{name}") for name in names)
    return first, second, third


async def test_converse(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """One round with the facts of request and response; cache counts are part of the input."""
    clew.instrument()
    server.add(plain(ANSWER))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.converse(**ASK, inferenceConfig={"maxTokens": 50})
    assert answer["output"]["message"]["content"] == [{"text": "SECRET"}]
    (found,) = rounds(exported)
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.provider.name"] == "aws.bedrock"
    assert found["gen_ai.request.model"] == MODEL
    assert found["gen_ai.request.max_tokens"] == 50
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert tokens(found) == (100, 20, 30)
    assert found["clew.round"] == 1
    assert found["clew.attempt.grouped"] is True
    assert found["http.response.status_code"] == 200
    assert b"SECRET" not in exported.otlp_bytes()


async def test_converse_stream(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """The round ends with the last frame; what is current for the reader never moves."""
    clew.instrument()
    server.add(streamed(*STREAM, event_delay=0.005))
    async with kit.client() as client:
        with clew.run("triage") as run:
            answer = await client.converse_stream(**ASK)
            current = trace.get_current_span().get_span_context().span_id
            assert current == run.span.get_span_context().span_id
            events = await kit.events(answer["stream"])
    assert [next(iter(event)) for event in events] == [
        "messageStart",
        "contentBlockDelta",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStop",
        "metadata",
    ]
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.response.finish_reasons"] == ("tool_call",)
    assert tokens(found) == (100, 20, 30)
    assert found["clew.stream.chunks"] == len(STREAM)
    assert found["clew.response.bytes"] == len(b"".join(STREAM))
    assert 0 < found["gen_ai.response.time_to_first_chunk"] < 5


async def test_invoke_model(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """The body, which the caller reads afterwards, carries the facts; it is read once."""
    clew.instrument()
    server.add(plain(INVOKED))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.invoke_model(modelId=MODEL, body=b'{"messages": []}')
            body = await settle(answer["body"].read())
    assert json.loads(body) == INVOKED
    (found,) = rounds(exported)
    assert tokens(found) == (100, 20, None)
    assert found["gen_ai.response.model"] == "claude-haiku-4-5"
    assert "clew.stream.outcome" not in found


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_body_read_in_pieces(
    exported: CaptureExporter, server: Bedrock, kit: Kit, size: int
) -> None:
    """However the body is read, its end is the end of the round."""
    clew.instrument()
    server.add(plain(INVOKED))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.invoke_model(modelId=MODEL, body=b"{}")
            body = answer["body"]
            left = len(json.dumps(INVOKED))
            read = b""
            while left > 0:
                piece = await settle(body.read(size))
                read += piece
                left -= len(piece)
    assert json.loads(read) == INVOKED
    assert [tokens(found) for found in rounds(exported)] == [(100, 20, None)]


async def test_lines_and_chunks_of_a_body(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """The iterators of a streaming body are listened to as well."""
    clew.instrument()
    server.add(plain(INVOKED), plain(INVOKED))
    async with kit.client() as client:
        for name in ("iter_lines", "iter_chunks"):
            answer = await client.invoke_model(modelId=MODEL, body=b"{}")
            pieces = await kit.events(getattr(answer["body"], name)())
            assert json.loads(b"".join(pieces)) == INVOKED
    assert [tokens(found) for found in rounds(exported)] == [(100, 20, None)] * 2


async def test_invoke_model_with_response_stream(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """The model's own events travel inside frames."""
    clew.instrument()
    server.add(streamed(*INVOKED_STREAM))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.invoke_model_with_response_stream(modelId=MODEL, body=b"{}")
            events = await kit.events(answer["body"])
    assert len(events) == len(INVOKED_STREAM)
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert tokens(found) == (100, 20, None)


async def test_counting_tokens_is_no_round(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """`CountTokens` is a call without a round number."""
    clew.instrument()
    server.add(plain({"inputTokens": 9}))
    async with kit.client() as client:
        with clew.run("triage"):
            request = {"converse": {"messages": ASK["messages"]}}
            answer = await client.count_tokens(modelId=MODEL, input=request)
    assert answer["inputTokens"] == 9
    (found,) = rounds(exported)
    assert found["gen_ai.operation.name"] == "count_tokens"
    assert "clew.round" not in found


async def test_retries_are_one_round(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """Botocore's own attempts of a call are one round, which is what the last one was."""
    clew.instrument()
    throttled = plain({"message": "SECRET"}, 429, **{"x-amzn-errortype": "ThrottlingException"})
    server.add(throttled, throttled, plain(ANSWER))
    async with kit.client(attempts=3) as client:
        with clew.run("triage"):
            await client.converse(**ASK)
    (found,) = rounds(exported)
    assert found["clew.attempts"] == 3
    assert found["http.response.status_code"] == 200
    assert tokens(found) == (100, 20, 30)
    assert "error.type" not in found


async def test_a_streamed_call_that_is_tried_again(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """A failed answer of a streamed call is an attempt, too."""
    clew.instrument()
    down = plain({"message": "SECRET"}, 503, **{"x-amzn-errortype": "ServiceUnavailableException"})
    server.add(down, streamed(*STREAM))
    async with kit.client(attempts=3) as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            await kit.events(answer["stream"])
    (found,) = rounds(exported)
    assert (found["clew.attempts"], found["clew.stream.outcome"]) == (2, "complete")


async def test_an_error_of_the_provider(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """The caller gets botocore's exception; the round has the provider's word, not its text."""
    clew.instrument()
    refused = plain({"message": "SECRET"}, 400, **{"x-amzn-errortype": "ValidationException"})
    server.add(refused)
    async with kit.client() as client:
        with clew.run("triage"), pytest.raises(ClientError, match="SECRET"):
            await client.converse(**ASK)
    (found,) = rounds(exported)
    assert found["error.type"] == "ValidationException"
    assert found["http.response.status_code"] == 400
    assert b"SECRET" not in exported.otlp_bytes()


async def test_an_error_inside_a_stream(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """An exception frame reaches the caller as botocore's error and ends the round failed."""
    clew.instrument()
    error = frame("throttlingException", {"message": "SECRET"}, "exception")
    server.add(streamed(*STREAM[:2], error))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            with pytest.raises(ClientError, match="throttlingException"):
                await kit.events(answer["stream"])
            await settle(answer["stream"].close())
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "failed"
    assert found["error.type"] == "throttlingException"


async def test_a_stream_closed_early_gives_its_connection_back(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """Closing is noted as such, and closes what botocore would have closed."""
    clew.instrument()
    server.add(streamed(*STREAM, event_delay=0.02))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            await kit.events(answer["stream"], limit=2)
            await settle(answer["stream"].close())
        for _ in range(100):
            if not server.open_connections:
                break
            await asyncio.sleep(0.02)
        assert server.open_connections == 0
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    assert "gen_ai.usage.output_tokens" not in found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_stream_that_is_dropped_is_abandoned(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """A stream that nobody reads on ends its round when it is collected."""
    clew.instrument()
    server.add(streamed(*STREAM, event_delay=0.02))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            await kit.events(answer["stream"], limit=1)
            if kit.asynchronous:
                answer["stream"].close()  # a dropped aiohttp response warns of itself
            del answer
            gc.collect()
            for _ in range(100):
                if rounds(exported):
                    break
                await asyncio.sleep(0.02)
    expected = "closed" if kit.asynchronous else "abandoned"
    assert [found["clew.stream.outcome"] for found in rounds(exported)] == [expected]


async def test_a_connection_lost_in_the_middle(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """The caller's exception passes; the round is failed."""
    clew.instrument()
    server.add(streamed(*STREAM, cut_after=3, reset=True, event_delay=0.05))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            with pytest.raises(Exception) as caught:  # noqa: PT011 - of urllib3 or aiohttp
                await kit.events(answer["stream"])
            await settle(answer["stream"].close())
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "failed"
    kind = type(caught.value)
    assert found["error.type"] == f"{kind.__module__}.{kind.__qualname__}"


async def test_a_body_that_is_cut_short(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """A body shorter than it said is botocore's error for the caller, and a failed round."""
    clew.instrument()
    server.add(plain(INVOKED))
    server.held = 10
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.invoke_model(modelId=MODEL, body=b"{}")
            with pytest.raises(Exception):  # noqa: B017, PT011 - of botocore or aiohttp
                await settle(answer["body"].read())
            await settle(answer["body"].close())
    (span,) = round_spans(exported)
    assert (span.attributes or {})["error.type"] != "_OTHER"
    assert (span.attributes or {})["clew.stream.outcome"] == "failed"


async def test_a_read_that_takes_too_long(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """A timeout between two frames is told as such."""
    clew.instrument()
    server.add(streamed(*STREAM, event_delay=(0, 0, 3)))
    async with kit.client(seconds=0.3) as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            with pytest.raises(Exception, match=r"(?i)time"):  # of urllib3 or aiohttp
                await kit.events(answer["stream"])
            await settle(answer["stream"].close())
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "timeout"


async def test_a_refused_connection(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """Botocore's exception passes on and names the failure."""
    clew.instrument()
    async with kit.client() as client:
        server.close()
        with clew.run("triage"), pytest.raises(EndpointConnectionError):
            await client.converse(**ASK)
    (found,) = rounds(exported)
    assert found["error.type"].endswith(("EndpointConnectionError", "ClientConnectorError"))


async def test_trace_headers_are_off_before_signing(
    exported: CaptureExporter, server: Bedrock, kit: Kit
) -> None:
    """A handler that adds trace headers neither sends them nor has them signed; others stay."""

    def add(request: Any, **_: Any) -> None:
        request.headers["traceparent"] = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
        request.headers["baggage"] = "user.id=SECRET"
        request.headers["x-mine"] = "1"

    clew.instrument()
    server.add(plain(ANSWER))
    async with kit.client() as client:
        kit.raw.meta.events.register("before-sign.bedrock-runtime", add)
        with clew.run("triage"):
            await client.converse(**ASK)
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert not {"traceparent", "tracestate", "baggage"} & set(sent)
    signed = sent["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    assert sent["x-mine"] == "1"
    assert "x-mine" in signed
    assert not {"traceparent", "tracestate", "baggage"} & set(signed)


async def test_trace_headers_go_where_the_operator_lets_them(server: Bedrock, kit: Kit) -> None:
    """A host on the list sees them."""

    def add(request: Any, **_: Any) -> None:
        request.headers["traceparent"] = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    settings = Settings.from_environment(propagate_to=frozenset({"127.0.0.1"}))
    clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    server.add(plain(ANSWER))
    async with kit.client() as client:
        kit.raw.meta.events.register("before-sign.bedrock-runtime", add)
        with clew.run("triage"):
            await client.converse(**ASK)
    sent = {name.lower(): value for name, value in server.requests[0].headers}
    assert sent["traceparent"] == "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


async def test_one_client_alone(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """Only the client that was given is listened to, once, and it can be let go."""
    server.add(*[plain(ANSWER)] * 5)
    async with kit.client() as mine:
        raw = kit.raw
        async with kit.client() as other:
            assert clew.instrument(raw) is raw
            clew.instrument(raw)
            await mine.converse(**ASK)
            await other.converse(**ASK)
            assert [found["clew.attempt.grouped"] for found in rounds(exported)] == [True]
            clew.instrument()
            await mine.converse(**ASK)
            assert len(rounds(exported)) == 2
            clew.uninstrument()
            clew.uninstrument(raw)
            await mine.converse(**ASK)
            await other.converse(**ASK)
            assert len(rounds(exported)) == 2


async def test_plain_calls_over_httpx(exported: CaptureExporter, server: Bedrock) -> None:
    """Aiobotocore may send with httpx, whose tap then sees its requests: grouped all the same."""
    clew.instrument()
    server.add(plain({"message": "SECRET"}, 503), plain(ANSWER))
    async with Kit("aiobotocore over httpx", server).client(attempts=2) as client:
        await client.converse(**ASK)
    (found,) = rounds(exported)
    assert (found["clew.attempts"], found["clew.attempt.grouped"]) == (2, True)
    assert tokens(found) == (100, 20, 30)


def test_other_services_are_left_alone(exported: CaptureExporter, server: Bedrock) -> None:
    """A request to another service opens no round."""
    clew.instrument()
    server.add(Reply.verbatim(b"hello", content_type="text/plain"))
    client = boto3.client("s3", endpoint_url=server.base_url, **OPTIONS)
    with clew.run("triage"):
        answer = client.get_object(Bucket="bucket", Key="key")
        assert answer["Body"].read() == b"hello"
    client.close()
    assert rounds(exported) == []


def test_taking_the_tap_off_restores_everything() -> None:
    """After `uninstrument` the classes are as they came."""
    from botocore.auth import SigV4Auth
    from botocore.client import BaseClient
    from botocore.httpsession import URLLib3Session

    check_taken_off(
        (URLLib3Session, "send"),
        (SigV4Auth, "add_auth"),
        (BaseClient, "_make_api_call"),
    )


class Deny:
    """A gate that denies model calls, or their answers."""

    name = "house"
    mode: Any = "enforce"
    mandatory = True

    def __init__(self, kind: str = "model_call") -> None:
        self.kinds = frozenset({kind})
        self.asked = 0

    def check(self, proposal: Proposal) -> Verdict:
        self.asked += 1
        return Verdict(outcome="deny", reason="house_rule", replacement=b"{}")


async def test_a_denial_is_itself(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """Nothing is retried, wrapped or sent, whole or streamed; there is no round."""
    clew.instrument()
    gate = Deny()
    async with kit.client() as client:
        with clew.run("triage", gates=[gate]):
            with pytest.raises(PolicyDenied, match="house_rule"):
                await client.converse(**ASK)
            with pytest.raises(PolicyDenied, match="house_rule"):
                await client.converse_stream(**ASK)
    assert (gate.asked, server.requests, rounds(exported)) == (2, [], [])


async def test_a_denied_answer(exported: CaptureExporter, server: Bedrock, kit: Kit) -> None:
    """The denial comes instead of the answer, which was asked for once."""
    clew.instrument()
    server.add(plain(ANSWER))
    gate = Deny("model_output")
    async with kit.client() as client:
        with clew.run("triage", gates=[gate]), pytest.raises(PolicyDenied):
            await client.converse(**ASK)
    assert (gate.asked, len(server.requests), len(rounds(exported))) == (1, 1, 1)


async def test_a_signed_request_is_denied_and_not_redacted(server: Bedrock, kit: Kit) -> None:
    """The body is part of the signature: a redaction becomes a denial."""
    clew.configure(span_exporters=[CaptureExporter()])
    clew.instrument()
    gate = InputGuardrail(lambda text: redact("***") if "SECRET" in text else None)
    async with kit.client() as client:
        denied = pytest.raises(PolicyDenied, match="redact_not_possible")
        with clew.run("triage", gates=[gate]), denied:
            await client.converse(**ASK)
    assert server.requests == []
