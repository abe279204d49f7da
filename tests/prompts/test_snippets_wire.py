"""What an effective prompt is on the wire: the same text for every adapter, chat and stream alike."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import clew
from clew.prompts.composer import effective_system_prompt, select_skills
from clew.prompts.configuration import Configuration
from clew.prompts.repository import MemoryRepository
from clew.prompts.skills import Skill, checksum, with_block
from clew.prompts.snippets import Snippet
from clew.providers import ChatRequest, Message, provider
from clew.testing import MistralChatCompletions, Reply, ScriptedProvider, captured
from clew.testing.provider import FORMATS

SUFFIXES = {
    "openai": "/v1",
    "anthropic": "",
    "gemini": "/v1beta",
    "openrouter": "/api/v1",
    "mistral": "/v1",
    "groq": "/openai/v1",
    "ollama": "",
}
SECRET = "zqmark"
SKILL = f"Read {SECRET}."
KEPT = MemoryRepository(
    [
        Snippet(identifier="nova", name="Nova", text=f"Grüße, {SECRET}.", tags="persona"),
        Snippet(identifier="brief", name="Brief", text="Be brief.", tags="style"),
    ],
    [Skill(identifier="pdf", body=SKILL, checksum=checksum(SKILL))],
)
CONFIGURATION = Configuration(
    provider="any",
    model="small",
    prompt="You help.",
    snippet_tags="style, persona",
    skills=("pdf",),
)


def texts(value: Any) -> Iterator[str]:
    """Return every text in a request."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


@pytest.mark.parametrize("streamed", [False, True], ids=["chat", "stream"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", SUFFIXES)
async def test_the_prompt_is_on_the_wire_as_it_was_composed(name: str, mode: str, streamed: bool):
    """System text and skills arrive once each, byte for byte; the round names the snippets."""
    system = effective_system_prompt(CONFIGURATION, KEPT)
    block = select_skills(CONFIGURATION, KEPT).text
    (user,) = with_block([{"role": "user", "content": "Hello"}], block).messages
    request = ChatRequest(
        model="small", messages=(Message.system(system.text), Message.user(user["content"]))
    )
    formats = [MistralChatCompletions()] if name == "mistral" else FORMATS
    with (
        ScriptedProvider([Reply(text="Hi")], formats=formats) as server,
        captured(digest_key="key") as exported,
    ):
        asked = provider(name, api_key="KEY", base_url=server.base_url + SUFFIXES[name])
        with clew.run("agent"):
            if mode == "sync":
                list(asked.stream(request)) if streamed else asked.chat(request)
            elif streamed:
                _ = [event async for event in asked.astream(request)]
            else:
                await asked.achat(request)
        asked.close() if mode == "sync" else await asked.aclose()
        (body,) = [each.json() for each in server.requests]
        (span,) = [each for each in exported.spans if "clew.attempts" in each.attributes]
    sent = list(texts(body))
    assert (1, 1) == (sent.count(system.text), sent.count(f"{block}\n\nHello"))
    assert ("prompt", "snippet:brief", "snippet:nova") == span.attributes["clew.prompt.block.ids"]
    assert tuple(each.bytes for each in system.blocks) == tuple(
        span.attributes["clew.prompt.block.bytes"]
    )
    assert SECRET not in repr([dict(each.attributes) for each in exported.spans])
