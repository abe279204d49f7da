"""The loop beside a scripted provider, and what its tests share."""

from __future__ import annotations

from typing import Any

from clew.loop import DryRun, Loop, LoopResult, Tool
from clew.prompts.configuration import Configuration
from clew.prompts.snippets import Snippet
from clew.providers import provider
from clew.testing import CaptureExporter, Reply, ScriptedProvider, ScriptedToolCall

MODES = ("sync", "async")
DONE = Reply(text="Done.")
"""What ends a conversation."""


def asks(name: str, arguments: Any = None, *, call_id: str | None = None) -> ScriptedToolCall:
    """Return a tool call that the model asks for."""
    return ScriptedToolCall(name=name, arguments=arguments or {}, id=call_id)


def snippet(identifier: str, text: str, **more: Any) -> Snippet:
    """Return a snippet."""
    return Snippet(identifier=identifier, text=text, **more)


class Kit:
    """A scripted provider, and the way in which a loop is run."""

    def __init__(self, mode: str, server: ScriptedProvider, exported: CaptureExporter) -> None:
        self.mode = mode
        self.server = server
        self.exported = exported
        self.provider = provider(
            "openai", api_key="SECRET-KEY", base_url=server.openai_base_url, retries=0
        )

    def configuration(self, **more: Any) -> Configuration:
        """Return a configuration."""
        return Configuration(**{"provider": "openai", "model": "small", **more})

    def loop(self, *tools: Tool, by: Any = None, loop: dict[str, Any] | None = None, **more: Any):
        """Return a loop that offers the tools; further words are for the configuration."""
        more.setdefault("tools", tuple(tool.name for tool in tools))
        configuration = self.configuration(**more)
        return Loop(configuration, by or self.provider, tools=tools, **(loop or {}))

    async def run(self, loop: Loop, question: Any = "Hello?", **more: Any) -> LoopResult:
        """Run once."""
        if self.mode == "sync":
            return loop.run(question, **more)
        return await loop.arun(question, **more)

    async def resume(self, loop: Loop, state: bytes, **more: Any) -> LoopResult:
        """Go on with a run that waited."""
        if self.mode == "sync":
            return loop.resume(state, **more)
        return await loop.aresume(state, **more)

    async def dry_run(self, loop: Loop, question: Any = "Hello?", **more: Any) -> DryRun:
        """Look at what would be sent."""
        if self.mode == "sync":
            return loop.dry_run(question, **more)
        return await loop.adry_run(question, **more)

    def script(self, *replies: Reply) -> None:
        """Let the provider answer these."""
        self.server.add(*replies)

    @property
    def bodies(self) -> list[Any]:
        """The bodies that the provider received."""
        return [request.json() for request in self.server.requests]

    @property
    def sent(self) -> list[list[tuple[str, Any]]]:
        """Role and content of the messages that the provider received, for each request."""
        return [
            [(message["role"], message["content"]) for message in body["messages"]]
            for body in self.bodies
        ]

    @property
    def told(self) -> list[Any]:
        """What the model was told of its tool calls, in the last request."""
        return [each["content"] for each in self.bodies[-1]["messages"] if each["role"] == "tool"]

    @property
    def outcomes(self) -> list[Any]:
        """How each tool call ended."""
        return [span["clew.tool.outcome"] for span in self.spans("execute_tool")]

    def spans(self, name: str) -> list[dict[str, Any]]:
        """Return the attributes of exported spans of this name."""
        return [dict(span.attributes or {}) for span in self.exported.by_name(name)]

    @property
    def ended(self) -> dict[str, Any]:
        """Status and reason of the last run's span."""
        found = self.spans("invoke_agent")[-1]
        keys = ("clew.run.status", "clew.run.termination_reason", "error.type")
        return {key.rpartition(".")[2]: found[key] for key in keys if key in found}
