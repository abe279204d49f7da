"""The real clients of two providers."""

from __future__ import annotations

import inspect
from typing import Any

import anthropic
import httpx2
import openai
from saying import MARK

from clew.testing import ScriptedProvider

CERTIFICATES = httpx2.create_ssl_context()
KITS = ("openai-sync", "openai-async", "anthropic-sync", "anthropic-async")


class Kit:
    """One SDK, sync or async."""

    def __init__(self, name: str, server: ScriptedProvider, **options: Any) -> None:
        self.name = name
        sdk, _, mode = name.partition("-")
        self.openai = sdk == "openai"
        self.asynchronous = mode == "async"
        module = openai if self.openai else anthropic
        kind = ("Async" if self.asynchronous else "") + ("OpenAI" if self.openai else "Anthropic")
        prefix = "DefaultAsync" if self.asynchronous else "Default"
        http = getattr(module, f"{prefix}HttpxClient")(verify=CERTIFICATES, trust_env=False)
        self.client = getattr(module, kind)(
            base_url=server.openai_base_url if self.openai else server.base_url,
            api_key="key",
            http_client=http,
            **{"max_retries": 2, **options},
        )

    @property
    def model(self) -> str:
        return "gpt-5-mini" if self.openai else "claude-haiku-4-5"

    async def ask(self, text: str = f"{MARK} prompt", **more: Any) -> Any:
        """Make a plain call."""
        arguments = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_completion_tokens" if self.openai else "max_tokens": 50,
            **more,
        }
        resource = self.client.chat.completions if self.openai else self.client.messages
        found = resource.create(**arguments)
        return await found if inspect.isawaitable(found) else found

    async def text(self, *arguments: Any, **more: Any) -> str:
        """Return the text of a plain or streamed answer."""
        found = await self.ask(*arguments, **more)
        if more.get("stream"):
            if self.asynchronous:
                parts = [self._delta(event) async for event in found]
            else:
                parts = [self._delta(event) for event in found]
            return "".join(parts)
        if self.openai:
            return found.choices[0].message.content
        return next(block.text for block in found.content if block.type == "text")

    def _delta(self, event: Any) -> str:
        if self.openai:
            return (event.choices[0].delta.content or "") if event.choices else ""
        return getattr(getattr(event, "delta", None), "text", "") or ""

    async def close(self) -> None:
        done = self.client.close()
        if inspect.isawaitable(done):
            await done
