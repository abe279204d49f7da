"""Records of model calls, built by hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from clew.store.prompt_index import PromptReader, without_content
from clew.store.prompt_records import (
    EVERYTHING,
    AskedTool,
    Attempt,
    PromptFilter,
    PromptRecord,
    PromptRow,
    RecordedBlock,
    RecordedError,
    RecordedResponse,
    Scope,
    ToolDefinition,
)
from clew.store.records import Page

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


RUN = "6fa459ea-ee8a-4ca4-894e-db77e160355e"
TEMPLATE = "You are the support desk of a shop. Be brief, be kind.\n\n"
MEMORIES = (
    "Nothing yet.",
    "Nothing yet.",
    "Order 7 was late; a refund was offered.",
    "Order 7 was late; a refund was offered.",
)


def four_rounds() -> list[tuple[PromptRow, PromptRecord]]:
    """Return the calls of a run of four rounds whose prompt grows; the last one fails."""
    found: list[tuple[PromptRow, PromptRecord]] = []
    ids = ("58ab" + "1" * 28, "7f12" + "2" * 28, "3c9d" + "3" * 28, "a041" + "4" * 28)
    for number, (request_id, memory) in enumerate(zip(ids, MEMORIES, strict=True), 1):
        text = TEMPLATE + memory
        size = len(TEMPLATE.encode())
        blocks = (
            block("template:support", 0, size, len(TEMPLATE), digest="t"),
            block("memory", size, len(text.encode()), len(memory), digest=memory, layer="working",
                  stability="volatile", source="store"),
        )  # fmt: skip
        failed: dict[str, Any] = {}
        if number == 4:
            failed = {
                "status": "error", "error_type": "rate_limit_exceeded", "attempts": 2,
                "input_tokens": None, "output_tokens": None, "cache_read_tokens": None,
                "cost_usd": None, "cost_status": None, "finish_reason": None,
            }  # fmt: skip
        one = row(
            number, request_id=request_id, run_id=RUN, trace_id=RUN.replace("-", ""),
            span_id=f"{number:016x}", round=number, agent_id="a" * 16, trigger="user_message",
            message_id="m-1", digest_key="k", system_digest=memory, system_chars=len(text),
            system_bytes=len(text.encode()), blocks=blocks, history_length=2 * number - 1,
            tool_chars=83, level="full",
            **{"cache_read_tokens": (0, 1024, 0, 0)[number - 1], **failed},
        )  # fmt: skip
        turn = [
            {"role": "user", "parts": [{"type": "text", "content": "Where is order 7?"}]},
            {"role": "assistant", "parts": [{"type": "text", "content": "One moment."}]},
        ]
        whole = record(one)
        more: dict[str, Any] = {"messages": [*turn * (number - 1), turn[0]]}
        if failed:
            error = RecordedError(type="rate_limit_exceeded", status=429)
            more["response"] = RecordedResponse(error=error)
            more["attempts"] = (
                Attempt(number=1, start_ms=0.0, duration_ms=84.2, status=503,
                        error="server_error"),
                Attempt(number=2, start_ms=591.0, duration_ms=61.7, status=429,
                        error="rate_limit_exceeded"),
            )  # fmt: skip
        system = replace(whole.system, text=text, blocks=blocks)
        found.append((one, replace(whole, system=system, **more)))
    return found


def ids(rows: tuple[PromptRow, ...]) -> list[int]:
    """Return the numbers of the rows."""
    return [int(each.request_id, 16) for each in rows]


def listed(reader: PromptReader, scope: Scope = EVERYTHING, **wanted: Any) -> list[int]:
    """Return the numbers of the rows that a list has."""
    return ids(reader.records(PromptFilter(**wanted), Page(), scope).records)
