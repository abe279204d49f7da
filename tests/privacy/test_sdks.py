"""The leak suite over the other SDKs: good answers, refusals, and answers that they cannot read."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from formats import FORMATS
from marks import mark, odd
from openai_formats import OPENAI_CHAT
from surroundings import Answers, watched
from wire_format import Format

import clew

MESSAGES = [
    {"role": "system", "content": mark("system")},
    {"role": "user", "content": mark("prompt")},
]
TOOLS = OPENAI_CHAT["tools"]


def groq(url: str) -> None:
    module = pytest.importorskip("groq")
    with module.Groq(api_key=mark("key"), base_url=url, max_retries=0) as client:
        client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS, user=mark("u"))


def ollama(url: str) -> None:
    module = pytest.importorskip("ollama")
    client = module.Client(host=url, headers={"x-h": mark("header")})
    try:
        client.chat(model="m", messages=MESSAGES)
    finally:
        client._client.close()


def cohere(url: str) -> None:
    module = pytest.importorskip("cohere")
    import httpx

    with httpx.Client() as http:
        client = module.ClientV2(mark("key"), base_url=url, httpx_client=http, max_retries=0)
        client.chat(model="m", messages=MESSAGES, documents=[mark("document")])


def genai(url: str) -> None:
    module = pytest.importorskip("google.genai")
    client = module.Client(api_key=mark("key"), http_options={"base_url": url})
    try:
        config = {"system_instruction": mark("system"), "stop_sequences": [mark("stop")]}
        client.models.generate_content(model="m", contents=mark("prompt"), config=config)
    finally:
        client.close()


def mistral(url: str) -> None:
    pytest.importorskip("mistralai")
    from mistralai.client import Mistral

    with Mistral(api_key=mark("key"), server_url=url) as client:
        client.chat.complete(model="m", messages=MESSAGES, tools=TOOLS)


def bedrock(url: str) -> None:
    module = pytest.importorskip("boto3")
    config = pytest.importorskip("botocore.config").Config(retries={"total_max_attempts": 1})
    client = module.client(
        "bedrock-runtime",
        region_name="eu-west-1",
        aws_access_key_id=mark("id"),
        aws_secret_access_key=mark("key"),
        endpoint_url=url,
        config=config,
    )
    try:
        messages = [{"role": "user", "content": [{"text": mark("prompt")}]}]
        client.converse(modelId="m", messages=messages, system=[{"text": mark("system")}])
    finally:
        client.close()


SDKS: dict[str, tuple[Callable[[str], None], str]] = {
    "groq": (groq, "openai_chat"),
    "ollama": (ollama, "ollama"),
    "cohere": (cohere, "cohere_chat"),
    "google-genai": (genai, "gemini_content"),
    "mistralai": (mistral, "openai_chat"),
    "boto3": (bedrock, "bedrock_converse"),
}


def answers_of(one: Format) -> list[tuple[int, bytes]]:
    """Return a good answer, a refusal, and answers in which the SDK finds the wrong types."""
    good = json.dumps(one.answer).encode()
    return [
        (200, good),
        (400, json.dumps(one.error()).encode()),
        (200, json.dumps(dict.fromkeys(one.answer, odd("wrong-type"))).encode()),
        (200, mark("no-json").encode()),
    ]


@pytest.mark.parametrize("level", ["none", "metadata"])
@pytest.mark.parametrize("name", SDKS)
def test_no_other_sdk_leaks(
    name: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their exceptions quote bodies and values; what is exported has types and codes alone."""
    call, format_name = SDKS[name]
    one = next(each for each in FORMATS if each.name == format_name)
    answers = answers_of(one)
    with Answers() as server, watched(tmp_path / "d", monkeypatch, capture=level) as everything:
        for status, body in answers:
            server.status, server.pieces = status, [body]
            with contextlib.suppress(ValueError), clew.run("leak-test"):
                try:
                    call(server.base_url)
                except Exception as error:
                    raise ValueError(str(error)) from error
    assert {} == everything.found()
    runs = {span.trace_id for span in everything.spans if span.kind == 3}
    assert len(answers) == len(runs)
    assert len(answers) <= len(server.requests)
