"""Every attribute name that Clew writes, spelled once, with its value rule.

Names of metrics are in `clew.pipeline.instruments`.

GenAI names come from the OpenTelemetry GenAI conventions
(https://github.com/open-telemetry/semantic-conventions-genai), written as literals because the
Python constants are frozen and deprecated. What the conventions lack is under `clew.`.

`RULES` is the default allow-list: a key that is not in it never leaves the process.
"""

from __future__ import annotations

from typing import Final

from clew.closed_sets import BUDGET_UNITS as BUDGET_UNITS  # noqa: PLC0414 - not unused
from clew.closed_sets import (
    CAPTURE_LEVELS,
    COST_STATUSES,
    DECIDERS,
    DECISION_OUTCOMES,
    FAILURE_CLASSES,
    FINISH_REASONS,
    OPERATIONS,
    PROMPT_LAYERS,
    PROMPT_SOURCES,
    PROMPT_STABILITIES,
    RUN_STATUSES,
    STREAM_OUTCOMES,
    TERMINATION_REASONS,
    TOOL_EFFECTS,
    TOOL_OUTCOMES,
)
from clew.closed_sets import GATES as GATES  # noqa: PLC0414 - not unused
from clew.rules import Closed, Each, Flag, Hex, Identifier, Number, Opaque, Rule, Uuid

CONTRACT_VERSION: Final = "1"
SCOPE: Final = "clew"

# --- GenAI conventions -------------------------------------------------------------------------
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
REQUEST_PREVIOUS_RESPONSE_ID: Final = "gen_ai.request.previous_response.id"
REQUEST_ENCODING_FORMATS: Final = "gen_ai.request.encoding_formats"
REQUEST_SERVICE_TIER: Final = "openai.request.service_tier"
RESPONSE_SERVICE_TIER: Final = "openai.response.service_tier"
RESPONSE_SYSTEM_FINGERPRINT: Final = "openai.response.system_fingerprint"
OUTPUT_TYPE: Final = "gen_ai.output.type"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
USAGE_AUDIO_INPUT: Final = "gen_ai.usage.audio.input_tokens"
USAGE_AUDIO_OUTPUT: Final = "gen_ai.usage.audio.output_tokens"
USAGE_IMAGE_INPUT: Final = "gen_ai.usage.image.input_tokens"
USAGE_IMAGE_OUTPUT: Final = "gen_ai.usage.image.output_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
CONTENT: Final = (
    INPUT_MESSAGES,
    OUTPUT_MESSAGES,
    SYSTEM_INSTRUCTIONS,
    TOOL_DEFINITIONS,
    TOOL_CALL_ARGUMENTS,
    TOOL_CALL_RESULT,
)
"""Keys of content: on no list, unless the settings let captured content onto spans."""
CONVERSATION_ID: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
EMBEDDINGS_DIMENSIONS: Final = "gen_ai.embeddings.dimension.count"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
HTTP_STATUS: Final = "http.response.status_code"
HTTP_RESEND_COUNT: Final = "http.request.resend_count"
EXCEPTION_TYPE: Final = "exception.type"

# --- Identity: on every span of a run ----------------------------------------------------------
RUN_ID: Final = "clew.run.id"
SEGMENT_ID: Final = "clew.segment.id"
SEGMENT: Final = "clew.segment"
SEQ: Final = "clew.seq"
AGENT_ID: Final = "clew.agent.id"
ROUND: Final = "clew.round"

# --- Run ---------------------------------------------------------------------------------------
RUN_ROOT: Final = "clew.run.root"
RUN_STATUS: Final = "clew.run.status"
RUN_TERMINATION_REASON: Final = "clew.run.termination_reason"
RUN_PARENT_ID: Final = "clew.run.parent_id"
RUN_KIND: Final = "clew.run.kind"
RUN_EVENT: Final = "clew.run.event"
RUN_OPEN_SEQS: Final = "clew.run.open_seqs"
SEGMENT_RESTART: Final = "clew.segment.restart"
SEGMENT_PREVIOUS_ID: Final = "clew.segment.previous_id"
CAPTURE_LEVEL: Final = "clew.capture.level"
ACTOR: Final = "clew.actor"
TENANT: Final = "clew.tenant"
CONFIGURATION: Final = "clew.configuration"
DATA_CLASS: Final = "clew.data_class"
TRIGGER: Final = "clew.trigger"
MESSAGE_ID: Final = "clew.message.id"
RUN_ID_GIVEN: Final = "clew.run.id.given"
DIGEST_KEY_ID: Final = "clew.digest.key_id"

TOTALS: Final = (
    "rounds",
    "tool_calls",
    "decisions",
    "denials",
    "rounds_unpriced",
    "rounds_without_usage",
    "usage.input_tokens",
    "usage.output_tokens",
    "usage.cache_read_tokens",
    "usage.cache_write_tokens",
    "usage.reasoning_tokens",
    "cost.usd",
    "cost.status",
)
"""Suffixes of the totals, under `clew.run.` (cumulative) and `clew.segment.` (this segment's)."""

# --- Seal --------------------------------------------------------------------------------------
SEAL_SPANS: Final = "clew.seal.spans"
SEAL_OPEN_SEQS: Final = "clew.seal.open_seqs"
SEAL_LAST_SEQ: Final = "clew.seal.last_seq"
SEAL_SIGNATURE: Final = "clew.seal.signature"
SEAL_SIGNATURE_KEY_ID: Final = "clew.seal.signature.key_id"
SEGMENT_DIGEST: Final = "clew.segment.digest"
SPAN_DIGEST: Final = "clew.span.digest"

# --- Round, hop, call --------------------------------------------------------------------------
ATTEMPTS: Final = "clew.attempts"
ATTEMPT_GROUPED: Final = "clew.attempt.grouped"
ATTEMPT_WAIT_MS: Final = "clew.attempt.wait_ms"
ATTEMPT_ERROR: Final = "clew.attempt.error"
COST_USD: Final = "clew.cost.usd"
COST_INPUT_USD: Final = "clew.cost.input.usd"
COST_OUTPUT_USD: Final = "clew.cost.output.usd"
COST_CACHE_READ_USD: Final = "clew.cost.cache_read.usd"
COST_CACHE_WRITE_USD: Final = "clew.cost.cache_write.usd"
COST_TOOLS_USD: Final = "clew.cost.tools.usd"
COST_LIST_USD: Final = "clew.cost.list.usd"
COST_STATUS: Final = "clew.cost.status"
COST_MISSING: Final = "clew.cost.missing"
PRICE_SOURCE: Final = "clew.price.source"
PRICE_VERSION: Final = "clew.price.version"
PRICE_MODEL: Final = "clew.price.model"
USAGE_SOURCE: Final = "clew.usage.source"
USAGE_MISMATCH: Final = "clew.usage.mismatch"
STREAM_OUTCOME: Final = "clew.stream.outcome"
STREAM_CHUNKS: Final = "clew.stream.chunks"
STREAM_RESUMED: Final = "clew.stream.resumed"
REQUEST_MESSAGES: Final = "clew.request.messages"
REQUEST_TOOLS: Final = "clew.request.tools"
REQUEST_BYTES: Final = "clew.request.bytes"
RESPONSE_BYTES: Final = "clew.response.bytes"
RESPONSE_TOOL_CALL_IDS: Final = "clew.response.tool_call.ids"
RESPONSE_TOOL_CALL_NAMES: Final = "clew.response.tool_call.names"
RESPONSE_TOOL_CALL_DIGESTS: Final = "clew.response.tool_call.digests"
RESPONSE_FINISH_REASONS_DIGESTS: Final = "clew.response.finish_reasons.digests"
ERROR_TYPE_DIGEST: Final = "clew.error.type.digest"
SERVED_PROVIDER: Final = "clew.response.provider"
RESPONSE_CACHED: Final = "clew.response.cached"
PROVIDER_HOP: Final = "clew.provider.hop"
PROVIDER_FAILURE_CLASS: Final = "clew.provider.failure_class"
AGGREGATE: Final = "clew.aggregate"
DECISIONS: Final = "clew.decisions"
DENIALS: Final = "clew.denials"

# --- Prompt: the blocks of a round's system text, without any of it -----------------------------
PROMPT_MAPPED: Final = "clew.prompt.mapped"
"""Whether the system text is that of a segmented prompt, to the last byte; only where one is
registered and there is a system text."""
PROMPT_DIGEST: Final = "clew.prompt.digest"
"""Keyed digest of the whole system text, mapped or not."""
PROMPT_BYTES: Final = "clew.prompt.bytes"
"""Length of the whole system text in UTF-8 bytes."""
PROMPT_BLOCK_IDS: Final = "clew.prompt.block.ids"
PROMPT_BLOCK_LAYERS: Final = "clew.prompt.block.layers"
PROMPT_BLOCK_STABILITIES: Final = "clew.prompt.block.stabilities"
PROMPT_BLOCK_SOURCES: Final = "clew.prompt.block.sources"
PROMPT_BLOCK_BYTES: Final = "clew.prompt.block.bytes"
PROMPT_BLOCK_DIGESTS: Final = "clew.prompt.block.digests"
PROMPT_BLOCKS: Final = (
    PROMPT_BLOCK_IDS,
    PROMPT_BLOCK_LAYERS,
    PROMPT_BLOCK_STABILITIES,
    PROMPT_BLOCK_SOURCES,
    PROMPT_BLOCK_BYTES,
    PROMPT_BLOCK_DIGESTS,
)
"""Parallel arrays, one entry for each block in the order of the text: all of them or none."""

# --- Window fit: what a round's request was reckoned to take, in tokens -------------------------
CONTEXT: Final = "clew.context."
CONTEXT_LINES: Final = (
    "measured",
    "context_length",
    "reserved_output",
    "safety_margin",
    "budget",
    "transcript_tokens",
    "tool_schema_tokens",
    "system_prompt_tokens",
    "snippet_tokens",
    "skill_tokens",
    "system_prompt_in_transcript",
    "estimated_tokens",
    "remaining",
    "calibration",
    "dropped_turns",
)
"""Suffixes of the lines of the window fit, under `clew.context.`; estimates, but for the first
five."""

# --- Tool call ---------------------------------------------------------------------------------
TOOL_OUTCOME: Final = "clew.tool.outcome"
TOOL_EFFECT: Final = "clew.tool.effect"
TOOL_ARGUMENTS_BYTES: Final = "clew.tool.arguments.bytes"
TOOL_RESULT_BYTES: Final = "clew.tool.result.bytes"
TOOL_INFERRED: Final = "clew.tool.inferred"
TOOL_NAME_DIGEST: Final = "clew.tool.name.digest"

# --- Decision ----------------------------------------------------------------------------------
DECISION_ID: Final = "clew.decision.id"
DECISION_GATE: Final = "clew.decision.gate"
DECISION_OUTCOME: Final = "clew.decision.outcome"
DECISION_REASON: Final = "clew.decision.reason"
DECISION_POLICY: Final = "clew.decision.policy"
DECISION_POLICY_VERSION: Final = "clew.decision.policy_version"
DECISION_ENFORCED: Final = "clew.decision.enforced"
DECISION_EXECUTED: Final = "clew.decision.executed"
DECISION_SUBJECT: Final = "clew.decision.subject"
DECISION_SUBJECT_DIGEST: Final = "clew.decision.subject.digest"
DECISION_BY: Final = "clew.decision.by"
DECISION_PROPOSED_AT: Final = "clew.decision.proposed_at"
DECISION_DECIDED_AT: Final = "clew.decision.decided_at"
DECISION_WAIT_MS: Final = "clew.decision.wait_ms"
DECISION_TRUST_ZONE: Final = "clew.decision.trust_zone"
DECISION_DATA_CLASS: Final = "clew.decision.data_class"
DECISION_RELEASED: Final = "clew.decision.released_chars"

PRIVACY_DROPPED: Final = "clew.privacy.dropped"
BACKFILLED: Final = "clew.backfilled"

# --- Labels of metrics that are no span attributes ---------------------------------------------
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - no secret
TOKEN_MODALITY: Final = "gen_ai.token.modality"  # noqa: S105 - no secret
METRIC_TOKEN_TYPE: Final = "clew.token.type"  # noqa: S105 - no secret
ATTEMPT_OUTCOME: Final = "clew.attempt.outcome"
BUDGET_NAME: Final = "clew.budget.name"
BUDGET_UNIT: Final = "clew.budget.unit"
PIPELINE_SIGNAL: Final = "clew.pipeline.signal"
PRIVACY_RULE: Final = "clew.privacy.rule"

MOST_PROMPT_BLOCKS: Final = 256
"""A prompt of more blocks has no map on its rounds."""

_name = Identifier(128)
_model = Identifier(256)
_id = Opaque(256)
_count = Number(0)
_flag = Flag()
_money = Number(0, 1e12)
_fine = Number(-1e6, 1e6)
_host = Identifier(253)
_time = Number(0)


def _totals() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for prefix in ("clew.run.", "clew.segment."):
        for total in TOTALS:
            rules[prefix + total] = _count
        rules[prefix + "cost.usd"] = _money
        rules[prefix + "cost.status"] = Closed(*COST_STATUSES)
    return rules


def _context() -> dict[str, Rule]:
    rules: dict[str, Rule] = {CONTEXT + line: _count for line in CONTEXT_LINES}
    for line in ("measured", "system_prompt_in_transcript"):
        rules[CONTEXT + line] = _flag
    for line in ("budget", "remaining"):
        rules[CONTEXT + line] = Number(-(2**53))
    rules[CONTEXT + "calibration"] = Number(0, 1e6)
    return rules


RULES: Final[dict[str, Rule]] = {
    OPERATION: Closed(*OPERATIONS, other="_OTHER"),
    PROVIDER: _name,
    REQUEST_MODEL: _model,
    REQUEST_MAX_TOKENS: _count,
    REQUEST_TEMPERATURE: _fine,
    REQUEST_TOP_P: _fine,
    REQUEST_TOP_K: _fine,
    REQUEST_FREQUENCY_PENALTY: _fine,
    REQUEST_PRESENCE_PENALTY: _fine,
    REQUEST_SEED: Number(-(2**63)),
    REQUEST_CHOICE_COUNT: _count,
    REQUEST_STREAM: _flag,
    REQUEST_REASONING_LEVEL: Identifier(32),
    REQUEST_PREVIOUS_RESPONSE_ID: _id,
    REQUEST_ENCODING_FORMATS: Each(Identifier(32)),
    REQUEST_SERVICE_TIER: Identifier(32),
    RESPONSE_SERVICE_TIER: Identifier(32),
    RESPONSE_SYSTEM_FINGERPRINT: _id,
    OUTPUT_TYPE: Closed("text", "json", "image", "speech"),
    RESPONSE_ID: _id,
    RESPONSE_MODEL: _model,
    RESPONSE_FINISH_REASONS: Each(Closed(*FINISH_REASONS, other="_OTHER")),
    RESPONSE_TIME_TO_FIRST_CHUNK: Number(0, 1e6),
    USAGE_INPUT: _count,
    USAGE_OUTPUT: _count,
    USAGE_CACHE_READ: _count,
    USAGE_CACHE_WRITE: _count,
    "gen_ai.usage.cache_creation.input_tokens": _count,
    USAGE_REASONING: _count,
    USAGE_AUDIO_INPUT: _count,
    USAGE_AUDIO_OUTPUT: _count,
    USAGE_IMAGE_INPUT: _count,
    USAGE_IMAGE_OUTPUT: _count,
    CONVERSATION_ID: _id,
    AGENT_NAME: _name,
    TOOL_NAME: _name,
    TOOL_CALL_ID: _id,
    TOOL_TYPE: Closed("function", "extension", "datastore"),
    EMBEDDINGS_DIMENSIONS: _count,
    ERROR_TYPE: _name,
    SERVER_ADDRESS: _host,
    SERVER_PORT: Number(0, 65535),
    HTTP_STATUS: Number(100, 999),
    HTTP_RESEND_COUNT: _count,
    EXCEPTION_TYPE: _name,
    RUN_ID: Uuid(),
    SEGMENT_ID: Hex(16),
    SEGMENT: Number(1),
    SEQ: Number(1),
    AGENT_ID: Hex(16),
    ROUND: Number(1),
    RUN_ROOT: _flag,
    RUN_STATUS: Closed(*RUN_STATUSES),
    RUN_TERMINATION_REASON: Closed(*TERMINATION_REASONS),
    RUN_PARENT_ID: Uuid(),
    RUN_KIND: _name,
    RUN_EVENT: Closed("started", "sealed", "heartbeat"),
    RUN_OPEN_SEQS: Each(Number(1)),
    SEGMENT_RESTART: _flag,
    SEGMENT_PREVIOUS_ID: Hex(16),
    CAPTURE_LEVEL: Closed(*CAPTURE_LEVELS),
    ACTOR: Hex(64),
    TENANT: _name,
    CONFIGURATION: _name,
    DATA_CLASS: _name,
    TRIGGER: _name,
    MESSAGE_ID: _id,
    RUN_ID_GIVEN: _id,
    DIGEST_KEY_ID: Hex(16),
    SEAL_SPANS: _count,
    SEAL_OPEN_SEQS: Each(Number(1), max_items=100_000),
    SEAL_LAST_SEQ: _count,
    SEAL_SIGNATURE: Hex(128),
    SEAL_SIGNATURE_KEY_ID: Hex(16),
    SEGMENT_DIGEST: Opaque(35),
    SPAN_DIGEST: Opaque(35),
    ATTEMPTS: Number(1),
    ATTEMPT_GROUPED: _flag,
    ATTEMPT_WAIT_MS: Number(0, 1e12),
    ATTEMPT_ERROR: _name,
    COST_USD: _money,
    COST_INPUT_USD: _money,
    COST_OUTPUT_USD: _money,
    COST_CACHE_READ_USD: _money,
    COST_CACHE_WRITE_USD: _money,
    COST_TOOLS_USD: _money,
    COST_LIST_USD: _money,
    COST_STATUS: Closed(*COST_STATUSES),
    COST_MISSING: Each(_name),
    PRICE_SOURCE: _name,
    PRICE_VERSION: _name,
    PRICE_MODEL: _model,
    USAGE_SOURCE: Closed("reported", "absent"),
    USAGE_MISMATCH: _flag,
    STREAM_OUTCOME: Closed(*STREAM_OUTCOMES),
    STREAM_CHUNKS: _count,
    STREAM_RESUMED: _flag,
    REQUEST_MESSAGES: _count,
    REQUEST_TOOLS: _count,
    REQUEST_BYTES: _count,
    RESPONSE_BYTES: _count,
    RESPONSE_TOOL_CALL_IDS: Each(_id, fill="_OTHER"),
    RESPONSE_TOOL_CALL_NAMES: Each(_name, fill="_OTHER"),
    RESPONSE_TOOL_CALL_DIGESTS: Each(Hex(64), fill="_OTHER"),
    RESPONSE_FINISH_REASONS_DIGESTS: Each(Hex(64), fill="_OTHER"),
    ERROR_TYPE_DIGEST: Hex(64),
    SERVED_PROVIDER: _name,
    RESPONSE_CACHED: _flag,
    PROVIDER_HOP: _count,
    PROVIDER_FAILURE_CLASS: Closed(*FAILURE_CLASSES),
    AGGREGATE: _flag,
    PROMPT_MAPPED: _flag,
    PROMPT_DIGEST: Hex(64),
    PROMPT_BYTES: _count,
    PROMPT_BLOCK_IDS: Each(Identifier(160), max_items=MOST_PROMPT_BLOCKS, fill="_OTHER"),
    PROMPT_BLOCK_LAYERS: Each(
        Closed(*PROMPT_LAYERS, other="_OTHER"), max_items=MOST_PROMPT_BLOCKS, fill="_OTHER"
    ),
    PROMPT_BLOCK_STABILITIES: Each(
        Closed(*PROMPT_STABILITIES, other="_OTHER"), max_items=MOST_PROMPT_BLOCKS, fill="_OTHER"
    ),
    PROMPT_BLOCK_SOURCES: Each(
        Closed(*PROMPT_SOURCES, other="_OTHER"), max_items=MOST_PROMPT_BLOCKS, fill="_OTHER"
    ),
    PROMPT_BLOCK_BYTES: Each(_count, max_items=MOST_PROMPT_BLOCKS),
    PROMPT_BLOCK_DIGESTS: Each(Hex(64), max_items=MOST_PROMPT_BLOCKS),
    DECISIONS: _count,
    DENIALS: _count,
    TOOL_OUTCOME: Closed(*TOOL_OUTCOMES),
    TOOL_EFFECT: Closed(*TOOL_EFFECTS),
    TOOL_ARGUMENTS_BYTES: _count,
    TOOL_RESULT_BYTES: _count,
    TOOL_INFERRED: _flag,
    TOOL_NAME_DIGEST: Hex(64),
    DECISION_ID: Hex(32),
    DECISION_GATE: _name,
    DECISION_OUTCOME: Closed(*DECISION_OUTCOMES),
    DECISION_REASON: Identifier(64),
    DECISION_POLICY: _name,
    DECISION_POLICY_VERSION: Identifier(64),
    DECISION_ENFORCED: _flag,
    DECISION_EXECUTED: _flag,
    DECISION_SUBJECT: _model,
    DECISION_SUBJECT_DIGEST: Hex(64),
    DECISION_BY: Closed(*DECIDERS),
    DECISION_PROPOSED_AT: _time,
    DECISION_DECIDED_AT: _time,
    DECISION_WAIT_MS: Number(0, 1e12),
    DECISION_TRUST_ZONE: _name,
    DECISION_DATA_CLASS: _name,
    DECISION_RELEASED: _count,
    PRIVACY_DROPPED: _count,
    BACKFILLED: _flag,
    **_totals(),
    **_context(),
}
"""Keys that may leave on a span, an event or a link, each with the rule for its value."""


def identifier_rule(key: str) -> Identifier:
    """Return the rule of a key whose values are identifiers."""
    rule = RULES[key]
    assert isinstance(rule, Identifier)  # noqa: S101 - the table is ours
    return rule
