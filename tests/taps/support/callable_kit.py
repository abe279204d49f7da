"""An in-house provider with a callable of every kind, and a mapping of what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

import clew
from clew.testing import CaptureExporter

FACTS: dict[str, Any] = {
    "provider": "acme",
    "model": "model",
    "max_tokens": "limits.tokens",
    "messages": "messages",
    "tools": "tools",
    "response_model": "meta.model",
    "response_id": "meta.id",
    "finish_reason": "reason",
    "input_tokens": "usage.input",
    "output_tokens": "usage.output",
    "cache_read_tokens": "usage.cached",
    "tool_calls": "calls",
}
"""The mapping."""


def answer(**more: Any) -> SimpleNamespace:
    """Return what the provider answers."""
    return SimpleNamespace(
        text="SECRET",
        meta={"model": "acme-1-large", "id": "r1"},
        reason="end_turn",
        usage={"input": 100, "output": 20, "cached": 30},
        calls=[{"id": "t1", "name": "find", "arguments": "SECRET"}],
        **more,
    )


CHUNKS = [
    {"text": "SECRET"},
    {"text": " more", "calls": [("t1", "find")]},
    {"reason": "stop", "meta": {"model": "acme-1-large", "id": "r1"}},
    {"usage": {"input": 100, "output": 20, "cached": 30}},
]
TOLD = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "acme",
    "gen_ai.request.model": "acme-1",
    "gen_ai.request.max_tokens": 50,
    "clew.request.messages": 2,
    "clew.request.tools": 1,
    "gen_ai.response.model": "acme-1-large",
    "gen_ai.response.id": "r1",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 30,
    "clew.round": 1,
    "clew.attempts": 1,
}
"""What it tells of a call that asks as `ASK` does."""
ASK: dict[str, Any] = {
    "model": "acme-1",
    "messages": ["SECRET", "SECRET"],
    "tools": [{"type": "function", "function": {"name": "find"}}],
    "limits": {"tokens": 50},
}


def complete(model: str) -> Any:
    """A callable of the user's own."""
    return answer()


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    """Return the attributes of each round."""
    return [dict(span.attributes or {}) for span in spans(exported)]


def spans(exported: CaptureExporter) -> list[ReadableSpan]:
    """Return the span of each round."""
    return [one for one in exported.spans if "clew.attempts" in (one.attributes or {})]


def told(found: dict[str, Any]) -> dict[str, Any]:
    """Return of a round what the mapping tells."""
    return {key: found.get(key) for key in TOLD}


class Provider:
    """An in-house provider, with a method of every kind."""

    def __init__(self) -> None:
        self.model = "acme-1"
        self.seen: list[Any] = []
        self.finalised = 0

    def look(self) -> None:
        self.seen.append(trace.get_current_span().get_span_context().span_id)

    def complete(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        self.look()
        return answer()

    async def acomplete(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        self.look()
        await asyncio.sleep(0)
        self.look()
        return answer()

    def stream(self, model: str, messages: list[str], tools: Any, limits: Any) -> Iterator[Any]:
        try:
            for chunk in CHUNKS:
                self.look()
                yield chunk
        finally:
            self.finalised += 1

    async def astream(
        self, model: str, messages: list[str], tools: Any, limits: Any
    ) -> AsyncIterator[Any]:
        try:
            for chunk in CHUNKS:
                self.look()
                await asyncio.sleep(0)
                yield chunk
        finally:
            self.finalised += 1

    def open(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        self.look()
        return iter(CHUNKS)

    async def aopen(self, model: str, messages: list[str], tools: Any, limits: Any) -> Any:
        return self.astream(model, messages, tools, limits)


class BrokenError(Exception):
    """What the provider raises."""


def recorded(function: Callable[..., Any], **more: Any) -> Any:
    """Return the callable, recorded by the mapping and more facts."""
    return clew.instrument(function, facts={**FACTS, **more})
