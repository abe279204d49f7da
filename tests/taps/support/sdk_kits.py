"""SDKs beside openai and anthropic: how each is asked, and what its provider answers."""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from either_way import settle

from clew.testing import CaptureExporter, Reply, ScriptedProvider, WireFormat, sse

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


def genai_over(library: str) -> Kit:
    return Kit(
        "google.genai",
        make_genai(library),
        lambda client, a: genai_models(client, a).generate_content(model="gemini", contents=ASK),
        lambda client, a: genai_models(client, a).generate_content_stream(
            model="gemini", contents=ASK
        ),
        GEMINI,
        lambda: [sse(GEMINI)],
    )


KITS = {
    "google-genai over httpx": genai_over("httpx"),
    "google-genai over aiohttp": genai_over("aiohttp"),
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


async def read(stream: Any) -> list[Any]:
    """Read a stream of either kind to its end."""
    stream = await settle(stream)
    if hasattr(stream, "__aiter__"):
        return [chunk async for chunk in stream]
    return list(stream)


def failure(status: int) -> Reply:
    body = {"error": {"message": "SECRET", "code": status, "type": "t"}, "message": "SECRET"}
    return Reply.verbatim(
        json.dumps(body).encode(),
        status=status,
        content_type="application/json",
        headers={"retry-after-ms": "10"},
    )


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    found = [dict(span.attributes or {}) for span in exported.spans]
    return [one for one in found if "clew.attempts" in one]


@dataclass(frozen=True, kw_only=True)
class Asking:
    """A client of one SDK, sync or async, beside a provider with an empty script."""

    kit: Kit
    asynchronous: bool
    client: Any
    server: ScriptedProvider

    async def ask(self, client: Any = None) -> Any:
        """Make a plain call, by another client if one is given."""
        by = self.client if client is None else client
        return await settle(self.kit.ask(by, self.asynchronous))

    async def stream(self) -> list[Any]:
        """Make the same call streamed, and read it to its end."""
        return await read(self.kit.stream(self.client, self.asynchronous))
