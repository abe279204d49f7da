"""Tool calls: the round trip, ids that a provider does not give or take, arguments that are none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from clew.providers import (
    PROVIDERS,
    ChatRequest,
    Message,
    Thinking,
    ToolRequest,
    ToolSpec,
    provider,
)
from clew.testing import Reply, ScriptedToolCall

SIGNATURE = "c2lnbmF0dXJlIG9mIGEgc2NyaXB0ZWQgdGhvdWdodA=="
TOOLS = (ToolSpec(name="find"), ToolSpec(name="count"))
ASK = ChatRequest(model="small", messages=(Message.user("Where?"),), tools=TOOLS)
CALLS = (
    ScriptedToolCall(id="abcdef123", name="find", arguments={"parcel": "P-17"}),
    ScriptedToolCall(id="abcdef124", name="count", arguments={}),
)


def openai_turns(**fields: Any) -> list[dict[str, Any]]:
    return [
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "abcdef123",
                    "type": "function",
                    "function": {"name": "find", "arguments": '{"parcel":"P-17"}'},
                },
                {
                    "id": "abcdef124",
                    "type": "function",
                    "function": {"name": "count", "arguments": "{}"},
                },
            ],
            **fields,
        },
        {"role": "tool", "tool_call_id": "abcdef123", "content": "Depot"},
        {"role": "tool", "tool_call_id": "abcdef124", "content": "failed"},
    ]


TURNS: dict[str, list[dict[str, Any]]] = {
    "openai": openai_turns(),
    "openrouter": openai_turns(),
    "groq": openai_turns(),
    "mistral": [
        {
            **openai_turns()[0],
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                {"type": "text", "text": "I look."},
            ],
        },
        {**openai_turns()[1], "name": "find"},
        {**openai_turns()[2], "name": "count"},
    ],
    "anthropic": [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
                {"type": "text", "text": "I look."},
                {
                    "type": "tool_use",
                    "id": "abcdef123",
                    "name": "find",
                    "input": {"parcel": "P-17"},
                },
                {"type": "tool_use", "id": "abcdef124", "name": "count", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "abcdef123", "content": "Depot"},
                {
                    "type": "tool_result",
                    "tool_use_id": "abcdef124",
                    "content": "failed",
                    "is_error": True,
                },
            ],
        },
    ],
    "gemini": [
        {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {
                    "functionCall": {
                        "id": "abcdef123",
                        "name": "find",
                        "args": {"parcel": "P-17"},
                    },
                    "thoughtSignature": SIGNATURE,
                },
                {"functionCall": {"id": "abcdef124", "name": "count", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "abcdef123",
                        "name": "find",
                        "response": {"output": "Depot"},
                    }
                },
                {
                    "functionResponse": {
                        "id": "abcdef124",
                        "name": "count",
                        "response": {"error": "failed"},
                    }
                },
            ],
        },
    ],
    "ollama": [
        {
            "role": "assistant",
            "content": "I look.",
            "thinking": "Hm.",
            "tool_calls": [
                {
                    "id": "abcdef123",
                    "function": {"name": "find", "arguments": {"parcel": "P-17"}},
                },
                {"id": "abcdef124", "function": {"name": "count", "arguments": {}}},
            ],
        },
        {
            "role": "tool",
            "content": "Depot",
            "tool_name": "find",
            "tool_call_id": "abcdef123",
        },
        {
            "role": "tool",
            "content": "failed",
            "tool_name": "count",
            "tool_call_id": "abcdef124",
        },
    ],
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_round_trip(kit: Any, streamed: bool):
    """What the model asked for goes back as it came, with its thinking, before the results."""
    kit.server.add(Reply(text="I look.", reasoning="Hm.", tool_calls=CALLS), Reply(text="There."))
    first = await kit.answer(ASK, streamed=streamed)
    results = (
        Message.result(first.tool_calls[0], "Depot"),
        Message.result(first.tool_calls[1], "failed", is_error=True),
    )
    messages = (*ASK.messages, first.message, *results)
    second = await kit.answer(replace(ASK, messages=messages), streamed=streamed)
    assert second.text == "There."
    body = kit.bodies[1]
    assert (body.get("messages") or body["contents"])[1:] == TURNS[kit.name]


@pytest.mark.parametrize("name", ["openai", "openrouter", "mistral", "groq"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_arguments_that_are_no_json_object(kit: Any, streamed: bool):
    """The raw text is there in place of the arguments, and goes back unchanged."""
    for text in ('{"parcel": "P-1', "[1]", "7", "null", '{"a": NaN}', "no"):
        kit.server.replace(
            Reply(tool_calls=(ScriptedToolCall(id="abcdef123", name="find", arguments=text),))
        )
        answer = await kit.answer(ASK, streamed=streamed)
        assert answer.tool_calls == (
            ToolRequest(id="abcdef123", name="find", arguments=None, arguments_text=text),
        )
        sent = kit.provider.body(replace(ASK, messages=(answer.message,)), stream=False)
        assert sent["messages"][0]["tool_calls"][0]["function"]["arguments"] == text


@pytest.mark.parametrize("name", ["anthropic"])
async def test_a_stream_of_arguments_that_are_no_json_object(kit: Any):
    """A message that hit its limit leaves half a tool call; it goes back in an object."""
    text = '{"parcel": "P-1'
    call = ScriptedToolCall(id="t1", name="find", arguments=text)
    kit.server.add(Reply(tool_calls=(call,), finish_reason="max_tokens"))
    answer = await kit.answer(ASK, streamed=True)
    assert answer.finish_reason == "length"
    assert answer.tool_calls == (ToolRequest(id="t1", name="find", arguments_text=text),)


@pytest.mark.parametrize("asked", ["anthropic", "gemini", "ollama"])
def test_what_is_no_object_is_put_into_one(asked: str):
    """These formats have no place for a text there."""
    call = ToolRequest(id="t1", name="find", arguments=None, arguments_text="{no")
    message = Message(role="assistant", tool_calls=(call,))
    body = provider(asked).body(replace(ASK, messages=(message,)), stream=False)
    assert '"INVALID_JSON"' in repr(body).replace("'", '"')
    assert "'{no'" in repr(body)


NAMELESS = (
    Message.user("Where?"),
    Message(
        role="assistant",
        tool_calls=(
            ToolRequest(name="find", arguments={"a": 1}, arguments_text='{"a":1}'),
            ToolRequest(name="count", arguments={}, arguments_text="{}"),
        ),
    ),
    Message(role="tool", content="two", tool_name="count"),
    Message(role="tool", content="one"),
)
"""What came from a provider that gives its calls no ids."""


def test_calls_without_an_id_get_one_where_it_is_needed():
    """Results are matched by name, then by order."""
    request = replace(ASK, messages=NAMELESS)
    chat = provider("openai").body(request, stream=False)["messages"]
    assert [call["id"] for call in chat[1]["tool_calls"]] == ["call_1", "call_2"]
    assert [message["tool_call_id"] for message in chat[2:]] == ["call_2", "call_1"]
    turns = provider("anthropic").body(request, stream=False)["messages"]
    assert [block["id"] for block in turns[1]["content"]] == ["call_1", "call_2"]
    assert [block["tool_use_id"] for block in turns[2]["content"]] == ["call_2", "call_1"]


def test_calls_without_an_id_stay_so_where_they_may():
    """Gemini and Ollama match by name and order."""
    request = replace(ASK, messages=NAMELESS)
    turns = provider("gemini").body(request, stream=False)["contents"]
    assert turns[1]["parts"][0]["functionCall"] == {"name": "find", "args": {"a": 1}}
    assert [part["functionResponse"] for part in turns[2]["parts"]] == [
        {"name": "count", "response": {"output": "two"}},
        {"name": "find", "response": {"output": "one"}},
    ]
    lines = provider("ollama").body(request, stream=False)["messages"]
    assert lines[2:] == [
        {"role": "tool", "content": "two", "tool_name": "count"},
        {"role": "tool", "content": "one", "tool_name": "find"},
    ]


def conversation(call_id: str) -> ChatRequest:
    call = ToolRequest(id=call_id, name="find", arguments={}, arguments_text="{}")
    said = Message(role="assistant", tool_calls=(call,))
    return replace(ASK, messages=(*ASK.messages, said, Message.result(call, "x")))


def test_ids_in_the_form_that_mistral_takes():
    """Nine letters and digits; others are replaced, the same by the same."""
    found = []
    for call_id in ("abcdef123", "toolu_01/x", "call_1"):
        messages = provider("mistral").body(conversation(call_id), stream=False)["messages"]
        asked, answered = messages[1]["tool_calls"][0]["id"], messages[2]["tool_call_id"]
        assert asked == answered
        assert re.fullmatch("[A-Za-z0-9]{9}", asked)
        found.append(asked)
    assert found[0] == "abcdef123"
    assert len(set(found)) == 3


def test_ids_in_the_form_that_anthropic_takes():
    """Letters, digits, _ and -; others are replaced."""
    messages = provider("anthropic").body(conversation("a.b/c-1_2"), stream=False)["messages"]
    assert messages[1]["content"][0]["id"] == "a_b_c-1_2"
    assert messages[2]["content"][0]["tool_use_id"] == "a_b_c-1_2"


def test_gemini_3_takes_calls_of_other_models():
    """The first call of a turn gets what stands for a missing signature, and only there."""
    for model, expected in (
        ("gemini-3-pro-preview", "skip_thought_signature_validator"),
        ("gemini-2.5-pro", None),
    ):
        request = replace(conversation("c1"), model=model)
        parts = provider("gemini").body(request, stream=False)["contents"][1]["parts"]
        assert parts[0].get("thoughtSignature") == expected


@pytest.mark.parametrize("asked", PROVIDERS)
def test_thinking_goes_back_only_to_whom_it_came_from(asked: str):
    """Signed blocks are worth nothing to another provider, and are not its business."""
    thoughts = tuple(
        Thinking(text="SECRET", provider=name, native={"type": "thinking", "thinking": "SECRET"})
        for name in (*PROVIDERS, None)
        if name != asked
    )
    message = Message(role="assistant", content="x", thinking=thoughts)
    body = provider(asked).body(replace(ASK, messages=(message,)), stream=False)
    assert "SECRET" not in repr(body)


async def test_an_answer_without_words_is_no_empty_block(kit: Any):
    """An assistant's turn with tool calls alone has no empty text in it."""
    kit.server.add(Reply(tool_calls=CALLS[:1]))
    answer = await kit.chat(ASK)
    assert (answer.text, len(answer.tool_calls)) == ("", 1)
    body = kit.provider.body(replace(ASK, messages=(answer.message,)), stream=False)
    assert '"text": ""' not in repr(body).replace("'", '"')
