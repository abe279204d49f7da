"""From the bytes of an answer to tokens, cost and totals on spans, for each provider's own usage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import clew
from clew import semconv as s
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, LoopbackServer, ReceivedRequest
from clew.testing.loopback import Connection

RATES = {
    "model": "model-x", "input": 2, "output": 8, "cache_read": 0.5, "cache_write": 2.5,
    "input_audio": 40, "output_audio": 80,
}  # fmt: skip
"""US dollars for a million tokens."""
SILENT = {key: rate for key, rate in RATES.items() if "audio" not in key} | {"model": "model-s"}
"""The same without rates for sound."""
TIERED = {
    "model": "model-t", "input": 2, "output": 8, "web_search": 0.01,
    "tiers": [{"above": 200_000, "input": 4, "output": 16}],
}  # fmt: skip
"""With a higher tier, and a fee for each search."""
PER = 1e-6
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
MESSAGES, CONVERSE = "/v1/messages", "/model/model-x/converse"
GEMINI = "/v1beta/models/model-x:generateContent"
INTERACTIONS = "/v1beta/interactions"
OLLAMA = ("/api/chat", "/api/generate")


class Bill(NamedTuple):
    """An answer's usage, and what the round says of it."""

    path: str
    usage: dict[str, Any]
    tokens: dict[str, int | None]
    cost: float | None
    status: str = "priced"
    missing: tuple[str, ...] | None = None
    model: str = "model-x"
    more: Mapping[str, Any] = MappingProxyType({})


def chat(prompt: int, completion: int, **details: dict[str, int]) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion, **details,
    }  # fmt: skip


CACHED = {"input": 1000, "output": 50, "read": 800}
ON_TOP = {"input": 1010, "output": 50, "read": 800, "write": 200}
SOUND = {"input": 500, "output": 230}
GEMINI_SOUND = {
    "promptTokenCount": 500, "candidatesTokenCount": 230, "totalTokenCount": 730,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 100}, {"modality": "AUDIO", "tokenCount": 400},
    ],
    "candidatesTokensDetails": [
        {"modality": "TEXT", "tokenCount": 30}, {"modality": "AUDIO", "tokenCount": 200},
    ],
}  # fmt: skip
OPENAI_SOUND = chat(
    500, 230,
    prompt_tokens_details={"text_tokens": 100, "audio_tokens": 400},
    completion_tokens_details={"text_tokens": 30, "audio_tokens": 200},
)  # fmt: skip
CACHED_USD = (200 * 2 + 800 * 0.5 + 50 * 8) * PER
ON_TOP_USD = (10 * 2 + 800 * 0.5 + 200 * 2.5 + 50 * 8) * PER
SOUND_USD = (100 * 2 + 400 * 40 + 30 * 8 + 200 * 80) * PER
REASONED_USD = (100 * 2 + 320 * 8) * PER
BILLS: dict[str, Bill] = {
    # What was read from a cache is a part of the input.
    "cache inside, chat": Bill(
        CHAT, chat(1000, 50, prompt_tokens_details={"cached_tokens": 800}), CACHED, CACHED_USD
    ),
    "cache inside, responses": Bill(
        RESPONSES,
        {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050,
         "input_tokens_details": {"cached_tokens": 800}},
        CACHED, CACHED_USD,
    ),
    "cache inside, Gemini": Bill(
        GEMINI,
        {"promptTokenCount": 1000, "cachedContentTokenCount": 800, "candidatesTokenCount": 50,
         "totalTokenCount": 1050},
        CACHED, CACHED_USD,
    ),
    # What was read or written comes on top.
    "cache on top, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 10, "cache_read_input_tokens": 800, "cache_creation_input_tokens": 200,
         "output_tokens": 50},
        ON_TOP, ON_TOP_USD,
    ),
    "cache on top, Bedrock": Bill(
        CONVERSE,
        {"inputTokens": 10, "cacheReadInputTokens": 800, "cacheWriteInputTokens": 200,
         "outputTokens": 50, "totalTokens": 1060},
        ON_TOP, ON_TOP_USD,
    ),
    "cache alone, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 0, "cache_read_input_tokens": 5000, "output_tokens": 0},
        {"input": 5000, "output": 0, "read": 5000}, 5000 * 0.5 * PER,
    ),
    "cache alone, Bedrock": Bill(
        CONVERSE,
        {"inputTokens": 0, "cacheReadInputTokens": 5000, "outputTokens": 0, "totalTokens": 5000},
        {"input": 5000, "output": 0, "read": 5000}, 5000 * 0.5 * PER,
    ),
    # Thoughts are output, prompts of tools input.
    "thoughts, Gemini": Bill(
        GEMINI,
        {"promptTokenCount": 100, "candidatesTokenCount": 20, "thoughtsTokenCount": 300,
         "toolUsePromptTokenCount": 40, "totalTokenCount": 460},
        {"input": 140, "output": 320, "reasoning": 300}, (140 * 2 + 320 * 8) * PER,
    ),
    "thoughts, Gemini interactions": Bill(
        INTERACTIONS,
        {"total_input_tokens": 100, "total_output_tokens": 20, "total_thought_tokens": 300,
         "total_tool_use_tokens": 40, "total_tokens": 460},
        {"input": 140, "output": 320, "reasoning": 300}, (140 * 2 + 320 * 8) * PER,
    ),
    "a total that is none, Gemini": Bill(
        GEMINI,
        {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 999},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER, more={s.USAGE_MISMATCH: True},
    ),
    "a total that is none, chat": Bill(
        CHAT, {**chat(100, 20), "total_tokens": 999},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER, more={s.USAGE_MISMATCH: True},
    ),
    # Reasoning is a part of the output.
    "reasoning, chat": Bill(
        CHAT, chat(100, 320, completion_tokens_details={"reasoning_tokens": 300}),
        {"input": 100, "output": 320, "reasoning": 300}, REASONED_USD,
    ),
    "reasoning, responses": Bill(
        RESPONSES,
        {"input_tokens": 100, "output_tokens": 320, "total_tokens": 420,
         "output_tokens_details": {"reasoning_tokens": 300}},
        {"input": 100, "output": 320, "reasoning": 300}, REASONED_USD,
    ),
    # Sound has rates of its own, or is named as missing.
    "sound, chat": Bill(CHAT, OPENAI_SOUND, SOUND, SOUND_USD),
    "sound, Gemini": Bill(GEMINI, GEMINI_SOUND, SOUND, SOUND_USD),
    "sound without rates, chat": Bill(
        CHAT, OPENAI_SOUND, SOUND, (100 * 2 + 30 * 8) * PER, "partial",
        ("rate.input_audio", "rate.output_audio"), "model-s",
    ),
    "sound without rates, Gemini": Bill(
        GEMINI.replace("model-x", "model-s"), GEMINI_SOUND, SOUND, (100 * 2 + 30 * 8) * PER,
        "partial", ("rate.input_audio", "rate.output_audio"), "model-s",
    ),
    # A warm prompt of a local model has no count, and no total is made of one.
    **{
        f"warm prompt, {path}": Bill(
            path, {"eval_count": 30}, {"input": None, "output": 30}, 30 * 8 * PER, "partial",
            ("usage.input",),
        )
        for path in OLLAMA
    },
    # Beyond a threshold every token has the higher rate.
    **{
        f"long, {path}": Bill(
            path, usage, {"input": 250_000, "output": 1000}, (250_000 * 4 + 1000 * 16) * PER,
            model="model-t", more={s.PRICE_MODEL: "model-t"},
        )
        for path, usage in (
            (CHAT, chat(250_000, 1000)),
            (MESSAGES, {"input_tokens": 250_000, "output_tokens": 1000}),
        )
    },
    # Searches of the provider are a part of their own, or are named as missing.
    "searches, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 100, "output_tokens": 20, "server_tool_use": {"web_search_requests": 3}},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER + 0.03, model="model-t",
        more={s.COST_TOOLS_USD: 0.03},
    ),
    "searches without a fee, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 100, "output_tokens": 20, "server_tool_use": {"web_search_requests": 3}},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER, "partial", ("rate.web_search",),
    ),
    "searches, Gemini interactions": Bill(
        INTERACTIONS,
        {"total_input_tokens": 100, "total_output_tokens": 20, "total_tokens": 120,
         "grounding_tool_count": [{"type": "google_search", "count": 3}]},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER + 0.03, model="model-t",
        more={s.COST_TOOLS_USD: 0.03},
    ),
    # What nobody has a price for costs an unknown amount, never nothing.
    "no price, chat": Bill(
        CHAT, chat(100, 20), {"input": 100, "output": 20}, None, "unpriced", model="model-x-mini"
    ),
    "no price, Anthropic": Bill(
        MESSAGES, {"input_tokens": 100, "output_tokens": 20}, {"input": 100, "output": 20}, None,
        "unpriced", model="model-x-mini",
    ),
    # A dated or moving name is the model's.
    "dated, chat": Bill(
        CHAT, chat(100, 20), {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER,
        model="model-x-2026-08-07", more={s.PRICE_MODEL: "model-x"},
    ),
    "latest, Anthropic": Bill(
        MESSAGES, {"input_tokens": 100, "output_tokens": 20}, {"input": 100, "output": 20},
        (100 * 2 + 20 * 8) * PER, model="model-x-latest", more={s.PRICE_MODEL: "model-x"},
    ),
}  # fmt: skip


def answer_of(bill: Bill) -> dict[str, Any]:
    """Return a whole answer of the path's format."""
    if bill.path in OLLAMA:
        text = {"message": {"role": "assistant", "content": "x"}, "response": "x"}
        return {"model": bill.model, "done": True, "done_reason": "stop", **text, **bill.usage}
    if bill.path == CHAT:
        message = {"role": "assistant", "content": "x"}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return {"id": "c", "model": bill.model, "choices": choices, "usage": bill.usage}
    if bill.path.startswith("/v1beta/models"):
        content = {"role": "model", "parts": [{"text": "x"}]}
        candidates = [{"content": content, "finishReason": "STOP"}]
        return {
            "modelVersion": bill.model, "candidates": candidates, "usageMetadata": bill.usage,
        }  # fmt: skip
    if bill.path == CONVERSE:
        message = {"role": "assistant", "content": [{"text": "x"}]}
        return {"output": {"message": message}, "stopReason": "end_turn", "usage": bill.usage}
    if bill.path == MESSAGES:
        content = [{"type": "text", "text": "x"}]
        return {
            "id": "m", "type": "message", "role": "assistant", "model": bill.model,
            "content": content, "stop_reason": "end_turn", "usage": bill.usage,
        }  # fmt: skip
    return {
        "id": "r", "object": "response", "model": bill.model, "status": "completed", "output": [],
        "outputs": [], "usage": bill.usage,
    }  # fmt: skip


def streamed(bill: Bill) -> tuple[str, str, bytes]:
    """Return the path, the media type and the bytes of the same answer as a stream."""

    def event(body: Any, name: str | None = None) -> bytes:
        head = f"event: {name}\n".encode() if name else b""
        return head + b"data: " + json.dumps(body).encode() + b"\n\n"

    whole = answer_of(bill)
    sse = "text/event-stream"
    if bill.path in OLLAMA:
        first = {"model": bill.model, "done": False, "message": {"content": "x"}, "response": "x"}
        lines = b"".join(json.dumps(each).encode() + b"\n" for each in (first, whole))
        return bill.path, "application/x-ndjson", lines
    if bill.path == CHAT:
        delta = {"choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}]}
        head = {"id": "c", "model": bill.model}
        last = {**head, "choices": [], "usage": bill.usage}
        return bill.path, sse, event({**head, **delta}) + event(last) + b"data: [DONE]\n\n"
    if bill.path.startswith("/v1beta/models"):
        path = bill.path.replace(":generateContent", ":streamGenerateContent?alt=sse")
        return path, sse, event(whole)
    if bill.path == MESSAGES:
        start = {
            **whole,
            "content": [],
            "stop_reason": None,
            "usage": {**bill.usage, "output_tokens": 1},
        }
        ending = {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": bill.usage,
        }
        return bill.path, sse, (
            event({"type": "message_start", "message": start}, "message_start")
            + event(ending, "message_delta")
            + event({"type": "message_stop"}, "message_stop")
        )  # fmt: skip
    if bill.path == RESPONSES:
        done = {"type": "response.completed", "response": whole}
        return bill.path, sse, event(done, "response.completed")
    return "", "", b""


class Answering(LoopbackServer):
    """Answers with what it is told."""

    kind, body = "application/json", b""

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.head(200, {"content-type": self.kind}, len(self.body))
        connection.send(self.body)


@pytest.fixture(scope="module")
def server() -> Iterator[Answering]:
    with Answering() as running:
        yield running


@pytest.fixture
def exporter(tmp_path: Path) -> CaptureExporter:
    """Clew, with a price file of its own."""
    prices = tmp_path / "prices.json"
    content = {"version": "2026-11-01", "currency": "USD", "prices": [RATES, SILENT, TIERED]}
    prices.write_text(json.dumps(content))
    one = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=20, seal_grace_s=0, prices_file=prices)
    clew.configure("tests", settings=settings, span_exporters=[one])
    clew.instrument()
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    return one


async def ask(url: str, body: Any, twin: str) -> None:
    """Send a request and read its answer to the end."""
    if twin == "sync":
        with httpx.Client(trust_env=False) as client:  # noqa: SIM117
            with client.stream("POST", url, json=body) as response:  # noqa: ASYNC212
                for _ in response.iter_raw():
                    pass
        return
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", url, json=body) as response,
    ):
        async for _ in response.aiter_raw():
            pass


KEYS: dict[str, Callable[[], str]] = {
    "input": lambda: s.USAGE_INPUT,
    "output": lambda: s.USAGE_OUTPUT,
    "read": lambda: s.USAGE_CACHE_READ,
    "write": lambda: s.USAGE_CACHE_WRITE,
    "reasoning": lambda: s.USAGE_REASONING,
}
CASES = [
    (name, how)
    for name, bill in BILLS.items()
    for how in ("plain", "streamed")
    if how == "plain" or streamed(bill)[0]
]


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize(("name", "how"), CASES)
async def test_tokens_and_cost(
    name: str, how: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """Totals include their parts, each part has its own rate, and what is unknown is absent.

    The run and its segment say the same; what is missing is named, and nothing is below zero.
    """
    bill = BILLS[name]
    path, kind, sent = bill.path, "application/json", json.dumps(answer_of(bill)).encode()
    if how == "streamed":
        path, kind, sent = streamed(bill)
    server.kind, server.body = kind, sent
    body = {"model": bill.model, "messages": [], "stream": how == "streamed"}
    with clew.run("desk"):
        await ask(server.base_url + path, body, twin)
    clew.shutdown()
    (round_,) = [each for each in exporter.spans if s.ROUND in (each.attributes or {})]
    found = dict(round_.attributes or {})
    tokens = {key: found.get(KEYS[key]()) for key in bill.tokens}
    assert tokens == bill.tokens
    assert found[s.COST_STATUS] == bill.status
    assert found.get(s.COST_MISSING) == bill.missing
    assert found.get(s.COST_USD) == (None if bill.cost is None else pytest.approx(bill.cost))
    for key, value in bill.more.items():
        assert found.get(key) == value
    assert not [key for key in found if "total" in key]
    assert min([each for key, each in found.items() if key.startswith("clew.cost.") and
                isinstance(each, float)], default=0) >= 0  # fmt: skip
    (root,) = exporter.by_name("invoke_agent")
    stated = dict(root.attributes or {})
    for scope in ("clew.run.", "clew.segment."):
        assert stated.get(scope + "usage.input_tokens") == bill.tokens["input"]
        assert stated.get(scope + "usage.output_tokens") == bill.tokens["output"]
        assert stated.get(scope + "cost.usd") == found.get(s.COST_USD)


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_run_with_a_model_that_has_no_price(
    path: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """Its cost is the sum of the others: a lower bound, with the number of calls it is without."""
    usage = chat(1000, 1000) if path == CHAT else {"input_tokens": 1000, "output_tokens": 1000}
    with clew.run("desk"):
        for model in ("model-x", "model-x-mini", "model-x"):
            bill = Bill(path, usage, {}, None, model=model)
            server.kind, server.body = "application/json", json.dumps(answer_of(bill)).encode()
            await ask(server.base_url + path, {"model": model, "messages": []}, twin)
    clew.shutdown()
    (root,) = exporter.by_name("invoke_agent")
    stated = dict(root.attributes or {})
    assert stated["clew.run.cost.usd"] == pytest.approx(0.02)
    assert stated["clew.run.cost.status"] == "partial"
    assert stated["clew.run.rounds_unpriced"] == 1
    statuses = [(each.attributes or {})[s.COST_STATUS] for each in exporter.by_name("chat")]
    assert statuses == ["priced", "unpriced", "priced"]


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_ten_calls_below_a_threshold_stay_below_it(
    path: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """A tier is of one call, not of a run."""
    usage = chat(50_000, 100) if path == CHAT else {"input_tokens": 50_000, "output_tokens": 100}
    bill = Bill(path, usage, {}, None, model="model-t")
    server.kind, server.body = "application/json", json.dumps(answer_of(bill)).encode()
    with clew.run("desk"):
        for _ in range(10):
            await ask(server.base_url + path, {"model": "model-t", "messages": []}, twin)
    clew.shutdown()
    (root,) = exporter.by_name("invoke_agent")
    expected = pytest.approx(10 * (50_000 * 2 + 100 * 8) * PER)
    assert (root.attributes or {})["clew.run.cost.usd"] == expected


BILLED = {
    "OpenRouter": ("openrouter", {"cost": 0.00042}),
    "Perplexity": ("perplexity", {"cost": {"total_cost": 0.00042}}),
    "xAI": ("x_ai", {"cost_in_usd_ticks": 4_200_000}),
}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("how", ["plain", "streamed"])
@pytest.mark.parametrize("name", BILLED)
async def test_what_a_provider_says_it_has_billed(
    name: str, how: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """That is the cost, and the totals'; what the table says is beside it."""
    provider, billed = BILLED[name]
    usage = {**chat(100, 50), **billed}
    bill = Bill(CHAT, usage, {"input": 100, "output": 50}, 0.00042)
    path, kind, sent = CHAT, "application/json", json.dumps(answer_of(bill)).encode()
    if how == "streamed":
        path, kind, sent = streamed(bill)
    server.kind, server.body = kind, sent
    current = runtime.get()
    assert current is not None
    settings = current.settings.model_copy(update={"provider_hosts": {"127.0.0.1": provider}})
    clew.shutdown()
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    with clew.run("desk"):
        await ask(server.base_url + path, {"model": "model-x", "stream": how != "plain"}, twin)
    clew.shutdown()
    (round_,) = exporter.by_name("chat")
    (root,) = exporter.by_name("invoke_agent")
    found = dict(round_.attributes or {})
    assert found["gen_ai.provider.name"] == provider
    assert found[s.COST_STATUS] == "provider_reported"
    assert found[s.COST_USD] == pytest.approx(0.00042)
    assert found[s.COST_LIST_USD] == pytest.approx(0.0006)
    assert (root.attributes or {})["clew.run.cost.usd"] == pytest.approx(0.00042)


class Caching(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Gives each request's answer again, and says so as a cache in the client or a gateway does."""

    def __init__(self, says: str) -> None:
        self.says = says
        self.sync, self.asynchronous = httpx.HTTPTransport(), httpx.AsyncHTTPTransport()
        self.kept: dict[bytes, tuple[httpx.Headers, bytes]] = {}

    def again(self, request: httpx.Request) -> httpx.Response | None:
        if request.content not in self.kept:
            return None
        headers, body = self.kept[request.content]
        more: dict[str, Any] = {}
        if self.says.startswith("extension "):
            more = {"extensions": {self.says.split()[1]: True}}
        else:
            name, _, value = self.says.partition(": ")
            headers = httpx.Headers({**headers, name: value})
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body), **more)

    def keep(self, request: httpx.Request, response: httpx.Response, body: bytes) -> httpx.Response:
        headers = httpx.Headers({"content-type": response.headers["content-type"]})
        self.kept[request.content] = (headers, body)
        if ": " in self.says:
            headers = httpx.Headers({**headers, self.says.partition(": ")[0]: "MISS"})
        return httpx.Response(
            200, headers=headers, stream=httpx.ByteStream(body), extensions={"from_cache": False}
        )

    def close(self) -> None:
        self.sync.close()

    async def aclose(self) -> None:
        await self.asynchronous.aclose()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = self.again(request)
        if found is not None:
            return found
        response = self.sync.handle_request(request)
        return self.keep(request, response, response.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        found = self.again(request)
        if found is not None:
            return found
        response = await self.asynchronous.handle_async_request(request)
        return self.keep(request, response, await response.aread())


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("how", ["plain", "streamed"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize(
    "says",
    [
        "extension hishel_from_cache", "extension from_cache", "cf-aig-cache-status: HIT",
        "x-portkey-cache-status: SEMANTIC HIT", "helicone-cache: HIT",
    ],
)  # fmt: skip
async def test_an_answer_from_a_cache_is_not_billed_again(
    says: str, path: str, how: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """The second of two equal calls is marked, costs nothing and has no tokens; the run has one."""
    usage = chat(100, 20) if path == CHAT else {"input_tokens": 100, "output_tokens": 20}
    bill = Bill(path, usage, {}, None)
    server.kind, server.body = "application/json", json.dumps(answer_of(bill)).encode()
    if how == "streamed":
        _, server.kind, server.body = streamed(bill)
    body = {"model": "model-x", "messages": [], "stream": how == "streamed"}
    url = server.base_url + path
    with clew.run("desk"):
        if twin == "sync":
            with httpx.Client(transport=Caching(says)) as client:
                for _ in range(2):
                    with client.stream("POST", url, json=body) as response:  # noqa: ASYNC212
                        assert b"".join(response.iter_raw()) == server.body
        else:
            async with httpx.AsyncClient(transport=Caching(says)) as client:
                for _ in range(2):
                    async with client.stream("POST", url, json=body) as response:
                        assert (
                            b"".join([each async for each in response.aiter_raw()]) == server.body
                        )
    clew.shutdown()
    first, second = [dict(each.attributes or {}) for each in exporter.by_name("chat")]
    assert s.RESPONSE_CACHED not in first
    assert (first[s.USAGE_INPUT], first[s.USAGE_OUTPUT]) == (100, 20)
    assert first[s.COST_USD] == pytest.approx(100 * 2 * PER + 20 * 8 * PER)
    assert second[s.RESPONSE_CACHED] is True
    assert (second[s.USAGE_INPUT], second[s.USAGE_OUTPUT]) == (0, 0)
    assert (second[s.COST_USD], second[s.COST_STATUS]) == (0, "priced")
    (root,) = exporter.by_name("invoke_agent")
    stated = dict(root.attributes or {})
    assert (stated["clew.run.rounds"], stated["clew.run.rounds_without_usage"]) == (2, 0)
    assert (stated["clew.run.usage.input_tokens"], stated["clew.run.usage.output_tokens"]) == (
        100,
        20,
    )
    assert stated["clew.run.cost.usd"] == first[s.COST_USD]
    assert stated["clew.run.cost.status"] == "priced"


CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
ACCOUNT = "123456789012"
ARN = f"arn:aws:bedrock:us-east-1:{ACCOUNT}"
RESOURCES = {
    f"us.{CLAUDE}": (f"us.{CLAUDE}", f"regional.{CLAUDE}"),
    f"global.{CLAUDE}": (f"global.{CLAUDE}", f"global.{CLAUDE}"),
    f"{ARN}:inference-profile/us.{CLAUDE}": (
        f"arn:aws:bedrock:us-east-1::inference-profile/us.{CLAUDE}", f"regional.{CLAUDE}",
    ),
    f"{ARN}:application-inference-profile/a1b2c3": (
        "arn:aws:bedrock:us-east-1::application-inference-profile/a1b2c3", None,
    ),
    f"{ARN}:application-inference-profile/mapped": (
        "arn:aws:bedrock:us-east-1::application-inference-profile/mapped", f"global.{CLAUDE}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("name", RESOURCES)
async def test_names_of_cloud_resources(name: str, twin: str, server: Answering) -> None:
    """They find their row, with the rates of their kind of region, or the operator's mapping.

    What hides the model has no price. The number of the account leaves nowhere, not on spans of
    other libraries either.
    """
    shown, row = RESOURCES[name]
    exporter, metrics = CaptureExporter(), InMemoryMetricReader()
    aliases = {f"aws.bedrock/{ARN}:application-inference-profile/mapped": f"global.{CLAUDE}"}
    settings = Settings(
        digest_key="k", seal_grace_s=0, model_aliases=aliases, metric_readers=(metrics,)
    )
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    usage = {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}
    server.kind = "application/json"
    server.body = json.dumps(answer_of(Bill(CONVERSE, usage, {}, None))).encode()
    library = trace.get_tracer("library")
    with clew.run("desk"):
        await ask(
            f"{server.base_url}/model/{quote(name, safe='')}/converse", {"messages": []}, twin
        )
        with library.start_as_current_span(f"chat {name}") as span:
            span.set_attribute(s.REQUEST_MODEL, name)
    current.settle(everywhere=True)
    assert current.worker.flush(10)
    measured: Any = metrics.get_metrics_data()
    clew.shutdown()
    found = [dict(each.attributes or {}) for each in exporter.spans if each.name.startswith("chat")]
    assert {each[s.REQUEST_MODEL] for each in found} == {shown}
    (round_,) = [each for each in found if s.ROUND in each]
    assert round_.get(s.PRICE_MODEL) == row
    assert (s.COST_USD in round_) == (row is not None)
    assert ACCOUNT.encode() not in exporter.otlp_bytes()
    assert ACCOUNT not in measured.to_json()


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize(
    ("answers", "aliases", "row"),
    [
        ("model-x", {}, "model-x"),
        (None, {}, None),
        (None, {"azure.ai.openai/gpt-4": "model-x"}, "model-x"),
        ("model-x", {"azure.ai.openai/gpt-4": "model-s"}, "model-x"),
    ],
)
async def test_a_deployment_is_priced_by_the_model_that_answers(
    answers: str | None, aliases: dict[str, str], row: str | None, twin: str,
    exporter: CaptureExporter, server: Answering,
) -> None:  # fmt: skip
    """Else by the operator's map, else not at all; the deployment's name stays the request's."""
    current = runtime.get()
    assert current is not None
    settings = current.settings.model_copy(update={"model_aliases": aliases})
    clew.shutdown()
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    body = answer_of(Bill(CHAT, chat(100, 20), {}, None, model=answers or ""))
    if answers is None:
        del body["model"]
    server.kind, server.body = "application/json", json.dumps(body).encode()
    url = f"{server.base_url}/openai/deployments/gpt-4/chat/completions?api-version=1"
    with clew.run("desk"):
        await ask(url, {"messages": []}, twin)
    clew.shutdown()
    (round_,) = exporter.by_name("chat")
    found = dict(round_.attributes or {})
    assert found["gen_ai.provider.name"] == "azure.ai.openai"
    assert (found[s.REQUEST_MODEL], found.get(s.RESPONSE_MODEL)) == ("gpt-4", answers)
    assert found.get(s.PRICE_MODEL) == row
    assert found[s.COST_STATUS] == ("priced" if row else "unpriced")


HOSTS = {
    "https://api.deepseek.com/v1": ("deepseek", "api.deepseek.com", 443),
    "https://api.groq.com/openai/v1": ("groq", "api.groq.com", 443),
    "https://house.openai.azure.com/openai/v1": ("azure.ai.openai", "house.openai.azure.com", 443),
    "http://localhost:11434/v1": ("ollama", "localhost", 11434),
    "http://localhost:8000/v1": ("_OTHER", "localhost", 8000),
    "https://llm.example.org/v1": ("_OTHER", "llm.example.org", 443),
    "https://gateway.internal:8443/v1": ("openai", "gateway.internal", 8443),
}
PRICED = {"deepseek": "deepseek-chat", "groq": "gpt-4o", "openai": "gpt-4o", "ollama": "gpt-4o"}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize("address", HOSTS)
async def test_the_provider_is_told_by_the_host(address: str, library: str, twin: str) -> None:
    """Or by the operator; never by the client. An unknown host has no price of OpenAI's.

    Where the request goes is recorded without user, password, path and query.
    """
    http = pytest.importorskip(library)
    provider, host, port = HOSTS[address]
    exporter = CaptureExporter()
    hosts = {"gateway.internal:8443": "openai"}
    settings = Settings(digest_key="k", seal_grace_s=0, provider_hosts=hosts)
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    model = PRICED.get(provider, "gpt-4o")
    answer = answer_of(Bill(CHAT, chat(100, 20), {}, None, model=model))
    transport = http.MockTransport(lambda _: http.Response(200, json=answer))
    url = address.replace("://", "://zquser:zqpassword@") + "/chat/completions?zqkey=zqvalue"
    with clew.run("desk"):
        if twin == "sync":
            with http.Client(transport=transport) as client:
                client.post(url, json={"model": model, "messages": []})
        else:
            async with http.AsyncClient(transport=transport) as client:
                await client.post(url, json={"model": model, "messages": []})
    clew.shutdown()
    (round_,) = exporter.by_name("chat")
    found = dict(round_.attributes or {})
    assert found["gen_ai.provider.name"] == provider
    assert (found["server.address"], found.get("server.port", 443)) == (host, port)
    sent = exporter.otlp_bytes()
    marks = (b"zquser", b"zqpassword", b"zqkey", b"zqvalue")
    assert not [mark for mark in marks if mark in sent]
    priced = provider in ("deepseek", "openai", "azure.ai.openai")
    assert (found[s.COST_STATUS] == "priced") == priced


BATCHED = {
    "openai": (
        [
            {"response": {"body": {
                "model": "model-x",
                "usage": chat(1000, 50, prompt_tokens_details={"cached_tokens": 800}),
            }}}
        ] * 3,
        {
            "model": lambda item: item["response"]["body"]["model"],
            "input_tokens": "response.body.usage.prompt_tokens",
            "output_tokens": "response.body.usage.completion_tokens",
            "cache_read_tokens": "response.body.usage.prompt_tokens_details.cached_tokens",
        },
    ),
    "anthropic": (
        [
            {"result": {"message": {
                "model": "model-x",
                "usage": {"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 50},
            }}}
        ] * 3,
        {
            "model": lambda item: item["result"]["message"]["model"],
            "input_tokens": lambda item: sum(
                item["result"]["message"]["usage"][key]
                for key in ("input_tokens", "cache_read_input_tokens")
            ),
            "output_tokens": "result.message.usage.output_tokens",
            "cache_read_tokens": "result.message.usage.cache_read_input_tokens",
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("row", [True, False], ids=["with batch rates", "without"])
@pytest.mark.parametrize("provider", BATCHED)
async def test_results_of_a_batch_belong_to_the_run_that_submitted_it(
    provider: str, row: bool, twin: str, tmp_path: Path
) -> None:
    """Fetched later, elsewhere: at the table's rates for batches, by class, or at no price.

    The totals of the run have them once.
    """
    rows: list[dict[str, Any]] = [RATES]
    if row:
        batch = {"service_tier": "batch", "input": 1, "output": 4, "cache_read": 0.4}
        rows.append({"model": "model-x", **batch})
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({"version": "1", "currency": "USD", "prices": rows}))
    settings = Settings(digest_key="k", seal_grace_s=0, prices_file=prices)
    exporter = CaptureExporter()
    clew.configure("submits", settings=settings, span_exporters=[exporter])
    with clew.run("desk") as submitting:
        reference = submitting.suspend("waiting_for_input")
    clew.shutdown()

    clew.configure("fetches", settings=settings, span_exporters=[exporter])
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    results, places = BATCHED[provider]
    facts = {**places, "response_model": places["model"], "service_tier": lambda _: "batch"}
    del facts["model"]

    def result(item: Any) -> Any:
        return item

    async def aresult(item: Any) -> Any:
        return item

    record, arecord = clew.instrument(result, facts=facts), clew.instrument(aresult, facts=facts)
    with clew.resume(reference) as resumed:
        for item in results:
            assert (await arecord(item) if twin == "async" else record(item)) is item
    clew.shutdown()
    assert resumed.run_id == submitting.run_id
    rounds = [dict(each.attributes or {}) for each in exporter.by_name("chat")]
    assert {each[s.RUN_ID] for each in rounds} == {str(submitting.run_id)}
    expected = pytest.approx((200 * 1 + 800 * 0.4 + 50 * 4) * PER) if row else None
    assert [each.get(s.COST_USD) for each in rounds] == [expected] * 3
    assert {each[s.COST_STATUS] for each in rounds} == {"priced" if row else "unpriced"}
    stated = dict(exporter.by_name("invoke_agent")[-1].attributes or {})
    assert (stated["clew.run.rounds"], stated["clew.run.usage.input_tokens"]) == (3, 3000)
    total = pytest.approx(3 * (200 * 1 + 800 * 0.4 + 50 * 4) * PER) if row else None
    assert stated.get("clew.run.cost.usd") == total
    assert stated["clew.run.rounds_unpriced"] == (0 if row else 3)
