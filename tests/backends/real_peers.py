"""Start the real Collector, Jaeger and Prometheus on loopback, each in a process of its own.

`build_peers.py` builds the first two; Prometheus comes from the system's packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import build_peers

CONFIGS = build_peers.MANIFEST.parent
READY_S = 60


class PeerError(Exception):
    """A peer did not start; the message ends with the last lines of its log."""


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    """Tell whether nobody listens on a port of loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _end_with_parent() -> None:
    """Ask the kernel to end this process when the one that started it dies."""
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL)


class Peer:
    """A program that runs until it is stopped.

    Args:
        name: what it is called in messages and in the name of its log.
        command: how it is started.
        folder: where it runs and keeps its log.
        environment: variables besides this process's own.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.folder = folder
        self.log = folder / f"{name}.log"
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; its log goes on where it ended."""
        with self.log.open("ab") as sink:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for whoever started it
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one call of the C library
            )

    def alive(self) -> bool:
        """Tell whether it still runs."""
        return self._process is not None and self._process.poll() is None

    def wait_for(self, url: str) -> None:
        """Wait until an address answers with a status below 500."""
        self.wait_until(lambda: answers(url), f"{url} does not answer")

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds.

        Raises:
            PeerError: it ended, or it does not hold after a minute.
        """
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            if not self.alive():
                raise PeerError(f"{self.name} ended by itself:\n{self.tail()}")
            if holds():
                return
            time.sleep(0.05)
        raise PeerError(f"{self.name}: {what} after {READY_S} s:\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """Ask it to end, and see to it after ten seconds."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def answers(url: str) -> bool:
    """Tell whether an address answers."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 - loopback
            return answer.status < 500
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False


class Jaeger(Peer):
    """Jaeger, with its storage in memory or (badger) in files.

    Nothing is set but addresses and the storage: its limits are its defaults.
    """

    def __init__(self, folder: Path, *, files: bool = False, port: int | None = None) -> None:
        self.otlp = f"127.0.0.1:{free_port()}"
        self.address = f"127.0.0.1:{port or free_port()}"
        self.data = folder / "badger"
        config = folder / "jaeger.json"
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps(self._config(files), indent=1))
        command = [str(build_peers.program("jaeger")), "--config", str(config)]
        # It would trace itself, to whoever listens on port 4317.
        super().__init__("jaeger", command, folder, {"OTEL_TRACES_SAMPLER": "always_off"})

    def _config(self, files: bool) -> dict[str, Any]:
        kept = {"directories": {"keys": str(self.data), "values": str(self.data)}}
        storage = (
            {"badger": {**kept, "ephemeral": False}}
            if files
            else {"memory": {"max_traces": 100_000}}
        )
        return {
            "service": {
                "extensions": ["jaeger_storage", "jaeger_query"],
                "pipelines": {
                    "traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}
                },
                "telemetry": {"metrics": {"level": "none"}},
            },
            "extensions": {
                "jaeger_storage": {"backends": {"runs": storage}},
                "jaeger_query": {
                    "storage": {"traces": "runs"},
                    "http": {"endpoint": self.address},
                    "grpc": {"endpoint": f"127.0.0.1:{free_port()}"},
                },
            },
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": self.otlp}}}},
            "exporters": {"jaeger_storage_exporter": {"trace_storage": "runs"}},
        }

    def start(self) -> None:
        """Start it, and wait until it answers questions."""
        super().start()
        self.wait_for(f"http://{self.address}/api/services")

    def get(self, path: str) -> Any:
        """Return what its query API answers, as JSON."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return json.load(answer)


class Collector(Peer):
    """The Collector, under one or more of the project's configurations.

    Args:
        folder: where it runs; its queue lies there, too.
        names: configurations, `gateway` for `gateway.yaml`; or paths of others.
        settings: variables that the configurations read, besides the addresses set here.
    """

    def __init__(
        self, folder: Path, *names: str | Path, http_port: int | None = None, **settings: str
    ) -> None:
        grpc, http, self_port = free_port(), http_port or free_port(), free_port()
        self.otlp_grpc = f"127.0.0.1:{grpc}"
        self.otlp = f"http://127.0.0.1:{http}"
        self.prometheus = f"127.0.0.1:{free_port()}"
        self.own_metrics = f"127.0.0.1:{self_port}"
        self.health = f"127.0.0.1:{free_port()}"
        self.queue = folder / "queue"
        command = [str(build_peers.program("collector"))]
        for name in names:
            path = name if isinstance(name, Path) else CONFIGS / f"{name}.yaml"
            command += ["--config", str(path)]
        environment = {
            "CLEW_OTLP_GRPC": self.otlp_grpc,
            "CLEW_OTLP_HTTP": f"127.0.0.1:{http}",
            "CLEW_PROMETHEUS": self.prometheus,
            "CLEW_HEALTH": self.health,
            "CLEW_SELF_PORT": str(self_port),
            "CLEW_QUEUE_DIR": str(self.queue),
            **settings,
        }
        super().__init__("collector", command, folder, environment)

    def start(self) -> None:
        """Start it, and wait until it takes spans."""
        super().start()
        self.wait_for(f"{self.otlp}/v1/traces")


class Prometheus(Peer):
    """Prometheus, scraping some addresses each second.

    Args:
        folder: where it runs and keeps its data.
        targets: addresses by the name of the job.
        rules: files with rules.
        every: seconds between two scrapes.
    """

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, str],
        *,
        rules: Sequence[Path] = (),
        every: str = "1s",
        port: int | None = None,
    ) -> None:
        self.address = f"127.0.0.1:{port or free_port()}"
        config = folder / "prometheus.yml"
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": every, "evaluation_interval": every},
                    "rule_files": [str(each) for each in rules],
                    "scrape_configs": [
                        {
                            "job_name": job,
                            "honor_labels": True,
                            "static_configs": [{"targets": [target]}],
                        }
                        for job, target in targets.items()
                    ],
                }
            )
        )
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self.address}",
            "--log.level=warn",
        ]
        super().__init__("prometheus", command, folder)

    def start(self) -> None:
        """Start it, and wait until it answers questions."""
        super().start()
        self.wait_for(f"http://{self.address}/-/ready")

    def query(self, expression: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return the result of an instant query, now or at a time (seconds since 1970)."""
        given: dict[str, Any] = (
            {"query": expression} if at is None else {"query": expression, "time": at}
        )
        return self.get(f"/api/v1/query?{urlencode(given)}")["data"]["result"]

    def get(self, path: str) -> Any:
        """Return what its API answers, as JSON."""
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=30) as answer:
            return json.load(answer)


def answers_with(url: str, status: int) -> bool:
    """Tell whether an address answers with a status."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - loopback
            return answer.status == status
    except urllib.error.HTTPError as error:
        return error.code == status


def missing() -> str | None:
    """Return what is not there of the programs that these tests need, None when all is."""
    for name in build_peers.PROGRAMS:
        if not build_peers.program(name).exists():
            return f"{name} is not built: `python tests/backends/build_peers.py` does it"
    for name in ("prometheus", "promtool"):
        if shutil.which(name) is None:
            return f"{name} is not installed"
    return None
