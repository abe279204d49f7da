"""The tap on botocore: streams that end early, errors, and denials."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from bedrock_kit import (
    ANSWER,
    ASK,
    INVOKED,
    MODEL,
    STREAM,
    Bedrock,
    Kit,
    frame,
    plain,
    round_spans,
    rounds,
    streamed,
)
from either_way import settle

import clew
from clew.errors import PolicyDenied
from clew.gates.guardrail import InputGuardrail, redact
from clew.testing import CaptureExporter
from clew.typing import Proposal, Verdict

pytest.importorskip("boto3")
pytest.importorskip("aiobotocore.session")
from botocore.exceptions import ClientError, EndpointConnectionError


async def test_a_streamed_call_that_is_tried_again(
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """A failed answer of a streamed call is an attempt, too."""
    clew.instrument()
    down = plain({"message": "SECRET"}, 503, **{"x-amzn-errortype": "ServiceUnavailableException"})
    bedrock.add(down, streamed(*STREAM))
    async with kit.client(attempts=3) as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            await kit.events(answer["stream"])
    (found,) = rounds(exported)
    assert (found["clew.attempts"], found["clew.stream.outcome"]) == (2, "complete")


async def test_an_error_of_the_provider(
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """The caller gets botocore's exception; the round has the provider's word, not its text."""
    clew.instrument()
    refused = plain({"message": "SECRET"}, 400, **{"x-amzn-errortype": "ValidationException"})
    bedrock.add(refused)
    async with kit.client() as client:
        with clew.run("triage"), pytest.raises(ClientError, match="SECRET"):
            await client.converse(**ASK)
    (found,) = rounds(exported)
    assert found["error.type"] == "ValidationException"
    assert found["http.response.status_code"] == 400
    assert b"SECRET" not in exported.otlp_bytes()


async def test_an_error_inside_a_stream(
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """An exception frame reaches the caller as botocore's error and ends the round failed."""
    clew.instrument()
    error = frame("throttlingException", {"message": "SECRET"}, "exception")
    bedrock.add(streamed(*STREAM[:2], error))
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
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """Closing is noted as such, and closes what botocore would have closed."""
    clew.instrument()
    bedrock.add(streamed(*STREAM, event_delay=0.02))
    async with kit.client() as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            await kit.events(answer["stream"], limit=2)
            await settle(answer["stream"].close())
        for _ in range(100):
            if not bedrock.open_connections:
                break
            await asyncio.sleep(0.02)
        assert bedrock.open_connections == 0
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "closed"
    assert "gen_ai.usage.output_tokens" not in found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_stream_that_is_dropped_is_abandoned(
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """A stream that nobody reads on ends its round when it is collected."""
    clew.instrument()
    bedrock.add(streamed(*STREAM, event_delay=0.02))
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
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """The caller's exception passes; the round is failed."""
    clew.instrument()
    bedrock.add(streamed(*STREAM, cut_after=3, reset=True, event_delay=0.05))
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
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """A body shorter than it said is botocore's error for the caller, and a failed round."""
    clew.instrument()
    bedrock.add(plain(INVOKED))
    bedrock.held = 10
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
    exported: CaptureExporter, bedrock: Bedrock, kit: Kit
) -> None:
    """A timeout between two frames is told as such."""
    clew.instrument()
    bedrock.add(streamed(*STREAM, event_delay=(0, 0, 3)))
    async with kit.client(seconds=0.3) as client:
        with clew.run("triage"):
            answer = await client.converse_stream(**ASK)
            with pytest.raises(Exception, match=r"(?i)time"):  # of urllib3 or aiohttp
                await kit.events(answer["stream"])
            await settle(answer["stream"].close())
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "timeout"


async def test_a_refused_connection(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """Botocore's exception passes on and names the failure."""
    clew.instrument()
    async with kit.client() as client:
        bedrock.close()
        with clew.run("triage"), pytest.raises(EndpointConnectionError):
            await client.converse(**ASK)
    (found,) = rounds(exported)
    assert found["error.type"].endswith(("EndpointConnectionError", "ClientConnectorError"))


# --- denials --------------------------------------------------------------------------------------


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


async def test_a_denial_is_itself(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """Nothing is retried, wrapped or sent, whole or streamed; there is no round."""
    clew.instrument()
    gate = Deny()
    async with kit.client() as client:
        with clew.run("triage", gates=[gate]):
            with pytest.raises(PolicyDenied, match="house_rule"):
                await client.converse(**ASK)
            with pytest.raises(PolicyDenied, match="house_rule"):
                await client.converse_stream(**ASK)
    assert (gate.asked, bedrock.requests, rounds(exported)) == (2, [], [])


async def test_a_denied_answer(exported: CaptureExporter, bedrock: Bedrock, kit: Kit) -> None:
    """The denial comes instead of the answer, which was asked for once."""
    clew.instrument()
    bedrock.add(plain(ANSWER))
    gate = Deny("model_output")
    async with kit.client() as client:
        with clew.run("triage", gates=[gate]), pytest.raises(PolicyDenied):
            await client.converse(**ASK)
    assert (gate.asked, len(bedrock.requests), len(rounds(exported))) == (1, 1, 1)


async def test_a_signed_request_is_denied_and_not_redacted(bedrock: Bedrock, kit: Kit) -> None:
    """The body is part of the signature: a redaction becomes a denial."""
    clew.configure(span_exporters=[CaptureExporter()])
    clew.instrument()
    gate = InputGuardrail(lambda text: redact("***") if "SECRET" in text else None)
    async with kit.client() as client:
        denied = pytest.raises(PolicyDenied, match="redact_not_possible")
        with clew.run("triage", gates=[gate]), denied:
            await client.converse(**ASK)
    assert bedrock.requests == []
