"""Whatever is installed beside Clew, the exported bytes count each token once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("program.py")
GENAI = ("openai>=3", "anthropic>=2", "google-genai>=3")
ENVIRONMENTS = {
    "official": (
        "openai>=3",
        "anthropic>=2",
        "opentelemetry-instrumentation-genai-openai>=1.3b0",
        "opentelemetry-instrumentation-genai-anthropic>=1.3b0",
    ),
    # It does not take the third version of the SDK.
    "official google": ("google-genai<3", "opentelemetry-instrumentation-google-genai>=1.3b0"),
    "openllmetry": (
        "openai>=3",
        "anthropic>=2",
        "opentelemetry-instrumentation-openai>=0.62",
        "opentelemetry-instrumentation-anthropic>=0.62",
    ),
    "openinference": (
        *GENAI,
        "openinference-instrumentation-openai",
        "openinference-instrumentation-anthropic",
        "openinference-instrumentation-google-genai",
    ),
    "logfire": (*GENAI, "logfire>=5"),
    "layers": (
        "openai>=3",
        "langchain-openai",
        "openinference-instrumentation-langchain",
        "openinference-instrumentation-openai",
        "opentelemetry-instrumentation-httpx",
    ),
}
CASES = [
    ("official", "openai"),
    ("official", "anthropic"),
    ("official google", "google-genai"),
    ("openllmetry", "openai"),
    ("openllmetry", "anthropic"),
    ("openinference", "openai"),
    ("openinference", "anthropic"),
    ("openinference", "google-genai"),
    ("logfire", "openai"),
    ("logfire", "anthropic"),
    ("layers", "langchain"),
]


def run(python: Path | str, *arguments: str) -> dict[str, Any]:
    """Run the program; return what it printed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [python, PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment | {"CLEW_DIGEST_KEY": "key"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def spans(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the exported spans, each with its scope and its attributes as a mapping."""
    found = []
    for resource in result["otlp"]["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                values = {
                    one["key"]: next(iter(one["value"].values()), None)
                    for one in span.get("attributes", ())
                }
                found.append({**span, "scope": scope["scope"]["name"], "values": values})
    return found


def check(result: dict[str, Any], *, foreign: bool) -> None:
    """Check that the tokens are counted once, by our round, and that nothing has leaked."""
    exported = spans(result)
    names = [(one["scope"], one["name"]) for one in exported]
    total = sum(int(one["values"].get("gen_ai.usage.input_tokens", 0)) for one in exported)
    assert total == 100, names
    total = sum(int(one["values"].get("gen_ai.usage.output_tokens", 0)) for one in exported)
    assert total == 20, names
    (carrier,) = [one for one in exported if "gen_ai.usage.input_tokens" in one["values"]]
    assert carrier["scope"] == "clew"
    assert carrier["values"]["clew.round"] == "1"
    assert result["leaks"] is False
    assert not {"traceparent", "tracestate", "baggage"} & set(result["sent"])
    assert len({one["traceId"] for one in exported}) == 1, names
    others = [one for one in exported if one["scope"] != "clew"]
    for one in others:
        assert one["values"]["clew.run.id"] == carrier["values"]["clew.run.id"]
    if foreign:
        assert others, names
        # Not a parent is missing.
        ids = {one["spanId"] for one in exported}
        assert {one.get("parentSpanId") for one in exported} <= {None, *ids}
    costs = [one for one in exported if "clew.cost.usd" in one["values"]]
    assert costs in ([carrier], []), names


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("streaming", ["plain", "stream"])
@pytest.mark.parametrize("first", ["clew", "other"])
@pytest.mark.parametrize(("other", "sdk"), CASES)
def test_beside_another_instrumentation(
    environment: Callable[..., Path], other: str, sdk: str, first: str, streaming: str
) -> None:
    """Our round is the only carrier of tokens and cost; the other's span is above it."""
    python = environment(*ENVIRONMENTS[other])
    result = run(python, sdk, other.split(maxsplit=1)[0], first, streaming)
    assert result["answer"]
    # Logfire always makes a tracer provider of its own, and Clew joins the one that it finds: of
    # one that comes later it sees nothing.
    check(result, foreign=(other, first) != ("logfire", "clew"))
    if other.startswith(("official", "openllmetry")):  # these tell of tokens by the same names
        assert "true" in [str(one["values"].get("clew.aggregate")).lower() for one in spans(result)]


@pytest.mark.parametrize("streaming", ["plain", "stream"])
@pytest.mark.parametrize("sdk", ["anthropic", "mistralai"])
def test_beside_the_spans_of_the_sdk(sdk: str, streaming: str) -> None:
    """SDKs that make spans of their own, with nothing else installed."""
    pytest.importorskip(sdk)
    check(run(sys.executable, sdk, "none", "clew", streaming), foreign=False)
