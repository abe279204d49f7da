"""Content that was asked for: on our own spans, masked, bounded, and nowhere else."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from formats import FORMATS, Format, mark
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from surroundings import Answers, watched
from test_leaks import call

import clew
from clew import semconv
from clew.content import READERS
from clew.settings import Settings
from clew.testing import Reply, ScriptedProvider, captured

SPANS: Any = frozenset({"spans"})
COVERED = [one for one in FORMATS if one.name in READERS]


def content_of(spans: Any) -> list[dict[str, Any]]:
    """Return the content of each model call, read as the JSON that it must be."""
    found: list[dict[str, Any]] = []
    for span in spans:
        held = {key: span.attributes[key] for key in semconv.CONTENT if key in span.attributes}
        if held:
            found.append({key: json.loads(value) for key, value in held.items()})
    return found


@pytest.mark.parametrize("one", COVERED, ids=lambda one: one.name)
def test_each_covered_format_shows_its_content_when_asked(
    one: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain and streamed; what is no message (headers, addresses, errors) stays out even then."""
    options: dict[str, Any] = {"content_to": SPANS, "provider_hosts": one.hosts}
    with Answers() as server, captured(capture="full", **options) as exporter:
        with clew.run("leak-test"), httpx.Client() as client:
            for ending in ("return", "complete", "closed", "error"):
                call(client, server, one, ending)
        spans = [span for span in exporter.spans if span.kind is trace.SpanKind.CLIENT]
        found = content_of(spans)
        outside = exporter.otlp_bytes()
    assert 4 == len(found)
    answered = [semconv.OUTPUT_MESSAGES in each for each in found]
    # Of the stream that is closed, the first piece has come; that need not hold a word yet.
    assert [True, True, False] == [*answered[:2], answered[3]]
    for each in found:
        assert mark("prompt") in json.dumps(each[semconv.INPUT_MESSAGES])
    for each in found[:2]:
        assert mark("completion") in json.dumps(each[semconv.OUTPUT_MESSAGES])
    for place in ("key", "header", "password", "query", "error-body", "baggage", "pixels"):
        assert mark(place).encode() not in outside, place


def test_without_a_place_nothing_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The level alone lets nothing onto spans: the place has to be named."""
    with (
        Answers() as server,
        watched(tmp_path / "d", monkeypatch, capture="full") as everything,
        clew.run("leak-test"),
        httpx.Client() as client,
    ):
        call(client, server, FORMATS[0], "return")
    assert {} == everything.found()
    assert "content_to" in everything.places["log"].decode()


def test_only_what_clew_captured_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of content that somebody else sets are dropped, on other spans and on ours."""
    options: dict[str, Any] = {"capture": "full", "content_to": SPANS}
    with watched(tmp_path / "d", monkeypatch, **options) as everything, clew.run("leak-test"):
        for key in semconv.CONTENT:
            trace.get_current_span().set_attribute(key, json.dumps([mark("on-ours")]))
        with trace.get_tracer("other").start_as_current_span("chat x") as span:
            span.set_attribute("gen_ai.input.messages", json.dumps([mark("foreign")]))
            span.add_event("e", {"gen_ai.output.messages": mark("event")})
    assert {} == everything.found()


def test_a_lowered_run_or_block_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strictest level wins, for the calls of that run or block alone."""
    options: dict[str, Any] = {"capture": "full", "content_to": SPANS}
    with Answers() as server, watched(tmp_path / "d", monkeypatch, **options) as everything:
        with clew.run("leak-test", capture="metadata"), httpx.Client() as client:
            call(client, server, FORMATS[0], "return")
        with clew.run("leak-test"), clew.capture("none"), httpx.Client() as client:
            call(client, server, FORMATS[0], "complete")
    assert {} == everything.found()


SECRET = "sk-proj-" + mark("secret").replace("-", "") + "0" * 20
REDACTED_PLACES = {
    "system": f"use {SECRET}",
    "user": f"postgres://u:{mark('pw')}@db and ada.{mark('mail')}@mail.example.com",
}


def test_redacted_content_has_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In prompts, answers, tool descriptions and arguments, whole and streamed."""
    messages = [{"role": role, "content": text} for role, text in REDACTED_PLACES.items()]
    tool = {"name": "find", "description": SECRET, "parameters": {"default": SECRET}}
    reply = Reply(text=f"The key is {SECRET}.")
    options: dict[str, Any] = {"capture": "redacted", "content_to": SPANS}
    with (
        ScriptedProvider([reply, reply]) as server,
        watched(tmp_path / "d", monkeypatch, **options) as everything,
        clew.run("leak-test"),
    ):
        client = openai.OpenAI(base_url=server.openai_base_url, api_key="any")
        create: Any = client.chat.completions.create
        request = {"model": "m", "messages": messages}
        create(**request, tools=[{"type": "function", "function": tool}])
        list(create(**request, stream=True))
    assert {} == everything.found()
    assert "otlp" in everything.found("The key is ***")


def test_a_raise_shows_content_of_that_run_alone() -> None:
    """With the switch and an actor who may, one run is seen; its neighbour is not."""
    from clew.actors import Actor

    admin = Actor(id="root-1", admin=True)
    reply = Reply(text="hello")
    with (
        ScriptedProvider([reply, reply]) as server,
        captured(capture_max="full", content_to=SPANS) as exporter,
    ):
        client = openai.OpenAI(base_url=server.openai_base_url, api_key="any")
        create: Any = client.chat.completions.create
        request = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        with clew.run("seen", actor=admin, capture="full"):
            create(**request)
        with clew.run("not-seen", actor=admin):
            create(**request)
        assert 1 == len(content_of(exporter.spans))


def ask(server: ScriptedProvider, messages: list[Any]) -> None:
    client = openai.OpenAI(base_url=server.openai_base_url, api_key="any")
    create: Any = client.chat.completions.create
    with clew.run("a"):
        create(model="gpt-5-mini", messages=messages)


def test_a_long_conversation_leaves_the_facts_whole() -> None:
    """Sixty messages are one value; identity, usage and cost are all there."""
    messages = [{"role": "user", "content": f"message {at} " + "x" * 5000} for at in range(60)]
    with (
        ScriptedProvider([Reply(text="hello")]) as server,
        captured(capture="full", content_to=SPANS) as exporter,
    ):
        ask(server, messages)
        span = exporter.by_name("chat")[0]
        attributes = span.attributes or {}
        assert {"clew.run.id", "clew.seq", "gen_ai.usage.input_tokens"} <= attributes.keys()
        assert len(str(attributes["gen_ai.input.messages"])) <= 32_768
        assert 60 == len(json.loads(str(attributes["gen_ai.input.messages"])))


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


@pytest.mark.parametrize("limit", [100, 4000])
def test_a_host_that_cuts_attributes_gets_valid_json(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's own length limit cuts anywhere; content is made to fit below it."""
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", str(limit))
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    settings = Settings.from_environment(None, capture="full", content_to=SPANS, digest_key="k")
    messages = [{"role": "user", "content": '\U0001f600"\\' * 50_000}]
    with ScriptedProvider([Reply(text="hello " * 2000)]) as server:
        clew.configure(settings=settings, tracer_provider=provider)
        clew.instrument()
        ask(server, messages)
        clew.uninstrument()
        clew.shutdown()
    found = content_of(kept.get_finished_spans())
    assert 1 == len(found)
    assert {"gen_ai.input.messages", "gen_ai.output.messages"} <= found[0].keys()
