"""openai, anthropic and groq, whose clients come from one generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import groq
import httpx
import httpx2
import openai

from clew.testing import ScriptedProvider
from surfaces.base import AGENTS, ASK, AUDIO, IMAGE, JOBS, SOCKETS, VERDICTS, Surface


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


def _names(client: Any, asynchronous: bool) -> Iterator[str]:
    return methods(client)


def _openai(server: ScriptedProvider, asynchronous: bool) -> Any:
    kind = openai.AsyncOpenAI if asynchronous else openai.OpenAI
    timeout = httpx2.Timeout(5)
    return kind(api_key="key", base_url=server.openai_base_url, max_retries=0, timeout=timeout)


def _anthropic(server: ScriptedProvider, asynchronous: bool) -> Any:
    kind = anthropic.AsyncAnthropic if asynchronous else anthropic.Anthropic
    return kind(api_key="key", base_url=server.base_url, max_retries=0, timeout=httpx2.Timeout(5))


def _groq(server: ScriptedProvider, asynchronous: bool) -> Any:
    kind = groq.AsyncGroq if asynchronous else groq.Groq
    return kind(api_key="key", base_url=server.base_url, max_retries=0, timeout=httpx.Timeout(5))


OPENAI = Surface(
    sdk="openai",
    client=_openai,
    names=_names,
    listened={
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
    unheard={
        SOCKETS: (
            "beta.realtime",
            "beta.responses.connect",
            "live",
            "realtime",
            "responses.connect",
        ),
        AGENTS: (
            "beta.agents",
            "beta.assistants",
            "beta.chatkit",
            "beta.threads",
        ),
        JOBS: (
            "batches",
            "evals",
            "fine_tuning",
            "videos",
        ),
        VERDICTS: (
            "content_provenance_checks",
            "decisions",
        ),
    },
    no_model=(
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
)
ANTHROPIC = Surface(
    sdk="anthropic",
    client=_anthropic,
    names=_names,
    listened={
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
    unheard={
        "a conversation object; its turns go through `beta.messages.create`": (
            "beta.messages.thread",
        ),
        AGENTS: (
            "beta.agents",
            "beta.deployment_runs",
            "beta.deployments",
            "beta.dreams",
            "beta.environments",
            "beta.sessions",
        ),
        JOBS: (
            "beta.messages.batches",
            "messages.batches",
        ),
    },
    no_model=(
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
)
GROQ = Surface(
    sdk="groq",
    client=_groq,
    names=_names,
    listened={
        "audio.speech.create": ("speech", {"input": "zqmark", "model": "m", "voice": "v"}),
        "audio.transcriptions.create": ("transcription", {"file": AUDIO, "model": "m"}),
        "audio.translations.create": ("transcription", {"file": AUDIO, "model": "m"}),
        "chat.completions.create": ("chat", {"messages": ASK, "model": "m"}),
        "embeddings.create": ("embeddings", {"input": "zqmark", "model": "m"}),
    },
    unheard={JOBS: ("batches",)},
    no_model=("files", "models"),
)
