"""What tests of agent frameworks share: a model that asks for tools, and the tree of a run."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from clew.testing import CaptureExporter, Reply, ScriptedToolCall

LEAVES_OPEN = [
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),
    pytest.mark.usefixtures("collected"),
]
"""Marks for a framework that leaves its HTTP clients open."""


def asks(name: str, **arguments: Any) -> Reply:
    """Return an answer that asks for a tool."""
    return Reply(tool_calls=(ScriptedToolCall(name=name, arguments=arguments, id=f"call_{name}"),))


def tree(exported: CaptureExporter) -> list[str]:
    """Return the spans as lines, indented by depth, in the order of their starts."""
    spans = [one for one in exported.spans if not one.name.startswith("run_")]
    by_id = {span.context.span_id: span for span in spans}

    def depth(span: ReadableSpan) -> int:
        parent = by_id.get(span.parent.span_id) if span.parent else None
        return 0 if parent is None else depth(parent) + 1

    return [
        "  " * depth(span) + span.name
        for span in sorted(spans, key=lambda one: one.start_time or 0)
    ]
