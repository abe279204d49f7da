"""SDKs beside openai and anthropic: each call is one round, however often it is sent."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

import clew
from clew import _guard
from clew.errors import ClewError, PolicyDenied
from clew.taps import entries
from clew.testing import CaptureExporter, Reply, ScriptedProvider, WireFormat, sse
from clew.typing import Proposal, Verdict

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")

ASK = "SECRET prompt"
MESSAGES = [{"role": "user", "content": ASK}]


class AnyPath(WireFormat):
    """Answers every path; the replies say it all."""

    def matches(self, method: str, path: str) -> bool:
        return True

    def headers(self, number: int) -> dict[str, str]:
        return {}


def openai_body(model: str) -> Any:
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "system_fingerprint": "f",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "SECRET answer"},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def openai_events(model: str) -> list[bytes]:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}
    head["system_fingerprint"] = "f"
    deltas: list[Any] = [
        {"delta": {"role": "assistant", "content": "SECRET"}, "finish_reason": None},
        {"delta": {"content": " answer"}, "finish_reason": "stop"},
    ]
    events = [sse({**head, "choices": [{"index": 0, **delta}]}) for delta in deltas]
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return [*events, sse({**head, "choices": [], "usage": usage}), sse("[DONE]")]


GEMINI: Any = {
    "candidates": [
        {
            "content": {"role": "model", "parts": [{"text": "SECRET answer"}]},
            "finishReason": "STOP",
            "index": 0,
        }
    ],
    "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120},
    "modelVersion": "gemini-2.5-flash",
    "responseId": "r1",
}
OLLAMA: Any = {
    "model": "llama3",
    "created_at": "2026-01-01T00:00:00Z",
    "message": {"role": "assistant", "content": "SECRET answer"},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 100,
    "eval_count": 20,
}
COHERE: Any = {
    "id": "c1",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "SECRET answer"}]},
    "usage": {
        "billed_units": {"input_tokens": 100, "output_tokens": 20},
        "tokens": {"input_tokens": 400, "output_tokens": 20},
    },
}


def cohere_events() -> list[bytes]:
    start = {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}}
    delta = {
        "type": "content-delta",
        "index": 0,
        "delta": {"message": {"content": {"text": "SECRET answer"}}},
    }
    end = {
        "type": "message-end",
        "delta": {"finish_reason": "COMPLETE", "usage": COHERE["usage"]},
    }
    return [sse(event, event["type"]) for event in (start, delta, end)]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Kit:
    """One SDK: how to make a client of it, ask, stream, and what its provider answers."""

    module: str
    make: Callable[..., Any]
    ask: Callable[[Any, bool], Any]
    stream: Callable[[Any, bool], Any]
    body: Any
    events: Callable[[], list[bytes]]
    grouped: bool = True
    retries: bool = True
    stream_retries: bool = True
    content_type: str = "text/event-stream"

    def plain(self) -> Reply:
        return Reply.verbatim(json.dumps(self.body).encode(), content_type="application/json")

    def streamed(self, **options: Any) -> Reply:
        return Reply.verbatim(*self.events(), content_type=self.content_type, **options)


def make_genai(backend: str) -> Callable[[Any, str, bool], Any]:
    def make(sdk: Any, url: str, asynchronous: bool) -> Any:
        more: dict[str, Any] = {}
        if backend == "httpx":
            httpx2 = importlib.import_module("httpx2")
            more["async_client_args"] = {"transport": httpx2.AsyncHTTPTransport()}
        options = sdk.types.HttpOptions(
            base_url=url,
            retry_options=sdk.types.HttpRetryOptions(
                attempts=3, initial_delay=0.01, max_delay=0.02
            ),
            **more,
        )
        return sdk.Client(api_key="key", http_options=options)

    return make


def genai_models(client: Any, asynchronous: bool) -> Any:
    return client.aio.models if asynchronous else client.models


def make_mistral(sdk: Any, url: str, asynchronous: bool) -> Any:
    utils = importlib.import_module("mistralai.client.utils")
    backoff = utils.BackoffStrategy(10, 20, 1.1, 5000)
    retry = utils.RetryConfig("backoff", backoff, True)  # noqa: FBT003
    return sdk.Mistral(api_key="key", server_url=url, retry_config=retry)


def make_openrouter(sdk: Any, url: str, asynchronous: bool) -> Any:
    utils = importlib.import_module("openrouter.utils")
    backoff = utils.BackoffStrategy(10, 20, 1.1, 5000)
    retry = utils.RetryConfig("backoff", backoff, True)  # noqa: FBT003
    return sdk.OpenRouter(api_key="key", server_url=f"{url}/api/v1", retry_config=retry)


def named(name: str) -> Callable[[Any, str, bool], Any]:
    def make(sdk: Any, url: str, asynchronous: bool) -> Any:
        kind = getattr(sdk, f"Async{name}" if asynchronous else name)
        return kind(base_url=url, api_key="key")

    return make


def make_cohere(sdk: Any, url: str, asynchronous: bool) -> Any:
    kind = sdk.AsyncClientV2 if asynchronous else sdk.ClientV2
    return kind(base_url=url, api_key="key")


def make_ollama(sdk: Any, url: str, asynchronous: bool) -> Any:
    return (sdk.AsyncClient if asynchronous else sdk.Client)(host=url)


def suffix(name: str, asynchronous: bool) -> str:
    return f"{name}_async" if asynchronous else name


KITS = {
    "google-genai over httpx": Kit(
        "google.genai",
        make_genai("httpx"),
        lambda client, a: genai_models(client, a).generate_content(model="gemini", contents=ASK),
        lambda client, a: genai_models(client, a).generate_content_stream(
            model="gemini", contents=ASK
        ),
        GEMINI,
        lambda: [sse(GEMINI)],
    ),
    "google-genai over aiohttp": Kit(
        "google.genai",
        make_genai("aiohttp"),
        lambda client, a: genai_models(client, a).generate_content(model="gemini", contents=ASK),
        lambda client, a: genai_models(client, a).generate_content_stream(
            model="gemini", contents=ASK
        ),
        GEMINI,
        lambda: [sse(GEMINI)],
    ),
    "mistralai": Kit(
        "mistralai.client",
        make_mistral,
        lambda client, a: getattr(client.chat, suffix("complete", a))(
            model="mistral-small", messages=MESSAGES
        ),
        lambda client, a: getattr(client.chat, suffix("stream", a))(
            model="mistral-small", messages=MESSAGES
        ),
        openai_body("mistral-small"),
        lambda: openai_events("mistral-small"),
    ),
    "groq": Kit(
        "groq",
        named("Groq"),
        lambda client, _: client.chat.completions.create(model="llama", messages=MESSAGES),
        lambda client, _: client.chat.completions.create(
            model="llama", messages=MESSAGES, stream=True
        ),
        openai_body("llama"),
        lambda: openai_events("llama"),
    ),
    "openrouter": Kit(
        "openrouter",
        make_openrouter,
        lambda client, a: getattr(client.chat, suffix("send", a))(model="m", messages=MESSAGES),
        lambda client, a: getattr(client.chat, suffix("send", a))(
            model="m", messages=MESSAGES, stream=True
        ),
        openai_body("m"),
        lambda: openai_events("m"),
    ),
    "cohere": Kit(
        "cohere",
        make_cohere,
        lambda client, _: client.chat(model="command", messages=MESSAGES),
        lambda client, _: client.chat_stream(model="command", messages=MESSAGES),
        COHERE,
        cohere_events,
        stream_retries=False,
    ),
    "ollama": Kit(
        "ollama",
        make_ollama,
        lambda client, _: client.chat(model="llama3", messages=MESSAGES),
        lambda client, _: client.chat(model="llama3", messages=MESSAGES, stream=True),
        OLLAMA,
        lambda: [
            json.dumps({**OLLAMA, "done": False, "done_reason": None}).encode() + b"\n",
            json.dumps(OLLAMA).encode() + b"\n",
        ],
        grouped=False,
        retries=False,
        content_type="application/x-ndjson",
    ),
}


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    return KITS[request.param]


@pytest.fixture(params=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest, kit: Kit) -> bool:
    if request.param == "sync" and kit is KITS["google-genai over aiohttp"]:
        pytest.skip("aiohttp is asynchronous")
    return request.param == "async"


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(formats=[AnyPath()]) as provider:  # type: ignore[abstract]
        yield provider


@pytest.fixture
async def client(kit: Kit, asynchronous: bool, server: ScriptedProvider) -> AsyncIterator[Any]:
    async with opened(kit, asynchronous, server) as made:
        yield made


@asynccontextmanager
async def opened(kit: Kit, asynchronous: bool, server: ScriptedProvider) -> AsyncIterator[Any]:
    sdk = pytest.importorskip(kit.module)
    made = kit.make(sdk, server.base_url, asynchronous)
    yield made
    for owner in (getattr(made, "aio", None), made):
        for name in ("aclose", "close", "__aexit__", "__exit__"):
            close = getattr(owner, name, None)
            if close is not None:
                await settle(close(*([None] * 3 if name.startswith("__") else [])))
                break


async def settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def read(stream: Any) -> list[Any]:
    """Read a stream of either kind to its end."""
    stream = await settle(stream)
    if hasattr(stream, "__aiter__"):
        return [chunk async for chunk in stream]
    return list(stream)


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    found = [dict(span.attributes or {}) for span in exported.spans]
    return [one for one in found if "clew.attempts" in one]


def failure(status: int) -> Reply:
    body = {"error": {"message": "SECRET", "code": status, "type": "t"}, "message": "SECRET"}
    return Reply.verbatim(
        json.dumps(body).encode(),
        status=status,
        content_type="application/json",
        headers={"retry-after-ms": "10"},
    )


async def test_a_plain_call_is_one_round(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """One round with the provider's counts, grouped where the SDK has a logical entry."""
    clew.instrument()
    server.add(kit.plain())
    with clew.run("triage"):
        answer = await settle(kit.ask(client, asynchronous))
    assert "SECRET answer" in str(answer)
    (found,) = rounds(exported)
    assert found["gen_ai.usage.input_tokens"] == 100
    assert found["gen_ai.usage.output_tokens"] == 20
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert found["clew.attempt.grouped"] is kit.grouped
    assert found["clew.round"] == 1
    assert b"SECRET" not in exported.otlp_bytes()
    sent = {name.lower() for name, _ in server.requests[0].headers}
    assert not {"traceparent", "tracestate", "baggage"} & sent


async def test_a_stream_is_one_round(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """The round ends with the stream."""
    clew.instrument()
    server.add(kit.streamed())
    with clew.run("triage"):
        chunks = await read(kit.stream(client, asynchronous))
    assert chunks
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.usage.input_tokens"] == 100
    assert found["gen_ai.usage.output_tokens"] == 20
    assert found["clew.attempt.grouped"] is kit.grouped or kit.module == "cohere"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_retried_call_is_one_round(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """Attempts that the SDK makes itself are told, not counted as rounds."""
    if not kit.retries:
        pytest.skip("this SDK does not try again")
    clew.instrument()
    server.add(failure(503), failure(503), kit.plain())
    with clew.run("triage"):
        await settle(kit.ask(client, asynchronous))
    (found,) = rounds(exported)
    assert found["clew.attempts"] == 3
    assert found["http.response.status_code"] == 200
    assert found["gen_ai.usage.input_tokens"] == 100
    assert "error.type" not in found


async def test_a_retried_stream_is_one_round(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """The same for a streamed call, whose failed answers some SDKs leave unread."""
    if not kit.retries or not kit.stream_retries:
        pytest.skip("this SDK does not try again")
    clew.instrument()
    server.add(failure(503), kit.streamed())
    with clew.run("triage"):
        await read(kit.stream(client, asynchronous))
    (found,) = rounds(exported)
    assert found["clew.attempts"] == 2
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.usage.input_tokens"] == 100


async def test_a_refused_call_is_one_failed_round(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """The SDK's own exception passes; the round is failed, and tells no text."""
    clew.instrument()
    server.add(failure(400))
    with clew.run("triage"), pytest.raises(Exception, match="SECRET"):  # of the SDK
        await settle(kit.ask(client, asynchronous))
    (found,) = rounds(exported)
    assert found["http.response.status_code"] == 400
    assert "error.type" in found
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_refused_stream_is_one_failed_round(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """The same for a stream that never begins."""
    clew.instrument()
    server.add(failure(400))
    with clew.run("triage"), pytest.raises(Exception, match="SECRET"):  # of the SDK
        await read(kit.stream(client, asynchronous))
    (found,) = rounds(exported)
    assert found["http.response.status_code"] == 400
    assert "error.type" in found


async def test_one_client_alone(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """The HTTP client inside the SDK's is found; other clients are not listened to."""
    server.add(*[kit.plain()] * 4)
    async with opened(kit, asynchronous, server) as other:
        assert clew.instrument(client) is client
        clew.instrument(client)
        await settle(kit.ask(client, asynchronous))
        await settle(kit.ask(other, asynchronous))
        assert [found["clew.attempt.grouped"] for found in rounds(exported)] == [kit.grouped]
        clew.instrument()
        await settle(kit.ask(client, asynchronous))
        assert len(rounds(exported)) == 2
        clew.uninstrument()
        await settle(kit.ask(client, asynchronous))
        assert len(rounds(exported)) == 2


def test_every_entry_of_an_installed_sdk_is_there() -> None:
    """No class or method of the table is missing from the SDKs that are installed here."""
    missing = []
    for name, patches in entries.PATCHES.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for kind, method, _ in patches:
            if not hasattr(getattr(module, kind, None), method):
                missing.append((name, kind, method))
    assert missing == []


async def test_a_renamed_internal_degrades(
    exported: CaptureExporter,
    server: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without its logical entry an SDK's attempts are rounds of their own; one warning says so."""
    client_module = pytest.importorskip("mistralai.client")
    kit = KITS["mistralai"]
    name = "mistralai.client.basesdk"
    moved = {name: (("Gone", "do_request", entries.PATCHES[name][0][2]),)}
    from clew import patching

    monkeypatch.setattr(patching, "_MODULES", {**patching._MODULES, **moved})
    _guard.forget()
    clew.instrument()
    clew.instrument()
    told = [record for record in caplog.records if name in record.getMessage()]
    assert len(told) == 1
    server.add(failure(503), kit.plain())
    with kit.make(client_module, server.base_url, asynchronous=False) as client, clew.run("triage"):
        client.chat.complete(model="m", messages=MESSAGES)
    assert [found["clew.attempt.grouped"] for found in rounds(exported)] == [False, False]


def test_an_object_that_is_no_client_is_a_clear_error() -> None:
    """What cannot be instrumented is named, with what to give instead."""
    with pytest.raises(ClewError, match=r"builtins\.dict"):
        clew.instrument({})


def afc_replies() -> list[Any]:
    def asks(place: str, used: tuple[int, int]) -> Any:
        call = {"functionCall": {"name": "weather", "args": {"place": place}}}
        return {
            **GEMINI,
            "candidates": [
                {**GEMINI["candidates"][0], "content": {"role": "model", "parts": [call]}}
            ],
            "usageMetadata": {
                "promptTokenCount": used[0],
                "candidatesTokenCount": used[1],
                "totalTokenCount": sum(used),
            },
        }

    last = {
        **GEMINI,
        "usageMetadata": {
            "promptTokenCount": 30,
            "candidatesTokenCount": 7,
            "totalTokenCount": 37,
        },
    }
    return [asks("Rome", (10, 5)), asks("Oslo", (20, 6)), last]


@pytest.mark.parametrize("streaming", [False, True])
async def test_automatic_function_calling_hides_no_round(
    exported: CaptureExporter, server: ScriptedProvider, streaming: bool
) -> None:
    """One call of google-genai that runs tools itself is as many rounds as it sends requests."""
    genai = pytest.importorskip("google.genai")

    def weather(place: str) -> str:
        """Tell the weather of a place."""
        return f"SECRET weather of {place}"

    clew.instrument()
    for body in afc_replies():
        if streaming:
            server.add(Reply.verbatim(sse(body)))
        else:
            server.add(Reply.verbatim(json.dumps(body).encode(), content_type="application/json"))
    kit = KITS["google-genai over httpx"]
    async with opened(kit, asynchronous=False, server=server) as client:
        config = genai.types.GenerateContentConfig(tools=[weather])
        with clew.run("triage") as run:
            models = client.models
            if streaming:
                for _ in models.generate_content_stream(
                    model="gemini", contents=ASK, config=config
                ):
                    pass
            else:
                models.generate_content(model="gemini", contents=ASK, config=config)
            totals = run.totals
    found = rounds(exported)
    assert [one["clew.round"] for one in found] == [1, 2, 3]
    assert [one["gen_ai.usage.input_tokens"] for one in found] == [10, 20, 30]
    assert [one["gen_ai.usage.output_tokens"] for one in found] == [5, 6, 7]
    assert (totals.input_tokens, totals.output_tokens) == (60, 18)
    parents = {span.parent.span_id for span in exported.by_name("generate_content") if span.parent}
    assert len(parents) == 1


@dataclass
class Deny:
    """A gate that denies model calls, or their answers."""

    kinds: frozenset[str] = frozenset({"model_call"})
    asked: int = 0
    name = "house"
    mode: Any = "enforce"
    mandatory = True

    def check(self, proposal: Proposal) -> Verdict:
        self.asked += 1
        assert proposal.content is not None
        return Verdict(outcome="deny", reason="house_rule")


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_denial_leaves_every_sdk_as_itself(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
    streaming: bool,
) -> None:
    """No SDK retries, wraps or sends what a gate has denied, and there is no round."""
    clew.instrument()
    gate = Deny()
    ask = (lambda: read(kit.stream(client, asynchronous))) if streaming else None
    with pytest.raises(PolicyDenied) as caught, clew.run("triage", gates=[gate]):
        await (ask() if ask else settle(kit.ask(client, asynchronous)))
    assert type(caught.value) is PolicyDenied
    assert (gate.asked, server.requests, rounds(exported)) == (1, [], [])
    (decision,) = exported.by_name("decide")
    assert decision.attributes["clew.decision.id"] == caught.value.decision_id


async def test_a_denied_answer_leaves_every_sdk_as_itself(
    exported: CaptureExporter,
    server: ScriptedProvider,
    kit: Kit,
    asynchronous: bool,
    client: Any,
) -> None:
    """The caller gets the denial instead of the answer, which is asked for once."""
    clew.instrument()
    server.add(kit.plain())
    gate = Deny(frozenset({"model_output"}))
    with pytest.raises(PolicyDenied), clew.run("triage", gates=[gate]):
        await settle(kit.ask(client, asynchronous))
    assert (gate.asked, len(server.requests), len(rounds(exported))) == (1, 1, 1)
    assert b"SECRET" not in exported.otlp_bytes()
