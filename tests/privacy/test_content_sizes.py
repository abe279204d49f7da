"""How large content may be: under every limit it is valid, and nothing else gives way to it."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from marked_calls import content_of
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from surroundings import Answers

import clew
from clew import semconv
from clew.settings import Settings
from clew.testing import captured

SPANS: Any = frozenset({"spans"})
Texts = list[str]


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A conversation as one provider takes it, and an answer of 12 and 7 tokens."""

    name: str
    path: str
    provider: str | None = None
    body: Callable[[Texts], dict[str, Any]]
    answer: dict[str, Any]
    priced: bool = True

    def hold(self, server: Answers, texts: Texts) -> None:
        """Send it, plain, in a run that decides something."""
        server.pieces = [json.dumps(self.answer).encode()]
        host, port = server.address
        with clew.run("a"), httpx.Client() as client:
            clew.decide("tool", "deny", reason="not_now")
            client.post(f"http://{host}:{port}{self.path}", json=self.body(texts))

    @property
    def options(self) -> dict[str, Any]:
        """What the settings need to know of its host."""
        return {} if self.provider is None else {"provider_hosts": {"127.0.0.1": self.provider}}


def roles(texts: Texts, answers: str = "assistant") -> list[tuple[str, str]]:
    """Return texts with whose they are, in turn."""
    return [("user" if at % 2 == 0 else answers, text) for at, text in enumerate(texts)]


def messages(model: str) -> Callable[[Texts], dict[str, Any]]:
    """Return what makes the usual request."""
    return lambda texts: {
        "model": model,
        "max_tokens": 64,
        "messages": [{"role": role, "content": text} for role, text in roles(texts)],
    }


def parts(key: str, answers: str) -> Callable[[Texts], dict[str, Any]]:
    """Return what makes a request whose messages have parts."""
    return lambda texts: {
        "contents" if key == "parts" else "messages": [
            {"role": role, key: [{"text": text}]} for role, text in roles(texts, answers)
        ]
    }


CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
COMPLETION = {"choices": [CHOICE], "usage": {"prompt_tokens": 12, "completion_tokens": 7}}
TALKS = [
    Talk(
        name="openai chat",
        path="/v1/chat/completions",
        provider="openai",
        body=messages("gpt-5-mini"),
        answer=COMPLETION,
    ),
    Talk(
        name="openai responses",
        path="/v1/responses",
        provider="openai",
        body=lambda texts: {
            "model": "gpt-5-mini",
            "input": [{"role": role, "content": text} for role, text in roles(texts)],
        },
        answer={
            "status": "completed",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "ok"}],
                }
            ],
            "usage": {"input_tokens": 12, "output_tokens": 7, "total_tokens": 19},
        },
    ),
    Talk(
        name="anthropic",
        path="/v1/messages",
        provider="anthropic",
        body=messages("claude-haiku-4-5"),
        answer={
            "model": "claude-haiku-4-5",
            "role": "assistant",
            "content": [{"type": "text", "text": "ok"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 12, "output_tokens": 7},
        },
    ),
    Talk(
        name="gemini",
        path="/v1beta/models/gemini-2.5-flash:generateContent",
        provider="gcp.gemini",
        body=parts("parts", "model"),
        answer={
            "candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}}],
            "usageMetadata": {
                "promptTokenCount": 12,
                "candidatesTokenCount": 7,
                "totalTokenCount": 19,
            },
        },
    ),
    Talk(
        name="mistral",
        path="/v1/chat/completions",
        provider="mistral_ai",
        body=messages("mistral-small-latest"),
        answer=COMPLETION,
    ),
    Talk(
        name="cohere",
        path="/v2/chat",
        provider="cohere",
        body=messages("command-a-03-2025"),
        answer={
            "finish_reason": "COMPLETE",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "ok"}]},
            "usage": {"tokens": {"input_tokens": 12, "output_tokens": 7}},
        },
    ),
    Talk(
        name="bedrock",
        path="/model/amazon.nova-pro-v1:0/converse",
        body=parts("content", "assistant"),
        answer={
            "output": {"message": {"role": "assistant", "content": [{"text": "ok"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19},
        },
    ),
    Talk(
        name="ollama",
        path="/api/chat",
        body=messages("llama3.2"),
        answer={
            "message": {"role": "assistant", "content": "ok"},
            "done": True,
            "prompt_eval_count": 12,
            "eval_count": 7,
        },
        priced=False,
    ),
]
EACH = pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.name)


@EACH
@pytest.mark.parametrize("limit", [None, 2000], ids=["default", "low"])
def test_a_long_conversation_leaves_the_facts_whole(talk: Talk, limit: int | None) -> None:
    """Sixty messages are one value, with the number of what was left out; the facts are there."""
    options: dict[str, Any] = {**talk.options, "capture": "full", "content_to": SPANS}
    if limit is not None:
        options["content_limit"] = limit
    texts = [f"message {at} " + "word " * 1000 for at in range(60)]
    with Answers() as server, captured(**options) as exporter:
        talk.hold(server, texts)
        (round_,) = (each for each in exporter.spans if each.kind is trace.SpanKind.CLIENT)
        attributes = dict(round_.attributes or {})
        (run,) = exporter.by_name("invoke_agent")
        assert 1 == (run.attributes or {})["clew.denials"]
        assert 1 == len(exporter.by_name("decide"))
    text = str(attributes["gen_ai.input.messages"])
    assert len(text) <= (limit or 32_768)
    found = json.loads(text)
    gaps = [
        part["count"] for one in found for part in one["parts"] if part["type"] == "clew.omitted"
    ]
    assert 60 == len(found) - len(gaps) + sum(gaps)
    assert (limit is not None) == bool(gaps)
    assert "message 0 " in found[0]["parts"][0]["content"]
    assert found[0]["parts"][0]["content"].endswith(f"[cut: {len(texts[0])} characters]")
    assert {"clew.run.id", "clew.seq", "clew.segment.id", "clew.round"} <= attributes.keys()
    assert (12, 7) == tuple(
        attributes[f"gen_ai.usage.{each}_tokens"] for each in ("input", "output")
    )
    assert 60 == attributes["clew.request.messages"]
    assert talk.priced == ("clew.cost.usd" in attributes)


PICTURE = "QUJD" * 1_000_000
ADDRESS = f"data:image/png;base64,{PICTURE}"


def user(**message: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", **message}]}


VISION: list[tuple[str, str, str | None, dict[str, Any]]] = [
    (
        "openai chat",
        "/v1/chat/completions",
        "openai",
        user(content=[{"type": "image_url", "image_url": {"url": ADDRESS}}]),
    ),
    (
        "openai responses",
        "/v1/responses",
        "openai",
        {
            "model": "m",
            "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": ADDRESS}]},
            ],
        },
    ),
    (
        "anthropic",
        "/v1/messages",
        None,
        user(
            content=[
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PICTURE},
                }
            ]
        ),
    ),
    (
        "gemini",
        "/v1beta/models/gemini-2.5-flash:generateContent",
        None,
        {
            "contents": [
                {
                    "role": "user",
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": PICTURE}}],
                }
            ]
        },
    ),
    (
        "mistral",
        "/v1/chat/completions",
        "mistral_ai",
        user(content=[{"type": "image_url", "image_url": ADDRESS}]),
    ),
    (
        "cohere",
        "/v2/chat",
        None,
        user(content=[{"type": "image_url", "image_url": {"url": ADDRESS}}]),
    ),
    ("ollama", "/api/chat", None, user(content="what is this?", images=[PICTURE])),
    (
        "bedrock",
        "/model/amazon.nova-pro-v1:0/converse",
        None,
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"image": {"format": "png", "source": {"bytes": PICTURE}}}],
                }
            ]
        },
    ),
]


@pytest.mark.parametrize("level", ["redacted", "full"])
@pytest.mark.parametrize(
    ("path", "provider", "body"), [one[1:] for one in VISION], ids=[one[0] for one in VISION]
)
def test_a_picture_leaves_a_small_span(
    path: str, provider: str | None, body: dict[str, Any], level: str
) -> None:
    """Three megabytes are their kind, type, size and digest, however a provider wants them."""
    options: dict[str, Any] = {"capture": level, "content_to": SPANS}
    if provider is not None:
        options["provider_hosts"] = {"127.0.0.1": provider}
    with Answers() as server, captured(**options) as exporter:
        server.pieces = [b"{}"]
        host, port = server.address
        with clew.run("a"), httpx.Client() as client:
            client.post(f"http://{host}:{port}{path}", json=body)
        (found,) = content_of(exporter.spans)
        parts = found["gen_ai.input.messages"][0]["parts"]
        (part,) = (each for each in parts if each["type"] == "blob")
        kind = ("image", part.get("mime_type", "image/png"), "", 3_000_000)
        assert kind == (part["modality"], "image/png", part["content"], part["bytes"])
        assert len(part["digest"]) >= 16
        assert len(exporter.otlp_bytes()) < 16_384


FLOATS = [[0.015625 * (at % 64) for at in range(3072)] for _ in range(100)]
PACKED = ["A" * 16_384] * 100
EMBEDDINGS: list[tuple[str, str, str | None, dict[str, Any], dict[str, Any]]] = [
    (
        "openai",
        "/v1/embeddings",
        "openai",
        {"model": "m", "input": ["text"] * 100},
        {"data": [{"embedding": each} for each in FLOATS], "usage": {"prompt_tokens": 200}},
    ),
    (
        "openai base64",
        "/v1/embeddings",
        "openai",
        {"model": "m", "input": ["text"] * 100, "encoding_format": "base64"},
        {"data": [{"embedding": each} for each in PACKED], "usage": {"prompt_tokens": 200}},
    ),
    (
        "gemini",
        "/v1beta/models/gemini-embedding-001:batchEmbedContents",
        None,
        {"requests": [{"content": {"parts": [{"text": "text"}]}}] * 100},
        {"embeddings": [{"values": each} for each in FLOATS]},
    ),
    (
        "cohere",
        "/v2/embed",
        None,
        {"model": "m", "texts": ["text"] * 100, "embedding_types": ["float"]},
        {
            "embeddings": {"float": FLOATS},
            "meta": {"billed_units": {"input_tokens": 200}},
        },
    ),
    (
        "ollama",
        "/api/embed",
        None,
        {"model": "m", "input": ["text"] * 100},
        {"embeddings": FLOATS, "prompt_eval_count": 200},
    ),
]


@pytest.mark.parametrize(
    ("path", "provider", "body", "answer"),
    [one[1:] for one in EMBEDDINGS],
    ids=[one[0] for one in EMBEDDINGS],
)
def test_vectors_leave_a_small_span(
    path: str, provider: str | None, body: dict[str, Any], answer: dict[str, Any]
) -> None:
    """A hundred vectors of 3072 numbers are none of a span's business; their count of tokens is."""
    options: dict[str, Any] = {"capture": "full", "content_to": SPANS}
    if provider is not None:
        options["provider_hosts"] = {"127.0.0.1": provider}
    with Answers() as server, captured(**options) as exporter:
        server.pieces = [json.dumps(answer).encode()]
        host, port = server.address
        with clew.run("a"), httpx.Client() as client:
            client.post(f"http://{host}:{port}{path}", json=body)
        span = exporter.by_name("embeddings")[0]
        counted = (span.attributes or {}).get("gen_ai.usage.input_tokens")
        assert (None if path.startswith("/v1beta") else 200) == counted
        assert len(exporter.otlp_bytes()) < 16_384


BULKY: dict[str, Any] = {
    "a picture": ADDRESS,
    "a picture in words": f"see {ADDRESS} and {PICTURE}",
    "bytes": b"\x89PNG" * 750_000,
    "vectors": FLOATS,
    "packed vectors": PACKED,
    "a message": {"image": {"data": PICTURE}, "vectors": FLOATS},
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("bulky", BULKY.values(), ids=BULKY)
async def test_bulky_arguments_and_results_leave_a_small_span(
    bulky: Any, asynchronous: bool
) -> None:
    """Pictures and vectors that a tool takes and gives are replaced, too."""
    with captured(capture="full", content_to=SPANS) as exporter:

        @clew.tool
        def look(thing: Any) -> Any:
            return thing

        @clew.tool(name="look")
        async def alook(thing: Any) -> Any:
            return thing

        with clew.run("a"):
            if asynchronous:
                await alook(bulky)
            else:
                look(bulky)
        attributes = exporter.by_name("execute_tool")[0].attributes or {}
        for key in (semconv.TOOL_CALL_ARGUMENTS, semconv.TOOL_CALL_RESULT):
            assert "digest" in str(attributes[key])
            json.loads(str(attributes[key]))
        assert len(exporter.otlp_bytes()) < 32_768
        assert len(str(attributes[semconv.TOOL_CALL_RESULT])) < 16_384


@pytest.mark.parametrize(
    "bulky", [ADDRESS, str(FLOATS), FLOATS[0] * 100], ids=["url", "text", "list"]
)
def test_bulky_events_and_links_leave_a_small_span(bulky: Any) -> None:
    """What stands in events, links, status and names obeys the list, content or not."""
    with captured(capture="full", content_to=SPANS) as exporter:
        with clew.run("a"):
            elsewhere = trace.get_current_span().get_span_context()
            link = trace.Link(elsewhere, {"gen_ai.input.messages": bulky, "picture": bulky})
            tracer = trace.get_tracer("other")
            with tracer.start_as_current_span(f"chat {bulky}", links=[link]) as span:
                for name in ("gen_ai.user.message", "gen_ai.choice", f"look {bulky}"):
                    span.add_event(name, {"gen_ai.input.messages": bulky, "content": bulky})
                span.record_exception(ValueError(bulky))
                span.set_status(trace.StatusCode.ERROR, str(bulky))
        assert len(exporter.otlp_bytes()) < 16_384


LIMITS = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")


@EACH
@pytest.mark.parametrize(
    ("variable", "limit"),
    [(LIMITS[0], 100), (LIMITS[1], 333), (LIMITS[0], 4000), (None, 101)],
    ids=["of spans", "of all", "of spans, high", "of Clew"],
)
def test_a_host_that_cuts_attributes_gets_valid_json(
    limit: int, variable: str | None, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own length limit cuts anywhere; content is made to fit below it."""
    options: dict[str, Any] = {**talk.options, "capture": "full", "content_to": SPANS}
    if variable is None:
        options["content_limit"] = limit
    else:
        monkeypatch.setenv(variable, str(limit))
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    settings = Settings.from_environment(None, digest_key="k", **options)
    said = '\U0001f600"\\\n' * 12_500
    with Answers() as server:
        clew.configure(settings=settings, tracer_provider=provider)
        clew.instrument()
        talk.hold(server, [said])
        clew.uninstrument()
        clew.shutdown()
    (found,) = content_of(kept.get_finished_spans())
    assert {"gen_ai.input.messages", "gen_ai.output.messages"} <= found.keys()
    (message,) = found["gen_ai.input.messages"]
    (part,) = message["parts"]
    if limit >= 333:
        assert part["content"].endswith("…[cut: 50000 characters]")
        assert said.startswith(part["content"].partition("…[cut")[0])
    elif part["type"] == "clew.omitted":
        assert 1 == part["count"]
