"""Knowing a segmented prompt again in every wire format: the map, to the byte, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew import _guard
from clew.dialects import recognise
from clew.dialects.endpoints import ACTIONS, ENDPOINTS, PARTNERS
from clew.dialects.system_text import _READERS, system_text
from clew.digests import Digests
from clew.facts import ROUND_OPERATIONS
from clew.prompts import Prompt
from clew.prompts.recognition import attributes_of, attributes_of_text

USER = {"role": "user", "content": "zq user"}
PARTS = ["Änn, ", "who\n\nsorts", " 🎈 tickets"]


class Fixed:
    """The digests of one key."""

    def __init__(self, key: bytes = b"key") -> None:
        self.digests = Digests(key)

    def get(self) -> Digests:
        return self.digests


@pytest.fixture
def prompt() -> Prompt:
    return Prompt.concat(
        Prompt.from_jinja("t", PARTS[0]),
        Prompt.of(identity_context=PARTS[1]),
        Prompt.of(x=PARTS[2]),
    )


def dialect(method_host_path: str) -> str:
    host, _, path = method_host_path.partition("/")
    route = recognise("POST", host, "/" + path)
    assert route is not None
    return route.dialect.name


def text_parts(texts: list[str], kind: str | None = "text") -> list[dict[str, Any]]:
    return [{"type": kind, "text": text} if kind else {"text": text} for text in texts]


def chat(texts: list[str]) -> list[tuple[str, Any]]:
    """Return ways in which a chat carries a system text; each body as (name, body)."""
    whole = "".join(texts)
    history = [USER, {"role": "assistant", "content": "ok"}, {"role": "system", "content": "later"}]
    return [
        ("text", {"messages": [{"role": "system", "content": whole}, *history]}),
        ("developer", {"messages": [{"role": "developer", "content": whole}, USER]}),
        ("parts", {"messages": [{"role": "system", "content": text_parts(texts)}, USER]}),
        (
            "messages",
            {"messages": [*({"role": "system", "content": text} for text in texts), *history]},
        ),
        (
            "roles",
            {
                "messages": [
                    {"role": "system", "content": texts[0]},
                    {"role": "developer", "content": text_parts(texts[1:])},
                    USER,
                ]
            },
        ),
        ("alone", {"messages": [{"content": whole, "role": "system"}]}),
    ]


def anthropic(texts: list[str]) -> list[tuple[str, Any]]:
    cached = text_parts(texts)
    cached[0]["cache_control"] = {"type": "ephemeral"}
    return [
        ("text", {"system": "".join(texts), "messages": [USER]}),
        ("last", {"messages": [USER], "system": "".join(texts)}),
        ("blocks", {"system": cached, "messages": [USER]}),
    ]


def converse(texts: list[str]) -> list[tuple[str, Any]]:
    split = text_parts(texts, None)
    return [
        ("one", {"system": text_parts(["".join(texts)], None), "messages": []}),
        ("blocks", {"system": [split[0], {"cachePoint": {"type": "default"}}, *split[1:]]}),
    ]


def gemini(texts: list[str]) -> list[tuple[str, Any]]:
    parts = text_parts(texts, None)
    contents = [{"role": "user", "parts": [{"text": "zq"}]}]
    return [
        ("parts", {"contents": contents, "systemInstruction": {"role": "user", "parts": parts}}),
        ("snake", {"system_instruction": {"parts": parts}, "contents": contents}),
        ("one part", {"systemInstruction": {"parts": {"text": "".join(texts)}}}),
        ("text", {"systemInstruction": "".join(texts)}),
    ]


def responses(texts: list[str]) -> list[tuple[str, Any]]:
    whole = "".join(texts)
    part = text_parts(texts[1:], "input_text")
    return [
        ("instructions", {"instructions": whole, "input": "zq user"}),
        ("input", {"input": [{"role": "developer", "content": whole}, USER]}),
        (
            "both",
            {"instructions": texts[0], "input": [{"role": "system", "content": part}, USER]},
        ),
        (
            "items",
            {"input": [{"type": "message", "role": "system", "content": text} for text in texts]},
        ),
    ]


def ollama(texts: list[str]) -> list[tuple[str, Any]]:
    return [*chat(texts)[:1], ("generate", {"system": "".join(texts), "prompt": "zq user"})]


def cohere_v1(texts: list[str]) -> list[tuple[str, Any]]:
    history = [{"role": "SYSTEM", "message": text} for text in texts]
    return [
        ("preamble", {"preamble": "".join(texts), "message": "zq user"}),
        ("history", {"chat_history": [*history, {"role": "USER", "message": "zq"}]}),
    ]


def invoke(texts: list[str]) -> list[tuple[str, Any]]:
    return [
        *(
            (f"anthropic {name}", {"anthropic_version": "b", **body})
            for name, body in anthropic(texts)
        ),
        *((f"nova {name}", {"inferenceConfig": {}, **body}) for name, body in converse(texts)),
        *((f"chat {name}", body) for name, body in chat(texts)),
    ]


WAYS = {
    "openai_chat": ("api.openai.com/v1/chat/completions", chat),
    "openai_responses": ("api.openai.com/v1/responses", responses),
    "anthropic_messages": ("api.anthropic.com/v1/messages", anthropic),
    "gemini_content": (
        "generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent",
        gemini,
    ),
    "gemini_interactions": (
        "generativelanguage.googleapis.com/v1beta/interactions",
        lambda texts: [("text", {"system_instruction": "".join(texts), "input": "zq user"})],
    ),
    "ollama": ("localhost:11434/api/chat", ollama),
    "cohere_chat": ("api.cohere.com/v2/chat", chat),
    "cohere_chat_v1": ("api.cohere.com/v1/chat", cohere_v1),
    "bedrock_converse": ("bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse", converse),
    "bedrock_invoke": ("bedrock-runtime.eu-west-1.amazonaws.com/model/m/invoke", invoke),
    "sagemaker": ("runtime.sagemaker.eu-west-1.amazonaws.com/endpoints/e/invocations", chat),
    "replicate_prediction": (
        "api.replicate.com/v1/models/meta/llama/predictions",
        lambda texts: [("text", {"input": {"system_prompt": "".join(texts), "prompt": "zq"}})],
    ),
}
CASES = [
    pytest.param(name, index, id=f"{name}-{way.replace(' ', '-')}")
    for name, (_, ways) in WAYS.items()
    for index, (way, _) in enumerate(ways(PARTS))
]


def body_of(name: str, index: int, texts: list[str], *, escaped: bool = True) -> bytes:
    return json.dumps(
        {"model": "m", **WAYS[name][1](texts)[index][1]}, ensure_ascii=escaped
    ).encode()


def test_every_format_with_a_system_text_is_here():
    """The table has every reader, and each is reached by its endpoint's path."""
    assert set(WAYS) == set(_READERS)
    assert {name: dialect(address) for name, (address, _) in WAYS.items()} == {
        name: name for name in WAYS
    }


def test_formats_without_a_system_text_are_known():
    """A dialect that makes rounds is in the table, or takes one text and nothing beside it."""
    rounds = {
        each.dialect.name
        for endpoints in ENDPOINTS.values()
        for each in endpoints
        if each.operation in ROUND_OPERATIONS
    }
    rounds |= {each.dialect.name for each in ACTIONS.values() if each.operation in ROUND_OPERATIONS}
    rounds |= {each.name for each in PARTNERS.values()}
    assert rounds - set(WAYS) == {
        "aleph_alpha_complete",
        "anthropic_complete",
        "cohere_generate",
        "llama_cpp_completion",
        "openai_completions",
        "text_generation_inference",
        "watsonx_generation",
        "writer_completion",
    }


@pytest.mark.parametrize("escaped", [True, False], ids=["ascii", "utf8"])
@pytest.mark.parametrize(("name", "index"), CASES)
def test_the_prompt_is_known_again(prompt, name, index, escaped):
    """As one text or cut into parts anywhere, the system text has the prompt's blocks."""
    body = body_of(name, index, PARTS, escaped=escaped)
    found = attributes_of(name, body, Fixed())
    assert found == {
        **attributes_of_text(prompt, Fixed()),
        "clew.prompt.mapped": True,
        "clew.prompt.bytes": len(prompt.encode()),
        "clew.prompt.block.ids": ("template:t", "identity_context", "x"),
        "clew.prompt.block.bytes": tuple(len(part.encode()) for part in PARTS),
        "clew.prompt.block.digests": tuple(Digests(b"key").of(part) for part in PARTS),
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda texts: [*texts[:-1], texts[-1] + "."],
        lambda texts: ["." + texts[0], *texts[1:]],
        lambda texts: [texts[0], texts[1].replace("who", "whu"), texts[2]],
        lambda texts: [texts[1], texts[0], texts[2]],
        lambda texts: [texts[0], texts[1], texts[2].rstrip() + " "],
        lambda texts: [texts[0], " ", *texts[1:]],
    ],
    ids=["more behind", "more before", "same length", "other order", "blank behind", "between"],
)
@pytest.mark.parametrize(("name", "index"), CASES)
def test_another_text_is_unmapped(prompt, name, index, change):
    """A text that is not the prompt's to the byte has its own digest and size, and no block."""
    changed = change(PARTS)
    if "".join(changed) == prompt or len(changed) > 3:
        changed = ["".join(changed), "x", "y"]
    text = "".join(changed)
    assert attributes_of(name, body_of(name, index, changed), Fixed()) == {
        "clew.prompt.mapped": False,
        "clew.prompt.digest": Digests(b"key").of(text),
        "clew.prompt.bytes": len(text.encode()),
        "clew.digest.key_id": Digests(b"key").key_id,
    }


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": [USER]},
        {"messages": []},
        {"messages": None, "system": None, "input": None, "systemInstruction": None},
        {"system": "", "instructions": "", "preamble": "", "system_instruction": ""},
        {"system": [], "messages": [{"role": "system", "content": ""}], "input": []},
        {"system": [{"type": "image"}], "messages": [{"role": "system", "content": None}]},
        {"system": 5, "messages": 5, "input": 5, "systemInstruction": 5, "preamble": 5},
        {"system": {"x": 1}, "messages": {"x": 1}, "systemInstruction": {"parts": 5}},
        {"messages": [5, "x", None, {"role": 5, "content": 5}], "chat_history": [5]},
        [],
        "text",
        None,
    ],
    ids=str,
)
def test_a_request_without_system_text_says_nothing(prompt, name, body):
    """No system text, or something else in its place: no attribute at all, and no fault."""
    assert attributes_of(name, json.dumps(body).encode(), Fixed()) == {}
    assert dict(_guard.failures) == {}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"messages":[{"role":"system"', b"\xff\xfe", b"null"]
)
def test_bytes_that_cannot_be_read(prompt, name, body):
    """Whatever the bytes are, there is an answer and no exception."""
    assert attributes_of(name, body, Fixed()) == {}
    assert dict(_guard.failures) == {}


def test_a_user_who_sends_the_prompt_is_not_the_system(prompt):
    """The text counts in the system's place only, and only at the beginning."""
    for body in (
        {"messages": [{"role": "user", "content": prompt}]},
        {"messages": [USER, {"role": "system", "content": prompt}]},
        {"messages": [{"role": "tool", "content": prompt}]},
    ):
        assert system_text("openai_chat", json.dumps(body).encode()) is None


def test_an_image_beside_the_text(prompt):
    """Parts that are no text are no part of the system text."""
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    content = [*text_parts(PARTS), image]
    body = {"messages": [{"role": "system", "content": content}, USER]}
    assert system_text("openai_chat", json.dumps(body).encode()) == prompt


@pytest.mark.parametrize("odd", ['"x\\ud800"', "5", '[{"text": 5}]', '{"text": "x"}'])
def test_half_a_system_text_is_none(prompt, odd):
    """Where a part of it cannot be read, the rest does not pass for the whole."""
    text = json.dumps(prompt)
    for name, body in (
        (
            "openai_chat",
            '{"messages":[{"role":"system","content":%s},{"role":"system","content":%s}]}',
        ),
        (
            "openai_responses",
            '{"instructions":%s,"input":[{"role":"system","content":%s}]}',
        ),
    ):
        assert attributes_of(name, (body % (odd, text)).encode(), Fixed()) == {}


def test_digests_of_another_key(prompt):
    """The look-up does not depend on the key; what leaves does."""
    body = body_of("openai_chat", 0, PARTS)
    one = attributes_of("openai_chat", body, Fixed(b"one"))
    two = attributes_of("openai_chat", body, Fixed(b"two"))
    assert one["clew.prompt.block.ids"] == two["clew.prompt.block.ids"]
    assert one["clew.prompt.digest"] != two["clew.prompt.digest"]
    assert one["clew.digest.key_id"] != two["clew.digest.key_id"]
