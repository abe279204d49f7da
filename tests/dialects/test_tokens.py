"""Token counts under the inclusive rule, by each provider's documented rule."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_reading import COHERE, INTERACTIONS, MESSAGES, RESPONSES

from clew.dialects import recognise
from clew.facts import ResponseFacts, Usage

OPENAI = ("api.openai.com", "/v1/chat/completions")
OPENROUTER = ("openrouter.ai", "/api/v1/chat/completions")
XAI = ("api.x.ai", "/v1/chat/completions")
DEEPSEEK = ("api.deepseek.com", "/chat/completions")
PERPLEXITY = ("api.perplexity.ai", "/chat/completions")
GATEWAY = ("gateway.internal", "/v1/chat/completions")
GEMINI = ("generativelanguage.googleapis.com", "/v1beta/models/m:generateContent")
GEMINI_CHAT = ("generativelanguage.googleapis.com", "/v1beta/openai/chat/completions")
CONVERSE = ("bedrock-runtime.us-east-1.amazonaws.com", "/model/m/converse")
OLLAMA_CHAT = ("localhost:11434", "/api/chat")
OLLAMA_GENERATE = ("localhost:11434", "/api/generate")


def facts_of(address: tuple[str, str], body: dict[str, Any]) -> ResponseFacts:
    """Read a whole response."""
    route = recognise("POST", *address)
    assert route is not None
    return route.dialect.response(json.dumps(body).encode(), 200, route)


def chat_usage(address: tuple[str, str], **usage: Any) -> Usage | None:
    """Return what is made of a usage in the chat completions shape, plain and streamed alike."""
    body = {"id": "c", "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}
    plain = facts_of(address, body | {"usage": usage}).usage
    route = recognise("POST", *address)
    assert route is not None
    reader = route.dialect.stream(route, "text/event-stream")
    reader.feed(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
    assert reader.result().usage == plain
    return plain


def gemini_usage(**metadata: Any) -> Usage | None:
    """Return what is made of Gemini's usage metadata."""
    return facts_of(GEMINI, {"candidates": [], "usageMetadata": metadata}).usage


def test_cached_tokens_are_part_of_the_input_of_openai_and_gemini():
    """They are not added a second time."""
    assert chat_usage(
        OPENAI,
        prompt_tokens=1000,
        completion_tokens=50,
        total_tokens=1050,
        prompt_tokens_details={"cached_tokens": 800},
    ) == Usage(input_tokens=1000, output_tokens=50, cache_read_tokens=800)
    assert gemini_usage(
        promptTokenCount=1000,
        cachedContentTokenCount=800,
        candidatesTokenCount=50,
        totalTokenCount=1050,
    ) == Usage(input_tokens=1000, output_tokens=50, cache_read_tokens=800)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ((10, 800, 200, 50), Usage(input_tokens=1010, output_tokens=50, cache_read_tokens=800, cache_write_tokens=200)),
        ((0, 5000, 0, 0), Usage(input_tokens=5000, output_tokens=0, cache_read_tokens=5000, cache_write_tokens=0)),
    ],
)  # fmt: skip
def test_cached_tokens_come_on_top_of_the_input_of_anthropic_and_bedrock(
    usage: tuple[int, int, int, int], expected: Usage
):
    """Cache reads and writes are added to the input."""
    uncached, read, written, output = usage
    body = {
        "id": "m",
        "type": "message",
        "content": [],
        "usage": {
            "input_tokens": uncached,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": output,
        },
    }
    assert facts_of(MESSAGES, body).usage == expected
    body = {
        "output": {"message": {"content": []}},
        "usage": {
            "inputTokens": uncached,
            "cacheReadInputTokens": read,
            "cacheWriteInputTokens": written,
            "outputTokens": output,
            "totalTokens": uncached + read + written + output,
        },
    }
    assert facts_of(CONVERSE, body).usage == expected


def test_the_two_lifetimes_of_a_cache_write():
    """The part written for an hour is told apart."""
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 30,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
    }
    facts = facts_of(MESSAGES, {"id": "m", "content": [], "usage": usage})
    assert facts.usage == Usage(
        input_tokens=31, output_tokens=2, cache_write_tokens=30, cache_write_1h_tokens=20
    )
    details = [{"ttl": "5m", "inputTokens": 10}, {"ttl": "1h", "inputTokens": 20}]
    usage = {
        "inputTokens": 1,
        "outputTokens": 2,
        "cacheWriteInputTokens": 30,
        "cacheDetails": details,
    }
    assert facts_of(CONVERSE, {"output": {}, "usage": usage}).usage == facts.usage


def test_gemini_thoughts_are_output_and_tool_prompts_are_input():
    """Both sum up to the provider's total."""
    assert gemini_usage(
        promptTokenCount=100,
        candidatesTokenCount=20,
        thoughtsTokenCount=300,
        toolUsePromptTokenCount=40,
        totalTokenCount=460,
    ) == Usage(input_tokens=140, output_tokens=320, reasoning_tokens=300)


def test_gemini_thoughts_on_the_openai_path_show_in_the_total_only():
    """The difference is output, and reasoning."""
    usage = {"prompt_tokens": 66, "completion_tokens": 6, "total_tokens": 100}
    expected = Usage(input_tokens=66, output_tokens=34, reasoning_tokens=28)
    assert chat_usage(GEMINI_CHAT, **usage) == expected
    # Nobody else is known to do that: there it is a mismatch.
    assert chat_usage(OPENAI, **usage) == Usage(input_tokens=66, output_tokens=6, mismatch=True)


def test_gemini_interactions_follow_the_same_rule():
    """Tool prompts in, thoughts out, also when only the total shows them."""
    usage = {
        "total_input_tokens": 100,
        "total_tool_use_tokens": 40,
        "total_output_tokens": 20,
        "total_thought_tokens": 300,
        "total_cached_tokens": 7,
        "total_tokens": 460,
    }
    facts = facts_of(INTERACTIONS, {"id": "i", "status": "completed", "usage": usage})
    assert facts.usage == Usage(
        input_tokens=140, output_tokens=320, reasoning_tokens=300, cache_read_tokens=7
    )
    short = {"total_input_tokens": 8, "total_output_tokens": 12, "total_tokens": 197}
    facts = facts_of(INTERACTIONS, {"id": "i", "status": "completed", "usage": short})
    assert facts.usage == Usage(input_tokens=8, output_tokens=189, reasoning_tokens=177)


def test_reasoning_is_part_of_the_output():
    """It is not added a second time."""
    assert chat_usage(
        OPENAI,
        prompt_tokens=100,
        completion_tokens=320,
        total_tokens=420,
        completion_tokens_details={"reasoning_tokens": 300},
    ) == Usage(input_tokens=100, output_tokens=320, reasoning_tokens=300)


def test_reasoning_outside_the_completion_is_added():
    """xAI: the total is prompt + completion + reasoning."""
    assert chat_usage(
        XAI,
        prompt_tokens=100,
        completion_tokens=20,
        total_tokens=420,
        completion_tokens_details={"reasoning_tokens": 300},
    ) == Usage(input_tokens=100, output_tokens=320, reasoning_tokens=300)


def test_audio_and_image_parts():
    """Each modality is told apart, inside the totals."""
    assert chat_usage(
        OPENAI,
        prompt_tokens=500,
        completion_tokens=230,
        total_tokens=730,
        prompt_tokens_details={"audio_tokens": 400, "image_tokens": 60, "text_tokens": 40},
        completion_tokens_details={"audio_tokens": 200, "image_tokens": 0},
    ) == Usage(
        input_tokens=500,
        output_tokens=230,
        input_audio_tokens=400,
        output_audio_tokens=200,
        input_image_tokens=60,
        output_image_tokens=0,
    )
    assert gemini_usage(
        promptTokenCount=500,
        candidatesTokenCount=230,
        totalTokenCount=730,
        promptTokensDetails=[
            {"modality": "AUDIO", "tokenCount": 400},
            {"modality": "IMAGE", "tokenCount": 60},
            {"modality": "TEXT", "tokenCount": 40},
        ],
        candidatesTokensDetails=[{"modality": "AUDIO", "tokenCount": 200}],
        cacheTokensDetails=[{"modality": "AUDIO", "tokenCount": 30}],
    ) == Usage(
        input_tokens=500,
        output_tokens=230,
        input_audio_tokens=400,
        output_audio_tokens=200,
        cache_read_audio_tokens=30,
        input_image_tokens=60,
    )


@pytest.mark.parametrize("address", [OLLAMA_CHAT, OLLAMA_GENERATE])
def test_a_warm_prompt_of_a_local_model_has_no_input_count(address: tuple[str, str]):
    """Absent stays unknown, plain and streamed."""
    body = {
        "model": "llama",
        "response": "x",
        "done": True,
        "done_reason": "stop",
        "eval_count": 30,
    }
    expected = Usage(input_tokens=None, output_tokens=30)
    assert facts_of(address, body).usage == expected
    route = recognise("POST", *address)
    assert route is not None
    reader = route.dialect.stream(route, "application/x-ndjson")
    reader.feed(json.dumps(body).encode() + b"\n")
    assert reader.result().usage == expected


def test_what_the_provider_billed():
    """OpenRouter's credits, Perplexity's object, xAI's ticks: all US dollars."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    expected = Usage(input_tokens=10, output_tokens=5, cost_usd=0.00042)
    assert chat_usage(OPENROUTER, **usage, cost=0.00042) == expected
    cost = {"input_tokens_cost": 0.0001, "total_cost": 0.00042}
    assert chat_usage(PERPLEXITY, **usage, cost=cost) == expected
    assert chat_usage(XAI, **usage, cost_in_usd_ticks=4_200_000) == expected
    free = chat_usage(OPENROUTER, **usage, cost=0)
    assert free is not None
    assert free.cost_usd == 0


@pytest.mark.parametrize(
    "cost", [None, "0.1", -1, {"total_cost": "x"}, {"total_cost": 1, "currency": "EUR"}, []]
)
def test_a_cost_that_is_none(cost: object):
    """What is no amount of US dollars is no cost."""
    usage = chat_usage(OPENROUTER, prompt_tokens=10, completion_tokens=5, cost=cost)
    assert usage == Usage(input_tokens=10, output_tokens=5)


@pytest.mark.parametrize(
    ("address", "given"),
    [
        (OPENAI, {"prompt_tokens_details": {"cached_tokens": 4}}),
        (DEEPSEEK, {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6}),
        (("api.together.xyz", "/v1/chat/completions"), {"cached_tokens": 4}),
        (("api.mistral.ai", "/v1/chat/completions"), {"num_cached_tokens": 4}),
        (GATEWAY, {"cache_read_input_tokens": 4}),
        (("api.writer.com", "/v1/chat"), {"prompt_token_details": {"cached_tokens": 4}}),
    ],
)
def test_where_cached_tokens_stand(address: tuple[str, str], given: dict[str, Any]):
    """Speakers of the OpenAI shape have their own places for them."""
    usage = chat_usage(address, prompt_tokens=10, completion_tokens=5, total_tokens=15, **given)
    assert usage == Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4)


def test_searches_billed_by_request():
    """Anthropic, OpenRouter, Perplexity and Gemini count their own searches."""
    usage = {"input_tokens": 1, "output_tokens": 2, "server_tool_use": {"web_search_requests": 3}}
    assert facts_of(MESSAGES, {"id": "m", "content": [], "usage": usage}).usage == Usage(
        input_tokens=1, output_tokens=2, web_searches=3
    )
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    expected = Usage(input_tokens=1, output_tokens=2, web_searches=3)
    given = {"server_tool_use_details": {"web_search_requests": 3}}
    assert chat_usage(OPENROUTER, **usage, **given) == expected
    assert chat_usage(PERPLEXITY, **usage, num_search_queries=3) == expected
    usage = {
        "total_input_tokens": 1,
        "total_output_tokens": 2,
        "grounding_tool_count": [{"type": "google_search", "count": 3}, {"type": "google_maps"}],
    }
    assert facts_of(INTERACTIONS, {"id": "i", "usage": usage}).usage == expected


def test_cohere_counts_what_it_bills():
    """Billed units where there are some, else the tokens."""
    billed = {"input_tokens": 26, "output_tokens": 147}
    real = {"input_tokens": 1431, "output_tokens": 152, "reasoning_tokens": 145}
    body = {
        "id": "x",
        "finish_reason": "COMPLETE",
        "usage": {"billed_units": billed, "tokens": real},
    }
    assert facts_of(COHERE, body).usage == Usage(
        input_tokens=26, output_tokens=147, reasoning_tokens=145
    )
    body["usage"] = {"tokens": real}
    assert facts_of(COHERE, body).usage == Usage(
        input_tokens=1431, output_tokens=152, reasoning_tokens=145
    )


@pytest.mark.parametrize(
    ("address", "usage", "expected"),
    [
        (OPENAI, {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 9}, True),
        (OPENAI, {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}, False),
        (OPENAI, {"prompt_tokens": 1, "completion_tokens": 2}, False),
        (OPENAI, {"prompt_tokens": 1, "total_tokens": 9}, False),
        (RESPONSES, {"input_tokens": 1, "output_tokens": 2, "total_tokens": 9}, True),
        (RESPONSES, {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, False),
    ],
)
def test_a_total_that_disagrees_is_flagged(
    address: tuple[str, str], usage: dict[str, Any], expected: object
):
    """Not hidden, and not mended where no rule explains it."""
    found = facts_of(address, {"id": "x", "choices": [], "usage": usage}).usage
    assert found is not None
    assert found.mismatch is expected


def test_a_total_of_gemini_or_bedrock_that_disagrees_is_flagged():
    """The same rule elsewhere."""
    assert gemini_usage(promptTokenCount=1, candidatesTokenCount=2, totalTokenCount=9) == Usage(
        input_tokens=1, output_tokens=2, mismatch=True
    )
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 9}
    assert facts_of(CONVERSE, {"output": {}, "usage": usage}).usage == Usage(
        input_tokens=1, output_tokens=2, mismatch=True
    )


@pytest.mark.parametrize(
    ("address", "body"),
    [
        (OPENAI, {"id": "c", "choices": []}),
        (OPENAI, {"id": "c", "choices": [], "usage": None}),
        (OPENAI, {"id": "c", "choices": [], "usage": {}}),
        (RESPONSES, {"id": "r", "output": [], "usage": None}),
        (MESSAGES, {"id": "m", "content": []}),
        (GEMINI, {"candidates": []}),
        (GEMINI, {"candidates": [], "usageMetadata": {"trafficType": "ON_DEMAND"}}),
        (CONVERSE, {"output": {}}),
        (OLLAMA_CHAT, {"model": "m", "message": {}, "done": True}),
        (COHERE, {"id": "x", "usage": {"billed_units": {"search_units": 1}}}),
        (("api.cohere.com", "/v2/rerank"), {"id": "x", "meta": {"billed_units": {"search_units": 1}}}),
    ],
)  # fmt: skip
def test_no_usage_is_none(address: tuple[str, str], body: dict[str, Any]):
    """Absent is unknown, not zero."""
    assert facts_of(address, body).usage is None


def test_counting_tokens_is_no_usage():
    """The counts of a counting endpoint are its answer."""
    for address, body in (
        (("api.anthropic.com", "/v1/messages/count_tokens"), {"input_tokens": 5}),
        (("api.openai.com", "/v1/responses/input_tokens"), {"input_tokens": 5}),
        ((GEMINI[0], "/v1beta/models/m:countTokens"), {"totalTokens": 5}),
        ((CONVERSE[0], "/model/m/count-tokens"), {"inputTokens": 5}),
    ):
        assert facts_of(address, body) == ResponseFacts()


@pytest.mark.parametrize(
    ("address", "body", "expected"),
    [
        (("api.openai.com", "/v1/embeddings"), {"usage": {"prompt_tokens": 5, "total_tokens": 5}}, 5),
        (("api.voyageai.com", "/v1/embeddings"), {"usage": {"total_tokens": 5}}, 5),
        (("api.voyageai.com", "/v1/rerank"), {"usage": {"total_tokens": 5}}, 5),
        (("api.cohere.com", "/v2/embed"), {"meta": {"billed_units": {"input_tokens": 5}}}, 5),
        ((GEMINI[0], "/v1beta/models/m:embedContent"), {"usageMetadata": {"promptTokenCount": 5}}, 5),
        (("localhost:11434", "/api/embed"), {"model": "m", "prompt_eval_count": 5}, 5),
        (
            ("us-central1-aiplatform.googleapis.com", "/v1/projects/p/locations/l/publishers/google/models/text-embedding-005:predict"),
            {"predictions": [{"embeddings": {"statistics": {"token_count": n}}} for n in (2, 3)]},
            5,
        ),
        (("us-south.ml.cloud.ibm.com", "/ml/v1/text/embeddings"), {"input_token_count": 5}, 5),
        ((CONVERSE[0], "/model/amazon.titan-embed-text-v2%3A0/invoke"), {"inputTextTokenCount": 5}, 5),
    ],
)  # fmt: skip
def test_embeddings_have_input_only(address: tuple[str, str], body: dict[str, Any], expected: int):
    """Wherever the count stands; the output is unknown, not zero."""
    assert facts_of(address, body).usage == Usage(input_tokens=expected)
