"""Recorded model calls as spans, for runs whose spans are gone or were never kept.

A record knows the run, the span and the round that a call belonged to. What only the run's other
spans knew is not made up: no run span, no tool calls, no decisions, no place in the sequence. Each
such span carries `clew.backfilled`.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from clew import semconv
from clew.rules import DROPPED
from clew.store.prompt_records import PromptRow
from clew.store.records import Resource, Scope, SpanRecord, span_type

_TRACE: Final = re.compile(r"[0-9a-f]{32}")
_SPAN: Final = re.compile(r"[0-9a-f]{16}")
_CLIENT: Final = 3
_ERROR: Final = 2


def span_of(row: PromptRow) -> SpanRecord | None:
    """Return the span of a recorded call; None where its run or its span is not known."""
    if row.run_id is None or row.trace_id is None or row.span_id is None:
        return None
    if not (_TRACE.fullmatch(row.trace_id) and _SPAN.fullmatch(row.span_id)):
        return None
    attributes = _attributes(row)
    name = f"{row.operation} {attributes.get(semconv.REQUEST_MODEL, '')}".strip()
    return SpanRecord(
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_id=None,
        type=span_type(attributes, semconv.SCOPE),
        name=name,
        kind=_CLIENT,
        start_ns=row.start_ns,
        end_ns=row.start_ns + max(0, row.duration_ns),
        status=_ERROR if row.status == "error" else 0,
        attributes=attributes,
        resource=Resource(attributes={"service.name": row.service} if row.service else {}),
        scope=Scope(name=semconv.SCOPE, version=semconv.CONTRACT_VERSION),
    )


def _attributes(row: PromptRow) -> dict[str, Any]:
    """Return what the row knows, under the keys of the contract and by their value rules."""
    given: dict[str, Any] = {
        semconv.BACKFILLED: True,
        semconv.RUN_ID: row.run_id,
        semconv.SEGMENT_ID: row.segment_id,
        semconv.AGENT_ID: row.agent_id,
        semconv.AGENT_NAME: row.agent,
        semconv.ROUND: row.round,
        semconv.PROVIDER_HOP: row.hop,
        semconv.TENANT: row.tenant,
        semconv.CONVERSATION_ID: row.conversation_id,
        semconv.OPERATION: row.operation,
        semconv.PROVIDER: row.provider,
        semconv.REQUEST_MODEL: row.model,
        semconv.RESPONSE_MODEL: row.answered,
        semconv.SERVED_PROVIDER: row.served_by,
        semconv.RESPONSE_FINISH_REASONS: None if row.finish_reason is None else [row.finish_reason],
        semconv.USAGE_INPUT: row.input_tokens,
        semconv.USAGE_OUTPUT: row.output_tokens,
        semconv.USAGE_CACHE_READ: row.cache_read_tokens,
        semconv.USAGE_CACHE_WRITE: row.cache_write_tokens,
        semconv.USAGE_REASONING: row.reasoning_tokens,
        semconv.USAGE_SOURCE: "reported" if row.has_usage else "absent",
        semconv.COST_USD: row.cost_usd,
        semconv.COST_STATUS: row.cost_status,
        semconv.ATTEMPTS: row.attempts,
        semconv.STREAM_OUTCOME: row.outcome,
        semconv.ERROR_TYPE: row.error_type,
        semconv.REQUEST_BYTES: row.request_bytes,
        semconv.RESPONSE_BYTES: row.response_bytes,
    }
    kept: dict[str, Any] = {}
    for key, value in given.items():
        held = DROPPED if value is None else semconv.RULES[key].apply(value)
        if held is not DROPPED:
            kept[key] = list(cast("tuple[Any, ...]", held)) if isinstance(held, tuple) else held
    return kept
