"""The closed sets of words that attributes take their values from, spelled once."""

from __future__ import annotations

from typing import Final

RUN_STATUSES: Final = (
    "running",
    "completed",
    "failed",
    "cancelled",
    "waiting_for_approval",
    "waiting_for_input",
)
TERMINATION_REASONS: Final = (
    "completed",
    "error",
    "max_rounds",
    "budget_exhausted",
    "policy_denied",
    "approval_denied",
    "provider_failed",
    "retries_exhausted",
    "cancelled",
    "context_truncated",
)
COST_STATUSES: Final = ("priced", "provider_reported", "partial", "unpriced", "unknown")
STREAM_OUTCOMES: Final = (
    "complete",
    "closed",
    "abandoned",
    "cancelled",
    "timeout",
    "failed",
    "held",
)
FINISH_REASONS: Final = ("stop", "length", "content_filter", "tool_call", "compaction", "error")
FAILURE_CLASSES: Final = (
    "connection",
    "rate_limit",
    "auth",
    "configuration",
    "client_error",
    "server_error",
    "circuit_open",
    "unknown",
)
TOOL_OUTCOMES: Final = (
    "ok",
    "error",
    "denied",
    "not_offered",
    "unknown",
    "timeout",
    "cancelled",
    "awaiting_approval",
    "awaiting_input",
)
TOOL_EFFECTS: Final = ("read_only", "idempotent_write", "non_idempotent_write")
DECISION_OUTCOMES: Final = ("allow", "deny", "require_approval", "redact", "retry")
DECIDERS: Final = ("policy", "self", "second_person", "initiator_unknown", "unresolved")
GATES: Final = (
    "budget",
    "tool",
    "guardrail_input",
    "guardrail_output",
    "context",
    "approval",
    "rate",
    "circuit",
    "capture",
)
BUDGET_UNITS: Final = ("usd", "tokens", "rounds", "tool_calls", "seconds")
OPERATIONS: Final = (
    "chat",
    "generate_content",
    "text_completion",
    "embeddings",
    "rerank",
    "image_generation",
    "transcription",
    "speech",
    "count_tokens",
    "moderation",
    "ocr",
    "compaction",
    "create_cache",
    "invoke_agent",
    "invoke_workflow",
    "create_agent",
    "execute_tool",
    "retrieval",
    "fetch_response",
    "plan",
    "unknown",
)
CAPTURE_LEVELS: Final = ("none", "metadata", "redacted", "full")

PROMPT_LAYERS: Final = (
    "identity",
    "contract",
    "capabilities",
    "knowledge",
    "working",
    "runtime",
)
PROMPT_STABILITIES: Final = ("static", "epoch", "volatile")
PROMPT_SOURCES: Final = ("template", "file", "store", "synthesis", "live_state", "config")
