"""What SDKs try again by themselves, what an application tries again, and what takes too long."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

import clew
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedProvider

REFUSED = Reply.failure(429, retry_after_ms=20)


@pytest.fixture
def exported() -> Iterator[CaptureExporter]:
    exporter = CaptureExporter()
    settings = Settings.from_environment(export_delay_ms=20, seal_grace_s=0.02)
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    current = runtime.get()
    assert current is not None
    exporter.flush = lambda: current.worker.flush(5) and None
    yield exporter
    clew.shutdown()


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in exported.by_name("chat")]


async def test_each_call_of_the_application_is_one_round(
    exported: CaptureExporter, kit: Any
) -> None:
    """429, 429, 200 is one round; an application's loop of three calls are three, each refused."""
    with ScriptedProvider([REFUSED, REFUSED, kit.reply, *[REFUSED] * 6]) as server:
        client = kit.client(server, max_retries=2)
        with clew.run("triage") as run:
            await kit.ask(client)
            assert run.totals.input_tokens == 100
        await kit.close(client)
        client = kit.client(server, max_retries=1)
        with clew.run("triage") as run:
            for _ in range(3):
                with pytest.raises(kit.sdk.RateLimitError):
                    await kit.ask(client)
            assert run.totals.rounds == 3
            assert run.totals.input_tokens is None
        await kit.close(client)
        assert len(server.requests) == 9
    found = rounds(exported)
    assert [each["clew.attempts"] for each in found] == [3, 2, 2, 2]
    assert [each.get("error.type") for each in found] == [None, *[kit.errors[429]] * 3]
    assert [each["clew.attempt.wait_ms"] >= 15 for each in found] == [True] * 4
    assert [each["clew.attempt.error"] for each in found] == [kit.errors[429]] * 4
    assert [each.get("gen_ai.usage.input_tokens") for each in found] == [100, None, None, None]


@contextmanager
def nobody_accepts() -> Iterator[int]:
    """Give the port of a server whose queue is full: connecting to it takes for ever."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port = listening.getsockname()[1]
        waiting = []
        try:
            for _ in range(4):
                one = socket.socket()
                one.settimeout(0)
                one.connect_ex(("127.0.0.1", port))
                waiting.append(one)
            yield port
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize("phase", ["connect", "read"])
async def test_a_timeout_says_where_and_of_what(
    exported: CaptureExporter, kit: Any, phase: str
) -> None:
    """Its kind, the server's address and port, and the model, with the attempts that were made."""
    with ScriptedProvider([Reply.silence()] * 2) as server, nobody_accepts() as port:
        timeout = httpx2.Timeout(5, connect=0.2, read=0.2, pool=1)
        client = kit.client(server, max_retries=1, timeout=timeout)
        if phase == "connect":
            client = client.with_options(base_url=f"http://127.0.0.1:{port}/v1")
        with clew.run("triage"), pytest.raises(kit.sdk.APITimeoutError):
            await kit.ask(client)
        await kit.close(client)
        asked = port if phase == "connect" else int(server.base_url.rpartition(":")[2])
    (found,) = rounds(exported)
    assert {
        key: found.get(key)
        for key in (
            "error.type",
            "server.address",
            "server.port",
            "gen_ai.request.model",
            "clew.attempts",
            "http.response.status_code",
        )
    } == {
        "error.type": "httpx2.ConnectTimeout" if phase == "connect" else "httpx2.ReadTimeout",
        "server.address": "127.0.0.1",
        "server.port": asked,
        "gen_ai.request.model": kit.model,
        "clew.attempts": 2,
        "http.response.status_code": None,
    }
