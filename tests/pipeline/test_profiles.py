"""Metric profiles: the same calls under today's names and under those of release 0.1.0."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import HistogramDataPoint

import clew
from clew.errors import ConfigurationError
from clew.facts import Usage
from clew.pipeline import instruments
from clew.pipeline.profiles import Names
from clew.settings import Settings
from clew.testing import Reply, ScriptedProvider

USAGE = "gen_ai.client.inference.usage."
counts = st.none() | st.integers(0, 10_000)


def work(provider: ScriptedProvider) -> None:
    """One call, one stream, one failure, one embedding, in a run."""
    usage = Usage(input_tokens=1000, output_tokens=200, cache_read_tokens=400, reasoning_tokens=50)
    provider.add(Reply(text="a", usage=usage), Reply(text="b"), Reply.failure(400))
    messages: Any = [{"role": "user", "content": "Hello"}]
    with (
        openai.OpenAI(
            base_url=provider.openai_base_url,
            api_key="scripted",
            http_client=openai.DefaultHttpxClient(trust_env=False),
        ) as client,
        clew.run("profiles"),
    ):
        client.chat.completions.create(model="gpt-4o-mini", messages=messages)
        options: Any = {"stream": True, "stream_options": {"include_usage": True}}
        for _ in client.chat.completions.create(model="gpt-4o-mini", messages=messages, **options):
            pass
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="gpt-4o-mini", messages=messages)


def of_the_conventions(measured: Any) -> dict[str, Any]:
    """Return the conventions' metrics: each with its count or sum by what tells points apart."""
    found: dict[str, Any] = {}
    for name, row in measured.points().items():
        if not name.startswith("gen_ai."):
            continue
        for labels, point in row:
            told = labels.get("gen_ai.token.modality") or labels.get("gen_ai.token.type") or ""
            key = f"{name} {labels.get('error.type') or told}".strip()
            value = (point.count, point.sum) if isinstance(point, HistogramDataPoint) else point
            if isinstance(value, tuple) and name.endswith(("duration", "first_chunk")):
                value = value[0]
            found[key] = value
    return found


def test_todays_names_are_the_default(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """Without a setting: one set of metrics for all operations, tokens in one histogram."""
    measured = measure()
    work(provider)
    assert {
        "gen_ai.client.operation.duration": 2,
        "gen_ai.client.operation.duration invalid_request_error": 1,
        "gen_ai.client.operation.time_to_first_chunk": 1,
        "gen_ai.client.token.usage input": (2, 1012),
        "gen_ai.client.token.usage output": (2, 207),
    } == of_the_conventions(measured)


def test_release_0_1_0_by_the_setting(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """Inference has names of its own, tokens are counters by modality; no old name is there."""
    measured = measure(metric_profile="v0.1.0")
    work(provider)
    assert {
        "gen_ai.client.inference.duration": 2,
        "gen_ai.client.inference.duration invalid_request_error": 1,
        "gen_ai.client.inference.time_to_first_chunk": 1,
        "gen_ai.client.inference.operation.input_tokens": (2, 1012),
        "gen_ai.client.inference.operation.output_tokens": (2, 207),
        f"{USAGE}input_tokens text": 1012,
        f"{USAGE}output_tokens text": 207,
        f"{USAGE}cache_read.input_tokens unknown": 400,
        f"{USAGE}reasoning.output_tokens unknown": 50,
    } == {key: value for key, value in of_the_conventions(measured).items() if value != 0}


def test_clews_own_metrics_are_the_same_in_both(
    measure: Callable[..., Any], provider: ScriptedProvider
) -> None:
    """What dashboards count does not depend on the profile."""
    found: list[dict[str, Any]] = []
    for profile in ("current", "v0.1.0"):
        measured = measure(metric_profile=profile)
        work(provider)
        totals = {
            name: measured.total(name)
            for name in ("clew.rounds", "clew.tokens", "clew.attempts", "clew.runs.ended")
        }
        found.append(totals)
        clew.uninstrument()
        clew.shutdown()
    assert found[0] == found[1]
    assert 3 == found[0]["clew.rounds"]


def test_no_instrument_is_made_under_two_names() -> None:
    """A profile has either the old name or the new one; Clew's own are in each."""
    current = {one.name for one in instruments.of_profile("current")}
    new = {one.name for one in instruments.of_profile("v0.1.0")}
    assert set(instruments.INSTRUMENTS) == current
    assert {
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.time_to_first_chunk",
    } == current - new
    assert {name for name in current if name.startswith("clew.")} <= new
    assert set(instruments.EVERY) == current | new


def test_embeddings_and_others() -> None:
    """Embeddings have their own duration and input; what is neither keeps the general duration."""
    names = Names("v0.1.0")
    usage = Usage(input_tokens=5)
    assert [("gen_ai.client.embeddings.operation.input_tokens", 5)] == list(
        names.of("embeddings").distributions(usage)
    )
    assert "gen_ai.client.embeddings.duration" == names.of("embeddings").duration
    assert "gen_ai.client.operation.duration" == names.of("rerank").duration
    assert [] == [*names.of("rerank").distributions(usage), *names.of("embeddings").counts(usage)]


def test_modalities() -> None:
    """What the provider breaks down is told apart, and the rest is text; else it is unknown."""
    usage = Usage(
        input_tokens=100, output_tokens=40, input_audio_tokens=30, input_image_tokens=10,
        output_audio_tokens=0,
    )  # fmt: skip
    assert [
        (f"{USAGE}input_tokens", "audio", 30),
        (f"{USAGE}input_tokens", "image", 10),
        (f"{USAGE}input_tokens", "text", 60),
        (f"{USAGE}output_tokens", "text", 40),
    ] == list(Names("v0.1.0").of("chat").counts(usage))
    assert [(f"{USAGE}input_tokens", "unknown", 0)] == list(
        Names("v0.1.0").of("chat").counts(Usage(input_tokens=0))
    )


@given(total=counts, audio=counts, image=counts)
def test_modalities_never_lose_a_token(
    total: int | None, audio: int | None, image: int | None
) -> None:
    """The parts add up to the total, unless the provider's own parts are more than that."""
    usage = Usage(input_tokens=total, input_audio_tokens=audio, input_image_tokens=image)
    parts = [count for _, _, count in Names("v0.1.0").of("chat").counts(usage)]
    assert all(each >= 0 for each in parts)
    if total is None:
        assert [] == parts
    else:
        assert max(total, (audio or 0) + (image or 0)) == sum(parts)


def test_another_profile_is_refused() -> None:
    """A name that nobody knows is a mistake in the settings."""
    with pytest.raises(ConfigurationError, match="CLEW_METRIC_PROFILE"):
        Settings.from_environment({"CLEW_METRIC_PROFILE": "v2"})
