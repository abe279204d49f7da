"""Which methods of the SDKs are listened to: every one stands in a list, and a new one is noticed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from clew.testing import Reply, ScriptedProvider, captured

ASK = [{"role": "user", "content": "zqmark"}]
AUDIO = ("a.wav", b"zqmark", "audio/wav")
IMAGE = ("a.png", b"zqmark", "image/png")


LISTENED: dict[str, dict[str, tuple[str, dict[str, Any]]]] = {
    "openai": {
        "audio.speech.create": ("speech", {"input": "zqmark", "model": "m", "voice": "v"}),
        "audio.transcriptions.create": ("transcription", {"file": AUDIO, "model": "m"}),
        "audio.translations.create": ("transcription", {"file": AUDIO, "model": "m"}),
        "beta.chat.completions.create": ("chat", {"messages": ASK, "model": "m"}),
        "beta.chat.completions.parse": ("chat", {"messages": ASK, "model": "m"}),
        "beta.chat.completions.stream": ("chat", {"messages": ASK, "model": "m"}),
        "beta.responses.compact": ("compaction", {"input": "zqmark", "model": "m"}),
        "beta.responses.create": ("chat", {"input": "zqmark", "model": "m"}),
        "beta.responses.input_tokens.count": ("count_tokens", {"input": "zqmark", "model": "m"}),
        "chat.completions.create": ("chat", {"messages": ASK, "model": "m"}),
        "chat.completions.parse": ("chat", {"messages": ASK, "model": "m"}),
        "chat.completions.stream": ("chat", {"messages": ASK, "model": "m"}),
        "completions.create": ("text_completion", {"model": "m", "prompt": "zqmark"}),
        "embeddings.create": ("embeddings", {"input": "zqmark", "model": "m"}),
        "images.create_variation": ("image_generation", {"image": IMAGE}),
        "images.edit": ("image_generation", {"image": IMAGE, "prompt": "zqmark"}),
        "images.generate": ("image_generation", {"prompt": "zqmark", "model": "m"}),
        "moderations.create": ("moderation", {"input": "zqmark", "model": "m"}),
        "responses.compact": ("compaction", {"input": "zqmark", "model": "m"}),
        "responses.create": ("chat", {"input": "zqmark", "model": "m"}),
        "responses.input_tokens.count": ("count_tokens", {"input": "zqmark", "model": "m"}),
        "responses.parse": ("chat", {"input": "zqmark", "model": "m"}),
        "responses.stream": ("chat", {"input": "zqmark", "model": "m"}),
    },
    "anthropic": {
        "beta.messages.count_tokens": ("count_tokens", {"messages": ASK, "model": "m"}),
        "beta.messages.create": ("chat", {"max_tokens": 5, "messages": ASK, "model": "m"}),
        "beta.messages.parse": ("chat", {"max_tokens": 5, "messages": ASK, "model": "m"}),
        "beta.messages.stream": ("chat", {"max_tokens": 5, "messages": ASK, "model": "m"}),
        "beta.messages.tool_runner": (
            "chat",
            {"max_tokens": 5, "messages": ASK, "model": "m", "tools": []},
        ),
        "messages.count_tokens": ("count_tokens", {"messages": ASK, "model": "m"}),
        "messages.create": ("chat", {"max_tokens": 5, "messages": ASK, "model": "m"}),
        "messages.parse": ("chat", {"max_tokens": 5, "messages": ASK, "model": "m"}),
        "messages.stream": ("chat", {"max_tokens": 5, "messages": ASK, "model": "m"}),
    },
}
"""Methods that make one model call: the operation of its span, and what the call needs."""

UNHEARD: dict[str, dict[str, tuple[str, ...]]] = {
    "openai": {
        "web sockets: one connection carries a conversation, no request is a call": (
            "beta.realtime",
            "beta.responses.connect",
            "live",
            "realtime",
            "responses.connect",
        ),
        "the provider runs the agent; its model calls are not on this wire": (
            "beta.agents",
            "beta.assistants",
            "beta.chatkit",
            "beta.threads",
        ),
        "jobs whose results come later and elsewhere": (
            "batches",
            "evals",
            "fine_tuning",
            "videos",
        ),
        "verdicts about an input, in a format of their own": (
            "content_provenance_checks",
            "decisions",
        ),
    },
    "anthropic": {
        "a conversation object; its turns go through `beta.messages.create`": (
            "beta.messages.thread",
        ),
        "the provider runs the agent; its model calls are not on this wire": (
            "beta.agents",
            "beta.deployment_runs",
            "beta.deployments",
            "beta.dreams",
            "beta.environments",
            "beta.sessions",
        ),
        "jobs whose results come later and elsewhere": (
            "beta.messages.batches",
            "messages.batches",
        ),
    },
}
"""What reaches a model and is not listened to, by the reason."""

NO_MODEL = {
    "openai": (
        "admin",
        "audio.voice_consents",
        "audio.voices",
        "beta.chat.completions.delete",
        "beta.chat.completions.list",
        "beta.chat.completions.messages",
        "beta.chat.completions.retrieve",
        "beta.chat.completions.update",
        "beta.responses.cancel",
        "beta.responses.delete",
        "beta.responses.input_items",
        "beta.responses.retrieve",
        "chat.completions.delete",
        "chat.completions.list",
        "chat.completions.messages",
        "chat.completions.retrieve",
        "chat.completions.update",
        "containers",
        "conversations",
        "files",
        "models",
        "responses.cancel",
        "responses.delete",
        "responses.input_items",
        "responses.retrieve",
        "safety",
        "skills",
        "uploads",
        "vector_stores",
        "webhooks",
    ),
    "anthropic": (
        "beta.compliance",
        "beta.files",
        "beta.memory_stores",
        "beta.models",
        "beta.organization",
        "beta.skills",
        "beta.tunnels",
        "beta.user_profiles",
        "beta.vaults",
        "beta.webhooks",
        "files",
        "models",
        "organization",
        "skills",
        "user_profiles",
    ),
}
"""What keeps, lists or administers things."""

CLIENTS = {
    "openai": (openai.OpenAI, openai.AsyncOpenAI),
    "anthropic": (anthropic.Anthropic, anthropic.AsyncAnthropic),
}


def methods(resource: Any, prefix: str = "") -> Iterator[str]:
    """Give the dotted names of every public method below a client."""
    for name in sorted(dir(type(resource))):
        if name.startswith(("_", "with_")):
            continue
        inner = getattr(resource, name)
        if any(base.__name__.endswith("APIResource") for base in type(inner).__mro__):
            yield from methods(inner, f"{prefix}{name}.")
        elif prefix and callable(inner):
            yield prefix + name


def stands_in(name: str, lists: tuple[str, ...]) -> bool:
    return any(name == entry or name.startswith(f"{entry}.") for entry in lists)


@pytest.mark.parametrize("sdk", CLIENTS)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_every_method_stands_in_a_list(sdk: str, asynchronous: bool):
    """A method of a newer SDK that nobody has looked at yet fails here."""
    client = CLIENTS[sdk][asynchronous](api_key="key")
    found = set(methods(client))
    closing = client.close()
    if asynchronous:
        await closing
    unheard = tuple(name for names in UNHEARD[sdk].values() for name in names)
    known = unheard + NO_MODEL[sdk]
    assert [name for name in sorted(found - set(LISTENED[sdk])) if not stands_in(name, known)] == []
    assert set(LISTENED[sdk]) - found == set()
    assert [name for name in LISTENED[sdk] if stands_in(name, known)] == []


def cases() -> list[tuple[str, str]]:
    return [(sdk, name) for sdk, listened in LISTENED.items() for name in listened]


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # the SDKs' own, of old calls
@pytest.mark.parametrize(("sdk", "name"), cases())
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_each_call_is_one_span(sdk: str, name: str, asynchronous: bool):
    """The method gives one span of its operation, whatever the server makes of the call."""
    operation, arguments = LISTENED[sdk][name]
    reply = Reply(text='{"city": "zqmark"}')
    with ScriptedProvider(lambda _: reply) as server, captured() as exporter:
        base_url = server.openai_base_url if sdk == "openai" else server.base_url
        client = CLIENTS[sdk][asynchronous](
            api_key="key", base_url=base_url, max_retries=0, timeout=httpx2.Timeout(5)
        )
        # The scripted provider does not know every path: a 404 is an answer, too.
        with contextlib.suppress(openai.APIError, anthropic.APIError):
            await call(client, name, arguments, asynchronous=asynchronous)
        closing = client.close()
        if asynchronous:
            await closing
        rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
        assert b"zqmark" not in exporter.otlp_bytes()
    assert [span.attributes["gen_ai.operation.name"] for span in rounds] == [operation]


async def call(client: Any, name: str, arguments: dict[str, Any], *, asynchronous: bool) -> None:
    """Make a call and read what it gives."""
    method = client
    for part in name.split("."):
        method = getattr(method, part)
    result = method(**arguments)
    if name.endswith(".stream"):
        if asynchronous:
            async with result as stream:
                _ = [event async for event in stream]
        else:
            with result as stream:
                _ = list(stream)
    elif name.endswith(".tool_runner"):
        answer = result.until_done()
        if asynchronous:
            await answer
    elif asynchronous:
        await result
