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

import httpx
import pytest
from receivers import Receiver, verdicts

from clew import semconv
from clew.testing import Reply, ScriptedProvider

SLACK_S = 3.0
WORK = """
import os, sys, time
import httpx
import clew
from clew import setup

def work():
    with clew.run("desk") as run:
        print("run", f"{run.run_id.int:032x}")
        for _ in range(10):
            with clew.tool("search"):
                pass
        with clew.tool("wait"):
            with httpx.Client(trust_env=False, timeout=60) as client:
                print("ready", flush=True)
                body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
                client.post(os.environ["PROVIDER"] + "/chat/completions", json=body)
                time.sleep(60)
"""
PLAIN = (
    WORK
    + """
clew.configure("service")
clew.instrument()
work()
"""
)
ASYNC = (
    WORK
    + """
import asyncio
async def main():
    clew.configure("service")
    with clew.run("desk") as run:
        print("run", f"{run.run_id.int:032x}")
        with clew.tool("wait"):
            print("ready", flush=True)
            await asyncio.sleep(60)
asyncio.run(main())
"""
)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text="yes", delay=30)) as running:
        yield running


def start(program: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
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


@pytest.mark.parametrize("program", [PLAIN, ASYNC], ids=["sync", "async"])
def test_open_spans_are_ended_and_exported(program: str, provider: ScriptedProvider) -> None:
    """As cancelled, with an error type of their own; the process dies by the same signal."""
    with Receiver() as receiver:
        child = start(
            program,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url,
            PROVIDER=provider.openai_base_url,
        )
        (line,) = until_ready(child)
        time.sleep(0.3)
        seconds, said = terminate(child)
        spans = receiver.records()
    assert child.returncode == -signal.SIGTERM, said
    assert seconds < 2 + SLACK_S
    assert said == ""
    run = line.split()[1]
    assert verdicts(spans, [run]) == {run: ("COMPLETE", "CONSISTENT")}
    stopped = {
        each.name: each.attributes
        for each in spans
        if each.attributes.get(semconv.ERROR_TYPE) == "clew.Terminated"
    }
    expected = {"invoke_agent desk", "execute_tool wait"}
    assert set(stopped) == (expected if program is ASYNC else {*expected, "chat gpt-5-mini"})
    assert stopped["invoke_agent desk"][semconv.RUN_STATUS] == "cancelled"
    assert stopped["execute_tool wait"][semconv.TOOL_OUTCOME] == "cancelled"
    ended = [each for each in spans if each.name == "execute_tool search"]
    assert len(ended) == (0 if program is ASYNC else 10)


def test_a_receiver_that_never_answers() -> None:
    """The process has ended after two seconds, by the signal."""
    with Receiver(status=0) as receiver:
        child = start(ASYNC, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.base_url)
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
    time.sleep(60)
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
    time.sleep(60)
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
