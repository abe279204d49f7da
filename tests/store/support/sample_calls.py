"""Recorded model calls whose prompts have maps, built by hand: content, rows, and real digests."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import sample_runs
from msgspec.structs import replace

from clew import semconv
from clew.store.prompt_index import without_content
from clew.store.prompt_records import (
    AskedTool,
    PromptRecord,
    PromptRow,
    RecordedBlock,
    RecordedError,
    RecordedResponse,
    RunOfRecord,
    SystemPrompt,
    ToolDefinition,
)

START_NS = 1_796_119_200_000_000_000
SECOND = 1_000_000_000
RUN = "77777777-0000-4000-8000-000000000007"
KEY = "00112233445566aa"
_numbers = itertools.count(1)

Layered = tuple[str, str, str, str, str]
"""Id, layer, stability, source and text of a block."""

IDENTITY = (
    "identity_context", "identity", "epoch", "file",
    "# Who you are\n\nYou are Nova: Grüße, καλημέρα, 你好, 🚲. You help whoever asks you.\n",
)  # fmt: skip
CONTRACT = (
    "template:clerk", "contract", "static", "template",
    "\n## Rules\n\n" + "".join(f"{n}. Rule number {n}: never guess; look it up.\n" for n in range(1, 31)),
)  # fmt: skip
SKILLS = (
    "skills_prompt", "capabilities", "epoch", "config",
    "\n## Skills\n\n" + "".join(f"- skill-{n}: does one thing well\n" for n in range(1, 41)),
)  # fmt: skip
KNOWLEDGE = (
    "knowledge_synthesis", "knowledge", "volatile", "synthesis",
    "\n## What is known\n\n" + "The customer has ordered twice. Both parcels came late.\n" * 25,
)  # fmt: skip
BLANK = ("gap", "contract", "static", "template", "\n\n")
WORKING = (
    "working_memory", "working", "volatile", "synthesis",
    "## Now\n\n" + "The parcel is in Tallinn; die Größe ist 56 cm.\n" * 18,
)  # fmt: skip
STATUS = ("status_text", "runtime", "volatile", "live_state", "\n## Status\n\nIt is 10:00.\n")
FUTURE = ("tomorrow", "dreams", "lunar", "oracle", "\nA layer that nobody knows yet.\n")
PROMPT: tuple[Layered, ...] = (
    IDENTITY, CONTRACT, SKILLS, KNOWLEDGE, BLANK, WORKING, STATUS, FUTURE
)  # fmt: skip

TOOLS = tuple(
    ToolDefinition(
        name=name,
        description=said,
        schema={
            "type": "object",
            "properties": {each: {"type": "string", "description": f"The {each}."} for each in keys},
            "required": list(keys),
        },
        chars=len(name) + len(said) + 60 * len(keys),
        digest=hashlib.sha256(name.encode()).hexdigest()[:32],
    )
    for name, said, keys in (
        ("search_orders", "Find orders of a customer.", ("customer", "since")),
        ("refund_payment", "Pay money back. Needs an approval.", ("order", "amount", "reason")),
        ("track_parcel", "Tell where a parcel is.", ("parcel",)),
    )
)  # fmt: skip
HISTORY: list[Any] = [
    {"role": "user", "parts": [{"type": "text", "content": "Where is my parcel? Größe 56 🚲"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "I should look the order up."},
            {
                "type": "tool_call",
                "id": "call_1",
                "name": "track_parcel",
                "arguments": {"parcel": "EE-81"},
            },
        ],
    },
    {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "call_1", "response": "In Tallinn."}],
    },
]


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def mapped(blocks: tuple[Layered, ...]) -> SystemPrompt:
    """A system prompt made of blocks, with its map in UTF-8 bytes."""
    at, found = 0, []
    for name, layer, stability, source, text in blocks:
        size = len(text.encode())
        found.append(
            RecordedBlock(
                id=name, layer=layer, stability=stability, source=source,
                start=at, end=at + size, chars=len(text), digest=digest(text),
            )
        )  # fmt: skip
        at += size
    whole = "".join(each[4] for each in blocks)
    return SystemPrompt(
        text=whole, bytes=at, chars=len(whole), digest=digest(whole), blocks=tuple(found)
    )


def call(
    blocks: tuple[Layered, ...] = PROMPT,
    *,
    system: SystemPrompt | None = None,
    tools: tuple[ToolDefinition, ...] = TOOLS,
    messages: list[Any] | None = HISTORY,
    response: RecordedResponse | None = None,
    parameters: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[PromptRow, PromptRecord | None]:
    """A call with its row and, unless its level keeps content out, its record."""
    number = next(_numbers)
    prompt = system or mapped(blocks)
    answer = response or RecordedResponse(
        text="Your parcel is in Tallinn.", thinking="Easy.", finish_reason="stop"
    )
    given: dict[str, Any] = {
        "request_id": f"{number:08x}{digest(str(number))[:24]}",
        "start_ns": START_NS + number * SECOND,
        "duration_ns": 2_134_000_000,
        "level": "full",
        "operation": "chat",
        "status": "ok" if answer.error is None else "error",
        "error_type": None if answer.error is None else answer.error.type,
        "kind": "channel",
        "agent": "nova",
        "agent_id": "a" * 16,
        "run_id": RUN,
        "trace_id": RUN.replace("-", ""),
        "span_id": f"{number:016x}",
        "round": number,
        "trigger": "user_message",
        "message_id": "msg-81",
        "conversation_id": "conv-81",
        "model": "gpt-5-mini",
        "provider": "openai",
        "answered": "gpt-5-mini-2026-08-07",
        "system_bytes": prompt.bytes,
        "system_chars": prompt.chars,
        "system_digest": prompt.digest,
        "digest_key": KEY,
        "blocks": prompt.blocks,
        "history_length": None if messages is None else len(messages),
        "tool_count": len(tools),
        "tool_chars": sum(each.chars for each in tools),
        "tools": tuple(
            ToolDefinition(name=each.name, chars=each.chars, digest=each.digest) for each in tools
        ),
        "request_bytes": prompt.bytes + 2600,
        "response_bytes": 912,
        "finish_reason": answer.finish_reason,
        "input_tokens": 2150,
        "output_tokens": 87,
        "cache_read_tokens": 1024,
        "cache_write_tokens": 0,
        "cost_usd": 0.00431,
        "cost_status": "priced",
        **more,
    }
    row = PromptRow(**given)
    known = replace(
        without_content(row),
        system=prompt,
        tools=tools,
        messages=messages,
        parameters=parameters if parameters is not None else {"temperature": 0.2},
        response=answer,
        run=RunOfRecord(kind=row.kind, run_id=row.run_id, agent=row.agent, round=row.round),
    )
    return row, known if row.level in ("redacted", "full") else None


def asking() -> RecordedResponse:
    """An answer that asks for a tool."""
    return RecordedResponse(
        tool_calls=(AskedTool(name="search_orders", id="call_2", arguments={"customer": "Öz"}),),
        finish_reason="tool_call",
    )


def broken() -> RecordedResponse:
    """An answer that is an error and nothing else."""
    return RecordedResponse(error=RecordedError(type="rate_limit_exceeded", code="429", status=429))


def attributes(blocks: tuple[Layered, ...]) -> dict[str, Any]:
    """What a round's span says of a prompt that was made of these blocks."""
    prompt = mapped(blocks)
    columns: list[list[Any]] = [
        [getattr(each, name) for each in prompt.blocks]
        for name in ("id", "layer", "stability", "source", "bytes", "digest")
    ]
    return {
        semconv.PROMPT_MAPPED: True,
        semconv.PROMPT_DIGEST: prompt.digest,
        semconv.PROMPT_BYTES: prompt.bytes,
        semconv.DIGEST_KEY_ID: KEY,
        **dict(zip(semconv.PROMPT_BLOCKS, columns, strict=True)),
    }


def developing(run_id: str = RUN, *, rounds: int = 8) -> sample_runs.Sample:
    """A run whose knowledge grows, whose status goes, and whose skills change in round 5."""
    run = sample_runs.Sample(run_id)
    root = run.root("nova", 0, rounds * 100.0, **{semconv.RUN_STATUS: "completed"})
    for number in range(1, rounds + 1):
        skills = SKILLS if number < 5 else (*SKILLS[:4], SKILLS[4] + "- one more skill\n")
        known = (*KNOWLEDGE[:4], KNOWLEDGE[4] + "One more fact is known.\n" * number)
        blocks = (IDENTITY, CONTRACT, skills, known, BLANK, WORKING)
        if number < 7:
            blocks = (*blocks, STATUS)
        read = 0 if number == 1 else 700 if number == 5 else 1500
        run.model(
            number, number * 100.0 - 90, number * 100.0 - 10, root,
            tokens=(2150 + 40 * number, 87, read, 1500 if number == 1 else 0, 0),
            **attributes(blocks),
            **{
                semconv.COST_INPUT_USD: (650 + 40 * number) * 1e-6,
                semconv.COST_CACHE_READ_USD: read * 1e-7,
                semconv.REQUEST_MESSAGES: number * 2,
                semconv.REQUEST_BYTES: 8000 + 500 * number,
            },
        )  # fmt: skip
    run.mark("sealed", "nova", rounds * 100.0 + 5000, root)
    return run
