"""Calls with the real client, and the labels that they have."""

from __future__ import annotations

from typing import Any

import openai

import clew
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import ScriptedProvider

MARK = "zqmark"
Labels = dict[str, Any]
MESSAGES: list[Any] = [{"role": "user", "content": f"{MARK} prompt"}]
OPENAI_RATES = {"input": 0.25 / 1e6, "cache_read": 0.025 / 1e6, "output": 2 / 1e6}
"""What gpt-5-mini costs for one token."""


def host(provider: ScriptedProvider) -> str:
    """Return the provider's host as an operator names it."""
    return provider.base_url.removeprefix("http://")


def chat(provider: ScriptedProvider, **options: Any) -> Any:
    """Make one call with the real client, and read it to its end."""
    with openai.OpenAI(base_url=provider.openai_base_url, api_key="any") as client:
        answer = client.chat.completions.create(model="gpt-5-mini", messages=MESSAGES, **options)
        return list(answer) if options.get("stream") else answer


async def chat_async(provider: ScriptedProvider, **options: Any) -> None:
    """Make the same call with the asynchronous client."""
    async with openai.AsyncOpenAI(base_url=provider.openai_base_url, api_key="any") as client:
        answer = await client.chat.completions.create(
            model="gpt-5-mini", messages=MESSAGES, **options
        )
        if options.get("stream"):
            async for _ in answer:
                pass


AGENT = {"gen_ai.agent.name": "triage"}
MODEL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5-mini",
    "gen_ai.response.model": "gpt-5-mini",
}
CALL = {**AGENT, **MODEL}
"""Labels of a run, of a call, and of a call of that run."""


def metrics_of(options: Settings | None = None, **arguments: Any) -> Any:
    """Configure Clew; return its metrics, None where there are none."""
    clew.configure(settings=options or Settings.from_environment(), **arguments)
    current = runtime.get()
    assert current is not None
    return current.metrics
