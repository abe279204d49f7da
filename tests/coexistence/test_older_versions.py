"""Older versions of the SDKs, whose helpers post for themselves and which sit on another library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).with_name("older.py")
OLDER = ("openai<2", "anthropic<1")


def rounds_of(python: Path | str, sdk: str, kind: str) -> tuple[dict[str, Any], list[Any]]:
    """Run the program; return what it printed, and the attributes of each round."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [python, PROGRAM, sdk, kind],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment | {"CLEW_DIGEST_KEY": "key"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    found: list[Any] = []
    for resource in result["otlp"]["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                values = {
                    one["key"]: next(iter(one["value"].values()), None)
                    for one in span.get("attributes", ())
                }
                if "clew.attempts" in values:
                    found.append(values)
    return result, found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", ["older", "current"])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_each_call_is_one_round(
    sdk: str, kind: str, version: str, request: pytest.FixtureRequest
) -> None:
    """Plain, streamed, parsed, raw and helped: whatever calls whatever inside, one round each."""
    if version == "older":
        environment: Callable[..., Path] = request.getfixturevalue("environment")
        python: Path | str = environment(*OLDER)
    else:
        python = sys.executable
        pytest.importorskip(sdk)
    result, rounds = rounds_of(python, sdk, kind)
    calls = result["calls"]
    assert result["sent"] == len(calls)
    assert [one["clew.round"] for one in rounds] == [
        str(number + 1) for number in range(len(calls))
    ]
    used = [(one["gen_ai.usage.input_tokens"], one["gen_ai.usage.output_tokens"]) for one in rounds]
    assert used == [("100", "20")] * len(calls)
    assert [one["clew.attempt.grouped"] for one in rounds] == [True] * len(calls)
    formats = dict(zip(calls, (one.get("gen_ai.output.type") for one in rounds), strict=True))
    parsed = {name: formats[name] for name in formats if "parse" in name}
    assert parsed == dict.fromkeys(parsed, "json")
    assert result["leaks"] is False
    # Neither the class that an answer is parsed into nor what it prints as.
    assert "<class" not in json.dumps(result["otlp"])
