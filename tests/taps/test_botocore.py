"""The tap on botocore: what one call tells, plain and streamed, and what it changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bedrock_kit import (
    ANSWER,
    ASK,
    INVOKED,
    INVOKED_STREAM,
    MODEL,
    OPTIONS,
    STREAM,
    Bedrock,
    Kit,
    plain,
    rounds,
    streamed,
    tokens,
)
from either_way import settle
from opentelemetry import trace
from taken_off import check_taken_off

import clew
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply

boto3 = pytest.importorskip("boto3")
pytest.importorskip("aiobotocore.session")


async def test_converse(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """One round with the facts of request and response; cache counts are part of the input."""
    clew.instrument()
    bedrock.add(plain(ANSWER))
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


async def test_converse_stream(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """The round ends with the last frame; what is current for the reader never moves."""
    clew.instrument()
    bedrock.add(streamed(*STREAM, event_delay=0.005))
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


async def test_invoke_model(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """The body, which the caller reads afterwards, carries the facts; it is read once."""
    clew.instrument()
    bedrock.add(plain(INVOKED))
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
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit, size: int
) -> None:
    """However the body is read, its end is the end of the round."""
    clew.instrument()
    bedrock.add(plain(INVOKED))
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
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """The iterators of a streaming body are listened to as well."""
    clew.instrument()
    bedrock.add(plain(INVOKED), plain(INVOKED))
    async with kit.client() as client:
        for name in ("iter_lines", "iter_chunks"):
            answer = await client.invoke_model(modelId=MODEL, body=b"{}")
            pieces = await kit.events(getattr(answer["body"], name)())
            assert json.loads(b"".join(pieces)) == INVOKED
    assert [tokens(found) for found in rounds(exported)] == [(100, 20, None)] * 2


async def test_invoke_model_with_response_stream(
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """The model's own events travel inside frames."""
    clew.instrument()
    bedrock.add(streamed(*INVOKED_STREAM))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.invoke_model_with_response_stream(modelId=MODEL, body=b"{}")
            events = await kit.events(answer["body"])
    assert len(events) == len(INVOKED_STREAM)
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert tokens(found) == (100, 20, None)


async def test_counting_tokens_is_no_round(
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """`CountTokens` is a call without a round number."""
    clew.instrument()
    bedrock.add(plain({"inputTokens": 9}))
    async with kit.client() as client:
        with clew.run("triage"):
            request = {"converse": {"messages": ASK["messages"]}}
            answer = await client.count_tokens(modelId=MODEL, input=request)
    assert answer["inputTokens"] == 9
    (found,) = rounds(exported)
    assert found["gen_ai.operation.name"] == "count_tokens"
    assert "clew.round" not in found


async def test_retries_are_one_round(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """Botocore's own attempts of a call are one round, which is what the last one was."""
    clew.instrument()
    throttled = plain({"message": "SECRET"}, 429, **{"x-amzn-errortype": "ThrottlingException"})
    bedrock.add(throttled, throttled, plain(ANSWER))
    async with kit.client(attempts=3) as client:
        with clew.run("triage"):
            await client.converse(**ASK)
    (found,) = rounds(exported)
    assert found["clew.attempts"] == 3
    assert found["http.response.status_code"] == 200
    assert tokens(found) == (100, 20, 30)
    assert "error.type" not in found


async def test_trace_headers_are_off_before_signing(
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """A handler that adds trace headers neither sends them nor has them signed; others stay."""

    def add(request: Any, **_: Any) -> None:
        request.headers["traceparent"] = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
        request.headers["baggage"] = "user.id=SECRET"
        request.headers["x-mine"] = "1"

    clew.instrument()
    bedrock.add(plain(ANSWER))
    async with kit.client() as client:
        kit.raw.meta.events.register("before-sign.bedrock-runtime", add)
        with clew.run("triage"):
            await client.converse(**ASK)
    sent = {name.lower(): value for name, value in bedrock.requests[0].headers}
    assert not {"traceparent", "tracestate", "baggage"} & set(sent)
    signed = sent["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    assert sent["x-mine"] == "1"
    assert "x-mine" in signed
    assert not {"traceparent", "tracestate", "baggage"} & set(signed)


async def test_trace_headers_go_where_the_operator_lets_them(bedrock: Bedrock, kit: Kit) -> None:
    """A host on the list sees them."""

    def add(request: Any, **_: Any) -> None:
        request.headers["traceparent"] = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"

    settings = Settings.from_environment(propagate_to=frozenset({"127.0.0.1"}))
    clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    bedrock.add(plain(ANSWER))
    async with kit.client() as client:
        kit.raw.meta.events.register("before-sign.bedrock-runtime", add)
        with clew.run("triage"):
            await client.converse(**ASK)
    sent = {name.lower(): value for name, value in bedrock.requests[0].headers}
    assert sent["traceparent"] == "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


async def test_one_client_alone(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """Only the client that was given is listened to, once, and it can be let go."""
    bedrock.add(*[plain(ANSWER)] * 5)
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


async def test_plain_calls_over_httpx(exported: CaptureExporter, bedrock: Bedrock) -> None:
    """Aiobotocore may send with httpx, whose tap then sees its requests: grouped all the same."""
    clew.instrument()
    bedrock.add(plain({"message": "SECRET"}, 503), plain(ANSWER))
    async with Kit("aiobotocore over httpx", bedrock).client(attempts=2) as client:
        await client.converse(**ASK)
    (found,) = rounds(exported)
    assert (found["clew.attempts"], found["clew.attempt.grouped"]) == (2, True)
    assert tokens(found) == (100, 20, 30)


def test_other_services_are_left_alone(exported: CaptureExporter, bedrock: Bedrock) -> None:
    """A request to another service opens no round."""
    clew.instrument()
    bedrock.add(Reply.verbatim(b"hello", content_type="text/plain"))
    client = boto3.client("s3", endpoint_url=bedrock.base_url, **OPTIONS)
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
