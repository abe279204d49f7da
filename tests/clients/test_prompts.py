"""A segmented prompt through every SDK: sent as the text that it is, and known again."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest
from kits import genai as genai_kit
from kits.base import MARK
from kits.comparing import plain, streamed

import clew
from clew import _guard
from clew.prompts import Prompt, registry
from clew.testing import captured

PLACE = f"{MARK} system"
BLOCKS = ("template:support", "identity_context", "template:support", "working_memory")


def segmented() -> Prompt:
    return Prompt.from_jinja(
        "support",
        'You help.\n\n{{ identity_context }} "quoted" \\ \u2028\n',
        sections={"identity_context": f"{MARK} Änn 🎈"},
    ).append_section("working_memory", "what was said\tbefore")


def put(value: Any, prompt: str) -> Any:
    """Return a request with a prompt in the place of the kits' system text."""
    if isinstance(value, bytes):
        return value.replace(json.dumps(PLACE).encode(), json.dumps(prompt).encode())
    if isinstance(value, dict):
        return {key: put(each, prompt) for key, each in value.items()}
    if isinstance(value, list):
        return [put(each, prompt) for each in value]
    return prompt if value == PLACE else value


def give(kit: Any, prompt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a kit's requests have a prompt as their system text."""
    if isinstance(kit, genai_kit.Genai):
        config = genai_kit._config()
        config.system_instruction = prompt
        monkeypatch.setattr(genai_kit, "_config", lambda: config)
        return
    original = type(kit).arguments
    monkeypatch.setattr(
        type(kit), "arguments", lambda self, **more: put(original(self, **more), prompt)
    )


async def sends_the_text(kit: Any, compare: Any, scenario: Any) -> None:
    """Make a call with plain text and with a prompt: equal on the wire, and the round has blocks."""
    with pytest.MonkeyPatch.context() as patch:
        give(kit, segmented().text, patch)
        registry.forget()
        as_text = await compare(scenario)
    with pytest.MonkeyPatch.context() as patch:
        prompt = segmented()
        give(kit, prompt, patch)
        as_prompt = await compare(scenario)
    assert as_prompt.error is None
    assert as_prompt.requests == as_text.requests
    assert [key for key in as_text.round.attributes if key.startswith("clew.prompt.")] == []
    told = as_prompt.round.attributes
    assert told["clew.prompt.mapped"] is True
    assert told["clew.prompt.block.ids"] == BLOCKS
    assert told["clew.prompt.bytes"] == len(prompt.encode()) == sum(told["clew.prompt.block.bytes"])
    assert len(set(told["clew.prompt.block.digests"])) == 4
    assert dict(_guard.failures) == {}


@pytest.mark.kits("stainless")
@pytest.mark.parametrize("scenario", [plain, streamed])
async def test_a_prompt_through_openai_and_anthropic(kit: Any, compare: Any, scenario: Any):
    """What is sent and what comes back are as with plain text; the round has the block map."""
    await sends_the_text(kit, compare, scenario)


@pytest.mark.kits("sdks")
@pytest.mark.parametrize("scenario", [plain, streamed])
async def test_a_prompt_through_the_other_sdks(kit: Any, compare: Any, scenario: Any):
    """The same for each of the others."""
    await sends_the_text(kit, compare, scenario)


def split(texts: list[str]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.kits("stainless")
@pytest.mark.parametrize(
    ("pieces", "mapped"), [((20, 31), True), ((0, 5), True), ((20, 20), True), (None, False)]
)
async def test_a_prompt_in_parts(kit: Any, compare: Any, pieces: Any, mapped: bool):
    """Cut into parts it is known again; with a part behind it, it is not."""
    prompt = segmented()
    if pieces is None:
        texts = [prompt.text, "and more"]
    else:
        texts = [prompt[: pieces[0]], prompt[pieces[0] : pieces[1]], prompt[pieces[1] :]]
    parts = split([text for text in texts if text])
    with pytest.MonkeyPatch.context() as patch:
        give(kit, parts, patch)  # type: ignore[arg-type]
        found = await compare(plain)
    assert found.told("clew.prompt.mapped", "clew.prompt.block.ids") == {
        "clew.prompt.mapped": mapped,
        **({"clew.prompt.block.ids": BLOCKS} if mapped else {}),
    }


ANSWER = {
    "id": "resp_1",
    "object": "response",
    "created_at": 0,
    "model": "gpt-5-mini",
    "status": "completed",
    "output": [],
    "tool_choice": "auto",
    "tools": [],
    "parallel_tool_calls": True,
}


def respond(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, json=ANSWER)


@pytest.mark.parametrize(
    ("arguments", "mapped"),
    [
        (lambda prompt: {"instructions": prompt, "input": "hello"}, True),
        (lambda prompt: {"input": [{"role": "developer", "content": prompt}]}, True),
        (
            lambda prompt: {
                "instructions": prompt,
                "input": [
                    {"role": "developer", "content": "more"},
                    {"role": "user", "content": "x"},
                ],
            },
            False,
        ),
        (lambda prompt: {"instructions": prompt + " ", "input": "hello"}, False),
        (lambda prompt: {"input": prompt}, None),
    ],
    ids=["instructions", "developer", "more behind", "blank behind", "as the user"],
)
def test_a_prompt_through_responses(arguments: Any, mapped: bool | None):
    """The responses API: instructions, then the developer messages that the input begins with."""
    client = openai.OpenAI(
        api_key="key", http_client=httpx2.Client(transport=httpx2.MockTransport(respond))
    )
    with captured() as exported:
        clew.instrument()
        client.responses.create(model="gpt-5-mini", **arguments(segmented()))
    (told,) = [span.attributes for span in exported.spans if "clew.attempts" in span.attributes]
    assert told.get("clew.prompt.mapped") is mapped
    assert ("clew.prompt.block.ids" in told) is bool(mapped)
