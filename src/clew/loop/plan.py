"""What is constant over all runs of a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from clew.loop.calls import Execution
from clew.loop.fence import Fence
from clew.loop.tools import Tool
from clew.loop.window import Window
from clew.prompts.configuration import Configuration
from clew.providers.base import Provider


class LoopLimits(Struct, frozen=True, kw_only=True):
    """Bounds of one run beside those of its configuration."""

    remote_calls: int = 20
    """Calls of tools that reach beyond this process, in one segment."""
    parallel: int = 8
    """Tool calls at the same time."""


class Plan(Struct, frozen=True, kw_only=True):
    """What is constant over all runs of a loop."""

    configuration: Configuration
    provider: Provider
    tools: Mapping[str, Tool]
    """All tools by name; the configuration names those that are offered."""
    limits: LoopLimits
    window: Window | None
    fence: Fence | None
    before_tool: Callable[[Execution], object] | None
    stop_when_denied: bool
    stream: bool = False
    governed: bool = False
    """Whether the loop brings gates of its own."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of every request, see `ChatRequest.options`."""

    @property
    def offered(self) -> list[Tool]:
        """The tools that the configuration names."""
        return [self.tools[name] for name in self.configuration.tools]

    @property
    def schemas(self) -> dict[str, Any]:
        """The schemas for a person's input, by tool."""
        return {name: tool.input_schema for name, tool in self.tools.items() if tool.input_schema}
