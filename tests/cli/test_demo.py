"""`clew demo`: the agent runs, and its trace is whole."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from fresh import free_port

from clew.testing import Reply, ScriptedProvider
from clew.web.server import start

COMMAND = [sys.executable, "-c", "from clew.cli import main; main()"]


def clew(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        env=os.environ | environment,
        check=False,
    )


def spans_of(path: Path) -> list[dict[str, Any]]:
    """Return the spans of an OTLP JSON document, attributes as a plain mapping."""
    found: list[dict[str, Any]] = []
    for resource in json.loads(path.read_text())["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                values = {each["key"]: each["value"] for each in span.get("attributes", ())}
                found.append(span | {"attributes": {k: scalar(v) for k, v in values.items()}})
    return found


def in_order(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return spans by segment, and by their number in it."""
    return sorted(
        spans, key=lambda span: (span["attributes"]["clew.segment"], span["attributes"]["clew.seq"])
    )


def scalar(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    return int(inner) if kind == "intValue" else inner


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What `--json` printed, and the spans that `--export` wrote."""
    path = tmp_path_factory.mktemp("demo") / "run.json"
    result = clew("demo", "--json", "--no-serve", "--export", path)
    assert (result.returncode, result.stderr) == (0, "")
    return json.loads(result.stdout), spans_of(path)


Told = tuple[dict[str, Any], list[dict[str, Any]]]


def test_the_summary(told: Told):
    """One object: the run's ids, its totals, and no address when nothing is served."""
    summary, spans = told
    assert str(uuid.UUID(summary["run_id"])) == summary["run_id"]
    assert summary == {
        "run_id": summary["run_id"],
        "trace_id": summary["run_id"].replace("-", ""),
        "spans": 28,
        "segments": 2,
        "decisions": 8,
        "denials": 1,
        "tokens": {
            "input": 9662,
            "output": 577,
            "cache_read": 6272,
            "cache_write": 1536,
            "reasoning": 256,
        },
        "cost_usd": summary["cost_usd"],
        "cost_status": "priced",
        "address": None,
    }
    assert len(spans) == 28
    rounds = [span for span in spans if "clew.round" in span["attributes"] and span["kind"] == 3]
    costs = [span["attributes"]["clew.cost.usd"] for span in rounds]
    assert summary["cost_usd"] == pytest.approx(sum(costs))
    assert summary["cost_usd"] > 0


def test_the_run_has_everything_a_run_can_have(told: Told):
    """Rounds of both providers, one streamed by each, tools, decisions, a retry, a subagent."""
    summary, spans = told
    assert {span["traceId"] for span in spans} == {summary["trace_id"]}
    assert Counter(span["name"] for span in spans) == {
        "invoke_agent parcel-desk": 2,
        "run_started parcel-desk": 2,
        "run_sealed parcel-desk": 2,
        "invoke_agent carrier-watch": 1,
        "chat gpt-5-mini": 4,
        "chat claude-haiku-4-5": 2,
        "anthropic.messages.create": 2,
        "execute_tool find_order": 1,
        "execute_tool carrier_scans": 1,
        "execute_tool refund_order": 1,
        "execute_tool send_voucher": 2,
        "decide guardrail_input": 1,
        "decide tool": 3,
        "decide approval": 4,
    }
    streamed = [
        (span["name"], span["attributes"]["clew.stream.outcome"])
        for span in spans
        if "clew.stream.outcome" in span["attributes"]
    ]
    assert Counter(streamed) == {
        ("chat gpt-5-mini", "complete"): 2,
        ("chat claude-haiku-4-5", "complete"): 1,
    }
    attempts = [span["attributes"].get("clew.attempts") for span in spans]
    assert Counter(attempt for attempt in attempts if attempt) == {1: 5, 2: 1}


def test_a_denial_and_an_approval(told: Told):
    """A rule denies the refund; the voucher waits for a second person, and is then executed."""
    _, spans = told
    decided = [
        tuple(
            span["attributes"].get(f"clew.decision.{key}")
            for key in ("gate", "outcome", "reason", "subject", "executed", "by")
        )
        for span in in_order(spans)
        if span["name"].startswith("decide ")
    ]
    assert decided == [
        ("guardrail_input", "allow", "no_finding", None, True, "policy"),
        ("tool", "allow", "read_only", "find_order", True, "policy"),
        ("approval", "allow", "not_needed", "find_order", True, "policy"),
        ("tool", "allow", "read_only", "carrier_scans", True, "policy"),
        ("approval", "allow", "not_needed", "carrier_scans", True, "policy"),
        ("tool", "deny", "parcel_not_lost", "refund_order", False, "policy"),
        ("approval", "require_approval", "needed", "send_voucher", False, "policy"),
        ("approval", "allow", "approved", "send_voucher", True, "second_person"),
    ]
    tools = [
        (span["name"].removeprefix("execute_tool "), span["attributes"]["clew.tool.outcome"])
        for span in in_order(spans)
        if span["name"].startswith("execute_tool ")
    ]
    assert tools == [
        ("find_order", "ok"),
        ("carrier_scans", "ok"),
        ("refund_order", "denied"),
        ("send_voucher", "awaiting_approval"),
        ("send_voucher", "ok"),
    ]


def test_the_run_is_suspended_and_resumed(told: Told):
    """Two segments of one trace; the second is linked to the first and has the run's totals."""
    _, spans = told
    first, second = (
        span for span in in_order(spans) if span["attributes"].get("clew.run.root") is True
    )
    states = [span["attributes"]["clew.run.status"] for span in (first, second)]
    assert states == ["waiting_for_approval", "completed"]
    assert [span["attributes"]["clew.segment"] for span in (first, second)] == [1, 2]
    assert "links" not in first
    assert [link["spanId"] for link in second["links"]] == [first["spanId"]]
    keys = ("rounds", "tool_calls", "decisions", "denials")
    segments = [
        [each["attributes"][f"clew.segment.{key}"] for key in keys] for each in (first, second)
    ]
    assert segments == [[5, 4, 7, 1], [1, 1, 1, 0]]
    assert [second["attributes"][f"clew.run.{key}"] for key in keys] == [6, 5, 8, 1]


def test_the_record_is_complete(told: Told):
    """Every sequence number of a segment is there once, and every parent is a span of the run."""
    _, spans = told
    numbers = [
        (span["attributes"]["clew.segment"], span["attributes"]["clew.seq"])
        for span in in_order(spans)
    ]
    assert numbers == [(1, n) for n in range(1, 23)] + [(2, n) for n in range(1, 7)]
    ids = {span["spanId"] for span in spans}
    assert {span["parentSpanId"] for span in spans if span.get("parentSpanId")} <= ids


def test_no_content_leaves(told: Told):
    """Nothing that the customer, the models or the tools said is in the exported document."""
    _, spans = told
    text = json.dumps(spans).lower()
    told_words = ("20417", "birthday", "leeds", "pruning", "hr550193", "sorry", "euros", "mailbox")
    for word in (*told_words, '"ann"', '"bob"'):
        assert word not in text.replace("conv-20417", "")


# --- the viewer ---------------------------------------------------------------------------------


def test_the_run_is_in_the_store(tmp_path: Path):
    """Without a viewer running, one is started on the user's store, and the run stays there."""
    port = free_port()
    result = clew("demo", "--json", "--port", str(port), CLEW_DATA_DIR=str(tmp_path))
    assert (result.returncode, result.stderr) == (0, "")
    summary = json.loads(result.stdout)
    assert summary["address"] == f"http://127.0.0.1:{port}/runs/{summary['run_id']}"
    with start(port=port, store_path=tmp_path / "clew.db"):
        page = httpx.get(summary["address"])
        twin = httpx.get(summary["address"].replace("/runs/", "/api/runs/")).json()
    assert page.status_code == 200
    assert "parcel-desk" in page.text
    assert len(twin["spans"]) == summary["spans"]


def test_a_viewer_that_runs_already_gets_the_run(tmp_path: Path):
    """A `clew serve` at the port is used, whatever its store."""
    with start(port=0, store_path=tmp_path / "one" / "clew.db") as server:
        port = server.address.rpartition(":")[2]
        result = clew("demo", "--json", "--port", port, CLEW_DATA_DIR=str(tmp_path / "two"))
        assert (result.returncode, result.stderr) == (0, "")
        summary = json.loads(result.stdout)
        assert summary["address"].startswith(f"{server.address}/runs/")
        twin = httpx.get(summary["address"].replace("/runs/", "/api/runs/")).json()
    assert len(twin["spans"]) == summary["spans"]
    assert not (tmp_path / "two").exists()


def test_a_port_and_a_store_that_are_taken(tmp_path: Path):
    """Another program at the port, and another server on the store, do not stop the demo."""
    with (
        ScriptedProvider() as other,
        start(port=0, store_path=tmp_path / "clew.db") as server,
    ):
        port = str(other.address[1])
        result = clew("demo", "--json", "--port", port, CLEW_DATA_DIR=str(tmp_path))
        assert (result.returncode, result.stderr) == (0, "")
        address = json.loads(result.stdout)["address"]
        assert not address.startswith((other.base_url, server.address))
        assert httpx.get(f"{server.address}/api/runs").json()["runs"] == []


def test_without_a_terminal_it_ends_by_itself(tmp_path: Path):
    """Through a pipe the tree and the address are printed, and the command ends."""
    port = free_port()
    result = clew("demo", "--port", str(port), CLEW_DATA_DIR=str(tmp_path))
    assert result.returncode == 0
    assert f"http://127.0.0.1:{port}/runs/" in result.stdout
    assert result.stderr.splitlines() == [
        "the run is kept in the store: `clew serve` shows it again at this address"
    ]


def test_at_a_terminal_the_viewer_stays_until_it_is_stopped(tmp_path: Path):
    """The browser is opened, the page can be read, and Ctrl-C ends it in peace."""
    port = free_port()
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "demo", "--port", str(port)],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"CLEW_DATA_DIR": str(tmp_path), "BROWSER": str(browser), "TERM": "dumb"},
    )
    os.close(theirs)
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == "Ctrl-C stops the viewer\n"
        assert httpx.get(f"http://127.0.0.1:{port}/api/runs").json()["runs"]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        os.close(terminal)
    assert opened.read_text().startswith(f"http://127.0.0.1:{port}/runs/")


# --- the terminal -------------------------------------------------------------------------------


def test_the_tree():
    """Without --json the trace is printed as a tree."""
    result = clew("demo", "--no-serve", COLUMNS="120")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("trace ")
    roots = [line for line in lines if "invoke_agent parcel-desk" in line]
    assert roots[0] == lines[1]
    assert [line.split()[-1] for line in roots] == ["waiting_for_approval", "completed"]
    (approved,) = [line for line in lines if "second_person" in line]
    assert "decide approval" in approved
    assert re.search(r"send_voucher  approved  by second_person, waited \d+\.\d s$", approved)
    (retried,) = [line for line in lines if "2 attempts" in line]
    assert "chat gpt-5-mini" in retried
    (denied,) = [line for line in lines if "parcel_not_lost" in line]
    assert "decide tool" in denied
    assert "deny" in denied
    (nested,) = [line for line in lines if "execute_tool carrier_scans" in line]
    assert nested.startswith("│   │   ├── ")


def test_a_live_server():
    """With --base-url and --model the agents ask that server, and go on when it asks for no tool."""
    with ScriptedProvider(lambda _: Reply(text="I do not know.")) as provider:
        result = clew(
            *("demo", "--no-serve", "--json"),
            *("--base-url", provider.openai_base_url, "--model", "small"),
        )
        assert (result.returncode, result.stderr) == (0, "")
        asked = [request.json() for request in provider.requests]
    summary = json.loads(result.stdout)
    assert {request["model"] for request in asked} == {"small"}
    assert len(asked) == 6
    for request in asked:
        roles = [message["role"] for message in request["messages"]]
        assert all(one != two for one, two in itertools.pairwise(roles))
    assert summary["tokens"]["input"] == 6 * 12
    assert (summary["cost_usd"], summary["cost_status"]) == (None, "unpriced")


@pytest.mark.parametrize(
    "reply", [Reply.failure(401, "bad key"), Reply.verbatim(b"<html>", content_type="text/html")]
)
def test_a_live_server_that_does_not_answer_as_hoped(reply: Reply):
    """The command fails with one sentence that names the server."""
    with ScriptedProvider(lambda _: reply) as provider:
        result = clew(
            *("demo", "--no-serve", "--json"),
            *("--base-url", provider.openai_base_url, "--model", "small"),
        )
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("clew: ")
    assert provider_address(provider.requests[0].header("host")) in line


def provider_address(host: str | None) -> str:
    return f"http://{host}/v1"


@pytest.mark.parametrize(
    "arguments",
    [("--base-url", "http://127.0.0.1:9/v1"), ("--model", "small"), ("--nonsense",)],
)
def test_wrong_usage(arguments: tuple[str, ...]):
    """Half of a live server, and unknown options, are wrong usage."""
    result = clew("demo", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Usage" in result.stderr


def test_a_file_that_cannot_be_written(tmp_path: Path):
    """The command says so."""
    result = clew("demo", "--no-serve", "--json", "--export", tmp_path / "no" / "run.json")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("clew: cannot write ")


def test_the_environment_does_not_get_in_the_way():
    """Proxies, a disabled SDK and another exporter are for services, not for the demo."""
    result = clew(
        *("demo", "--no-serve", "--json"),
        OTEL_SDK_DISABLED="true",
        HTTP_PROXY="http://127.0.0.1:9",
        HTTPS_PROXY="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_TRACES_EXPORTER="none",
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["spans"] == 26  # a disabled SDK has no spans of others
