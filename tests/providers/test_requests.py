"""What is sent: the bytes of each provider's own format."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from clew.errors import ConfigurationError
from clew.providers import (
    PROVIDERS,
    ChatRequest,
    Image,
    Message,
    ProviderError,
    Text,
    ToolRequest,
    ToolSpec,
    provider,
)
from clew.testing import Reply

NAMES = tuple(PROVIDERS)
HELLO = ChatRequest(model="small", messages=(Message.user("Hello"),))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = ToolRequest(
    id="abcdef123", name="weather", arguments={"city": "Köln"}, arguments_text='{"city": "Köln"}'
)
FULL = ChatRequest(
    model="small",
    messages=(
        Message.system("Be brief."),
        Message.user((Text(text="Look:"), Image(data=b"\x89PNG", media_type="image/png"))),
        Message(role="assistant", content="I ask.", tool_calls=(CALL,)),
        Message.result(CALL, "rain"),
        Message.user("So?"),
    ),
    tools=(ToolSpec(name="weather", description="Tells it.", parameters=SCHEMA),),
    tool_choice="required",
    max_tokens=100,
    temperature=0.5,
    top_p=0.9,
    stop=("END",),
    seed=7,
)
FUNCTION = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}
IMAGE_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
CHAT: dict[str, Any] = {
    "model": "small",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, IMAGE_URL]},
        {
            "role": "assistant",
            "content": "I ask.",
            "tool_calls": [
                {
                    "id": "abcdef123",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Köln"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "abcdef123", "content": "rain"},
        {"role": "user", "content": "So?"},
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "required",
    "max_tokens": 100,
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 7,
    "stop": ["END"],
}
BODIES: dict[str, Any] = {
    "openai": CHAT,
    "openrouter": CHAT,
    "groq": CHAT,
    "mistral": {
        **{key: value for key, value in CHAT.items() if key != "seed"},
        "messages": [
            *CHAT["messages"][:3],
            {**CHAT["messages"][3], "name": "weather"},
            CHAT["messages"][4],
        ],
        "tool_choice": "any",
        "random_seed": 7,
    },
    "anthropic": {
        "model": "small",
        "max_tokens": 100,
        "system": "Be brief.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Look:"},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": "iVBORw==",
                        },
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I ask."},
                    {
                        "type": "tool_use",
                        "id": "abcdef123",
                        "name": "weather",
                        "input": {"city": "Köln"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "abcdef123", "content": "rain"}],
            },
            {"role": "user", "content": "So?"},
        ],
        "tools": [{"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any"},
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
    },
    "gemini": {
        "contents": [
            {
                "role": "user",
                "parts": [
                    {"text": "Look:"},
                    {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "I ask."},
                    {
                        "functionCall": {
                            "id": "abcdef123",
                            "name": "weather",
                            "args": {"city": "Köln"},
                        }
                    },
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "id": "abcdef123",
                            "name": "weather",
                            "response": {"output": "rain"},
                        }
                    }
                ],
            },
            {"role": "user", "parts": [{"text": "So?"}]},
        ],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "weather",
                        "description": "Tells it.",
                        "parametersJsonSchema": SCHEMA,
                    }
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {
            "maxOutputTokens": 100,
            "temperature": 0.5,
            "topP": 0.9,
            "stopSequences": ["END"],
            "seed": 7,
        },
    },
    "ollama": {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look:", "images": ["iVBORw=="]},
            {
                "role": "assistant",
                "content": "I ask.",
                "tool_calls": [
                    {
                        "id": "abcdef123",
                        "function": {"name": "weather", "arguments": {"city": "Köln"}},
                    }
                ],
            },
            {
                "role": "tool",
                "content": "rain",
                "tool_name": "weather",
                "tool_call_id": "abcdef123",
            },
            {"role": "user", "content": "So?"},
        ],
        "stream": False,
        "tools": [{"type": "function", "function": FUNCTION}],
        "options": {
            "num_predict": 100,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop": ["END"],
            "seed": 7,
        },
    },
}
STREAM_FIELDS: dict[str, Any] = {
    "openai": {"stream": True, "stream_options": {"include_usage": True}},
    "openrouter": {"stream": True},
    "groq": {"stream": True},
    "mistral": {"stream": True},
    "anthropic": {"stream": True},
    "gemini": {},
    "ollama": {"stream": True},
}
PATHS = {
    "openai": "/v1/chat/completions",
    "openrouter": "/api/v1/chat/completions",
    "groq": "/openai/v1/chat/completions",
    "mistral": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/small:generateContent",
    "ollama": "/api/chat",
}
KEYS = {
    "openai": {"authorization": "Bearer SECRET-KEY"},
    "openrouter": {"authorization": "Bearer SECRET-KEY"},
    "groq": {"authorization": "Bearer SECRET-KEY"},
    "mistral": {"authorization": "Bearer SECRET-KEY"},
    "anthropic": {"x-api-key": "SECRET-KEY", "anthropic-version": "2023-06-01"},
    "gemini": {"x-goog-api-key": "SECRET-KEY"},
    "ollama": {"authorization": "Bearer SECRET-KEY"},
}


async def test_a_full_request(kit: Any):
    """System prompt, image, tool call, result, tools and limits stand where the provider has them."""
    kit.server.add(Reply(text="x"))
    await kit.chat(FULL)
    assert kit.bodies == [BODIES[kit.name]]
    (request,) = kit.server.requests
    assert request.path == PATHS[kit.name]
    expected = {"content-type": "application/json", **KEYS[kit.name]}
    assert {name: request.header(name) for name in expected} == expected


async def test_a_full_request_for_a_stream(kit: Any):
    """A stream is asked for with the provider's own fields and nothing else is different."""
    kit.server.add(Reply(text="x"))
    await kit.events(FULL)
    assert kit.bodies == [{**BODIES[kit.name], **STREAM_FIELDS[kit.name]}]
    path = PATHS[kit.name].replace(":generateContent", ":streamGenerateContent?alt=sse")
    assert kit.server.requests[0].path == path


async def test_the_bytes_sent_are_those_that_can_be_asked_for_before(kit: Any):
    """`wire_body` gives the body byte for byte, so that a dry run can show what would be sent."""
    kit.server.add(Reply(text="x"), Reply(text="x"))
    await kit.chat(FULL)
    await kit.events(FULL)
    told = [kit.provider.wire_body(FULL), kit.provider.wire_body(FULL, stream=True)]
    assert [request.body for request in kit.server.requests] == told


SYSTEM = ChatRequest(
    model="small",
    messages=(
        Message.system("One."),
        Message.system(""),
        Message.system("Two."),
        Message.user("Hello"),
    ),
)
SLOTS: dict[str, Any] = {
    "anthropic": ("system", [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]),
    "gemini": ("systemInstruction", {"parts": [{"text": "One."}, {"text": "Two."}]}),
}


@pytest.mark.parametrize("asked", NAMES)
def test_the_system_prompt_is_in_the_providers_own_slot(asked: str):
    """System prompts are never a turn of the user."""
    body = provider(asked).body(SYSTEM, stream=False)
    if asked in SLOTS:
        slot, expected = SLOTS[asked]
        assert body[slot] == expected
        turns = body.get("messages") or body["contents"]
        assert [turn["role"] for turn in turns] == ["user"]
    else:
        roles = ["system", "system", "system", "user"]
        assert [message["role"] for message in body["messages"]] == roles


@pytest.mark.parametrize("asked", NAMES)
def test_no_tools_means_no_field_for_them(asked: str):
    """Without tools neither an empty list nor a choice is sent."""
    body = provider(asked).body(replace(HELLO, tool_choice="auto"), stream=False)
    assert {"tools", "tool_choice", "toolConfig"} & set(body) == set()


CHOICES = {
    "openai": ["auto", "none", {"type": "function", "function": {"name": "weather"}}],
    "anthropic": [{"type": "auto"}, {"type": "none"}, {"type": "tool", "name": "weather"}],
    "gemini": [
        {"functionCallingConfig": {"mode": "AUTO"}},
        {"functionCallingConfig": {"mode": "NONE"}},
        {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
    ],
}


@pytest.mark.parametrize("asked", CHOICES)
def test_which_tool_is_to_be_called(asked: str):
    """`auto`, `none` and the name of one tool, in the provider's words."""
    key = "toolConfig" if asked == "gemini" else "tool_choice"
    found = [
        provider(asked).body(replace(FULL, tool_choice=choice), stream=False)[key]
        for choice in ("auto", "none", "weather")
    ]
    assert found == CHOICES[asked]


def test_ollama_offers_no_tools_where_none_may_be_called():
    """The one choice that it can express."""
    ollama = provider("ollama")
    assert "tools" not in ollama.body(replace(FULL, tool_choice="none"), stream=False)
    assert "tools" in ollama.body(replace(FULL, tool_choice="weather"), stream=False)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "seed": 7}),
        ("gpt-5-chat-latest", {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "seed": 7}),
        ("gpt-5-mini", {"max_completion_tokens": 100, "seed": 7}),
        ("o4-mini", {"max_completion_tokens": 100, "seed": 7}),
        ("olmo", {"max_tokens": 100, "temperature": 0.5, "top_p": 0.9, "seed": 7}),
    ],
)
def test_openais_reasoning_models_get_no_sampling(model: str, expected: dict[str, Any]):
    """They refuse temperature and top_p, and have another name for the limit."""
    assert provider("openai").limits(replace(FULL, model=model)) == expected


async def test_extra_fields_are_merged_and_private_ones_stay(kit: Any):
    """Fields of the provider's own reach it, objects merged; `_capture_raw` never does."""
    kit.server.add(Reply(text="x"))
    extra = {"mine": 1, "options": {"num_ctx": 4}, "_capture_raw": True, "_other": 2}
    answer = await kit.chat(replace(FULL, extra=extra))
    body = dict(BODIES[kit.name])
    body |= {"mine": 1, "options": {**body.get("options", {}), "num_ctx": 4}}
    assert kit.bodies == [body]
    assert answer.metadata is None


async def test_a_request_that_json_cannot_say(kit: Any):
    """Nothing is sent; the error is one of configuration and does not quote the value."""
    for value in (float("nan"), {1, 2}):
        with pytest.raises(ProviderError) as caught:
            await kit.chat(replace(HELLO, extra={"mine": value}))
        assert caught.value.failure_class == "configuration"
    assert kit.server.requests == []


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for one in inner for found in strings(one)]


async def test_any_text_can_be_sent(kit: Any):
    """Line ends, quotes, emoji and lone surrogates arrive as they were."""
    text = 'a\u2028"\\\x00\N{GRINNING FACE}\ud800'
    kit.server.add(Reply(text="x"))
    await kit.chat(replace(HELLO, messages=(Message.user(text),)))
    assert strings(kit.bodies).count(text) == 1


@pytest.mark.parametrize("asked", [name for name in NAMES if name != "ollama"])
async def test_no_key_is_an_error_of_configuration(asked: str, monkeypatch: pytest.MonkeyPatch):
    """Nothing is sent without a key, and the error says which variable is looked at."""
    for name in provider(asked).key_variables:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ProviderError, match="_API_KEY") as caught:
        provider(asked).chat(HELLO)
    assert caught.value.failure_class == "configuration"
    with pytest.raises(ProviderError):
        await provider(asked).achat(HELLO)


@pytest.mark.parametrize("asked", [name for name in NAMES if name != "ollama"])
def test_the_key_in_the_environment(asked: str, monkeypatch: pytest.MonkeyPatch):
    """It is for the provider's own address alone."""
    monkeypatch.setenv(provider(asked).key_variables[0], " SECRET-KEY\n")
    headers = provider(asked).outgoing(HELLO, stream=False).headers
    assert KEYS[asked].items() <= headers.items()
    elsewhere = provider(asked, base_url="http://127.0.0.1:9").outgoing(HELLO, stream=False)
    assert "SECRET" not in repr(elsewhere)


async def test_further_headers(kit: Any):
    """Headers of the caller's own are sent and win."""
    kit.server.add(Reply(text="x"))
    async with kit.another(headers={"x-mine": "1", "content-type": "application/json; v=2"}) as one:
        await kit.chat(by=one)
    (request,) = kit.server.requests
    assert (request.header("x-mine"), request.header("content-type")) == (
        "1",
        "application/json; v=2",
    )


def test_gemini_puts_the_model_into_the_path():
    """With or without its prefix; a name cannot leave its segment."""
    gemini = provider("gemini")
    found = [
        gemini.path(replace(HELLO, model=model), stream=False)
        for model in ("gemini-2.5-pro", "models/gemini-2.5-pro", "../x?y")
    ]
    assert found == [
        "/models/gemini-2.5-pro:generateContent",
        "/models/gemini-2.5-pro:generateContent",
        "/models/..%2Fx%3Fy:generateContent",
    ]


def test_unknown_names_and_addresses():
    """Both are told at once, and which names there are."""
    with pytest.raises(ConfigurationError, match="anthropic, gemini"):
        provider("nobody")
    with pytest.raises(ConfigurationError, match="ftp://host"):
        provider("openai", base_url="ftp://host")


def test_a_key_is_not_shown():
    """Neither the representation nor an error has it."""
    assert "SECRET" not in repr(provider("openai", api_key="SECRET-KEY"))
