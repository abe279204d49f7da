"""Parameters of a call: what was not given is absent, and a zero that was given is a zero."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from typing import Any

import anthropic
import cohere.v2.client
import groq
import openai
import openrouter.types
import pytest
from mistralai.client import types as mistral_types

from clew import semconv

NOT_GIVEN: dict[str, dict[str, Any]] = {
    "openai": {
        "temperature": openai.NOT_GIVEN,
        "top_p": openai.not_given,
        "max_tokens": openai.omit,
        "seed": openai.omit,
        "n": None,
        "stop": None,
    },
    "anthropic": {
        "max_tokens": anthropic.omit,
        "service_tier": anthropic.NOT_GIVEN,
        "thinking": anthropic.not_given,
        "stop_sequences": None,
        # The SDK has no arguments for these any more.
        "extra_body": {"temperature": None, "top_k": None},
    },
    "groq": {
        "temperature": groq.NOT_GIVEN,
        "top_p": groq.not_given,
        "max_tokens": groq.omit,
        "seed": None,
        "stop": None,
    },
    "mistralai": {
        "temperature": mistral_types.UNSET,
        "top_p": None,
        "max_tokens": None,
        "random_seed": mistral_types.UNSET,
        "stop": None,
    },
    "openrouter": {
        "temperature": openrouter.types.UNSET,
        "top_p": None,
        "max_tokens": None,
        "seed": openrouter.types.UNSET,
        "stop": None,
    },
    "cohere": {
        "temperature": cohere.v2.client.OMIT,
        "p": None,
        "max_tokens": cohere.v2.client.OMIT,
        "seed": None,
        "stop_sequences": None,
    },
    "google-genai": {
        "temperature": None,
        "top_p": None,
        "max_output_tokens": None,
        "seed": None,
        "stop_sequences": None,
    },
    "ollama": {
        "options": {"temperature": None, "num_predict": None, "seed": None, "stop": None},
    },
    "Converse": {"inferenceConfig": {}},
    "InvokeModel": {"temperature": None, "max_tokens": None, "top_k": None, "stop_sequences": None},
}
"""What each SDK has for a parameter that is not given: objects of its own, None, nothing."""

ZEROS: dict[str, dict[str, Any]] = {
    "openai": {"temperature": 0, "seed": 0, "max_tokens": 7},
    "anthropic": {"extra_body": {"temperature": 0}, "max_tokens": 7},
    "groq": {"temperature": 0, "seed": 0, "max_tokens": 7},
    "mistralai": {"temperature": 0, "random_seed": 0, "max_tokens": 7},
    "openrouter": {"temperature": 0, "seed": 0, "max_tokens": 7},
    "cohere": {"temperature": 0, "seed": 0, "max_tokens": 7},
    "google-genai": {"temperature": 0, "seed": 0, "max_output_tokens": 7},
    "ollama": {"options": {"temperature": 0, "seed": 0, "num_predict": 7}},
    "Converse": {"inferenceConfig": {"temperature": 0.0, "maxTokens": 7}},
    "InvokeModel": {"temperature": 0, "max_tokens": 7},
}
SEEDLESS = {"anthropic", "Converse", "InvokeModel"}
PARAMETERS = (
    semconv.REQUEST_TEMPERATURE,
    semconv.REQUEST_MAX_TOKENS,
    semconv.REQUEST_TOP_P,
    semconv.REQUEST_TOP_K,
    semconv.REQUEST_SEED,
    semconv.REQUEST_CHOICE_COUNT,
    semconv.REQUEST_FREQUENCY_PENALTY,
    semconv.REQUEST_PRESENCE_PENALTY,
    semconv.REQUEST_SERVICE_TIER,
    semconv.REQUEST_REASONING_LEVEL,
    semconv.PRIVACY_DROPPED,
)
BOTH = pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])


def named(kit: Any) -> str:
    """Return the name under which a kit's parameters stand above."""
    if kit.provider == "Amazon Bedrock":
        return kit.api
    return kit.provider if isinstance(kit.sdk, type(openai)) else kit.sdk


async def parameters(kit: Any, compare: Any, more: dict[str, Any], *, streaming: bool) -> Any:
    """Make a call with further arguments; return what the round says of them."""

    async def scenario(session: Any) -> Any:
        if streaming:
            return await session.read(await kit.stream(session.client, **more))
        return await kit.ask(session.client, **more)

    found = await compare(scenario)
    assert found.error is None
    return found.told(*PARAMETERS)


async def not_given(kit: Any, compare: Any, logs: Any, *, streaming: bool) -> None:
    """Check that what is not given leaves no attribute and no word in the log."""
    told = await parameters(kit, compare, NOT_GIVEN[named(kit)], streaming=streaming)
    assert {} == told
    assert [] == [record for record in logs.records if record.name.startswith("clew")]


async def given_as_zero(kit: Any, compare: Any, *, streaming: bool) -> None:
    """Check that a zero that is given is recorded as a zero."""
    expected: dict[str, Any] = {semconv.REQUEST_TEMPERATURE: 0, semconv.REQUEST_MAX_TOKENS: 7}
    if named(kit) not in SEEDLESS:
        expected[semconv.REQUEST_SEED] = 0
    assert expected == await parameters(kit, compare, ZEROS[named(kit)], streaming=streaming)


@BOTH
async def test_what_is_not_given_is_absent(
    streaming: bool, kit: Any, compare: Any, caplog: pytest.LogCaptureFixture
):
    """`NOT_GIVEN`, `omit` and None are no values: no attribute, no warning."""
    await not_given(kit, compare, caplog, streaming=streaming)


@BOTH
@pytest.mark.kits("sdks")
async def test_what_is_not_given_to_the_others_is_absent(
    streaming: bool, kit: Any, compare: Any, caplog: pytest.LogCaptureFixture
):
    """The same with the other SDKs' ways to leave something out."""
    await not_given(kit, compare, caplog, streaming=streaming)


@BOTH
async def test_a_zero_that_is_given_is_recorded(streaming: bool, kit: Any, compare: Any):
    """An explicit temperature of 0 is a value."""
    await given_as_zero(kit, compare, streaming=streaming)


@BOTH
@pytest.mark.kits("sdks")
async def test_a_zero_given_to_the_others_is_recorded(streaming: bool, kit: Any, compare: Any):
    """The same with the other SDKs."""
    await given_as_zero(kit, compare, streaming=streaming)
