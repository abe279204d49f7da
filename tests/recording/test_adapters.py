"""Recording of Clew's own adapters: each sends the system prompt in its provider's slot."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from recorded import Start, Wire
from wires import ANSWER, CHAT_ANSWER, CLAUDE_ANSWER, GEMINI_ANSWER, OLLAMA_ANSWER

import clew
from clew.providers import PROVIDERS, ChatRequest, Choice, FallbackProvider, Message, provider

SYSTEM = "Be brief. Grüße!"
REQUEST = ChatRequest(model="some-model", messages=(Message.system(SYSTEM), Message.user("Hello")))


def first_message(body: Any) -> Any:
    assert "system" == body["messages"][0]["role"]
    return body["messages"][0]["content"]


SLOTS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "openai": (CHAT_ANSWER, first_message),
    "anthropic": (CLAUDE_ANSWER, lambda body: body["system"]),
    "gemini": (GEMINI_ANSWER, lambda body: body["systemInstruction"]["parts"][0]["text"]),
    "openrouter": (CHAT_ANSWER, first_message),
    "mistral": (CHAT_ANSWER, first_message),
    "groq": (CHAT_ANSWER, first_message),
    "ollama": (OLLAMA_ANSWER, first_message),
}


def adapter(name: str, wire: Wire) -> Any:
    transport = httpx.MockTransport(wire)
    return provider(
        name,
        api_key="any",
        http_client=httpx.Client(transport=transport),
        async_http_client=httpx.AsyncClient(transport=transport),
        retries=0,
    )


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_system_prompt_is_in_its_slot(
    start: Start, name: str, asynchronous: bool
) -> None:
    """On the wire and in the record alike, and never as a turn of the user."""
    answer, slot = SLOTS[name]
    session = start()
    wire = Wire(answer)
    asked = adapter(name, wire)
    if asynchronous:
        await asked.achat(REQUEST)
    else:
        asked.chat(REQUEST)
    body = json.loads(wire.bodies[0])
    assert SYSTEM == slot(body)
    assert 1 == wire.bodies[0].decode().count("Be brief.")
    _, record = session.only()
    assert SYSTEM == record.system.text
    assert [{"role": "user", "parts": [{"type": "text", "content": "Hello"}]}] == record.messages
    assert ANSWER == record.response.text


def test_each_hop_of_a_fallback_has_its_record(start: Start) -> None:
    """The same round, numbered hops; the one that failed with what is known, the other whole."""
    session = start()
    broken = Wire({"type": "error", "error": {"type": "overloaded_error"}}, status=529)
    chain = FallbackProvider(
        Choice(provider=adapter("anthropic", broken)),
        Choice(provider=adapter("openai", Wire(CHAT_ANSWER))),
    )
    with clew.run("triage"):
        chain.chat(REQUEST)
    first, second = session.rows()
    assert [
        ("anthropic", 0, 1, "error", "overloaded_error"),
        ("openai", 1, 1, "ok", None),
    ] == [(row.provider, row.hop, row.round, row.status, row.error_type) for row in (first, second)]
    assert (None, 100) == (first.input_tokens, second.input_tokens)
