"""Calls that fail: refused, retried, cut off, timed out, answered with nonsense."""

from __future__ import annotations

import dataclasses
from typing import Any

import httpx2
import pytest
from kits.base import MARK, Gone
from kits.comparing import plain, streamed

from clew.testing import Reply

PLACE = ("server.address", "server.port", "gen_ai.request.model")
"""Where a call went, and of what."""
REFUSED = Reply.failure(429, "zqmark slow down", retry_after_ms=5)
SCENARIOS = pytest.mark.parametrize("scenario", [plain, streamed])


# --- refusals and retries ---------------------------------------------------------------------------


@SCENARIOS
@pytest.mark.covers("error status")
async def test_an_error_status(error_status: int, scenario: Any, kit: Any, compare: Any):
    """The SDK's own exception reaches the caller; the round has the provider's error type."""
    found = await compare(scenario, Reply.failure(error_status, "zqmark in the error's text"))
    assert type(found.error).__module__.startswith(kit.provider)
    assert found.failed
    assert found.released
    assert found.usage == {}
    assert found.told("error.type", "http.response.status_code", "clew.attempts") == {
        "error.type": kit.errors[error_status],
        "http.response.status_code": error_status,
        "clew.attempts": 1,
    }
    assert found.round.status.description is None
    assert found.round.events == ()


@SCENARIOS
@pytest.mark.covers("retry")
async def test_a_call_that_succeeds_at_the_third_attempt(scenario: Any, kit: Any, compare: Any):
    """All attempts are one round, with the facts of the last; the failed ones leave no mark."""
    found = await compare(scenario, REFUSED, REFUSED, kit.reply, max_retries=2)
    assert found.error is None
    assert len(found.requests) == 3
    assert not found.failed
    assert found.usage["input"] == 100
    assert found.told("clew.attempts", "clew.attempt.grouped", "error.type") == {
        "clew.attempts": 3,
        "clew.attempt.grouped": True,
    }
    assert found.told("http.response.status_code") == {"http.response.status_code": 200}
    assert found.told("clew.attempt.wait_ms")["clew.attempt.wait_ms"] >= 10


@SCENARIOS
@pytest.mark.covers("retries used up")
async def test_a_call_whose_retries_are_used_up(scenario: Any, kit: Any, compare: Any):
    """The round counts every attempt and ends as the last one did."""
    found = await compare(scenario, REFUSED, REFUSED, REFUSED, max_retries=2)
    assert type(found.error) is kit.sdk.RateLimitError
    assert len(found.requests) == 3
    assert found.failed
    assert found.told("clew.attempts", "error.type", "http.response.status_code") == {
        "clew.attempts": 3,
        "error.type": kit.errors[429],
        "http.response.status_code": 429,
    }


async def test_a_retry_after_a_broken_connection(kit: Any, compare: Any):
    """A connection that breaks before the answer is an attempt, too."""
    broken = Reply(text="never seen", cut_after=0)
    found = await compare(plain, broken, kit.reply, max_retries=1)
    assert found.error is None
    assert found.told("clew.attempts", "error.type") == {"clew.attempts": 2}


async def test_a_raw_response_that_is_an_error(kit: Any, compare: Any):
    """`with_raw_response` raises like the plain call."""

    async def scenario(session: Any) -> Any:
        call = kit.resource(session.client).with_raw_response.create(**kit.arguments())
        return await call if kit.asynchronous else call

    found = await compare(scenario, Reply.failure(400, "zqmark"))
    assert type(found.error) is kit.sdk.BadRequestError
    assert found.failed


async def test_the_next_call_is_a_round_of_its_own(kit: Any, compare: Any):
    """A failed call leaves nothing behind that the next one could be mistaken for."""

    async def scenario(session: Any) -> Any:
        try:
            await kit.ask(session.client)
        except kit.sdk.APIStatusError:
            return "refused"

    found = await compare(scenario, Reply.failure(400))
    assert found.value == "refused"


# --- connections ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.covers("connection reset")
async def test_a_stream_that_is_cut_off(reset: bool, kit: Any, compare: Any):
    """Three events, then the connection breaks: an error, with what was seen until then."""

    async def scenario(session: Any) -> Any:
        read: list[Any] = []
        stream = await kit.stream(session.client)
        try:
            async for chunk in kit.chunks(stream):
                read += [chunk]
        except Exception as error:
            # How much of the last piece is seen before a reset is the network's affair.
            wire = error if isinstance(error, httpx2.TransportError) else error.__cause__
            return [type(wire).__name__, [] if reset else read]

    # The server waits before it cuts, so that what it sent is read.
    reply = dataclasses.replace(kit.reply, cut_after=5, reset=reset, event_delay=0.01)
    found = await compare(scenario, reply)
    assert found.value[0] == ("ReadError" if reset else "RemoteProtocolError")
    assert found.failed
    assert found.released
    assert found.told("clew.stream.outcome", "error.type", "gen_ai.response.model") == {
        "clew.stream.outcome": "failed",
        "error.type": f"httpx2.{found.value[0]}",
        "gen_ai.response.model": f"{kit.model}-2026",
    }
    assert found.usage.get("input") == (None if kit.provider == "openai" else 100)


@pytest.mark.covers("timeout")
async def test_a_read_timeout_in_a_stream(kit: Any, compare: Any):
    """The provider falls silent in the middle: a timeout, with what was seen until then."""
    reply = dataclasses.replace(kit.reply, hang_after=4)
    found = await compare(streamed, reply, timeout=httpx2.Timeout(0.4, pool=1))
    assert "Timeout" in type(found.error).__name__
    assert found.failed
    assert found.released
    assert found.told("clew.stream.outcome", "error.type", "gen_ai.response.model") == {
        "clew.stream.outcome": "timeout",
        "error.type": "httpx2.ReadTimeout",
        "gen_ai.response.model": f"{kit.model}-2026",
    }


@SCENARIOS
@pytest.mark.covers("timeout")
async def test_a_read_timeout_before_the_answer(scenario: Any, kit: Any, compare: Any):
    """No answer at all: the SDK's timeout error, and the round says so."""
    found = await compare(scenario, Reply.silence(), timeout=httpx2.Timeout(0.3, pool=1))
    assert type(found.error) is kit.sdk.APITimeoutError
    assert found.failed
    assert found.released
    assert found.told("error.type", "http.response.status_code") == {
        "error.type": "httpx2.ReadTimeout"
    }


@pytest.mark.covers("body cut short")
async def test_a_body_that_is_cut_off(kit: Any, compare: Any):
    """Half of a plain answer, then the connection breaks."""
    found = await compare(plain, dataclasses.replace(kit.reply, cut_after=1))
    assert type(found.error) is kit.sdk.APIConnectionError
    assert found.failed
    assert found.usage == {}
    assert found.told("error.type") == {"error.type": "httpx2.RemoteProtocolError"}


@pytest.mark.covers("nobody there")
async def test_a_server_that_is_not_there(kit: Any, compare: Any):
    """A refused connection is an error of the round; of the address host and port are there."""

    async def scenario(session: Any) -> Any:
        gone = Gone(9)
        base_url = gone.openai_base_url if kit.provider == "openai" else gone.base_url
        client = session.client.with_options(
            base_url=base_url, default_query={"key": f"{MARK}-in-the-query"}
        )
        return await kit.ask(client)

    found = await compare(scenario)
    assert type(found.error) is kit.sdk.APIConnectionError
    assert found.failed
    assert found.told("error.type", "http.response.status_code", *PLACE) == {
        "error.type": "httpx2.ConnectError",
        "gen_ai.request.model": kit.model,
        "server.address": "127.0.0.1",
        "server.port": 9,
    }


# --- answers that are not what they should be ---------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply.verbatim(b"<html>zqmark</html>", content_type="text/html"), 200),
        (Reply.verbatim(b"<html>zqmark</html>", status=502, content_type="text/html"), 502),
        (Reply.verbatim(b"", content_type="application/json"), 200),
        (Reply.verbatim(b'{"id": "zqmark', content_type="application/json"), 200),
        (Reply.verbatim(b"[1, 2]", content_type="application/json"), 200),
        (Reply.verbatim(b'{"choices": null, "content": 7}', content_type="application/json"), 200),
        (Reply.verbatim(b'{"id": "\xff\xfe"}', content_type="application/json"), 200),
        (Reply.verbatim(b"null", status=500, content_type="application/json"), 500),
    ],
    ids=["html", "html error", "empty", "truncated", "list", "odd types", "not utf-8", "null"],
)
@pytest.mark.covers("nonsense")
async def test_a_plain_answer_that_is_nonsense(reply: Reply, status: int, kit: Any, compare: Any):
    """The caller sees what it would have seen; the round ends once and knows nothing."""
    found = await compare(plain, reply)
    assert found.released
    assert found.usage == {}
    assert found.told("http.response.status_code") == {"http.response.status_code": status}
    assert found.failed == (status >= 400)
    assert found.told("clew.usage.source", "clew.cost.status", "clew.cost.usd") == {
        "clew.usage.source": "absent",
        "clew.cost.status": "unknown",
    }


@pytest.mark.parametrize(
    "pieces",
    [
        (b"",),
        (b"data: {zqmark\n\n",),
        (b"event: strange\ndata: {}\n\n",),
        (b": comment\n\n", b"retry: 3\n\n"),
        (b"data: \xff\xfe\n\n",),
        (b"data: [1]\n\n", b"data: null\n\n"),
        (b"<html>zqmark</html>",),
        (b"data: " + b"z" * 300_000,),
    ],
    ids=["empty", "not json", "unknown", "comments", "not utf-8", "odd types", "html", "long"],
)
@pytest.mark.covers("nonsense")
async def test_a_stream_that_is_nonsense(pieces: tuple[bytes, ...], kit: Any, compare: Any):
    """The caller sees what it would have seen; the round ends once, and not as complete.

    An SDK that cannot read an event raises and closes the stream itself.
    """
    found = await compare(streamed, Reply.verbatim(*pieces))
    assert found.usage == {}
    assert found.told("clew.stream.outcome")["clew.stream.outcome"] in ("failed", "closed")


@pytest.mark.covers("large answer")
async def test_ten_megabytes(kit: Any, compare: Any):
    """A large answer is passed on and read."""
    reply = dataclasses.replace(kit.reply, text="zqmark " * 1_500_000)
    found = await compare(plain, reply)
    assert found.error is None
    assert found.usage["input"] == 100
    assert found.told("clew.response.bytes")["clew.response.bytes"] > 10_000_000


@pytest.mark.covers("error in a stream")
async def test_an_error_inside_a_stream(kit: Any, compare: Any):
    """A 200 whose stream tells of an error is a failed round with the provider's error type."""
    error = Reply.failure(200, "zqmark overloaded", type="overloaded_error").error
    found = await compare(streamed, dataclasses.replace(kit.reply, error=error, error_after=3))
    assert isinstance(found.error, kit.sdk.APIError)
    assert found.failed
    assert found.told("error.type", "clew.stream.outcome", "http.response.status_code") == {
        "error.type": "overloaded_error",
        "clew.stream.outcome": "failed",
        "http.response.status_code": 200,
    }


async def test_an_error_inside_a_plain_answer(kit: Any, compare: Any):
    """A 200 whose body is an error is a failed round."""
    body = b'{"error": {"type": "server_error", "message": "zqmark"}, "type": "error"}'
    found = await compare(plain, Reply.verbatim(body, content_type="application/json"))
    assert found.failed
    assert found.told("error.type", "http.response.status_code") == {
        "error.type": "server_error",
        "http.response.status_code": 200,
    }
