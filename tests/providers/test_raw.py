"""Raw capture: off without a trace, on for every kind of call where it is granted, never sent."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.actors import Actor
from clew.facts import Usage
from clew.levels import LevelName
from clew.pipeline import runtime
from clew.providers import ChatRequest, Choice, FallbackProvider, Message, ProviderError, ToolSpec
from clew.settings import Settings
from clew.testing import CaptureExporter, Reply, ScriptedError, ScriptedToolCall, captured, sse

HELLO = ChatRequest(model="small", messages=(Message.user("Hello"),))
RAW = replace(HELLO, capture_raw=True)
REPLY = Reply(text="One moment.", usage=Usage(input_tokens=5, output_tokens=2), id="r")
TOOLS = (ToolSpec(name="find"),)
CALL = ScriptedToolCall(id="abcdef123", name="find", arguments={"a": 1})
ADMIN = Actor(id="root", admin=True)


class Asking:
    """A kit whose calls are made in a run of somebody's."""

    def __init__(self, kit: Any, actor: Actor | str | None) -> None:
        self._kit = kit
        self.actor = actor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kit, name)

    async def chat(self, *args: Any, **kwargs: Any) -> Any:
        with clew.run("raw", actor=self.actor):
            return await self._kit.chat(*args, **kwargs)

    async def events(self, *args: Any, **kwargs: Any) -> Any:
        with clew.run("raw", actor=self.actor):
            return await self._kit.events(*args, **kwargs)

    async def answer(self, *args: Any, **kwargs: Any) -> Any:
        with clew.run("raw", actor=self.actor):
            return await self._kit.answer(*args, **kwargs)


@pytest.fixture
def settings() -> Settings:
    """Settings under which content may be captured."""
    return Settings.from_environment(export_delay_ms=50, seal_grace_s=0.05, capture_max="full")


@pytest.fixture
def kit(kit: Any, exported: CaptureExporter) -> Any:
    """The adapters, called by an administrator where raw answers may be kept."""
    return Asking(kit, ADMIN)


def spoken(kit: Any) -> Any:
    path = kit.server.requests[-1].path.partition("?")[0]
    return next(one for one in kit.server._formats if one.matches("POST", path))


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["plain", "tools"])
async def test_a_whole_answer_is_kept_as_it_came(kit: Any, tools: tuple[ToolSpec, ...]):
    """The decoded body, beside what is there without it; the request's bytes are the same."""
    reply = replace_calls(REPLY) if tools else REPLY
    kit.server.add(reply, reply)
    on = await kit.chat(replace(RAW, tools=tools))
    off = await kit.chat(replace(HELLO, tools=tools))
    assert on.metadata == {"_raw": spoken(kit).body(reply, kit.server.requests[0])}
    assert off.metadata is None
    assert replace(on, metadata=None, id=None) == replace(off, id=None)
    assert kit.server.requests[0].body == kit.server.requests[1].body


def replace_calls(reply: Reply) -> Reply:
    return Reply(text=reply.text, usage=reply.usage, id=reply.id, tool_calls=(CALL,))


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["plain", "tools"])
async def test_a_stream_is_kept_event_by_event(kit: Any, tools: tuple[ToolSpec, ...]):
    """The decoded events in order; the events that the caller sees are the same."""
    reply = replace_calls(REPLY) if tools else REPLY
    kit.server.add(reply, reply)
    *on, last_on = await kit.events(replace(RAW, tools=tools))
    *off, last_off = await kit.events(replace(HELLO, tools=tools))
    events = spoken(kit).events(reply, kit.server.requests[0])
    kept = last_on.response.metadata
    assert list(kept) == ["_raw"]
    told = [frame_of(kit.name, event) for event in kept["_raw"]["events"]]
    assert told == [event for event in events if b"[DONE]" not in event]
    assert on == off
    assert last_off.response == replace(last_on.response, metadata=None)
    assert kit.server.requests[0].body == kit.server.requests[1].body


def frame_of(name: str, event: dict[str, Any]) -> bytes:
    if name == "ollama":
        return sse(event)[6:-1]
    return sse(event, event["type"] if name == "anthropic" else None)


@pytest.mark.parametrize("name", ["openrouter"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_it_stands_beside_other_metadata(kit: Any, streamed: bool):
    """What the provider says besides stays."""
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7, "cost": 0.25}
    kit.server.add(Reply(text="x", usage=usage), Reply(text="x", usage=usage))
    extra = {"stream_options": {"include_usage": True}} if streamed else {}
    on = await kit.answer(replace(RAW, extra=extra), streamed=streamed)
    off = await kit.answer(replace(HELLO, extra=extra), streamed=streamed)
    assert set(on.metadata) == {"cost_usd", "_raw"}
    assert off.metadata == {"cost_usd": 0.25}


async def test_an_error_keeps_its_body_only_where_it_was_asked_for(kit: Any):
    """The provider's prose may quote the prompt."""
    kit.server.add(*[Reply.failure(400, "SECRET")] * 2)
    with pytest.raises(ProviderError) as on:
        await kit.chat(RAW)
    with pytest.raises(ProviderError) as off:
        await kit.chat(HELLO)
    expected = spoken(kit).error_body(ScriptedError(message="SECRET"), 400, 1)
    assert (on.value.raw, off.value.raw) == (expected, None)
    assert str(on.value) == str(off.value)


@pytest.mark.parametrize("value", [1, "true", "yes", [True], {"a": 1}])
@pytest.mark.parametrize("name", ["openai"])
async def test_only_true_counts(kit: Any, value: Any):
    """Anything else that is true elsewhere switches nothing on."""
    kit.server.add(*[REPLY] * 2)
    options = {"max_tokens": 5, "_capture_raw": value}
    request = ChatRequest.from_options(options, model="small", messages=HELLO.messages)
    assert request.capture_raw is False
    assert (await kit.chat(request)).metadata is None
    assert (await kit.chat(replace(HELLO, capture_raw=value))).metadata is None


def test_options_are_kept_elsewhere_and_come_back():
    """The directive is there only when it is on; the rest only when it was set."""
    assert HELLO.options() == {}
    assert RAW.options() == {"_capture_raw": True}
    full = replace(
        RAW,
        tools=TOOLS,
        tool_choice="auto",
        max_tokens=0,
        temperature=0.0,
        top_p=1.0,
        stop=("a", "b"),
        seed=3,
        extra={"x": 1},
        timeout=2.0,
    )
    options = {**full.options(), "stop": ["a", "b"]}
    back = ChatRequest.from_options(options, model="small", messages=full.messages, tools=TOOLS)
    assert back == full
    assert ChatRequest.from_options({}, model="small", messages=HELLO.messages) == HELLO


@pytest.mark.parametrize("name", ["openai"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_it_reaches_through_a_chain(kit: Any, streamed: bool):
    """The provider that answered is the one that is kept."""
    kit.server.add(Reply.failure(500), REPLY)
    async with kit.another(retries=0) as one:
        chain = FallbackProvider(one, Choice(provider=one, model="other"))
        if streamed:
            answer = (await kit.events(RAW, by=chain))[-1].response
        else:
            answer = await kit.chat(RAW, by=chain)
    assert answer.metadata is not None
    assert "other" in repr(answer.metadata["_raw"])


# --- who may keep them ---------------------------------------------------------------------------


def decisions(exporter: CaptureExporter) -> list[dict[str, Any]]:
    keys = ("outcome", "reason", "subject", "executed")
    return [
        {key: (span.attributes or {})[f"clew.decision.{key}"] for key in keys}
        for span in exporter.by_name("decide capture")
    ]


REFUSED = {"outcome": "deny", "subject": "raw", "executed": False}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_grant_is_a_decision(kit: Any, exported: CaptureExporter, streamed: bool):
    """That raw answers were kept is recorded, as an allowed raise of the capture level."""
    kit.server.add(REPLY)
    assert (await kit.answer(RAW, streamed=streamed)).metadata is not None
    granted = {"outcome": "allow", "reason": "raised", "subject": "raw", "executed": True}
    assert decisions(exported) == [granted]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "actor",
    [None, "ann", Actor(id="bot", kind="service"), Actor(id="", admin=True)],
    ids=["nobody", "owner", "no_scope", "no_id"],
)
async def test_without_the_right_nothing_is_kept(
    kit: Any, exported: CaptureExporter, actor: Any, streamed: bool
):
    """The answer is the one without the directive, and the refusal is a decision."""
    kit.actor = actor
    kit.server.add(REPLY, REPLY)
    asked = await kit.answer(RAW, streamed=streamed)
    assert replace(asked, id=None) == replace(await kit.answer(HELLO, streamed=streamed), id=None)
    assert asked.metadata is None
    assert decisions(exported) == [{**REFUSED, "reason": "actor_not_permitted"}]


async def test_an_error_without_a_grant_has_no_body(kit: Any):
    """What a provider wrote about an error is kept by the same right."""
    kit.actor = "ann"
    kit.server.add(Reply.failure(400, "SECRET"))
    with pytest.raises(ProviderError) as refused:
        await kit.chat(RAW)
    assert refused.value.raw is None


@pytest.mark.parametrize("name", ["openai"])
async def test_a_service_needs_the_scope(kit: Any):
    """A service account that declares `capture:raise` may keep raw answers."""
    kit.actor = Actor(id="bot", kind="service", scopes=frozenset({"capture:raise"}))
    kit.server.add(REPLY)
    assert (await kit.chat(RAW)).metadata is not None


@pytest.mark.parametrize("name", ["openai"])
@pytest.mark.parametrize("level", ["none", "metadata", "redacted"])
async def test_a_block_that_asks_for_less_wins(
    kit: Any, exported: CaptureExporter, level: LevelName
):
    """The strictest level that applies holds for raw answers, too."""
    kit.server.add(REPLY)
    with clew.capture(level):
        assert (await kit.chat(RAW)).metadata is None
    assert decisions(exported)[-1] == {**REFUSED, "reason": "lowered"}


@pytest.mark.parametrize("name", ["openai"])
@pytest.mark.parametrize("capture", ["metadata", "redacted", None])
async def test_the_switch_is_the_settings(kit: Any, capture: LevelName | None):
    """Without `full` in the settings nobody keeps a raw answer, nor does an unconfigured Clew."""
    clew.shutdown()
    kit.server.add(REPLY)
    with nullcontext() if capture is None else captured(capture_max=capture) as exporter:
        assert (runtime.get() is None) is (capture is None)
        assert (await kit.chat(RAW)).metadata is None
        if exporter is not None:
            assert decisions(exporter) == [{**REFUSED, "reason": "above_maximum"}]
