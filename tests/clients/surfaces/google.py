"""google-genai: the Gemini API, and what only Vertex AI has."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from google import genai
from google.auth import credentials
from google.genai import types

from clew.testing import ScriptedProvider
from surfaces.base import AGENTS, JOBS, SOCKETS, VERDICTS, Surface, below

_SKIP = {"aio", "aclose", "close", "parent_ref", "do_request", "do_request_async",
         "dynamic_import", "sdk_configuration", "auth_tokens"}  # fmt: skip
_IMAGES = "images by `predict`, which reports no tokens"


def _names(client: Any, asynchronous: bool) -> Iterator[str]:
    root = client.aio if asynchronous else client
    with warnings.catch_warnings():
        # Parts of it say that they are experimental when they are looked at.
        warnings.simplefilter("ignore")
        yield from below(root, packages=("google.genai",), skip=_SKIP)
        yield from below(
            root.chats.create(model="m"), "chat.", packages=("google.genai",), skip=_SKIP
        )


def _client(server: ScriptedProvider, asynchronous: bool) -> Any:
    options = types.HttpOptions(base_url=server.base_url, timeout=5000)
    return genai.Client(api_key="key", http_options=options)


class Credentials(credentials.Credentials):
    """Credentials that need nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.token = "token"

    def refresh(self, request: Any) -> None:
        """Do nothing."""


def _vertex(server: ScriptedProvider, asynchronous: bool) -> Any:
    options = types.HttpOptions(base_url=server.base_url, timeout=5000)
    return genai.Client(
        vertexai=True, project="p", location="l", credentials=Credentials(), http_options=options
    )


_UNHEARD = {
    SOCKETS: ("live", "interactions.connect"),
    AGENTS: ("agents", "environments", "triggers"),
    JOBS: ("batches", "models.generate_videos", "tunings"),
    VERDICTS: ("decisions",),
    _IMAGES: (
        "models.edit_image",
        "models.generate_images",
        "models.recontext_image",
        "models.segment_image",
        "models.upscale_image",
    ),
}
_NO_MODEL = (
    "caches.delete",
    "caches.get",
    "caches.list",
    "caches.update",
    "chat.get_history",
    "chat.record_history",
    "chats.create",
    "credentials",
    "file_search_stores",
    "files",
    "interactions.auth_tokens",
    "interactions.cancel",
    "interactions.delete",
    "interactions.get",
    "models.compute_tokens",
    "models.delete",
    "models.get",
    "models.list",
    "models.update",
    "operations",
    "voices",
    "webhooks",
)
_ASK = {"model": "m", "contents": "zqmark"}
_LISTENED: dict[str, tuple[str, dict[str, Any]]] = {
    "caches.create": ("create_cache", {"model": "m"}),
    "chat.send_message": ("generate_content", {"message": "zqmark"}),
    "chat.send_message_stream": ("generate_content", {"message": "zqmark"}),
    "interactions.create": ("chat", {"model": "m", "input": "zqmark"}),
    "models.count_tokens": ("count_tokens", _ASK),
    "models.embed_content": ("embeddings", {"model": "text-embedding-m", "contents": "zqmark"}),
    "models.generate_content": ("generate_content", _ASK),
    "models.generate_content_stream": ("generate_content", _ASK),
}


class _Genai(Surface):
    def method(self, client: Any, name: str, asynchronous: bool) -> Any:
        root = self.root(client, asynchronous)
        if name.startswith("chat."):  # a session, which `chats.create` gives
            return getattr(root.chats.create(model="m"), name.rpartition(".")[2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return super().method(client, name, asynchronous)


GENAI = _Genai(
    sdk="google-genai",
    client=_client,
    names=_names,
    listened=_LISTENED,
    unheard=_UNHEARD,
    no_model=_NO_MODEL,
)
VERTEX = _Genai(
    sdk="google-genai on Vertex AI",
    client=_vertex,
    names=_names,
    listened={name: made for name, made in _LISTENED.items() if not name.startswith("inter")},
    unheard={**_UNHEARD, "not called on Vertex AI": ("interactions.create",)},
    no_model=_NO_MODEL,
)
