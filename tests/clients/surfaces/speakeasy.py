"""mistralai and openrouter, whose clients come from one generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pydantic
from mistralai.client import Mistral
from openrouter import OpenRouter

from clew.testing import MistralChatCompletions, ScriptedProvider
from surfaces.base import AGENTS, ASK, JOBS, SOCKETS, VERDICTS, Surface, below

_SKIP = {"parent_ref", "do_request", "do_request_async", "dynamic_import", "sdk_configuration"}
_FILE = {"file_name": "a.wav", "content": b"zqmark"}


class Answer(pydantic.BaseModel):
    """A format that an answer is asked for in."""

    text: str


def _names(client: Any, asynchronous: bool) -> Iterator[str]:
    found = below(client, packages=("mistralai", "openrouter"), skip=_SKIP)
    return iter(sorted(set(found)))


def _mistral(server: ScriptedProvider, asynchronous: bool) -> Any:
    return Mistral(api_key="key", server_url=server.base_url, timeout_ms=5000)


def _openrouter(server: ScriptedProvider, asynchronous: bool) -> Any:
    return OpenRouter(api_key="key", server_url=f"{server.base_url}/api/v1", timeout_ms=5000)


class _Speakeasy(Surface):
    def method(self, client: Any, name: str, asynchronous: bool) -> Any:
        found = client
        *inner, last = name.split(".")
        for part in inner:
            found = getattr(found, part)
        return getattr(found, f"{last}_async" if asynchronous else last)


MISTRAL = _Speakeasy(
    sdk="mistralai",
    client=_mistral,
    names=_names,
    listened={
        "agents.complete": ("chat", {"agent_id": "a", "messages": ASK}),
        "agents.stream": ("chat", {"agent_id": "a", "messages": ASK}),
        "audio.speech.complete": ("speech", {"model": "m", "input": "zqmark"}),
        "audio.transcriptions.complete": ("transcription", {"model": "m", "file": _FILE}),
        "audio.transcriptions.stream": ("transcription", {"model": "m", "file": _FILE}),
        "chat.complete": ("chat", {"model": "m", "messages": ASK}),
        "chat.parse": ("chat", {"model": "m", "messages": ASK, "response_format": Answer}),
        "chat.parse_stream": ("chat", {"model": "m", "messages": ASK, "response_format": Answer}),
        "chat.stream": ("chat", {"model": "m", "messages": ASK}),
        "classifiers.moderate": ("moderation", {"model": "m", "inputs": "zqmark"}),
        "classifiers.moderate_chat": ("moderation", {"model": "m", "inputs": ASK}),
        "embeddings.create": ("embeddings", {"model": "m", "inputs": "zqmark"}),
        "fim.complete": ("text_completion", {"model": "m", "prompt": "zqmark"}),
        "fim.stream": ("text_completion", {"model": "m", "prompt": "zqmark"}),
        "ocr.process": (
            "ocr",
            {
                "model": "m",
                "document": {"type": "document_url", "document_url": "http://zqmark"},
            },
        ),
        "responses.count_input_tokens": ("count_tokens", {"model": "m", "input": "zqmark"}),
        "responses.create": ("chat", {"model": "m", "input": "zqmark"}),
    },
    unheard={
        SOCKETS: ("audio.realtime", "audio.realtime_speech"),
        AGENTS: (
            "beta.conversations",
            "beta.triggers",
            "workflows",
        ),
        JOBS: ("batch.jobs",),
        VERDICTS: ("classifiers.classify", "classifiers.classify_chat"),
    },
    no_model=(
        "audio.agents",
        "audio.sessions",
        "audio.voices",
        "beta.agents",
        "beta.connectors",
        "beta.context",
        "beta.libraries",
        "beta.observability",
        "beta.prompts",
        "beta.rag",
        "beta.service_accounts",
        "beta.skills",
        "beta.users",
        "beta.webhooks",
        "events",
        "files",
        "models",
        "realtime.sessions",
    ),
    provider="mistral_ai",
    formats=(MistralChatCompletions(),),
)
OPENROUTER = _Speakeasy(
    sdk="openrouter",
    client=_openrouter,
    names=_names,
    listened={
        "beta.responses.send": ("chat", {"model": "m", "input": "zqmark"}),
        "chat.send": ("chat", {"model": "m", "messages": ASK}),
        "embeddings.generate": ("embeddings", {"model": "m", "input": "zqmark"}),
        "images.generate": ("image_generation", {"model": "m", "prompt": "zqmark"}),
        "rerank.rerank": ("rerank", {"model": "m", "query": "zqmark", "documents": ["a"]}),
        "responses.send": ("chat", {"model": "m", "input": "zqmark"}),
        "stt.create_transcription": (
            "transcription",
            {"model": "m", "input_audio": {"data": "enE=", "format": "wav"}},
        ),
        "stt.create_transcription_multipart": ("transcription", {"model": "m", "file": _FILE}),
        "tts.create_speech": ("speech", {"model": "m", "input": "zqmark", "voice": "v"}),
    },
    unheard={
        JOBS: ("batch", "video_generation"),
        VERDICTS: ("alpha.decisions", "system_one"),
    },
    no_model=(
        "analytics",
        "api_keys",
        "benchmarks",
        "byok",
        "classifications",
        "containers",
        "credits",
        "datasets",
        "embeddings.list_models",
        "endpoints",
        "external_users",
        "files",
        "generations",
        "guardrails",
        "images.list_model_endpoints",
        "images.list_models",
        "models",
        "o_auth",
        "observability",
        "organization",
        "presets",
        "private_endpoints",
        "providers",
        "scim",
        "tools",
        "vault",
        "workspaces",
    ),
    provider="openrouter",
)
