"""A turn with a tool call, and steps of a trace as they are compared."""

from __future__ import annotations

from typing import Any

from loop_kit import asks

from clew.facts import Usage
from clew.loop import Step, Tool, ToolOutput
from clew.testing import Reply

USAGE = Usage(input_tokens=100, output_tokens=10)


def find(number: str) -> ToolOutput:
    """Find a parcel."""
    return ToolOutput(text=f"parcel {number}", artifacts=({"map": [1, 2]},))


FIND = Tool.of(find, effect="read_only")
TURN = Reply(
    text="I look.",
    tool_calls=(asks("find", {"number": "P"}, call_id="c1"),),
    usage=USAGE,
    model="gpt-4o-2024-08-06",
)
DONE = Reply(text="Done.", usage=USAGE)


def timeless(steps: tuple[Step, ...]) -> list[dict[str, Any]]:
    """Return the steps of requests, answers and tools, without how long they took."""
    return [
        {key: value for key, value in step.as_dict().items() if key != "durationMs"}
        for step in steps
        if step.kind != "context"
    ]


def text(role: str, content: str) -> dict[str, Any]:
    """Return a message of one text, as a trace has it."""
    return {"role": role, "parts": [{"type": "text", "content": content}]}
