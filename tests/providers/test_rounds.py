"""What an adapter's call leaves behind when Clew listens: one round, with its facts."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.facts import Usage
from clew.providers import PROVIDERS, ChatRequest, Message, ProviderError, ToolSpec, provider
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedError, ScriptedToolCall

ASK = ChatRequest(
    model="small",
    messages=(Message.system("SECRET"), Message.user("SECRET")),
    tools=(ToolSpec(name="find", description="SECRET"),),
    max_tokens=50,
    temperature=0.5,
)
CALL = ScriptedToolCall(id="abcdef123", name="find", arguments={"a": "SECRET"})
REPLY = Reply(
    text="SECRET",
    reasoning="SECRET",
    tool_calls=(CALL,),
    usage=Usage(input_tokens=100, output_tokens=40),
    model="small-2026",
)
NO_FAILURE = {"error.type": None, "clew.provider.failure_class": None}
EARLY = {"openai": 1, "openrouter": 1, "groq": 1, "mistral": 1, "anthropic": 3}


@pytest.fixture
def settings(name: str) -> Settings:
    """Settings that know whose the loopback server is."""
    return Settings.from_environment(
        export_delay_ms=50,
        seal_grace_s=0.05,
        shutdown_s=5,
        provider_hosts={"127.0.0.1": provider(name).semconv_name},
    )


@pytest.fixture
def rounds(kit: Any, exported: CaptureExporter) -> Any:
    """Return the rounds that were exported, as attributes; content must not be among them."""
    clew.instrument()

    def found() -> list[dict[str, Any]]:
        assert b"SECRET" not in exported.otlp_bytes()
        return [
            dict(span.attributes or {})
            for span in exported.spans
            if span.name.endswith((" small", " small-2026"))
        ]

    return found


def told(attributes: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: attributes.get(key) for key in keys}


FINISH = {"gemini": "stop", "ollama": "stop"}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_one_call_is_one_round(kit: Any, rounds: Any, streamed: bool):
    """Operation, models, finish reason, usage, tools and sizes, the same for all seven."""
    kit.server.add(REPLY)
    with clew.run("triage") as run:
        await kit.answer(ASK, streamed=streamed)
    (found,) = rounds()
    expected: dict[str, Any] = {
        "gen_ai.operation.name": "generate_content" if kit.name == "gemini" else "chat",
        "gen_ai.provider.name": kit.provider.semconv_name,
        "gen_ai.request.model": "small",
        "gen_ai.response.model": "small-2026",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.stream": True if streamed else None,
        "gen_ai.response.finish_reasons": (FINISH.get(kit.name, "tool_call"),),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 40,
        "clew.response.tool_call.names": ("find",),
        "clew.response.tool_call.ids": ("abcdef123",),
        "clew.request.tools": 1,
        "clew.request.messages": 1 if kit.name in ("anthropic", "gemini") else 2,
        "clew.request.bytes": len(kit.server.requests[0].body),
        "clew.attempts": 1,
        "clew.attempt.grouped": True,
        "clew.round": 1,
        "clew.stream.outcome": "complete" if streamed else None,
        "http.response.status_code": 200,
        "clew.provider.hop": None,
        **NO_FAILURE,
    }
    if streamed and kit.name in ("openrouter", "groq"):
        # The scripted server speaks OpenAI's format, where usage comes only when asked for.
        expected |= {"gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None}
    assert told(found, *expected) == expected
    assert run.totals.rounds == 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_all_attempts_are_one_round(kit: Any, rounds: Any, streamed: bool):
    """Retries add to the attempts, not to the rounds."""
    kit.server.add(
        Reply.failure(429, retry_after_ms=1), Reply.failure(503, retry_after_ms=20), REPLY
    )
    with clew.run("triage") as run:
        await kit.answer(ASK, streamed=streamed)
        kit.server.add(REPLY)
        await kit.answer(ASK, streamed=streamed)
    first, second = rounds()
    keys = ("clew.round", "clew.attempts", "http.response.status_code", *NO_FAILURE)
    good = {"http.response.status_code": 200, **NO_FAILURE}
    assert told(first, *keys) == {"clew.round": 1, "clew.attempts": 3, **good}
    assert told(second, *keys) == {"clew.round": 2, "clew.attempts": 1, **good}
    assert first["clew.attempt.wait_ms"] >= 20
    assert run.totals.rounds == 2


TYPES = {
    "openai": "invalid_request_error",
    "openrouter": "invalid_request_error",
    "groq": "invalid_request_error",
    "mistral": "unauthorized",
    "anthropic": "authentication_error",
    "gemini": "UNAUTHENTICATED",
    "ollama": "401",
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_failed_round_has_a_failure_class(kit: Any, rounds: Any, streamed: bool):
    """The provider's own word is `error.type`; the class is one of eight."""
    kit.server.add(Reply.failure(401, "SECRET"))
    with clew.run("triage"), pytest.raises(ProviderError):
        await kit.answer(ASK, streamed=streamed)
    (found,) = rounds()
    keys = ("error.type", "clew.provider.failure_class", "http.response.status_code")
    assert told(found, *keys) == {
        "error.type": TYPES[kit.name],
        "clew.provider.failure_class": "auth",
        "http.response.status_code": 401,
    }


async def test_a_server_that_is_not_there(kit: Any, rounds: Any):
    """Every attempt is counted, the exception of the client is the type."""
    async with kit.another(base_url="http://127.0.0.1:9/v1", retries=2) as one:
        with clew.run("triage"), pytest.raises(ProviderError):
            await kit.chat(ASK, by=one)
    (found,) = rounds()
    assert told(found, "error.type", "clew.provider.failure_class", "clew.attempts") == {
        "error.type": "httpx.ConnectError",
        "clew.provider.failure_class": "connection",
        "clew.attempts": 3,
    }


async def test_an_answer_that_is_none(kit: Any, rounds: Any):
    """A good status does not make it a good round."""
    kit.server.add(Reply.verbatim(b"<html>SECRET", content_type="text/html"))
    with clew.run("triage"), pytest.raises(ProviderError):
        await kit.chat(ASK)
    (found,) = rounds()
    keys = ("error.type", "clew.provider.failure_class", "http.response.status_code")
    assert told(found, *keys) == {
        "error.type": "clew.providers.errors.ProviderError",
        "clew.provider.failure_class": "unknown",
        "http.response.status_code": 200,
    }


async def test_a_stream_that_fails_before_its_first_text(kit: Any, rounds: Any):
    """The attempt that tells of an error and the one that answers are one round."""
    early = EARLY.get(kit.name, 0)
    error = ScriptedError(message="SECRET")
    kit.server.add(
        Reply(text="x", error=error, error_after=early),
        Reply(text="x", cut_after=early),
        REPLY,
    )
    with clew.run("triage") as run:
        await kit.events(ASK)
    (found,) = rounds()
    keys = ("clew.attempts", "clew.stream.outcome", *NO_FAILURE)
    expected = {"clew.attempts": 3, "clew.stream.outcome": "complete", **NO_FAILURE}
    assert told(found, *keys) == expected
    assert run.totals.rounds == 1


@pytest.mark.parametrize("how", ["error", "cut"])
async def test_a_stream_that_fails_after_its_first_text(kit: Any, rounds: Any, how: str):
    """The round has failed, and in which class."""
    place = EARLY.get(kit.name, 0) + 1
    reply = Reply(text=("SECRET", "b"), cut_after=place)
    if how == "error":
        error = ScriptedError(message="SECRET")
        reply = Reply(text=("SECRET", "b"), error=error, error_after=place)
    kit.server.add(reply)
    with clew.run("triage"), pytest.raises(ProviderError) as caught:
        await kit.events(ASK)
    (found,) = rounds()
    failure_class = "server_error" if how == "error" else "connection"
    assert caught.value.failure_class == failure_class
    assert told(found, "clew.attempts", "clew.stream.outcome", "clew.provider.failure_class") == {
        "clew.attempts": 1,
        "clew.stream.outcome": "failed",
        "clew.provider.failure_class": failure_class,
    }


@pytest.mark.parametrize("how", ["closed", "abandoned"])
async def test_a_stream_that_is_left(kit: Any, rounds: Any, how: str):
    """It is no failure; closing and dropping are told apart."""
    kit.server.add(Reply(text=tuple("abcdefgh"), event_delay=0.01))
    with clew.run("triage"):
        if kit.mode == "sync":
            stream = kit.provider.stream(ASK)
            next(stream)
            if how == "closed":
                stream.close()
        else:
            stream = kit.provider.astream(ASK)
            await anext(stream)
            if how == "closed":
                await stream.aclose()
        del stream
        for _ in range(100):
            gc.collect()
            if rounds():
                break
            await asyncio.sleep(0.02)
    (found,) = rounds()
    assert told(found, "clew.stream.outcome", *NO_FAILURE) == {
        "clew.stream.outcome": how,
        **NO_FAILURE,
    }


@pytest.mark.parametrize("mode", ["async"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_task_that_is_cancelled(kit: Any, rounds: Any, streamed: bool):
    """The round is cancelled, which is no failure of the provider."""
    place = EARLY.get(kit.name, 0) + 1
    kit.server.add(Reply(text=("a", "b"), hang_after=place) if streamed else Reply.silence())
    with clew.run("triage"):
        task = asyncio.create_task(kit.answer(ASK, streamed=streamed))
        for _ in range(200):
            if kit.server.left == 0:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 2)
    (found,) = rounds()
    assert told(found, "error.type", "clew.provider.failure_class") == {
        "error.type": "asyncio.exceptions.CancelledError",
        "clew.provider.failure_class": None,
    }
    assert found.get("clew.stream.outcome") == ("cancelled" if streamed else None)


async def test_a_tool_call_is_seen_over_two_rounds(kit: Any, rounds: Any):
    """Two calls are two rounds of one run, in order."""
    kit.server.add(REPLY, Reply(text="SECRET"))
    with clew.run("triage") as run:
        first = await kit.chat(ASK)
        result = Message.result(first.tool_calls[0], "SECRET")
        await kit.chat(replace(ASK, messages=(*ASK.messages, first.message, result)))
    assert [found["clew.round"] for found in rounds()] == [1, 2]
    assert run.totals.rounds == 2
    assert run.totals.rounds_without_usage == 0


async def test_what_is_around_a_stream_is_not_changed(kit: Any, rounds: Any):
    """Neither the current span nor the logical call leaks between the events."""
    from opentelemetry import trace

    from clew.attempts import current_call

    kit.server.add(REPLY)
    with clew.run("triage"):
        here = trace.get_current_span()
        if kit.mode == "sync":
            for _ in kit.provider.stream(ASK):
                assert (trace.get_current_span(), current_call()) == (here, None)
        else:
            async for _ in kit.provider.astream(ASK):
                assert (trace.get_current_span(), current_call()) == (here, None)
    assert len(rounds()) == 1


async def test_without_clew_nothing_is_different(kit: Any):
    """Not configured, an adapter works as ever."""
    kit.server.add(REPLY, REPLY)
    answer = await kit.chat(ASK)
    assert (await kit.events(ASK))[-1].response.text == answer.text == "SECRET"


def test_an_import_brings_no_client():
    """The interface and all seven adapters load without httpx and without an SDK."""
    program = """
import sys
from clew.providers import PROVIDERS, provider
for name in PROVIDERS:
    provider(name, api_key="k")
print([name for name in ("httpx", "httpx2", "openai", "anthropic") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_adapters_are_named_as_the_conventions_have_it():
    """`gen_ai.provider.name` of each."""
    assert {name: provider(name).semconv_name for name in PROVIDERS} == {
        "openai": "openai",
        "anthropic": "anthropic",
        "gemini": "gcp.gemini",
        "openrouter": "openrouter",
        "mistral": "mistral_ai",
        "groq": "groq",
        "ollama": "ollama",
    }


def test_the_hosts_of_the_adapters_are_known():
    """A round at the provider's own address has its name without any setting."""
    from urllib.parse import urlsplit

    from clew.dialects import recognise

    found = {}
    for name in PROVIDERS:
        one: Any = provider(name)
        parts = urlsplit(one.base_url + one.path(ASK, stream=False))
        route = recognise("POST", parts.netloc, parts.path)
        assert route is not None
        found[name] = (route.provider, route.dialect.name, route.operation)
    assert found == {
        name: (one.semconv_name, one.dialect.name, one.operation)
        for name in PROVIDERS
        for one in [provider(name)]
    }
