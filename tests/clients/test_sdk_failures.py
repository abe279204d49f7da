"""Calls of the other SDKs that fail: refused, retried, cut off, timed out, answered with nonsense."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from either_way import settle
from kits.base import Gone
from kits.comparing import plain, streamed

from clew.testing import Reply

pytestmark = pytest.mark.kits("sdks")


PLACE = ("server.address", "server.port", "gen_ai.request.model")
"""Where a call went, and of what."""
SCENARIOS = pytest.mark.parametrize("scenario", [plain, streamed])
NONSENSE: dict[str, bytes] = {
    "html": b"<html>zqmark</html>",
    "empty": b"",
    "truncated": b'{"id": "zqmark',
    "list": b"[1, 2]",
    "odd types": b'{"choices": null, "content": 7, "candidates": 1, "message": [], "usage": "x"}',
    "not utf-8": b'{"id": "\xff\xfe"}',
}
PIECES: dict[str, tuple[bytes, ...]] = {
    "empty": (b"",),
    "not json": (b"data: {zqmark\n\n",),
    "odd types": (b"data: [1]\n\n", b"data: null\n\n"),
    "html": (b"<html>zqmark</html>",),
    "long": (b"data: " + b"z" * 300_000,),
}


def refusal(status: int) -> Reply:
    return Reply.failure(status, "zqmark in the error's text", retry_after_ms=10)


def error_of(kit: Any, status: int) -> str:
    """Return how the round names an error: by the provider's word, else by the status."""
    return kit.errors.get(status) or str(status)


# --- refusals and retries ---------------------------------------------------------------------------


@pytest.mark.covers("error status")
async def test_an_error_status(error_status: int, kit: Any, compare: Any):
    """The SDK's own exception reaches the caller; the round has the provider's error type."""
    found = await compare(plain, refusal(error_status))
    assert found.error is not None
    assert found.failed
    assert found.released
    assert found.usage == {}
    assert found.told("error.type", "http.response.status_code", "clew.attempts") == {
        "error.type": error_of(kit, error_status),
        "http.response.status_code": error_status,
        "clew.attempts": 1,
    }
    assert found.round.status.description is None
    assert found.round.events == ()


@pytest.mark.covers("error status")
async def test_a_refused_stream(kit: Any, compare: Any):
    """The same where the answer was to be streamed."""
    found = await compare(streamed, refusal(429))
    assert found.error is not None
    assert found.failed
    assert found.released
    assert found.told("error.type", "http.response.status_code", "clew.stream.outcome") == {
        "error.type": error_of(kit, 429),
        "http.response.status_code": 429,
    }


@pytest.mark.kits(having="retries")
@pytest.mark.covers("retry")
async def test_a_call_that_succeeds_at_the_second_attempt(kit: Any, compare: Any):
    """All attempts are one round, with the facts of the last; the failed ones leave no mark."""
    found = await compare(plain, refusal(kit.retried), kit.reply, retries=2)
    assert found.error is None
    assert len(found.requests) == 2
    assert not found.failed
    assert found.usage == kit.counted
    assert found.told(
        "clew.attempts", "clew.attempt.grouped", "error.type", "http.response.status_code"
    ) == {"clew.attempts": 2, "clew.attempt.grouped": True, "http.response.status_code": 200}
    told = found.told("clew.attempt.error", "clew.attempt.wait_ms")
    assert told["clew.attempt.error"] == error_of(kit, kit.retried)
    assert told["clew.attempt.wait_ms"] > 0


@pytest.mark.kits(having="stream retries")
@pytest.mark.covers("retry")
async def test_a_stream_that_succeeds_at_the_second_attempt(kit: Any, compare: Any):
    """The same for a stream."""
    found = await compare(streamed, refusal(kit.retried), kit.reply, retries=2)
    assert found.error is None
    assert not found.failed
    assert found.usage == kit.counted
    assert found.told("clew.attempts", "clew.stream.outcome", "error.type") == {
        "clew.attempts": 2,
        "clew.stream.outcome": "complete",
    }


@pytest.mark.kits(having="bounded retries")
@pytest.mark.covers("retries used up")
async def test_a_call_whose_retries_are_used_up(kit: Any, compare: Any):
    """The round counts every attempt and ends as the last one did."""
    found = await compare(plain, refusal(429), refusal(429), retries=1)
    assert found.error is not None
    assert len(found.requests) == 2
    assert found.failed
    assert found.told("clew.attempts", "error.type", "http.response.status_code") == {
        "clew.attempts": 2,
        "error.type": error_of(kit, 429),
        "http.response.status_code": 429,
    }


# --- connections ------------------------------------------------------------------------------------


@pytest.mark.covers("connection reset")
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_stream_that_is_cut_off(reset: bool, kit: Any, compare: Any):
    """Some events, then the connection breaks: an error, with what was seen until then."""

    async def scenario(session: Any) -> Any:
        read: list[Any] = []
        stream = await kit.stream(session.client)
        try:
            async for chunk in kit.chunks(stream):
                read += [chunk]
        except Exception as error:
            # How much of the last piece is seen before a reset is the network's affair.
            return [type(error).__name__, [] if reset else read]
        finally:
            await kit.close_stream(stream)

    # The server waits before it cuts, so that what it sent is read.
    reply = dataclasses.replace(kit.reply, cut_after=5, reset=reset, event_delay=0.02)
    found = await compare(scenario, reply)
    assert found.value is not None
    assert found.failed
    assert found.released
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "failed"}
    assert found.told("error.type")["error.type"].startswith(kit.http)
    assert found.usage.get("input") == (100 if kit.counts_early else None)


@pytest.mark.covers("body cut short")
async def test_a_body_that_is_cut_off(kit: Any, compare: Any):
    """Half of a plain answer, then the connection breaks."""
    found = await compare(plain, dataclasses.replace(kit.reply, cut_after=1))
    assert (found.error is not None) == kit.notices_cuts == found.failed
    assert found.usage == {}


@pytest.mark.covers("timeout")
async def test_a_read_timeout_in_a_stream(kit: Any, compare: Any):
    """The provider falls silent in the middle: a timeout, with what was seen until then."""
    reply = dataclasses.replace(kit.reply, hang_after=4)
    found = await compare(streamed, reply, timeout=0.6)
    assert "time" in type(found.error).__name__.lower()
    assert found.failed
    assert found.told("clew.stream.outcome") == {"clew.stream.outcome": "timeout"}
    assert found.told("gen_ai.response.model") == kit.response_model


@SCENARIOS
@pytest.mark.covers("timeout")
async def test_a_read_timeout_before_the_answer(scenario: Any, kit: Any, compare: Any):
    """No answer at all: the SDK's timeout error, and the round says so."""
    found = await compare(scenario, Reply.silence(), timeout=0.6)
    assert "time" in type(found.error).__name__.lower()
    assert found.failed
    assert found.released
    assert "time" in found.told("error.type")["error.type"].lower()
    told = found.told("http.response.status_code", *PLACE)
    assert told.pop("server.port") > 0
    assert told == {"gen_ai.request.model": kit.model, "server.address": "127.0.0.1"}


@pytest.mark.covers("nobody there")
async def test_a_server_that_is_not_there(kit: Any, compare: Any):
    """A refused connection is an error of the round; of the address host and port are there."""

    async def scenario(session: Any) -> Any:
        client = await settle(kit.client(Gone(9, signed_in=kit.takes_credentials)))
        try:
            await kit.ask(client)
        except Exception as error:
            return type(error).__name__
        finally:
            await kit.close(client)

    found = await compare(scenario)
    assert found.value is not None
    assert found.failed
    assert "Connect" in found.told("error.type")["error.type"]
    assert found.told("http.response.status_code", *PLACE) == {
        "gen_ai.request.model": kit.model,
        "server.address": "127.0.0.1",
        "server.port": 9,
    }


# --- answers that are not what they should be ---------------------------------------------------------


@pytest.mark.covers("nonsense")
@pytest.mark.parametrize("body", NONSENSE)
async def test_a_plain_answer_that_is_nonsense(body: str, kit: Any, compare: Any):
    """The caller sees what it would have seen; the round ends once and knows nothing."""
    kind = "text/html" if body == "html" else "application/json"
    found = await compare(plain, Reply.verbatim(NONSENSE[body], content_type=kind))
    assert found.released
    assert found.usage == {}
    assert found.told("http.response.status_code") == {"http.response.status_code": 200}
    assert found.told("clew.usage.source") == {"clew.usage.source": "absent"}


@pytest.mark.covers("nonsense")
@pytest.mark.parametrize("pieces", PIECES)
async def test_a_stream_that_is_nonsense(pieces: str, kit: Any, compare: Any):
    """The caller sees what it would have seen; the round ends once, and not as complete."""
    found = await compare(streamed, Reply.verbatim(*PIECES[pieces]))
    assert found.usage == {}
    outcome = found.told("clew.stream.outcome")["clew.stream.outcome"]
    assert outcome in ("failed", "closed", "abandoned")


@pytest.mark.covers("error in a stream")
async def test_an_error_inside_a_stream(kit: Any, compare: Any):
    """A 200 whose stream tells of an error is a failed round."""

    async def scenario(session: Any) -> Any:
        try:
            return await streamed(session)
        except Exception as error:
            # Some SDKs' exceptions keep the response, and so its connection, as long as they live.
            return type(error).__name__, str(error)

    error = Reply.failure(200, "zqmark overloaded").error
    found = await compare(scenario, dataclasses.replace(kit.reply, error=error, error_after=3))
    assert found.failed
    assert found.told("clew.stream.outcome", "http.response.status_code") == {
        "clew.stream.outcome": "failed",
        "http.response.status_code": 200,
    }
