"""Answers asked for in a format: a model, a dataclass, a TypedDict, or a plain JSON schema."""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

import pydantic
import pytest
from either_way import settle

from clew.facts import Usage
from clew.testing import Reply

MADE: list[str] = []
"""Which constructors have run."""


class Model(pydantic.BaseModel):
    """A model with required fields whose construction is noticed."""

    city: str
    size: int

    def __init__(self, **values: Any) -> None:
        MADE.append("model")
        super().__init__(**values)


@dataclasses.dataclass
class Plain:
    """A dataclass whose construction is noticed."""

    city: str
    size: int

    def __post_init__(self) -> None:
        MADE.append("plain")


@pydantic.dataclasses.dataclass
class Checked:
    """A dataclass of pydantic."""

    city: str
    size: int

    def __post_init__(self) -> None:
        MADE.append("checked")


class Typed(TypedDict):
    """A typed dictionary."""

    city: str
    size: int


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["city", "size"],
}
KINDS = {"model": Model, "plain dataclass": Plain, "checked dataclass": Checked, "typed": Typed}
REPLY = Reply(
    text='{"city": "zqmark", "size": 3}', usage=Usage(input_tokens=9, output_tokens=3), model="m-1"
)
ASK = [{"role": "user", "content": "zqmark"}]


def chat_parse(client: Any, kind: Any) -> Any:
    return client.chat.completions.parse(model="m", messages=ASK, response_format=kind)


def beta_chat_parse(client: Any, kind: Any) -> Any:
    return client.beta.chat.completions.parse(model="m", messages=ASK, response_format=kind)


def messages_parse(client: Any, kind: Any) -> Any:
    return client.messages.parse(model="m", max_tokens=9, messages=ASK, output_format=kind)


def beta_messages_parse(client: Any, kind: Any) -> Any:
    return client.beta.messages.parse(model="m", max_tokens=9, messages=ASK, output_format=kind)


PARSING = {
    "openai": (chat_parse, beta_chat_parse),
    "anthropic": (messages_parse, beta_messages_parse),
}


async def tried(session: Any, make: Any) -> Any:
    """Make a call; return what comes of it, and which constructors have run."""
    MADE.clear()
    try:
        answer = await settle(make(session.client))
    except Exception as error:
        return [type(error).__name__, str(error), list(MADE)]
    return [answer, list(MADE)]


def assert_told(found: Any) -> None:
    """One round that says that JSON was asked for, and nothing of the class."""
    assert found.round.attributes["gen_ai.output.type"] == "json"
    assert (found.usage["input"], found.usage["output"]) == (9, 3)
    told = str(dict(found.round.attributes))
    assert not any(word in told for word in ("Model", "Plain", "Checked", "Typed", "class"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [0, 1], ids=["plain", "beta"])
@pytest.mark.covers("structured output")
async def test_parse_helpers(form: int, kind: str, kit: Any, compare_all: Any):
    """No constructor runs more often than without Clew; a call that is made is one round."""
    make = PARSING[kit.provider][form]
    found = await compare_all(lambda session: tried(session, lambda c: make(c, KINDS[kind])), REPLY)
    sent = len(found.requests)
    assert len(found.rounds) == sent
    # What the SDK does not take is refused by the SDK, before anything is sent.
    assert (sent == 1) == (len(found.value) == 2)
    if sent:
        assert_told(found)
    if kind == "model":
        assert sent == 1


@pytest.mark.kits("sdks", provider="Google Gemini, Mistral")
@pytest.mark.parametrize("kind", [*KINDS, "schema"])
async def test_formats_of_the_others(kind: str, kit: Any, compare_all: Any):
    """The same for SDKs that take the format among a call's settings."""
    wanted = KINDS.get(kind, SCHEMA)

    def make(client: Any) -> Any:
        if kit.provider == "Mistral":
            parse = client.chat.parse_async if kit.asynchronous else client.chat.parse
            return parse(model="m", messages=ASK, response_format=wanted)
        models = client.aio.models if kit.asynchronous else client.models
        config = {"response_mime_type": "application/json", "response_schema": wanted}
        return models.generate_content(model="m", contents="zqmark", config=config)

    found = await compare_all(lambda session: tried(session, make), REPLY)
    sent = len(found.requests)
    assert len(found.rounds) == sent
    if sent:
        assert_told(found)
    if kind == "model":
        assert sent == 1


@pytest.mark.kits(provider="openai, anthropic")
async def test_a_plain_schema(kit: Any, compare: Any):
    """A JSON schema instead of a class."""

    def make(client: Any) -> Any:
        format_: dict[str, Any] = {"type": "json_schema", "schema": SCHEMA}
        if kit.provider == "anthropic":
            return client.messages.create(
                model="m", max_tokens=9, messages=ASK, output_config={"format": format_}
            )
        named = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
        return client.chat.completions.create(model="m", messages=ASK, response_format=named)

    assert_told(await compare(lambda session: tried(session, make), REPLY))
