"""A gate that says what it is told to, and the real clients of two providers."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai

from clew.testing import CaptureExporter, ScriptedProvider
from clew.typing import Proposal, Verdict

MARK = "zqmark"
"""Stands in every prompt, answer and tool argument."""
CERTIFICATES = httpx2.create_ssl_context()
KITS = ("openai-sync", "openai-async", "anthropic-sync", "anthropic-async")


@dataclass
class Saying:
    """A gate that says what it is told to, and keeps what it was asked."""

    says: Verdict | Exception | None = None
    name: str = "house"
    mode: Any = "enforce"
    mandatory: bool = True
    kinds: frozenset[str] = frozenset({"model_call"})
    rank: int = 50
    asked: list[Proposal] = field(default_factory=list)
    settled: list[Any] = field(default_factory=list)
    released: list[Proposal] = field(default_factory=list)

    def check(self, proposal: Proposal) -> Verdict | None:
        self.asked.append(proposal)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def settle(self, proposal: Proposal, settlement: Any) -> None:
        self.settled.append((proposal, settlement))

    def release(self, proposal: Proposal) -> None:
        self.released.append(proposal)


DENY = Verdict(outcome="deny", reason="house_rule")


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


def decisions(exported: CaptureExporter) -> list[dict[str, Any]]:
    """Return what the decisions say, without the prefix of their keys."""
    return [
        {
            key.removeprefix("clew.decision."): value
            for key, value in (span.attributes or {}).items()
            if key.startswith("clew.decision.")
        }
        for span in exported.by_name("decide")
    ]
