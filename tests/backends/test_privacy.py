"""No word of content comes out behind the Collector, whatever an application puts in."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agent_runs
import careless
import pytest
import real_peers
import requests

from clew.testing import OtlpSink

TRACE = "c0ffee00c0ffee00c0ffee00c0ffee00"
AGENT = "carelessagent"


@pytest.fixture(scope="module")
def stored(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_peers.Jaeger]:
    """Jaeger, with its storage in files."""
    with real_peers.Jaeger(tmp_path_factory.mktemp("badger"), files=True) as running:
        yield running


@pytest.fixture(scope="module")
def gate(
    stored: real_peers.Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[real_peers.Collector]:
    """The gateway before it."""
    folder = tmp_path_factory.mktemp("gate")
    with real_peers.Collector(folder, "gateway", CLEW_JAEGER=stored.otlp) as running:
        yield running


def post(base_url: str, signal: str, message: Any) -> int:
    """Send a message as an exporter would; return the status."""
    return requests.post(
        f"{base_url}/v1/{signal}",
        data=message.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
        timeout=10,
    ).status_code


def held(folder: Path) -> bytes:
    """Return all that the files of a folder hold."""
    return b"\n".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


def test_nothing_of_a_careless_application_is_in_jaegers_storage(
    gate: real_peers.Collector, stored: real_peers.Jaeger
) -> None:
    """Attributes, names, status, events, links, scope and resource: no marker is stored."""
    assert 200 == post(gate.otlp, "traces", careless.message(TRACE, AGENT))

    def trace() -> Any:
        try:
            return stored.get(f"/api/traces/{TRACE}")
        except OSError:
            return None

    answer = agent_runs.eventually(trace)
    (span,) = answer["data"][0]["spans"]
    tags = {each["key"]: each["value"] for each in span["tags"]}
    assert ("chat", AGENT) == (span["operationName"], tags["gen_ai.agent.name"])
    assert {"_OTHER", "exception"} == {
        each["value"] for log in span["logs"] for each in log["fields"] if each["key"] == "event"
    }
    assert [] == span["references"]
    assert careless.MARKER not in str(answer)
    stored.kill()  # a regular end would pack what is in its log into compressed tables
    files = held(stored.data)
    stored.start()
    assert AGENT.encode() in files  # this is where spans are
    assert careless.MARKER.encode() not in files
    assert careless.MARKER.encode() not in held(gate.folder)  # queue and log


@pytest.mark.parametrize("profile", ["agent", "sampling"])
def test_the_other_profiles_keep_the_marker_back(
    profile: str, jaeger: real_peers.Jaeger, tmp_path: Path
) -> None:
    """An agent before the gateway, and a gateway that samples, redact events as the gateway does."""
    names = ["agent"] if profile == "agent" else ["gateway", "sampling"]
    settings = {
        "CLEW_GATEWAYS": f"[{jaeger.otlp}]",
        "CLEW_JAEGER": jaeger.otlp,
        "CLEW_DECISION_WAIT": "1s",
        "CLEW_DECISION_AFTER_ROOT": "1s",
        "CLEW_KEEP_PERCENT": "100",
    }
    trace_id = f"{profile:0>32}".encode().hex()[-32:]
    agent = f"careless{profile}"
    with real_peers.Collector(tmp_path, *names, **settings) as running:
        assert 200 == post(running.otlp, "traces", careless.message(trace_id, agent))

        def trace() -> Any:
            try:
                return jaeger.get(f"/api/traces/{trace_id}")
            except OSError:
                return None

        answer = agent_runs.eventually(trace)
    (span,) = answer["data"][0]["spans"]
    assert agent in str(span["tags"])
    assert {"_OTHER", "exception"} == {
        each["value"] for log in span["logs"] for each in log["fields"] if each["key"] == "event"
    }
    assert careless.MARKER not in str(answer)


def test_the_same_spans_without_the_collector_do_hold_the_marker(
    programs: None, tmp_path: Path
) -> None:
    """The test above can fail: stored directly, the marker is in every place."""
    with real_peers.Jaeger(tmp_path, files=True) as direct:
        import grpc
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

        with grpc.insecure_channel(direct.otlp) as channel:
            TraceServiceStub(channel).Export(careless.message(TRACE, AGENT))
        direct.kill()
        files = held(direct.data)
    assert careless.MARKER.encode() in files


def test_no_label_of_a_careless_application_is_a_metric(gate: real_peers.Collector) -> None:
    """Metrics of others are dropped, and labels that are not Clew's, or hold prose."""
    assert 200 == post(gate.otlp, "metrics", careless.metrics(AGENT))

    def page() -> str:
        headers = {"accept": "application/openmetrics-text"}
        answer = requests.get(f"http://{gate.prometheus}/metrics", headers=headers, timeout=5)
        return answer.text if AGENT in answer.text else ""

    text = agent_runs.eventually(page)
    lines = [each for each in text.splitlines() if each.startswith("clew_runs_started")]
    assert 1 == len(lines), text
    assert lines[0].startswith(
        'clew_runs_started_total{gen_ai_agent_name="carelessagent",job="careless"} 7'
    )
    assert careless.MARKER not in text
    assert "http_server" not in text


def test_logs_are_not_taken(gate: real_peers.Collector) -> None:
    """There is no pipeline for logs: nobody has said what of them may pass."""
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    assert 404 == post(gate.otlp, "logs", ExportLogsServiceRequest())


def test_local_yaml_keeps_the_marker_from_viewer_and_file(programs: None, tmp_path: Path) -> None:
    """On a developer's machine the same holds for the viewer and the file."""
    file = tmp_path / "runs.otlp.jsonl"
    with (
        OtlpSink() as viewer,
        real_peers.Collector(
            tmp_path / "c", "local", CLEW_VIEWER=viewer.base_url, CLEW_FILE=str(file)
        ) as local,
    ):
        assert 200 == post(local.otlp, "traces", careless.message(TRACE, AGENT))
        agent_runs.eventually(lambda: viewer.spans)
        local.stop()
        assert 1 == len(viewer.spans)
        seen = b"".join(viewer.bodies) + file.read_bytes()
    assert AGENT.encode() in seen
    assert careless.MARKER.encode() not in seen
