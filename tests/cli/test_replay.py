"""`clew replay`: recorded traffic through a real client and the real tap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from corpus_folder import CORPUS

KEYS = [
    "id",
    "exchange",
    "operation",
    "provider",
    "request_model",
    "response_model",
    "response_id",
    "finish_reasons",
    "finish_reasons_raw",
    "usage",
    "tool_calls",
    "error",
    "stream",
    "stream_outcome",
    "cost_usd",
    "cost_status",
    "spans",
]
USAGE_KEYS = [
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
]
WORDS = {
    # https://github.com/open-telemetry/semantic-conventions-genai: gen_ai.response.finish_reasons
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_call",
    "tool_use": "tool_call",
    "function_call": "tool_call",
    "content_filter": "content_filter",
    "refusal": "content_filter",
}


def clew(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", "from clew.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | environment,
        check=False,
    )


def rows(result: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def corpus() -> Path:
    if not CORPUS.is_dir():
        assert os.environ.get("CI") != "true", f"no recorded traffic at {CORPUS}"
        pytest.skip(f"no recorded traffic at {CORPUS}")
    return CORPUS


@pytest.fixture(scope="module")
def replayed(corpus: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Every exchange of the recorded traffic, replayed once."""
    result = clew("replay", "--json", corpus)
    assert (result.returncode, result.stderr) == (0, "")
    return {(row["id"], row["exchange"]): row for row in rows(result)}


def recordings(corpus: Path) -> list[dict[str, Any]]:
    paths = sorted(path for path in corpus.rglob("*.json") if path.name != "index.json")
    return [json.loads(path.read_text()) for path in paths]


def test_every_exchange_gets_one_object_with_the_same_keys(
    corpus: Path, replayed: dict[tuple[str, int], dict[str, Any]]
):
    """Each exchange of each file is there once, with every key, and at most one span."""
    wanted = [
        (recording["id"], index)
        for recording in recordings(corpus)
        for index in range(len(recording["exchanges"]))
    ]
    assert list(replayed) == wanted
    for row in replayed.values():
        assert list(row) == KEYS
        assert row["spans"] in (0, 1)
        assert row["usage"] is None or list(row["usage"]) == USAGE_KEYS
        if row["spans"] == 0:
            assert {row[key] for key in KEYS[2:-1]} == {None}


def openai_usage(usage: dict[str, Any]) -> dict[str, Any]:
    read = usage.get("prompt_tokens_details") or {}
    written = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage["prompt_tokens"],
        "output_tokens": usage["completion_tokens"],
        "cache_read_tokens": read.get("cached_tokens"),
        "cache_write_tokens": read.get("cache_write_tokens"),
        "reasoning_tokens": written.get("reasoning_tokens"),
    }


def anthropic_usage(usage: dict[str, Any]) -> dict[str, Any]:
    read = usage.get("cache_read_input_tokens")
    written = usage.get("cache_creation_input_tokens")
    details = usage.get("output_tokens_details") or {}
    return {
        "input_tokens": usage["input_tokens"] + (read or 0) + (written or 0),
        "output_tokens": usage["output_tokens"],
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": details.get("thinking_tokens"),
    }


APIS = {
    ("openai", "chat.completions"): openai_usage,
    ("azure_openai", "chat.completions"): openai_usage,
    ("anthropic", "messages"): anthropic_usage,
}


@pytest.mark.parametrize("api", APIS, ids="-".join)
def test_openai_chat_and_anthropic_messages_are_exact(
    api: tuple[str, str], corpus: Path, replayed: dict[tuple[str, int], dict[str, Any]]
):
    """Every field is what the recorded answer says, and unknown where it says nothing."""
    usage_of = APIS[api]
    compared = 0
    for recording in recordings(corpus):
        if (recording["provider"], recording["api"]) != api:
            continue
        for index, expected in enumerate(recording["expected_each"]):
            reasons, usage, error = (expected[key] for key in ("finish_reasons", "usage", "error"))
            row = dict(replayed[recording["id"], index])
            cost_usd, cost_status = row.pop("cost_usd"), row.pop("cost_status")
            assert row == {
                "id": recording["id"],
                "exchange": index,
                "operation": expected["operation"],
                "provider": provider_of(recording, index),
                "request_model": expected["request_model"],
                "response_model": expected["response_model"],
                "response_id": expected["response_id"],
                "finish_reasons": reasons and [WORDS[reason] for reason in reasons],
                "finish_reasons_raw": reasons,
                "usage": usage and usage_of(usage),
                "tool_calls": [
                    {"id": call["id"], "name": call["name"]} for call in expected["tool_calls"]
                ],
                "error": error and {key: error.get(key) for key in ("status", "type", "code")},
                "stream": expected["stream"],
                "stream_outcome": outcome_of(recording, index, expected),
                "spans": 1,
            }
            assert (cost_usd is None) == (cost_status in ("unpriced", "unknown"))
            assert (cost_status == "unknown") == (usage is None)
            compared += 1
    assert compared > 0


def provider_of(recording: dict[str, Any], index: int) -> str:
    """Return the convention's name, which for Azure follows from the service in the host."""
    if recording["provider"] != "azure_openai":
        return recording["provider"]
    host = urlsplit(recording["exchanges"][index]["request"]["url"]).hostname or ""
    return "azure.ai.inference" if host.endswith(".services.ai.azure.com") else "azure.ai.openai"


def outcome_of(recording: dict[str, Any], index: int, expected: dict[str, Any]) -> str | None:
    response = recording["exchanges"][index]["response"]
    if "text" not in response or response["status"] >= 400:
        return None
    whole = expected.get("stream_complete", True) and expected["error"] is None
    return "complete" if whole else "failed"


def test_all_recorded_traffic_takes_less_than_half_a_minute(corpus: Path):
    """The time of the whole command, from start to exit."""
    started = time.monotonic()
    result = clew("replay", "--json", corpus)
    assert result.returncode == 0
    assert time.monotonic() - started < 30


REQUEST = {
    "method": "POST",
    "url": "https://api.openai.com/v1/chat/completions",
    "headers": {"content-type": "application/json"},
    "body": {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]},
}
ANSWER = {
    "status": 200,
    "headers": {"content-type": "application/json"},
    "body": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "hello"},
            }
        ],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    },
}


def write(path: Path, *pairs: tuple[dict[str, Any], dict[str, Any]]) -> Path:
    exchanges = [{"request": request, "response": response} for request, response in pairs]
    path.write_text(json.dumps({"id": path.stem, "exchanges": exchanges}))
    return path


def test_one_exchange(tmp_path: Path):
    """The recorded host tells the provider, and so the price."""
    result = clew("replay", "--json", write(tmp_path / "one.json", (REQUEST, ANSWER)))
    assert (result.returncode, result.stderr) == (0, "")
    (row,) = rows(result)
    assert row["provider"] == "openai"
    assert row["cost_status"] == "priced"
    assert row["cost_usd"] == pytest.approx(1000 * 0.15e-6 + 100 * 0.6e-6)


def test_a_stream_that_stops_in_the_middle(tmp_path: Path):
    """The row says so, and keeps what was learnt until then."""
    chunk = {
        "id": "chatcmpl-2",
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "delta": {"content": "hel"}, "finish_reason": None}],
    }
    request = REQUEST | {"body": REQUEST["body"] | {"stream": True}}  # type: ignore[operator]
    answer = {
        "status": 200,
        "headers": {"content-type": "text/event-stream"},
        "text": f"data: {json.dumps(chunk)}\n\n",
    }
    (row,) = rows(clew("replay", "--json", write(tmp_path / "two.json", (request, answer))))
    assert (row["stream"], row["stream_outcome"]) == (True, "failed")
    assert (row["response_id"], row["usage"]) == ("chatcmpl-2", None)
    # There is a choice, and it has no reason.
    assert (row["finish_reasons"], row["finish_reasons_raw"]) == ([None], [None])
    assert (row["cost_usd"], row["cost_status"]) == (None, "unknown")


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 200, "headers": {}, "text": ""},
        {"status": 200, "headers": {"content-type": "application/json"}, "text": "{"},
        {"status": 502, "headers": {"content-type": "text/html"}, "text": "<html>"},
        {"status": 200, "headers": {"content-type": "application/json"}, "body": None},
        {"status": 200, "headers": {"content-type": "application/json"}, "base64": "//79"},
        {"status": 204, "headers": {}, "text": ""},
        {"status": 200, "headers": {"content-encoding": "br"}, "base64": "AAAA"},
    ],
)
def test_odd_answers_give_a_row(tmp_path: Path, answer: dict[str, Any]):
    """An answer that says nothing gives one span and nulls."""
    result = clew("replay", "--json", write(tmp_path / "odd.json", (REQUEST, answer)))
    assert (result.returncode, result.stderr) == (0, "")
    (row,) = rows(result)
    assert (row["operation"], row["spans"]) == ("chat", 1)
    assert {row[key] for key in ("response_model", "response_id", "usage", "cost_usd")} == {None}


def test_a_call_of_something_else_is_no_model_call(tmp_path: Path):
    """A path that means nothing to Clew gives a row of nulls."""
    request = REQUEST | {"url": "https://shop.example/v1/orders"}
    (row,) = rows(clew("replay", "--json", write(tmp_path / "three.json", (request, ANSWER))))
    assert row == dict.fromkeys(KEYS) | {"id": "three", "exchange": 0, "spans": 0}


def test_bad_files_are_named_and_the_others_replayed(tmp_path: Path):
    """Faults go to stderr, the exit code is 1, and no good file is lost."""
    write(tmp_path / "a.json", (REQUEST, ANSWER))
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").write_text('{"spans": []}')
    write(tmp_path / "d.json", (REQUEST, ANSWER))
    (tmp_path / "empty").mkdir()
    absent = tmp_path / "absent.json"
    result = clew("replay", "--json", tmp_path, absent, tmp_path / "empty")
    assert result.returncode == 1
    assert [row["id"] for row in rows(result)] == ["a", "d"]
    assert result.stderr.splitlines() == [
        f"clew: {tmp_path / 'b.json'}: is not JSON",
        f"clew: {tmp_path / 'c.json'}: is no recording: it has no list `exchanges`",
        f"clew: {absent}: no such file or folder",
        f"clew: {tmp_path / 'empty'}: no recordings in this folder",
    ]


def test_the_table(tmp_path: Path):
    """Without --json there is a line for each exchange and a line of totals."""
    path = write(tmp_path / "one.json", (REQUEST, ANSWER), (REQUEST, ANSWER | {"status": 429}))
    result = clew("replay", path)
    assert (result.returncode, result.stderr) == (0, "")
    heading, first, second, totals = result.stdout.splitlines()
    assert heading.split()[:3] == ["recording", "operation", "provider"]
    assert first.split() == [
        *("one", "0", "chat", "openai", "gpt-4o-mini-2024-07-18", "stop", "ok"),
        *("1,000", "100", "0.000210"),
    ]
    assert "error 429" in second
    assert totals.startswith("2 exchanges, 2 spans, 1 errors; ")


def test_the_environment_cannot_switch_it_off(tmp_path: Path):
    """A disabled SDK and a proxy are for services, not for this command."""
    result = clew(
        "replay",
        "--json",
        write(tmp_path / "one.json", (REQUEST, ANSWER)),
        OTEL_SDK_DISABLED="true",
        HTTPS_PROXY="http://127.0.0.1:9",
        HTTP_PROXY="http://127.0.0.1:9",
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert rows(result)[0]["operation"] == "chat"


def test_nothing_to_replay_is_wrong_usage():
    """Without a path the usage line goes to stderr."""
    result = clew("replay")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Usage" in result.stderr
