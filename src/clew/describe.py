"""What a round's span says: facts to attributes, each obeying its rule.

Written out field by field: this runs once for every model call, on the caller's path.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final

from clew import semconv
from clew.digests import LazyDigests
from clew.facts import RequestFacts, ResponseFacts, ToolCall, Usage
from clew.rules import DROPPED, OTHER

if TYPE_CHECKING:
    from clew.rounds import Ending

_MAX: Final = 2**63 - 1
_MODEL = semconv.RULES[semconv.RESPONSE_MODEL].apply
_ID = semconv.RULES[semconv.RESPONSE_ID].apply
_WORD = semconv.RULES[semconv.SERVED_PROVIDER].apply
_FINISH_REASONS = frozenset(semconv.FINISH_REASONS)
_NO_REASON = (None,)
_rules = semconv.RULES


def add_request(attributes: dict[str, Any], request: RequestFacts) -> None:
    """Add what the request says about itself."""
    value: Any = request.max_tokens
    if value is not None and 0 <= value <= _MAX:
        attributes[semconv.REQUEST_MAX_TOKENS] = value
    value = request.messages
    if value is not None:
        attributes[semconv.REQUEST_MESSAGES] = value
    value = request.tools
    if value is not None:
        attributes[semconv.REQUEST_TOOLS] = len(value)
    if request.stream:
        attributes[semconv.REQUEST_STREAM] = True
    if request.temperature is not None:
        _add(attributes, semconv.REQUEST_TEMPERATURE, request.temperature)
    if request.top_p is not None:
        _add(attributes, semconv.REQUEST_TOP_P, request.top_p)
    if request.seed is not None:
        _add(attributes, semconv.REQUEST_SEED, request.seed)
    if request.choice_count is not None and request.choice_count != 1:
        _add(attributes, semconv.REQUEST_CHOICE_COUNT, request.choice_count)
    if request.encoding_formats:
        _add(attributes, semconv.REQUEST_ENCODING_FORMATS, request.encoding_formats)
    for key, value in (
        (semconv.REQUEST_TOP_K, request.top_k),
        (semconv.REQUEST_FREQUENCY_PENALTY, request.frequency_penalty),
        (semconv.REQUEST_PRESENCE_PENALTY, request.presence_penalty),
        (semconv.REQUEST_REASONING_LEVEL, request.reasoning_level),
        (semconv.REQUEST_SERVICE_TIER, request.service_tier),
        (semconv.OUTPUT_TYPE, request.output_type),
        (semconv.REQUEST_PREVIOUS_RESPONSE_ID, request.previous_response_id),
        (semconv.EMBEDDINGS_DIMENSIONS, request.dimensions),
    ):
        if value is not None:
            _add(attributes, key, value)


def add_response(attributes: dict[str, Any], ending: Ending) -> None:
    """Add what the response says about itself, and how it ended."""
    response: ResponseFacts = ending.response
    if ending.status is not None:
        attributes[semconv.HTTP_STATUS] = ending.status
    if ending.response_bytes is not None:
        attributes[semconv.RESPONSE_BYTES] = ending.response_bytes
    value: Any = response.id
    if value is not None and _ID(value) is value:
        attributes[semconv.RESPONSE_ID] = value
    value = response.model
    if value is not None:
        attributes[semconv.RESPONSE_MODEL] = value if _MODEL(value) is value else OTHER
    if response.service_tier is not None:
        _add(attributes, semconv.RESPONSE_SERVICE_TIER, response.service_tier)
    if response.system_fingerprint is not None:
        _add(attributes, semconv.RESPONSE_SYSTEM_FINGERPRINT, response.system_fingerprint)
    if response.served_provider is not None:
        value = _WORD(response.served_provider)
        attributes[semconv.SERVED_PROVIDER] = OTHER if value is DROPPED else value
    value = response.finish_reasons
    if value and value != _NO_REASON:
        attributes[semconv.RESPONSE_FINISH_REASONS] = tuple(
            [reason if reason in _FINISH_REASONS else OTHER for reason in value]
        )
    if ending.outcome is not None:
        attributes[semconv.STREAM_OUTCOME] = ending.outcome
        if ending.chunks is not None:
            attributes[semconv.STREAM_CHUNKS] = ending.chunks
        if ending.first_chunk_s is not None:
            attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = ending.first_chunk_s
    if response.usage is None:
        attributes[semconv.USAGE_SOURCE] = "absent"
    else:
        attributes[semconv.USAGE_SOURCE] = "reported"
        _add_usage(attributes, response.usage)


def _add_usage(attributes: dict[str, Any], usage: Usage) -> None:
    value = usage.input_tokens
    if value is not None and 0 <= value <= _MAX:
        attributes[semconv.USAGE_INPUT] = value
    value = usage.output_tokens
    if value is not None and 0 <= value <= _MAX:
        attributes[semconv.USAGE_OUTPUT] = value
    value = usage.cache_read_tokens
    if value is not None and 0 <= value <= _MAX:
        attributes[semconv.USAGE_CACHE_READ] = value
    value = usage.cache_write_tokens
    if value is not None and 0 <= value <= _MAX:
        attributes[semconv.USAGE_CACHE_WRITE] = value
    value = usage.reasoning_tokens
    if value is not None and 0 <= value <= _MAX:
        attributes[semconv.USAGE_REASONING] = value
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
    registered: Collection[str],
    digests: LazyDigests,
) -> None:
    """Name the tool calls asked for; a name that nobody but the model gave leaves as a digest.

    Args:
        attributes: where to add.
        calls: the tool calls.
        known: names that requests have offered.
        registered: names registered in code.
        digests: makes the digests of other names.
    """
    names: list[str] = []
    unknown: list[str] = []
    for call in calls:
        name = call.name or ""
        if name in known or name in registered:
            names.append(name)
            unknown.append(OTHER)
        else:
            names.append(OTHER)
            unknown.append(digests.get().of(name))
    _add(attributes, semconv.RESPONSE_TOOL_CALL_IDS, [call.id or OTHER for call in calls])
    _add(attributes, semconv.RESPONSE_TOOL_CALL_NAMES, names)
    if OTHER in names:
        _add(attributes, semconv.RESPONSE_TOOL_CALL_DIGESTS, unknown)
        attributes[semconv.DIGEST_KEY_ID] = digests.get().key_id


def _add(attributes: dict[str, Any], key: str, value: Any) -> None:
    kept = _rules[key].apply(value)
    if kept is not DROPPED:
        attributes[key] = kept
