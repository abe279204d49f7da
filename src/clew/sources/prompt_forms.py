"""Records as JSON says them, the same on the command line and from the web."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.sources.prompt_report import AgentReport
from clew.store.prompt_records import PromptRecord, PromptRow


def row_form(row: PromptRow) -> dict[str, Any]:
    """Return a row of the index. Times are text: they are larger than JavaScript's numbers."""
    form: dict[str, Any] = msgspec.to_builtins(row)
    form.pop("path", None)
    return {**form, "start_ns": str(row.start_ns), "system_tokens": row.system_tokens}


def record_form(row: PromptRow, record: PromptRecord) -> dict[str, Any]:
    """Return a whole record: what the payload file has, and the row of the index."""
    return {"index": row_form(row), "record": msgspec.to_builtins(record)}


def report_form(agents: tuple[AgentReport, ...]) -> dict[str, Any]:
    """Return the report of a run's prompts."""
    return {
        "agents": [
            {
                "agent": each.agent,
                "agent_id": each.agent_id,
                "lost_tokens": each.lost_tokens,
                "lost_usd": each.lost_usd,
                "rounds": [
                    {
                        "round": one.round,
                        "span_id": one.span_id,
                        "request_id": one.request_id,
                        "model": one.model,
                        "system_bytes": None if one.prompt is None else one.prompt.size,
                        "blocks": None if one.prompt is None else len(one.prompt.ids),
                        "history_length": one.history_length,
                        "tool_tokens": one.tool_tokens,
                        "tool_share": one.tool_share,
                        "input_tokens": one.spending.input_tokens,
                        "cache_read_tokens": one.spending.cache_read_tokens,
                        "cache_write_tokens": one.spending.cache_write_tokens,
                    }
                    for one in each.rounds
                ],
                "breaks": msgspec.to_builtins(each.breaks),
                "growth": [{**msgspec.to_builtins(one), "grown": one.grown} for one in each.growth],
                "evicted": msgspec.to_builtins(each.evicted),
            }
            for each in agents
        ]
    }
