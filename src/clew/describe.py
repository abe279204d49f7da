"""What a round's span says: facts to attributes, each obeying its rule.

Written out field by field: this runs once for every model call.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from clew import semconv
from clew.digests import LazyDigests
from clew.facts import RequestFacts, ResponseFacts, ToolCall, Usage
from clew.rules import DROPPED, OTHER
from clew.semconv import (
    HTTP_STATUS,
    REQUEST_MAX_TOKENS,
    REQUEST_MESSAGES,
    REQUEST_STREAM,
    REQUEST_TEMPERATURE,
    REQUEST_TOOLS,
    RESPONSE_BYTES,
    RESPONSE_FINISH_REASONS,
    RESPONSE_ID,
    RESPONSE_MODEL,
    RESPONSE_SERVICE_TIER,
    RESPONSE_SYSTEM_FINGERPRINT,
    SERVED_PROVIDER,
    USAGE_CACHE_READ,
    USAGE_CACHE_WRITE,
    USAGE_INPUT,
    USAGE_OUTPUT,
    USAGE_REASONING,
    USAGE_SOURCE,
    identifier_rule,
)

if TYPE_CHECKING:
    from clew.endings import Ending

_MAX: Final = 2**63 - 1
_FINISH_REASONS = frozenset(semconv.FINISH_REASONS)
_NO_REASON = (None,)
_rules = semconv.RULES


_fits_id = identifier_rule(RESPONSE_ID).fits
_models = identifier_rule(RESPONSE_MODEL)
_known_models = _models.known
_HOTTEST: Final = 1e6  # as the rule has it; a dialect lets no number pass that is not finite
_tools = identifier_rule(semconv.TOOL_NAME)
_MOST_CALLS: Final = 256
_known_tiers = identifier_rule(RESPONSE_SERVICE_TIER).known
_known_fingerprints = identifier_rule(RESPONSE_SYSTEM_FINGERPRINT).known


def add_request(attributes: dict[str, Any], request: RequestFacts) -> None:
    """Add what the request says about itself."""
    if request.max_tokens is not None and 0 <= request.max_tokens <= _MAX:
        attributes[REQUEST_MAX_TOKENS] = request.max_tokens
    if request.messages is not None:
        attributes[REQUEST_MESSAGES] = request.messages
    if request.tools is not None:
        attributes[REQUEST_TOOLS] = len(request.tools)
    if request.stream:
        attributes[REQUEST_STREAM] = True
    heat = request.temperature
    if heat is not None and -_HOTTEST <= heat <= _HOTTEST:
        attributes[REQUEST_TEMPERATURE] = heat
    if (
        request.top_p is not None
        or request.top_k is not None
        or request.frequency_penalty is not None
        or request.presence_penalty is not None
        or request.seed is not None
        or request.choice_count is not None
        or request.reasoning_level is not None
        or request.service_tier is not None
        or request.output_type is not None
        or request.previous_response_id is not None
        or request.dimensions is not None
        or request.encoding_formats
    ):
        _add_rare_request(attributes, request)


def _add_rare_request(attributes: dict[str, Any], request: RequestFacts) -> None:
    """Add what few requests say."""
    for key, value in (
        (semconv.REQUEST_TOP_P, request.top_p),
        (semconv.REQUEST_TOP_K, request.top_k),
        (semconv.REQUEST_FREQUENCY_PENALTY, request.frequency_penalty),
        (semconv.REQUEST_PRESENCE_PENALTY, request.presence_penalty),
        (semconv.REQUEST_SEED, request.seed),
        (semconv.REQUEST_CHOICE_COUNT, None if request.choice_count == 1 else request.choice_count),
        (semconv.REQUEST_REASONING_LEVEL, request.reasoning_level),
        (semconv.REQUEST_SERVICE_TIER, request.service_tier),
        (semconv.OUTPUT_TYPE, request.output_type),
        (semconv.REQUEST_PREVIOUS_RESPONSE_ID, request.previous_response_id),
        (semconv.EMBEDDINGS_DIMENSIONS, request.dimensions),
        (semconv.REQUEST_ENCODING_FORMATS, request.encoding_formats or None),
    ):
        if value is not None:
            _add(attributes, key, value)


def add_response(attributes: dict[str, Any], ending: Ending) -> None:
    """Add what the response says about itself, and how it ended."""
    response: ResponseFacts = ending.response
    if ending.status is not None:
        attributes[HTTP_STATUS] = ending.status
    if ending.response_bytes is not None:
        attributes[RESPONSE_BYTES] = ending.response_bytes
    if response.id is not None and _fits_id(response.id) is not None:
        attributes[RESPONSE_ID] = response.id
    model = response.model
    if model is not None:
        shown = model if model in _known_models else _models.apply(model)
        attributes[RESPONSE_MODEL] = OTHER if shown is DROPPED else shown
    tier = response.service_tier
    if tier is not None:
        if tier in _known_tiers:
            attributes[RESPONSE_SERVICE_TIER] = tier
        else:
            _add(attributes, RESPONSE_SERVICE_TIER, tier)
    fingerprint = response.system_fingerprint
    if fingerprint is not None:
        if fingerprint in _known_fingerprints:
            attributes[RESPONSE_SYSTEM_FINGERPRINT] = fingerprint
        else:
            _add(attributes, RESPONSE_SYSTEM_FINGERPRINT, fingerprint)
    if response.served_provider is not None:
        _add(attributes, SERVED_PROVIDER, response.served_provider)
        attributes.setdefault(SERVED_PROVIDER, OTHER)
    reasons = response.finish_reasons
    if reasons and reasons != _NO_REASON:
        attributes[RESPONSE_FINISH_REASONS] = (
            reasons if _FINISH_REASONS.issuperset(reasons) else _closed(reasons)
        )
    if ending.outcome is not None:
        _add_stream(attributes, ending)
    if response.usage is None:
        attributes[USAGE_SOURCE] = "absent"
    else:
        _add_usage(attributes, response.usage)


def add_unknown(attributes: dict[str, Any], ending: Ending, digests: LazyDigests) -> None:
    """Tell the provider's words that have no place in a closed set apart: by keyed digests.

    A finish reason outside the set, and an error's type or code that is no identifier, leave as
    `_OTHER`; equal ones have equal digests.
    """
    kept = attributes.get(RESPONSE_FINISH_REASONS, ())
    raw = ending.response.finish_reasons_raw
    if OTHER in kept and len(raw) == len(kept):
        attributes[semconv.RESPONSE_FINISH_REASONS_DIGESTS] = tuple(
            digests.get().of(word) if known == OTHER and word is not None else OTHER
            for known, word in zip(kept, raw, strict=True)
        )
        attributes[semconv.DIGEST_KEY_ID] = digests.get().key_id
    error = ending.response.error
    if error is not None and attributes.get(semconv.ERROR_TYPE) not in (error.type, error.code):
        word = error.type or error.code
        if isinstance(word, str):
            attributes[semconv.ERROR_TYPE_DIGEST] = digests.get().of(word)
            attributes[semconv.DIGEST_KEY_ID] = digests.get().key_id


def _closed(reasons: tuple[str | None, ...]) -> tuple[str | None, ...]:
    return tuple([reason if reason in _FINISH_REASONS else OTHER for reason in reasons])


def _add_stream(attributes: dict[str, Any], ending: Ending) -> None:
    attributes[semconv.STREAM_OUTCOME] = ending.outcome
    if ending.chunks is not None:
        attributes[semconv.STREAM_CHUNKS] = ending.chunks
    if ending.first_chunk_s is not None:
        attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = ending.first_chunk_s


def _add_usage(attributes: dict[str, Any], usage: Usage) -> None:
    """Add the token counts. Dialects bound each count; only the two totals are sums of theirs."""
    attributes[USAGE_SOURCE] = "reported"
    if usage.input_tokens is not None and usage.input_tokens <= _MAX:
        attributes[USAGE_INPUT] = usage.input_tokens
    if usage.output_tokens is not None and usage.output_tokens <= _MAX:
        attributes[USAGE_OUTPUT] = usage.output_tokens
    if usage.cache_read_tokens is not None:
        attributes[USAGE_CACHE_READ] = usage.cache_read_tokens
    if usage.cache_write_tokens is not None:
        attributes[USAGE_CACHE_WRITE] = usage.cache_write_tokens
    if usage.reasoning_tokens is not None:
        attributes[USAGE_REASONING] = usage.reasoning_tokens
    if usage.mismatch:
        attributes[semconv.USAGE_MISMATCH] = True
    if usage.input_audio_tokens:
        _add(attributes, semconv.USAGE_AUDIO_INPUT, usage.input_audio_tokens)
    if usage.output_audio_tokens:
        _add(attributes, semconv.USAGE_AUDIO_OUTPUT, usage.output_audio_tokens)
    if usage.input_image_tokens:
        _add(attributes, semconv.USAGE_IMAGE_INPUT, usage.input_image_tokens)
    if usage.output_image_tokens:
        _add(attributes, semconv.USAGE_IMAGE_OUTPUT, usage.output_image_tokens)


def add_tool_calls(
    attributes: dict[str, Any],
    calls: Collection[ToolCall],
    known: Collection[str],
    digests: LazyDigests,
) -> None:
    """Name the tool calls asked for; a name that nobody but the model gave leaves as a digest.

    Args:
        attributes: where to add.
        calls: the tool calls.
        known: names that requests have offered, or that are registered in code.
        digests: makes the digests of other names.
    """
    ids: list[str] = []
    names: list[str] = []
    chosen: list[str] = []
    for call in calls:
        call_id, name = call.id, call.name or ""
        ids.append(call_id if call_id and _fits_id(call_id) is not None else OTHER)
        if name in known:
            names.append(name if _tools.apply(name) is not DROPPED else OTHER)
        else:
            names.append(OTHER)
            chosen.append(name)
    if len(ids) <= _MOST_CALLS:
        attributes[semconv.RESPONSE_TOOL_CALL_IDS] = tuple(ids)
        attributes[semconv.RESPONSE_TOOL_CALL_NAMES] = tuple(names)
    if chosen:
        made = [
            digests.get().of(call.name or "") if (call.name or "") in chosen else OTHER
            for call in calls
        ]
        _add(attributes, semconv.RESPONSE_TOOL_CALL_DIGESTS, made)
        attributes[semconv.DIGEST_KEY_ID] = digests.get().key_id


def _add(attributes: dict[str, Any], key: str, value: Any) -> None:
    kept = _rules[key].apply(value)
    if kept is not DROPPED:
        attributes[key] = kept
