"""Recorded answers of the real services through the adapters: text, tool calls, errors."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx
import pytest
from corpus_folder import CORPUS

from clew.providers import ChatRequest, ChatResponse, Message, ProviderError, provider

CHAT = {"openrouter", "mistral", "groq"}
ASK = ChatRequest(model="small", messages=(Message.user("Hello"),))


class Recorded(NamedTuple):
    """One exchange, the adapter that reads it, and what is expected."""

    adapter: str
    response: dict[str, Any]
    expected: dict[str, Any]


def adapter_for(recorded_provider: str, url: str) -> str | None:
    """Return the adapter that speaks an endpoint."""
    path = urlsplit(url).path
    if path.endswith("/chat/completions"):
        return recorded_provider if recorded_provider in CHAT else "openai"
    if path.endswith("/messages"):
        return "anthropic"
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return "gemini"
    return "ollama" if path.endswith("/api/chat") else None


def recorded() -> dict[str, Recorded]:
    """Return the exchanges that an adapter could have had, by name."""
    found: dict[str, Recorded] = {}
    for path in sorted(CORPUS.glob("*/*.json")):
        content = json.loads(path.read_text())
        for position, (exchange, expected) in enumerate(
            zip(content["exchanges"], content["expected_each"], strict=True)
        ):
            adapter = adapter_for(content["provider"], exchange["request"]["url"])
            response = exchange["response"]
            # A stream of Gemini's without `alt=sse` is one that no adapter asks for.
            if adapter and "base64" not in response and not isinstance(response.get("body"), list):
                name = f"{content['id']}[{position}]"
                found[name] = Recorded(adapter, response, expected)
    return found


EXCHANGES = recorded()


@pytest.fixture(autouse=True)
def _corpus() -> None:
    if not EXCHANGES:
        message = f"no recordings under {CORPUS}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


def read(one: Recorded) -> ChatResponse:
    """Return what an adapter makes of a recorded answer."""
    response = one.response
    text = response["text"] if "text" in response else json.dumps(response["body"])
    headers = {
        name: value
        for name, value in response["headers"].items()
        if name.lower() not in ("transfer-encoding", "content-encoding", "content-length")
    }

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(response["status"], headers=headers, content=text.encode())

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        adapter = provider(
            one.adapter, base_url="http://127.0.0.1:9", http_client=client, retries=0
        )
        if "text" not in response:
            return adapter.chat(ASK)
        last = list(adapter.stream(ASK))[-1].response
        assert last is not None
        return last


def text_of(one: Recorded) -> tuple[str | None, str]:
    """Return the thinking in tags, if there is any, and the text that is expected."""
    given = one.expected["output_text"]
    pieces = given if isinstance(given, list) else [given]
    if one.adapter != "anthropic":
        pieces = pieces[:1]
    text = "".join([piece or "" for piece in pieces]) + (one.expected.get("refusal") or "")
    if text.lstrip().startswith("<think>"):
        thinking, _, text = text.lstrip()[7:].partition("</think>")
        return thinking, text.lstrip()
    return None, text


def calls_of(one: Recorded) -> list[tuple[Any, str, Any]]:
    calls: list[tuple[Any, str, Any]] = []
    for call in one.expected["tool_calls"] or ():
        arguments = call["arguments"]
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments) if arguments.strip() else {}
            except ValueError:
                arguments = None
        calls.append((call["id"], call["name"], {} if arguments is None else arguments))
    return calls


def is_answer(one: Recorded) -> bool:
    return one.expected["error"] is None and one.expected.get("stream_complete", True)


@pytest.mark.parametrize("name", [name for name, one in EXCHANGES.items() if is_answer(one)])
def test_a_recorded_answer(name: str):
    """Text, tool calls with their arguments, models and ids are what the service sent."""
    one = EXCHANGES[name]
    answer = read(one)
    _, text = text_of(one)
    assert answer.text == text
    if len(one.expected["finish_reasons"]) <= 1:  # of several choices an adapter takes the first
        found = [(call.id, call.name, call.arguments) for call in answer.tool_calls]
        assert found == calls_of(one)
    assert (answer.model, answer.id) == (
        one.expected["response_model"],
        one.expected["response_id"],
    )


@pytest.mark.parametrize("name", [name for name, one in EXCHANGES.items() if one.expected["error"]])
def test_a_recorded_error(name: str):
    """It is raised, with status and class."""
    error = EXCHANGES[name].expected["error"]
    with pytest.raises(ProviderError) as caught:
        read(EXCHANGES[name])
    if error["status"] >= 400:
        assert caught.value.status == error["status"]
    assert caught.value.failure_class != "unknown"


def test_every_adapter_has_recordings():
    """How many exchanges each adapter reads."""
    counts = Counter(one.adapter for one in EXCHANGES.values())
    print(dict(counts))
    assert set(counts) >= {"openai", "anthropic", "gemini", "ollama", *CHAT}
