"""A web server that sets Clew up before it forks its workers: nothing is lost, sent twice, or hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fresh import free_port

from clew.testing import OtlpSink, Reply, ScriptedProvider

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability" / "support"))

WORKERS = 3
EACH = 10
APP = """
import os

import clew
import httpx

clew.configure("web")
clew.instrument()
with clew.run("boot"):
    pass  # not exported yet when the workers are forked


def application(environ, start_response):
    with clew.run("request") as run:
        body = {"model": "gpt-5-mini", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        with httpx.Client(trust_env=False) as client:
            answer = client.post(os.environ["PROVIDER"], json=body)
            answer.raise_for_status()
    start_response("200 OK", [("content-type", "text/plain")])
    return [f"{os.getpid()} {run.run_id}".encode()]
"""


def missing(what: str) -> None:
    """Skip on a user's machine; in CI a test that cannot run has failed."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is not installed")
    pytest.skip(f"{what} is not installed")


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    with OtlpSink() as running:
        yield running


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text="yes")) as running:
        yield running


def serve(folder: Path, kind: str, port: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    (folder / "app.py").write_text(APP)
    command = [
        *(sys.executable, "-m", "gunicorn", "--preload", f"--workers={WORKERS}"),
        *(f"--bind=127.0.0.1:{port}", f"--worker-class={kind}", "--no-control-socket", "app"),
    ]
    return subprocess.Popen(
        command,
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def ask_everybody(address: str) -> dict[int, list[str]]:
    """Ask until each worker has answered often enough; return its runs by its process."""
    answered: dict[int, list[str]] = {}
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            said = httpx.get(address, trust_env=False, timeout=10).text.split()
        except httpx.ConnectError:
            time.sleep(0.05)
            continue
        answered.setdefault(int(said[0]), []).append(said[1])
        if len(answered) == WORKERS and min(map(len, answered.values())) >= EACH:
            return answered
    raise AssertionError({pid: len(runs) for pid, runs in answered.items()})


def used_and_ended(server: subprocess.Popen[str], port: int) -> tuple[dict[int, list[str]], str]:
    """Ask every worker of a server, end it; return their answers and what was logged."""
    try:
        answered = ask_everybody(f"http://127.0.0.1:{port}/")
        server.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert server.wait(10) == 0
        assert time.monotonic() - began < 5, server.stderr.read()
    finally:
        server.kill()
        assert server.stderr is not None
        said = server.stderr.read()
        server.wait()
        server.stderr.close()
    return answered, said


def runs_counted(sink: OtlpSink) -> list[int]:
    """Return how many runs each process has counted, by its metrics."""
    counted: dict[str, int] = {}
    for message in sink.metrics:
        for resource in message.resource_metrics:
            values = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == "clew.runs.started":
                        points = sum(point.as_int for point in metric.sum.data_points)
                        counted[values["service.instance.id"]] = points
    return sorted(counted.values())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(
    ("kind", "path"),
    [("sync", "/v1/chat/completions"), ("gthread", "/v1/messages"), ("gevent", "/api/chat")],
)
def test_every_worker_exports_its_own(
    kind: str, path: str, tmp_path: Path, sink: OtlpSink, provider: ScriptedProvider
) -> None:
    """Each span of each worker arrives once, under an instance of its own, and the stop is quick.

    What the parent had not sent when it forked, it sends itself, once.
    """
    for module in ("gunicorn", *(("gevent",) if kind == "gevent" else ())):
        if subprocess.run([sys.executable, "-c", f"import {module}"], check=False).returncode:
            missing(module)
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.base_url,
        "OTEL_BSP_SCHEDULE_DELAY": "60000",
        "CLEW_SEAL_GRACE_SECONDS": "0",
        "PROVIDER": provider.base_url + path,
    }
    port = free_port()
    answered, said = used_and_ended(serve(tmp_path, kind, port, environment), port)
    assert "Clew" not in said, said
    assert "Exception" not in said, said
    assert runs_counted(sink) == sorted([*map(len, answered.values()), 1])
    spans = [
        (resource, span)
        for message in sink.traces
        for resource in message.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    expected = Counter(
        {
            "invoke_agent request": sum(map(len, answered.values())),
            "invoke_agent boot": 1,
        }
    )
    names = Counter(span.name for _, span in spans)
    assert {name: names[name] for name in expected} == expected
    assert (
        names["chat gpt-5-mini"] == names["run_started request"] == expected["invoke_agent request"]
    )
    assert names["run_sealed request"] == expected["invoke_agent request"]
    assert len({(span.trace_id, span.span_id) for _, span in spans}) == len(spans)
    instances: dict[str, set[str]] = {}
    for resource, span in spans:
        values = {each.key: each.value.string_value for each in resource.resource.attributes}
        run = str(uuid.UUID(bytes=span.trace_id))
        instances.setdefault(values["service.instance.id"], set()).add(run)
    by_worker = [set(runs) for runs in answered.values()]
    parent = [runs for runs in instances.values() if runs not in by_worker]
    assert len(instances) == WORKERS + 1
    assert all(runs in instances.values() for runs in by_worker)
    assert [len(runs) for runs in parent] == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("kind", ["sync", "gthread", "gevent"])
def test_over_grpc(kind: str, tmp_path: Path, provider: ScriptedProvider) -> None:
    """The same, with a connection that each worker opens for itself."""
    for module in ("grpc", "gunicorn", *(("gevent",) if kind == "gevent" else ())):
        if subprocess.run([sys.executable, "-c", f"import {module}"], check=False).returncode:
            missing(module)
    from grpc_receivers import GrpcReceiver

    port = free_port()
    with GrpcReceiver() as receiver:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.base_url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_BSP_SCHEDULE_DELAY": "60000",
            "CLEW_SEAL_GRACE_SECONDS": "0",
            "PROVIDER": provider.openai_base_url + "/chat/completions",
        }
        answered, said = used_and_ended(serve(tmp_path, kind, port, environment), port)
        spans = receiver.records()
    assert "Clew" not in said, said
    assert "Exception" not in said, said
    requests = sum(map(len, answered.values()))
    names = Counter(each.name for each in spans)
    assert names == {
        "invoke_agent boot": 1,
        "run_started boot": 1,
        "run_sealed boot": 1,
        "invoke_agent request": requests,
        "run_started request": requests,
        "run_sealed request": requests,
        "chat gpt-5-mini": requests,
    }
    assert len({(each.trace_id, each.span_id) for each in spans}) == len(spans)
