"""Segmented prompts through the adapters: sent as text, and known again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from clew.prompts import Prompt
from clew.providers import ChatRequest, Message, Text
from clew.testing import Reply, captured


def request(*system: Message) -> ChatRequest:
    return ChatRequest(model="small", messages=(*system, Message.user("Hello")))


def split(prompt: Prompt) -> tuple[Message, ...]:
    return (Message.system(prompt[:5]), Message.system(prompt[5:]))


def in_parts(prompt: Prompt) -> tuple[Message, ...]:
    return (Message(role="system", content=(Text(text=prompt[:5]), Text(text=prompt[5:]))),)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("system", "mapped"),
    [
        (lambda prompt: (Message.system(prompt),), True),
        (lambda prompt: (Message(role="system", content=prompt),), True),
        (in_parts, True),
        (split, True),
        (lambda prompt: (Message.system(prompt), Message.system("more")), False),
    ],
    ids=["short", "long", "parts", "messages", "more"],
)
async def test_a_prompt_through_an_adapter(kit: Any, system: Any, mapped: bool, streamed: bool):
    """However an adapter places system messages, the prompt is known, or known to be another."""
    prompt = Prompt.of(identity_context="Änn", working_memory="old 🎈")
    kit.server.add(Reply(text="hello"))
    with captured() as exported:
        await kit.answer(request(*system(prompt)), streamed=streamed)
    (round_,) = [span for span in exported.spans if "clew.attempts" in span.attributes]
    assert round_.attributes["clew.prompt.mapped"] is mapped
    assert round_.attributes.get("clew.prompt.block.ids") == (
        ("identity_context", "working_memory") if mapped else None
    )


def test_a_conversation_with_a_prompt_can_be_written():
    """A message made of a prompt is plain data: it is written, and read back as it was."""
    message = Message.system(Prompt.of(identity_context="Änn"))
    assert type(message.content) is str
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message
