"""SIGTERM, and the ends of servers: what is open is ended and exported, the process ends as before."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import Receiver, verdicts

from clew import semconv
from clew.store import journal
from clew.testing import Reply, ScriptedProvider

SLACK_S = 3.0
ENDED = 50
"""Spans of a run that have ended when the signal comes: its start, and tool calls."""
WORK = f"""
import asyncio, os, time
import httpx
import clew

url = os.environ.get("PROVIDER", "")
body = {{"model": "model-x", "max_tokens": 9, "messages": [{{"role": "user", "content": "Hi"}}]}}

def work():
    with clew.run("desk") as run:
        print("run", f"{{run.run_id.int:032x}}")
        for _ in range({ENDED - 1}):
            with clew.tool("search"):
                pass
        with clew.tool("wait"):
            with httpx.Client(trust_env=False, timeout=60) as client:
                print("ready", flush=True)
                client.post(url, json=body)

async def awork():
    clew.configure("service")
    clew.instrument()
    async with clew.run("desk") as run:
        print("run", f"{{run.run_id.int:032x}}")
        for _ in range({ENDED - 1}):
            async with clew.tool("search"):
                pass
        async with clew.tool("wait"):
            async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
                print("ready", flush=True)
                await client.post(url, json=body)
"""
PLAIN = (
    WORK
    + """
clew.configure("service")
clew.instrument()
work()
"""
)
ASYNC = WORK + "asyncio.run(awork())\n"
IDLE = """
import asyncio
import clew
async def main():
    clew.configure("service")
    with clew.run("desk"), clew.tool("wait"):
        print("ready", flush=True)
        for _ in range(1200):  # a signal just before a long sleep is seen after it
            await asyncio.sleep(0.05)
asyncio.run(main())
"""
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "ollama": "/api/chat"}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text="yes", delay=30)) as running:
        yield running


def start(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={
            **os.environ, "OTEL_METRICS_EXPORTER": "none", "OTEL_BSP_SCHEDULE_DELAY": "60000",
            **environment,
        },
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def until_ready(child: subprocess.Popen[str]) -> list[str]:
    """Return the lines before it says that it is ready."""
    lines: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        if line == "ready\n":
            return lines
        lines.append(line.strip())
    raise AssertionError(child.communicate()[1])


def terminate(child: subprocess.Popen[str]) -> tuple[float, str]:
    """Send SIGTERM; return the seconds until the end, and what it said."""
    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    try:
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    return time.monotonic() - began, out + err


@pytest.mark.parametrize("format_", PATHS)
@pytest.mark.parametrize("program", [PLAIN, ASYNC], ids=["sync", "async"])
def test_open_spans_are_ended_and_exported(
    program: str, format_: str, provider: ScriptedProvider
) -> None:
    """Fifty have ended and three are open: all arrive, the open ones as cancelled.

    These have an error type of their own; the process dies by the same signal.
    """
    asked = len(provider.requests)
    with Receiver() as receiver:
        child = start(
            program,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url,
            PROVIDER=provider.base_url + PATHS[format_],
        )
        (line,) = until_ready(child)
        patience = time.monotonic() + 10
        while len(provider.requests) == asked:
            assert time.monotonic() < patience
            time.sleep(0.01)
        seconds, said = terminate(child)
        spans = receiver.records()
    assert child.returncode == -signal.SIGTERM, said
    assert seconds < 2 + SLACK_S
    assert said == ""
    run = line.split()[1]
    assert verdicts(spans, [run]) == {run: ("COMPLETE", "CONSISTENT")}
    assert len({each.span_id for each in spans}) == len(spans) == ENDED + 3 + 1  # and the seal
    stopped = {
        each.name: each.attributes
        for each in spans
        if each.attributes.get(semconv.ERROR_TYPE) == "clew.Terminated"
    }
    assert set(stopped) == {"invoke_agent desk", "execute_tool wait", "chat model-x"}
    assert stopped["invoke_agent desk"][semconv.RUN_STATUS] == "cancelled"
    assert stopped["execute_tool wait"][semconv.TOOL_OUTCOME] == "cancelled"


KILLED = """
import time
import clew
clew.configure("service")
with clew.run("desk") as run:
    print("run", run.trace_id, flush=True)
    while True:
        with clew.tool("pay", effect="non_idempotent_write"):
            clew.decide("tool", "deny", subject="pay", enforced=True)
        print(time.time(), flush=True)
        time.sleep(0.01)
"""


def test_what_a_kill_loses(tmp_path: Path) -> None:
    """At most the flush interval, and nothing of the journal: writes and enforced decisions."""
    interval, slack = 0.2, 0.8
    with Receiver() as receiver:
        child = start(
            KILLED,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url,
            OTEL_BSP_SCHEDULE_DELAY=str(int(interval * 1000)),
            CLEW_AUDIT="fail_closed",
            CLEW_DATA_DIR=str(tmp_path / "data"),
        )
        assert child.stdout is not None
        run = child.stdout.readline().split()[1]
        ended: list[float] = []
        while not ended or ended[-1] - ended[0] < interval + slack + 0.5:
            ended.append(float(child.stdout.readline()))
        killed = time.time()
        child.kill()
        rest, _ = child.communicate(timeout=10)
        ended += [float(each) for each in rest.splitlines() if each.count(".") == 1]
        time.sleep(0.2)
        spans = [each for each in receiver.records() if each.trace_id == run]
    arrived = sum(each.name == "execute_tool pay" for each in spans)
    due = sum(each < killed - interval - slack for each in ended)
    assert due > 0
    assert arrived >= due
    entries = list(journal.read(tmp_path / "data"))
    tools = sum(each.kind == "tool" for each in entries)
    decisions = sum(each.kind == "decision" for each in entries)
    assert min(tools, decisions) >= len(ended)


FROZEN = """
import asyncio, os, signal, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
import clew
from clew.pipeline import exporters

joined, twin = sys.argv[1:]
if joined == "joined":
    trace.set_tracer_provider(TracerProvider())
    clew.configure("service", span_exporters=exporters.from_environment())
else:
    clew.configure("service")

def handler():
    with clew.run("desk") as run, clew.tool("search"):
        clew.decide("tool", "deny", subject="search")
    return run

async def ahandler():
    async with clew.run("desk") as run, clew.tool("search"):
        clew.decide("tool", "deny", subject="search")
    return run

run = handler() if twin == "sync" else asyncio.run(ahandler())
assert trace.get_tracer_provider().force_flush()
print("run", run.trace_id, flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("provider_is", ["own", "joined"])
def test_a_handler_that_is_frozen_after_it_has_returned(provider_is: str, twin: str) -> None:
    """What it did was flushed before; the seal, too, where it has no grace to wait for."""
    with Receiver() as receiver:
        child = start(
            FROZEN, provider_is, twin,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url, CLEW_SEAL_GRACE_SECONDS="0",
        )  # fmt: skip
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            spans = receiver.records()
        finally:
            child.kill()
            child.communicate()
    run = line.split()[1]
    assert verdicts(spans, [run]) == {run: ("COMPLETE", "CONSISTENT")}


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_receiver_that_never_answers(protocol: str) -> None:
    """The process has ended after two seconds, by the signal."""
    silent: Any = Receiver(status=0)
    if protocol == "grpc":
        if os.environ.get("CI") != "true":
            pytest.importorskip("grpc")
        from grpc_receivers import GrpcReceiver

        silent = GrpcReceiver(status="NEVER")
    with silent as receiver:
        child = start(
            IDLE,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )
        until_ready(child)
        seconds, said = terminate(child)
    assert child.returncode == -signal.SIGTERM, said
    assert seconds < 2 + SLACK_S


def test_locks_that_the_main_thread_holds() -> None:
    """The handler waits for none: the process ends all the same."""
    program = """
import clew, time
from clew import setup
from clew.pipeline import runtime
clew.configure("service")
with setup._lock, runtime.get().worker._timer_lock:
    print("ready", flush=True)
    for _ in range(1200):  # a signal just before a long sleep is seen after it
        time.sleep(0.05)
"""
    child = start(program, OTEL_TRACES_EXPORTER="none")
    until_ready(child)
    seconds, said = terminate(child)
    assert child.returncode == -signal.SIGTERM, said
    assert seconds < 2 + SLACK_S


OWN = """
import signal, sys, time
import clew
def own(number, frame):
    print("mine", flush=True)
    sys.exit(7)
BEFORE
clew.configure("service")
AFTER
with clew.run("desk"):
    print("ready", flush=True)
    for _ in range(1200):  # a signal just before a long sleep is seen after it
        time.sleep(0.05)
"""
INSTALL = "signal.signal(signal.SIGTERM, own)"


@pytest.mark.parametrize("place", ["BEFORE", "AFTER"])
def test_a_handler_of_the_host_stays(place: str) -> None:
    """Whether it was there before Clew or came later; what it does is done, then atexit exports."""
    other = {"BEFORE": "AFTER", "AFTER": "BEFORE"}[place]
    with Receiver() as receiver:
        program = OWN.replace(place, INSTALL).replace(other, "")
        child = start(program, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url)
        until_ready(child)
        _, said = terminate(child)
        names = {each.name for each in receiver.records()}
    assert (child.returncode, said) == (7, "mine\n")
    assert "run_sealed desk" in names


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """The host has said so."""
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nimport clew\n"
        "clew.configure('service')\nprint(signal.getsignal(signal.SIGTERM) is signal.SIG_IGN)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    )  # fmt: skip
    assert done.stdout == "True\n"


def test_the_switch_and_shutdown_leave_the_signal_alone() -> None:
    """So does a configuration in another thread."""
    program = """
import signal, threading
import clew
from clew.settings import Settings
def default():
    return signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
clew.configure("service", settings=Settings.from_environment(flush_on_sigterm=False))
print(default()); clew.shutdown()
clew.configure("service"); print(default()); clew.shutdown(); print(default())
one = threading.Thread(target=clew.configure); one.start(); one.join(); print(default())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={**os.environ, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "False", "True", "True"]


APP = """
import clew

clew.configure("web")


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    with clew.run("request") as run:
        with clew.tool("search"):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{run.run_id.int:032x}".encode()})
"""


@pytest.mark.parametrize("imported", ["by the server", "before it"])
def test_uvicorn(imported: str, tmp_path: Path) -> None:
    """Whoever imports the application first, each run is whole when the server was told to end."""
    (tmp_path / "app.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if imported == "by the server":
        arguments = ["-m", "uvicorn", "app:app", f"--port={port}"]
    else:
        program = f"import uvicorn; from app import app; uvicorn.run(app, port={port})"
        arguments = ["-c", program]
    with Receiver() as receiver:
        server = subprocess.Popen(
            [sys.executable, *arguments],
            env={
                **os.environ, "OTEL_METRICS_EXPORTER": "none", "OTEL_BSP_SCHEDULE_DELAY": "60000",
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.base_url,
            },
            cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        runs: list[str] = []
        patience = time.monotonic() + 30
        try:
            while len(runs) < 3:
                assert time.monotonic() < patience
                try:
                    runs.append(httpx.get(f"http://127.0.0.1:{port}", trust_env=False).text)
                except httpx.ConnectError:
                    time.sleep(0.05)
            server.send_signal(signal.SIGTERM)
            began = time.monotonic()
            _, err = server.communicate(timeout=20)
            seconds = time.monotonic() - began
        finally:
            server.kill()
        spans = receiver.records()
    assert seconds < 2 + SLACK_S
    assert "Traceback" not in err
    assert server.returncode in (0, -signal.SIGTERM), err
    assert verdicts(spans, runs) == dict.fromkeys(runs, ("COMPLETE", "CONSISTENT"))
