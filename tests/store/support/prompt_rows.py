"""Records of model calls, built by hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from clew.prompts.blocks import Block
from clew.store.prompt_index import without_content
from clew.store.prompt_records import (
    AskedTool,
    PromptRecord,
    PromptRow,
    RecordedBlock,
    RecordedResponse,
    ToolDefinition,
)

START_NS = 1_796_119_200_000_000_000
"""2026-12-01T10:00:00Z"""
SECOND = 1_000_000_000
DAY = 86_400 * SECOND
SYSTEM = "You are a clerk. Grüße!\n\nBe brief."


def block(name: str, start: int, end: int, chars: int, **more: Any) -> RecordedBlock:
    words = {"layer": "contract", "stability": "static", "source": "template", **more}
    return RecordedBlock(id=name, start=start, end=end, chars=chars, **words)


def digits(number: int) -> str:
    """Return a request id."""
    return f"{number:032x}"


def row(number: int = 1, **more: Any) -> PromptRow:
    """Return the row of a call that began `number` seconds after `START_NS`."""
    given: dict[str, Any] = {
        "request_id": digits(number),
        "start_ns": START_NS + number * SECOND,
        "duration_ns": 1_234_567_890,
        "level": "full",
        "operation": "chat",
        "status": "ok",
        "agent": "triage",
        "tenant": "acme",
        "kind": "channel",
        "model": "gpt-4o-mini",
        "provider": "openai",
        "system_bytes": len(SYSTEM.encode()),
        "system_chars": len(SYSTEM),
        "history_length": 3,
        "tool_count": 1,
        "tool_chars": 60,
        "input_tokens": 1200,
        "output_tokens": 30,
        "cache_read_tokens": 1000,
        "cost_usd": 0.00123,
        "cost_status": "priced",
        "finish_reason": "tool_call",
        **more,
    }
    return PromptRow(**given)


def record(of: PromptRow | None = None, **more: Any) -> PromptRecord:
    """Return the whole record of a row, with content."""
    known = without_content(of or row())
    given: dict[str, Any] = {
        "system": replace(
            known.system,
            text=SYSTEM,
            blocks=(
                block("template:clerk", 0, 27, 25),
                block("tone", 27, len(SYSTEM.encode()), 9, layer="identity"),
            ),
        ),
        "tools": (
            ToolDefinition(
                name="lookup",
                description="Look an order up.",
                schema={"type": "object", "properties": {"id": {"type": "string"}}},
                chars=83,
            ),
        ),
        "messages": [
            {"role": "user", "parts": [{"type": "text", "content": "Where is order 7?"}]},
        ],
        "parameters": {"temperature": 0.5},
        "response": RecordedResponse(
            text="One moment.",
            tool_calls=(AskedTool(name="lookup", id="call_1", arguments={"id": "7"}),),
            finish_reason="tool_call",
        ),
        **more,
    }
    return replace(known, **given)


def tiles_bytes(blocks: tuple[Block, ...]) -> int:
    return sum(each.bytes for each in blocks)
