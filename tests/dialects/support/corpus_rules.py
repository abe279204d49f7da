"""What is expected of a recorded exchange.

The expected facts are worked out here, from the recordings' own expected values and the providers'
documented rules, without the dialects' code.
"""

from __future__ import annotations

from typing import Any

from corpus import Recorded

from clew.facts import Usage

WORDS = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "STOP_SEQUENCE": "stop",
    "STOP": "stop",
    "COMPLETE": "stop",
    "FINISH": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "length": "length",
    "max_tokens": "length",
    "maximum_tokens": "length",
    "tool_calls": "tool_call",
    "tool_use": "tool_call",
    "function_call": "tool_call",
    "TOOL_CALL": "tool_call",
    "SAFETY": "content_filter",
    "guardrail_intervened": "content_filter",
}
"""The providers' words in the recordings, in the convention's."""
PROVIDERS = {
    "google_gemini": "gcp.gemini",
    "google_vertex": "gcp.vertex_ai",
    "aws_bedrock": "aws.bedrock",
    "aws_bedrock_mantle": "aws.bedrock",
    "aws_sagemaker": "aws.sagemaker",
    "azure_openai": "azure.ai.openai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "watsonx": "ibm.watsonx.ai",
    "litellm_proxy": None,
}
"""Providers' names in the recordings that are not ours."""


def parts(usage: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the first of these objects that there is."""
    return next((usage[name] for name in names if usage.get(name)), {})


def first(*values: Any) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def tokens_of(details: list[dict[str, Any]] | None, modality: str) -> int | None:
    """Return what a list by modality says about one."""
    found = [
        first(entry.get("tokenCount"), entry.get("tokens"))
        for entry in details or ()
        if entry["modality"].upper() == modality
    ]
    return sum(found) if found else None


def openai_usage(usage: dict[str, Any], provider: str | None) -> Usage:
    """The OpenAI shape: cached tokens inside the prompt, reasoning inside the completion."""
    given = parts(
        usage,
        "prompt_tokens_details",
        "input_tokens_details",
        "input_token_details",
        "prompt_token_details",
    )
    made = parts(
        usage, "completion_tokens_details", "output_tokens_details", "completion_token_details"
    )
    prompt = first(usage.get("prompt_tokens"), usage.get("input_tokens"))
    completion = first(usage.get("completion_tokens"), usage.get("output_tokens"))
    reasoning, total = made.get("reasoning_tokens"), usage.get("total_tokens")
    if prompt is None and completion is None:
        prompt = total  # vectors and ranks: all is input
    if provider == "gcp.gemini":  # thoughts show in the total only
        reasoning = total - prompt - completion or None
        completion = total - prompt
    cost = usage.get("cost")
    if isinstance(cost, dict):
        cost = cost["total_cost"]
    if "cost_in_usd_ticks" in usage:
        cost = usage["cost_in_usd_ticks"] / 10**10
    tools = usage.get("server_tool_use_details") or {}
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=first(
            given.get("cached_tokens"), usage.get("cached_tokens"), usage.get("num_cached_tokens")
        ),
        cache_write_tokens=given.get("cache_write_tokens"),
        reasoning_tokens=reasoning,
        input_audio_tokens=given.get("audio_tokens"),
        output_audio_tokens=made.get("audio_tokens"),
        input_image_tokens=given.get("image_tokens"),
        output_image_tokens=made.get("image_tokens"),
        web_searches=tools.get("web_search_requests"),
        cost_usd=cost,
        mismatch=total is not None and total != (prompt or 0) + (completion or 0),
    )


def anthropic_usage(usage: dict[str, Any]) -> Usage:
    """Anthropic: cache reads and writes come on top of the input."""
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    return Usage(
        input_tokens=usage["input_tokens"] + (read or 0) + (written or 0),
        output_tokens=usage["output_tokens"],
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=(usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens"),
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("thinking_tokens"),
        web_searches=(usage.get("server_tool_use") or {}).get("web_search_requests"),
    )


def gemini_usage(usage: dict[str, Any]) -> Usage:
    """Gemini: tool-use prompts are input, thoughts are output, cached content is in the prompt."""
    prompt = [usage.get("promptTokenCount"), usage.get("toolUsePromptTokenCount")]
    made = [usage.get("candidatesTokenCount"), usage.get("thoughtsTokenCount")]
    total = usage.get("totalTokenCount")
    input_tokens = sum(filter(None, prompt)) if any(p is not None for p in prompt) else None
    output_tokens = sum(filter(None, made)) if any(m is not None for m in made) else None
    if input_tokens is output_tokens is None:
        input_tokens = total
    given = usage.get("promptTokensDetails") or usage.get("promptTokenDetails") or []
    given = given + (usage.get("toolUsePromptTokensDetails") or [])
    known = None not in (input_tokens, output_tokens, total)
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=usage.get("cachedContentTokenCount"),
        reasoning_tokens=usage.get("thoughtsTokenCount"),
        input_audio_tokens=tokens_of(given, "AUDIO"),
        input_image_tokens=tokens_of(given, "IMAGE"),
        output_audio_tokens=tokens_of(usage.get("candidatesTokensDetails"), "AUDIO"),
        output_image_tokens=tokens_of(usage.get("candidatesTokensDetails"), "IMAGE"),
        cache_read_audio_tokens=tokens_of(usage.get("cacheTokensDetails"), "AUDIO"),
        mismatch=known and input_tokens + output_tokens != total,
    )


def interactions_usage(usage: dict[str, Any]) -> Usage:
    """Gemini's interactions: the same rules under other names."""
    input_tokens = usage["total_input_tokens"] + usage["total_tool_use_tokens"]
    output_tokens = usage["total_output_tokens"] + usage["total_thought_tokens"]
    assert input_tokens + output_tokens == usage["total_tokens"]
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=usage["total_cached_tokens"],
        reasoning_tokens=usage["total_thought_tokens"],
        input_image_tokens=tokens_of(usage["input_tokens_by_modality"], "IMAGE"),
    )


def converse_usage(usage: dict[str, Any]) -> Usage:
    """Bedrock Converse and Nova: cache reads and writes come on top of the input."""
    read = first(usage.get("cacheReadInputTokens"), usage.get("cacheReadInputTokenCount"))
    written = first(usage.get("cacheWriteInputTokens"), usage.get("cacheWriteInputTokenCount"))
    input_tokens = usage["inputTokens"] + (read or 0) + (written or 0)
    output_tokens, total = usage.get("outputTokens"), usage.get("totalTokens")
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
        mismatch=None not in (total, output_tokens) and input_tokens + output_tokens != total,
    )


PLAIN_COUNTS = (
    ("prompt_eval_count", "eval_count"),
    ("input_token_count", "generated_token_count"),
    ("num_tokens_prompt_total", "num_tokens_generated"),
    ("inputTextTokenCount", "totalOutputTextTokenCount"),
    ("", "generated_tokens"),
)


def usage_of(usage: dict[str, Any] | None, provider: str | None) -> Usage | None:
    """Return the usage that is expected for what was reported."""
    if usage is None:
        return None
    if "billed_units" in usage:  # Cohere bills these
        billed = usage["billed_units"]
        if "input_tokens" not in billed:
            return None  # a rerank is billed by searches
        return Usage(
            input_tokens=billed["input_tokens"],
            output_tokens=billed["output_tokens"],
            cache_read_tokens=usage.get("cached_tokens"),
            reasoning_tokens=(usage.get("tokens") or {}).get("reasoning_tokens"),
        )
    for given, made in PLAIN_COUNTS:
        if given in usage or made in usage:
            counts = (usage.get(given), usage.get(made))
            return Usage(
                input_tokens=None if counts[0] is None else int(counts[0]),
                output_tokens=None if counts[1] is None else int(counts[1]),
            )
    if "total_input_tokens" in usage:
        return interactions_usage(usage)
    if "inputTokens" in usage:
        return converse_usage(usage)
    if any(key.endswith("TokenCount") for key in usage):
        return gemini_usage(usage)
    if "input_tokens" in usage and "total_tokens" not in usage:
        return anthropic_usage(usage)
    return openai_usage(usage, provider)


def outer_counts(expected: dict[str, Any]) -> dict[str, int | None]:
    """Bedrock's counts outside the body: in headers, or in the metrics of the last chunk."""
    headers = expected.get("usage_headers") or {}
    metrics = expected.get("usage_invocation_metrics") or {}
    counts = {
        "read": ("cache-read-input", "cacheReadInputTokenCount"),
        "written": ("cache-write-input", "cacheWriteInputTokenCount"),
        "input": ("input", "inputTokenCount"),
        "output": ("output", "outputTokenCount"),
    }
    found = {
        name: first(headers.get(f"x-amzn-bedrock-{header}-token-count"), metrics.get(metric))
        for name, (header, metric) in counts.items()
    }
    return {name: None if value is None else int(value) for name, value in found.items()}


def expected_usage(exchange: Recorded) -> Usage | None:
    """Return the usage that is expected, gaps filled from outside the body where there is that."""
    expected = exchange.expected
    provider = PROVIDERS.get(exchange.provider, exchange.provider)
    usage = usage_of(expected["usage"], provider)
    outer = outer_counts(expected)
    if outer["input"] is None or (
        usage is not None and None not in (usage.input_tokens, usage.output_tokens)
    ):
        return usage
    whole = outer["input"] + (outer["read"] or 0) + (outer["written"] or 0)
    usage = usage or Usage()
    return Usage(
        input_tokens=first(usage.input_tokens, whole),
        output_tokens=first(usage.output_tokens, outer["output"]),
        cache_read_tokens=first(usage.cache_read_tokens, outer["read"]),
        cache_write_tokens=first(usage.cache_write_tokens, outer["written"]),
    )


def expected_reasons(exchange: Recorded) -> tuple[list[str | None], list[str | None]]:
    """Return the finish reasons in the provider's words and in the convention's."""
    expected = exchange.expected
    if expected.get("response_status") is not None:
        status, calls = expected["response_status"], expected["tool_calls"]
        derived = {
            "completed": "tool_call" if calls else "stop",
            "incomplete": "length",
            "failed": "error",
        }.get(status)
        return [], [] if derived is None else [derived]
    words = list(expected["finish_reasons"] or ())
    return words, [WORDS[word] if word else None for word in words]


def expected_facts(exchange: Recorded) -> dict[str, Any]:
    """Return everything that is expected of an exchange."""
    expected = exchange.expected
    error = expected["error"]
    raw, mapped = expected_reasons(exchange)
    return {
        "operation": expected["operation"],
        "provider": PROVIDERS.get(exchange.provider, exchange.provider),
        "request_model": expected["request_model"],
        "stream": expected["stream"],
        "response_model": expected["response_model"],
        "response_id": expected["response_id"],
        "finish_reasons_raw": raw,
        "finish_reasons": mapped,
        "tool_calls": [(call["id"], call["name"]) for call in expected["tool_calls"]],
        "error": error and (error["type"], error["code"]),
        "usage": expected_usage(exchange),
        "complete": expected.get("stream_complete", True),
    }
