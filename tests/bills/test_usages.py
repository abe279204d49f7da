"""From the bytes of an answer to tokens and cost on spans, for each provider's own usage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from bill_answers import (
    CHAT,
    CONVERSE,
    GEMINI,
    INTERACTIONS,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    Bill,
    chat,
    streamed,
)
from billing import PER, Answering, ask

import clew
from clew import semconv as s
from clew.testing import CaptureExporter

CACHED = {"input": 1000, "output": 50, "read": 800}
ON_TOP = {"input": 1010, "output": 50, "read": 800, "write": 200}
SOUND = {"input": 500, "output": 230}
GEMINI_SOUND = {
    "promptTokenCount": 500, "candidatesTokenCount": 230, "totalTokenCount": 730,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 100}, {"modality": "AUDIO", "tokenCount": 400},
    ],
    "candidatesTokensDetails": [
        {"modality": "TEXT", "tokenCount": 30}, {"modality": "AUDIO", "tokenCount": 200},
    ],
}  # fmt: skip
OPENAI_SOUND = chat(
    500, 230,
    prompt_tokens_details={"text_tokens": 100, "audio_tokens": 400},
    completion_tokens_details={"text_tokens": 30, "audio_tokens": 200},
)  # fmt: skip
CACHED_USD = (200 * 2 + 800 * 0.5 + 50 * 8) * PER
ON_TOP_USD = (10 * 2 + 800 * 0.5 + 200 * 2.5 + 50 * 8) * PER
SOUND_USD = (100 * 2 + 400 * 40 + 30 * 8 + 200 * 80) * PER
REASONED_USD = (100 * 2 + 320 * 8) * PER
BILLS: dict[str, Bill] = {
    # What was read from a cache is a part of the input.
    "cache inside, chat": Bill(
        CHAT, chat(1000, 50, prompt_tokens_details={"cached_tokens": 800}), CACHED, CACHED_USD
    ),
    "cache inside, responses": Bill(
        RESPONSES,
        {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050,
         "input_tokens_details": {"cached_tokens": 800}},
        CACHED, CACHED_USD,
    ),
    "cache inside, Gemini": Bill(
        GEMINI,
        {"promptTokenCount": 1000, "cachedContentTokenCount": 800, "candidatesTokenCount": 50,
         "totalTokenCount": 1050},
        CACHED, CACHED_USD,
    ),
    # What was read or written comes on top.
    "cache on top, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 10, "cache_read_input_tokens": 800, "cache_creation_input_tokens": 200,
         "output_tokens": 50},
        ON_TOP, ON_TOP_USD,
    ),
    "cache on top, Bedrock": Bill(
        CONVERSE,
        {"inputTokens": 10, "cacheReadInputTokens": 800, "cacheWriteInputTokens": 200,
         "outputTokens": 50, "totalTokens": 1060},
        ON_TOP, ON_TOP_USD,
    ),
    "cache alone, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 0, "cache_read_input_tokens": 5000, "output_tokens": 0},
        {"input": 5000, "output": 0, "read": 5000}, 5000 * 0.5 * PER,
    ),
    "cache alone, Bedrock": Bill(
        CONVERSE,
        {"inputTokens": 0, "cacheReadInputTokens": 5000, "outputTokens": 0, "totalTokens": 5000},
        {"input": 5000, "output": 0, "read": 5000}, 5000 * 0.5 * PER,
    ),
    # Thoughts are output, prompts of tools input.
    "thoughts, Gemini": Bill(
        GEMINI,
        {"promptTokenCount": 100, "candidatesTokenCount": 20, "thoughtsTokenCount": 300,
         "toolUsePromptTokenCount": 40, "totalTokenCount": 460},
        {"input": 140, "output": 320, "reasoning": 300}, (140 * 2 + 320 * 8) * PER,
    ),
    "thoughts, Gemini interactions": Bill(
        INTERACTIONS,
        {"total_input_tokens": 100, "total_output_tokens": 20, "total_thought_tokens": 300,
         "total_tool_use_tokens": 40, "total_tokens": 460},
        {"input": 140, "output": 320, "reasoning": 300}, (140 * 2 + 320 * 8) * PER,
    ),
    "a total that is none, Gemini": Bill(
        GEMINI,
        {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 999},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER, more={s.USAGE_MISMATCH: True},
    ),
    "a total that is none, chat": Bill(
        CHAT, {**chat(100, 20), "total_tokens": 999},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER, more={s.USAGE_MISMATCH: True},
    ),
    # Reasoning is a part of the output.
    "reasoning, chat": Bill(
        CHAT, chat(100, 320, completion_tokens_details={"reasoning_tokens": 300}),
        {"input": 100, "output": 320, "reasoning": 300}, REASONED_USD,
    ),
    "reasoning, responses": Bill(
        RESPONSES,
        {"input_tokens": 100, "output_tokens": 320, "total_tokens": 420,
         "output_tokens_details": {"reasoning_tokens": 300}},
        {"input": 100, "output": 320, "reasoning": 300}, REASONED_USD,
    ),
    # Sound has rates of its own, or is named as missing.
    "sound, chat": Bill(CHAT, OPENAI_SOUND, SOUND, SOUND_USD),
    "sound, Gemini": Bill(GEMINI, GEMINI_SOUND, SOUND, SOUND_USD),
    "sound without rates, chat": Bill(
        CHAT, OPENAI_SOUND, SOUND, (100 * 2 + 30 * 8) * PER, "partial",
        ("rate.input_audio", "rate.output_audio"), "model-s",
    ),
    "sound without rates, Gemini": Bill(
        GEMINI.replace("model-x", "model-s"), GEMINI_SOUND, SOUND, (100 * 2 + 30 * 8) * PER,
        "partial", ("rate.input_audio", "rate.output_audio"), "model-s",
    ),
    # A warm prompt of a local model has no count, and no total is made of one.
    **{
        f"warm prompt, {path}": Bill(
            path, {"eval_count": 30}, {"input": None, "output": 30}, 30 * 8 * PER, "partial",
            ("usage.input",),
        )
        for path in OLLAMA
    },
    # Beyond a threshold every token has the higher rate.
    **{
        f"long, {path}": Bill(
            path, usage, {"input": 250_000, "output": 1000}, (250_000 * 4 + 1000 * 16) * PER,
            model="model-t", more={s.PRICE_MODEL: "model-t"},
        )
        for path, usage in (
            (CHAT, chat(250_000, 1000)),
            (MESSAGES, {"input_tokens": 250_000, "output_tokens": 1000}),
        )
    },
    # Searches of the provider are a part of their own, or are named as missing.
    "searches, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 100, "output_tokens": 20, "server_tool_use": {"web_search_requests": 3}},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER + 0.03, model="model-t",
        more={s.COST_TOOLS_USD: 0.03},
    ),
    "searches without a fee, Anthropic": Bill(
        MESSAGES,
        {"input_tokens": 100, "output_tokens": 20, "server_tool_use": {"web_search_requests": 3}},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER, "partial", ("rate.web_search",),
    ),
    "searches, Gemini interactions": Bill(
        INTERACTIONS,
        {"total_input_tokens": 100, "total_output_tokens": 20, "total_tokens": 120,
         "grounding_tool_count": [{"type": "google_search", "count": 3}]},
        {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER + 0.03, model="model-t",
        more={s.COST_TOOLS_USD: 0.03},
    ),
    # What nobody has a price for costs an unknown amount, never nothing.
    "no price, chat": Bill(
        CHAT, chat(100, 20), {"input": 100, "output": 20}, None, "unpriced", model="model-x-mini"
    ),
    "no price, Anthropic": Bill(
        MESSAGES, {"input_tokens": 100, "output_tokens": 20}, {"input": 100, "output": 20}, None,
        "unpriced", model="model-x-mini",
    ),
    # A dated or moving name is the model's.
    "dated, chat": Bill(
        CHAT, chat(100, 20), {"input": 100, "output": 20}, (100 * 2 + 20 * 8) * PER,
        model="model-x-2026-08-07", more={s.PRICE_MODEL: "model-x"},
    ),
    "latest, Anthropic": Bill(
        MESSAGES, {"input_tokens": 100, "output_tokens": 20}, {"input": 100, "output": 20},
        (100 * 2 + 20 * 8) * PER, model="model-x-latest", more={s.PRICE_MODEL: "model-x"},
    ),
}  # fmt: skip


KEYS: dict[str, Callable[[], str]] = {
    "input": lambda: s.USAGE_INPUT,
    "output": lambda: s.USAGE_OUTPUT,
    "read": lambda: s.USAGE_CACHE_READ,
    "write": lambda: s.USAGE_CACHE_WRITE,
    "reasoning": lambda: s.USAGE_REASONING,
}
CASES = [
    (name, how)
    for name, bill in BILLS.items()
    for how in ("plain", "streamed")
    if how == "plain" or streamed(bill)[0]
]


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize(("name", "how"), CASES)
async def test_tokens_and_cost(
    name: str, how: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """Totals include their parts, each part has its own rate, and what is unknown is absent.

    The run and its segment say the same; what is missing is named, and nothing is below zero.
    """
    bill = BILLS[name]
    path = server.gives(bill, how)
    body = {"model": bill.model, "messages": [], "stream": how == "streamed"}
    with clew.run("desk"):
        await ask(server.base_url + path, body, twin)
    clew.shutdown()
    (round_,) = [each for each in exporter.spans if s.ROUND in (each.attributes or {})]
    found = dict(round_.attributes or {})
    tokens = {key: found.get(KEYS[key]()) for key in bill.tokens}
    assert tokens == bill.tokens
    assert found[s.COST_STATUS] == bill.status
    assert found.get(s.COST_MISSING) == bill.missing
    assert found.get(s.COST_USD) == (None if bill.cost is None else pytest.approx(bill.cost))
    for key, value in bill.more.items():
        assert found.get(key) == value
    assert not [key for key in found if "total" in key]
    assert min([each for key, each in found.items() if key.startswith("clew.cost.") and
                isinstance(each, float)], default=0) >= 0  # fmt: skip
    (root,) = exporter.by_name("invoke_agent")
    stated = dict(root.attributes or {})
    for scope in ("clew.run.", "clew.segment."):
        assert stated.get(scope + "usage.input_tokens") == bill.tokens["input"]
        assert stated.get(scope + "usage.output_tokens") == bill.tokens["output"]
        assert stated.get(scope + "cost.usd") == found.get(s.COST_USD)
