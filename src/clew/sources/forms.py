"""Runs and spans as JSON, the same on the web and on the command line.

Times are given twice: as RFC 3339 text with nanoseconds, and as decimal text of nanoseconds since
1970 (JSON numbers of many readers end at 2**53). What is unknown is null.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from clew.store.records import (
    SPAN_KINDS,
    STATUS_CODES,
    RunPage,
    RunRecord,
    RunSummary,
    SpanRecord,
)


def time_text(time_ns: int) -> str:
    """Write nanoseconds since 1970 as `2026-12-01T10:00:00.123456789Z`."""
    seconds, rest = divmod(time_ns, 10**9)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _times(start_ns: int, end_ns: int) -> dict[str, Any]:
    return {
        "start_time": time_text(start_ns),
        "end_time": time_text(end_ns),
        "start_time_unix_nano": str(start_ns),
        "end_time_unix_nano": str(end_ns),
        "duration_ms": max(0, end_ns - start_ns) / 1e6,
    }


def run_form(run: RunSummary) -> dict[str, Any]:
    """Return a run as it appears in a list."""
    return {
        "run_id": run.run_id,
        "trace_id": run.trace_id,
        "is_run": run.is_run,
        "agent": run.agent,
        "service": run.service,
        "status": run.status,
        "termination_reason": run.termination_reason,
        "error_type": run.error_type,
        **_times(run.start_ns, run.end_ns),
        "segments": run.segments,
        "sealed_segments": run.sealed,
        "spans": run.spans,
        "errors": run.errors,
        "rounds": run.rounds,
        "rounds_unpriced": run.rounds_unpriced,
        "rounds_without_usage": run.rounds_without_usage,
        "tool_calls": run.tool_calls,
        "decisions": run.decisions,
        "denials": run.denials,
        "tokens": {
            "input": run.input_tokens,
            "output": run.output_tokens,
            "cache_read": run.cache_read_tokens,
            "cache_write": run.cache_write_tokens,
            "reasoning": run.reasoning_tokens,
        },
        "cost_usd": run.cost_usd,
        "cost_status": run.cost_status,
        "models": list(run.models),
        "conversation_id": run.conversation_id,
        "tenant": run.tenant,
        "configuration": run.configuration,
        "trigger": run.trigger,
        "parent_run_id": run.parent_run_id,
        "capture_level": run.capture_level,
        "identical_copies": run.duplicates,
        "conflicting_copies": run.conflicts,
    }


def span_form(span: SpanRecord) -> dict[str, Any]:
    """Return a span with everything it has."""
    return {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "parent_id": span.parent_id,
        "type": span.type,
        "name": span.name,
        "kind": SPAN_KINDS[span.kind] if 0 <= span.kind < len(SPAN_KINDS) else str(span.kind),
        "status": STATUS_CODES[span.status]
        if 0 <= span.status < len(STATUS_CODES)
        else str(span.status),
        "status_message": span.status_message,
        "segment": span.segment,
        "segment_id": span.segment_id,
        "seq": span.seq,
        **_times(span.start_ns, span.end_ns),
        "attributes": span.attributes,
        "events": [
            {
                "name": each.name,
                "time_unix_nano": str(each.time_ns),
                "attributes": each.attributes,
            }
            for each in span.events
        ],
        "links": [
            {
                "trace_id": each.trace_id,
                "span_id": each.span_id,
                "attributes": each.attributes,
            }
            for each in span.links
        ],
        "trace_state": span.trace_state,
        "flags": span.flags,
        "dropped_attributes": span.dropped[0],
        "dropped_events": span.dropped[1],
        "dropped_links": span.dropped[2],
        "scope": {"name": span.scope.name, "version": span.scope.version},
        "resource": span.resource.attributes,
    }


def list_form(page: RunPage) -> dict[str, Any]:
    """Return one page of a list; `next` continues it, null at the end."""
    return {"runs": [run_form(each) for each in page.runs], "next": page.next}


def record_form(record: RunRecord) -> dict[str, Any]:
    """Return one run with all its spans in order, and other versions of spans beside them."""
    return {
        "run": run_form(record.summary),
        "spans": [span_form(each) for each in record.spans],
        "conflicting_copies": [span_form(each) for each in record.conflicts],
    }
