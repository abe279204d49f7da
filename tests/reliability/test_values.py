"""Values that nobody expects: each becomes a safe form or costs itself alone, nothing else."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import math
import time
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from opentelemetry import trace

import clew
from clew import _guard, semconv
from clew.pipeline import otlp_writer, runtime
from clew.settings import Settings
from clew.store import otlp_protobuf
from clew.store.records import SpanRecord
from clew.store.writer import Writer
from clew.testing import CaptureExporter, LoopbackServer, ReceivedRequest
from clew.testing.loopback import Connection


class Colour(Enum):
    RED = "red"


class Nasty:
    """Its repr must never be asked: it would raise, block, or leak."""

    asked = 0

    def __repr__(self) -> str:
        Nasty.asked += 1
        raise AssertionError("zqmark")

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return self.__repr__()


def endless() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "half a surrogate pair": "a\ud83d",
    "not a number": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "more than 64 bits": 2**70,
    "bytes": b"\xff\x00zqmark",
    "none": None,
    "none in a list": ["a", None],
    "types mixed in a list": ["a", 1, 2.0],
    "decimal": Decimal("0.1"),
    "uuid": uuid4(),
    "enum": Colour.RED,
    "set": {1, 2},
    "a time": dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
    "a list that holds itself": endless(),
    "nested deeply": deep(5000),
    "a text of a megabyte": "x" * 1_000_000,
    "a long list": list(range(100_000)),
    "an object whose repr raises": Nasty(),
    "a list of them": [Nasty()],
    "control characters": "a\x00\x1b[31m\u202eb",
    "a function": print,
}


@pytest.fixture
def exporter() -> Iterator[CaptureExporter]:
    one = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=20, seal_grace_s=0)
    clew.configure("tests", settings=settings, span_exporters=[one])
    clew.instrument()
    Nasty.asked = 0
    yield one
    clew.shutdown()
    assert Nasty.asked == 0
    assert dict(_guard.failures) == {}


@pytest.fixture
def capturing() -> Iterator[CaptureExporter]:
    """Clew, with content captured onto spans."""
    one = CaptureExporter()
    settings = Settings(
        digest_key="k", export_delay_ms=20, seal_grace_s=0, capture="redacted",
        content_to=frozenset({"spans"}),
    )  # fmt: skip
    clew.configure("tests", settings=settings, span_exporters=[one])
    Nasty.asked = 0
    yield one
    clew.shutdown()
    assert Nasty.asked == 0


def flushed(exporter: CaptureExporter) -> list[SpanRecord]:
    """Return what left, as a receiver reads it."""
    current = runtime.get()
    assert current is not None
    current.settle(everywhere=True)
    assert current.worker.flush(10)
    return list(otlp_protobuf.decode(otlp_writer.encode(exporter.spans)).spans)


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.filterwarnings("ignore")
def test_a_value_costs_itself_alone(
    what: str, exporter: CaptureExporter, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Wherever a host can put it: names, options, arguments, facts, spans of other libraries.

    All spans leave, with what identifies and counts them; JSON stays strict; no word of it leaks.
    """
    value = VALUES[what]
    began = time.perf_counter()
    with clew.run("desk", tenant=value, trigger=value, configuration=value) as run:
        with clew.tool("search" if callable(value) else value) as tool:
            tool.take(value, call_id=value)
            tool.result_bytes = value
            tool.returned(value)
        decided = clew.decide("tool", "deny", reason=value, subject=value, policy=value)
        decided.executed = value
        with trace.get_tracer("other").start_as_current_span("inner") as inner:
            # What OpenTelemetry itself says to it is between the host and OpenTelemetry.
            asked = Nasty.asked
            for key in (semconv.REQUEST_MODEL, semconv.USAGE_INPUT, semconv.TOOL_NAME):
                with contextlib.suppress(AssertionError, RecursionError):
                    inner.set_attribute(key, value)
            with contextlib.suppress(AssertionError, RecursionError):
                inner.add_event("event", {"k": value})
            Nasty.asked = asked
    assert time.perf_counter() - began < 5
    spans = flushed(exporter)
    by_name = {each.name.split(" ")[0]: each for each in spans}
    expected = {"run_started", "execute_tool", "decide", "inner", "invoke_agent", "run_sealed"}
    assert set(by_name) == expected
    assert {each.attributes[semconv.RUN_ID] for each in spans} == {str(run.run_id)}
    assert by_name["decide"].attributes[semconv.DECISION_OUTCOME] == "deny"
    assert by_name["invoke_agent"].attributes["clew.run.denials"] == 1
    text = json.dumps([each.attributes for each in spans], allow_nan=False)
    assert "zqmark" not in text
    assert "zqmark" not in caplog.text
    assert max(len(json.dumps(each.attributes)) for each in spans) < 16_384
    writer = Writer(tmp_path / "data" / "clew.db")
    assert writer.write(spans).stored == len(spans)
    writer.close()


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.filterwarnings("ignore")
async def test_a_value_as_who_and_what(
    what: str, twin: str, exporter: CaptureExporter, caplog: pytest.LogCaptureFixture
) -> None:
    """As the actor, the conversation, the agent's name, or set on the span that is current."""
    value = VALUES[what]
    options: dict[str, Any] = {
        "conversation_id": value, "message_id": value, "kind": value, "actor": value,
    }  # fmt: skip
    name = value if isinstance(value, str) else "desk"

    def inside() -> None:
        here = trace.get_current_span()
        here.set_attribute("mine", value)
        here.set_attribute(semconv.TENANT, value)
        here.set_attribute(value, 1)
        here.set_attributes({semconv.CONFIGURATION: value})
        here.add_event("event", {"k": value})
        here.add_event(value)
        here.update_name(value)
        with clew.tool("search", arguments=value) as tool:
            tool.outcome = value
            tool.result = value
        with clew.decide("mine") as decision:
            decision.outcome = value
            decision.actor = value

    if twin == "sync":
        with clew.run(name, **options) as run:
            inside()
    else:
        async with clew.run(name, **options) as run:
            inside()
    spans = flushed(exporter)
    assert len(spans) == 5
    assert {each.attributes[semconv.RUN_ID] for each in spans} == {str(run.run_id)}
    assert sorted(each.attributes[semconv.SEQ] for each in spans) == [1, 2, 3, 4, 5]
    (ended,) = [each for each in spans if each.attributes.get(semconv.RUN_ROOT)]
    assert ended.attributes["clew.run.tool_calls"] == 1
    text = json.dumps([[each.name, each.attributes] for each in spans], allow_nan=False)
    assert "zqmark" not in text
    assert "zqmark" not in caplog.text
    assert len(text) < 16_384


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.filterwarnings("ignore")
def test_a_value_that_is_captured(what: str, capturing: CaptureExporter) -> None:
    """As the argument and the result of a tool: it has a form in JSON, or none; the span leaves."""
    value = VALUES[what]

    @clew.tool("look_up")
    def look_up(_query: Any) -> Any:
        return value

    with clew.run("desk"):
        assert look_up(value) is value
        with clew.tool("search", arguments={"q": value}) as tool:
            tool.result = [value]
    spans = flushed(capturing)
    assert len(spans) == 5
    text = json.dumps([each.attributes for each in spans], allow_nan=False)
    # Bytes are content that was given as such.
    assert ("zqmark" in text) is False or isinstance(value, bytes)
    assert len(text) < 200_000


def test_a_span_of_ours_with_ten_thousand_attributes(exporter: CaptureExporter) -> None:
    """What somebody sets on it, first or last, evicts nothing of Clew's."""
    with clew.run("desk", tenant="acme"), clew.tool("search", call_id="c1") as tool:
        here = trace.get_current_span()
        for number in range(10_000):
            here.set_attribute(f"k{number}", "x" * 100)
        here.set_attribute("long", "y" * 1_000_000)
        tool.result_bytes = 3
    (found,) = [each for each in flushed(exporter) if each.name == "execute_tool search"]
    assert found.attributes[semconv.SEQ] == 3
    assert found.attributes[semconv.TOOL_CALL_ID] == "c1"
    assert found.attributes[semconv.TOOL_RESULT_BYTES] == 3
    assert found.attributes[semconv.TOOL_OUTCOME] == "ok"
    assert not [key for key in found.attributes if key.startswith(("k", "long"))]


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "a", "model": "gpt-5-mini", "messages": [{"role": "user", "content": "zq"}]}',
        b'{"model": "gpt-5-mini", "messages": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"model": "gpt-\\ud83d", "messages": NaN, "max_tokens": 1180591620717411303424}',
        b'{"model": "gpt-5-mini", "messages": [null, 1, "a"], "tools": [null], "stream": "yes"}',
        b'{"model": ["gpt"], "tools": {"a": 1}, "temperature": "hot"}',
        b"\xff\xfe" * 1000,
        b'{"model": "' + b"m" * 1_000_000 + b'"}',
        b"[]",
        b"",
    ],
    ids=["twice", "deep", "no numbers", "nulls", "types", "bytes", "megabyte", "list", "nothing"],
)
async def test_a_request_that_nobody_expects(
    twin: str, body: bytes, exporter: CaptureExporter
) -> None:
    """It is sent as it is; its round leaves with what could be read."""
    with Answering(b'{"model": "gpt-5-mini", ' + USAGE.encode() + b"}") as server, clew.run("desk"):
        url = f"{server.base_url}/v1/chat/completions"
        if twin == "sync":
            with httpx.Client(trust_env=False) as client:
                client.post(url, content=body)  # noqa: ASYNC212
        else:
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.post(url, content=body)
        assert [each.body for each in server.requests] == [body]
    (found,) = [each for each in flushed(exporter) if each.name.startswith("chat")]
    assert found.attributes[semconv.USAGE_INPUT] == 5
    assert found.attributes[semconv.REQUEST_BYTES] == len(body)
    assert len(json.dumps(found.attributes, allow_nan=False)) < 4096


def test_ten_thousand_attributes(exporter: CaptureExporter) -> None:
    """What identifies and counts is never what is evicted."""
    with clew.run("desk"), trace.get_tracer("other").start_as_current_span("inner") as inner:
        inner.set_attribute(semconv.USAGE_INPUT, 7)
        for number in range(10_000):
            inner.set_attribute(f"k{number}", number)
        inner.set_attribute(semconv.USAGE_OUTPUT, 8)
    (found,) = [each for each in flushed(exporter) if each.name == "inner"]
    assert found.attributes[semconv.RUN_ID]
    assert found.attributes[semconv.SEQ] == 3
    assert found.attributes[semconv.USAGE_OUTPUT] == 8


class Answering(LoopbackServer):
    """A provider that answers with these bytes."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.head(200, {"content-type": "application/json"}, len(self.body))
        connection.send(self.body)


USAGE = '"usage": {"prompt_tokens": 5, "completion_tokens": 6}'
BODIES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "half a surrogate pair": (
        b'{"model": "gpt-\\ud83d", ' + USAGE.encode() + b"}",
        {semconv.USAGE_INPUT: 5, semconv.USAGE_OUTPUT: 6},
    ),
    "not a number": (b'{"usage": {"prompt_tokens": NaN, "completion_tokens": 6}}', {}),
    "more than 64 bits": (
        b'{"usage": {"prompt_tokens": 1180591620717411303424, "completion_tokens": 6}}',
        {},
    ),
    "negative": (b'{"usage": {"prompt_tokens": -5, "completion_tokens": 6}}', {}),
    "a text for a number": (b'{"usage": {"prompt_tokens": "5", "completion_tokens": 6}}', {}),
    "keys twice": (
        b'{"model": "a", "model": "gpt-5-mini", ' + USAGE.encode() + b"}",
        {semconv.RESPONSE_MODEL: "gpt-5-mini", semconv.USAGE_INPUT: 5},
    ),
    "nested deeply": (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {}),
    "not UTF-8": (b'{"model": "\xff\xfe"}', {}),
    "a megabyte": (
        b'{"x": "' + b"y" * 1_000_000 + b'", ' + USAGE.encode() + b"}",
        {semconv.USAGE_INPUT: 5, semconv.USAGE_OUTPUT: 6},
    ),
    "nothing": (b"", {}),
    "a list": (b"[1, 2]", {}),
    "null": (b"null", {}),
}


FUTURE: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": (
        "/v1/chat/completions",
        {"model": "m", "created": 10**18, "usage": {"prompt_tokens": 5, "completion_tokens": 6}},
    ),
    "responses": (
        "/v1/responses",
        {"model": "m", "object": "response", "created_at": 1e300, "completed_at": 2**70,
         "usage": {"input_tokens": 5, "output_tokens": 6}},
    ),
    "ollama": (
        "/api/chat",
        {"model": "m", "created_at": "99999-12-31T23:59:59Z", "done": True, "total_duration": 2**80,
         "prompt_eval_count": 5, "eval_count": 6},
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {"modelVersion": "m", "createTime": "+99999-01-01T00:00:00Z",
         "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 6}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("provider", FUTURE)
@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_a_providers_clock_is_never_ours(
    provider: str, twin: str, exporter: CaptureExporter
) -> None:
    """A time far in the future in an answer moves no span and costs nothing else."""
    path, answer = FUTURE[provider]
    asked = {"model": "m", "messages": [], "input": "Hi", "contents": [], "stream": False}
    before = time.time_ns()
    with Answering(json.dumps(answer).encode()) as server, clew.run("desk"):
        if twin == "sync":
            with httpx.Client(trust_env=False) as client:
                client.post(server.base_url + path, json=asked)  # noqa: ASYNC212
        else:
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.post(server.base_url + path, json=asked)
    after = time.time_ns()
    spans = flushed(exporter)
    (round_,) = [each for each in spans if each.type == "round"]
    assert (round_.attributes[semconv.USAGE_INPUT], round_.attributes[semconv.USAGE_OUTPUT]) == (
        5,
        6,
    )
    assert all(before <= each.start_ns <= each.end_ns <= after + 10**9 for each in spans)
    assert b"9999" not in json.dumps([each.attributes for each in spans]).encode()


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("twin", ["sync", "async"])
async def test_an_answer_that_nobody_expects(
    what: str, twin: str, exporter: CaptureExporter
) -> None:
    """The host gets its bytes; the round leaves with what could be read, and its run is whole."""
    body, expected = BODIES[what]
    asked = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
    with Answering(body) as server, clew.run("desk"):
        url = f"{server.base_url}/v1/chat/completions"
        if twin == "sync":
            with httpx.Client(trust_env=False) as client:
                assert client.post(url, json=asked).content == body  # noqa: ASYNC212
        else:
            async with httpx.AsyncClient(trust_env=False) as client:
                assert (await client.post(url, json=asked)).content == body
    spans = {each.name.split(" ")[0]: each.attributes for each in flushed(exporter)}
    assert set(spans) == {"run_started", "chat", "invoke_agent", "run_sealed"}
    assert {key: spans["chat"].get(key) for key in expected} == expected
    for key in (semconv.USAGE_INPUT, semconv.USAGE_OUTPUT):
        assert spans["chat"].get(key) in (None, 5, 6)


@pytest.mark.filterwarnings("ignore")
def test_one_bad_span_never_costs_its_batch(exporter: CaptureExporter) -> None:
    """A span that cannot even be copied is left out and counted; its neighbours leave."""
    with clew.run("desk"):
        for number in range(20):
            with trace.get_tracer("other").start_as_current_span(f"s{number}") as inner:
                if number == 10:
                    inner._links = Nasty()  # type: ignore[attr-defined]
    names = {each.name for each in flushed(exporter)}
    assert {f"s{number}" for number in range(20)} - names == {"s10"}
    assert dict(_guard.failures) == {"filter a span": 1}
    _guard.forget()
