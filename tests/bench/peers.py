"""What Clew is compared with, and the virtual environments that it lives in.

`python tests/bench/peers.py` builds them, each once for its set of requirements, below CLEW_CACHE
(`~/.cache/clew`). One that fails to install is in the tables with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_OTEL = ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")
_CLIENTS = ("openai", "anthropic")
_LONGEST_S = 900


class Peer(NamedTuple):
    """Another instrumentation: what it is called, and what has to be installed for it."""

    name: str
    packages: tuple[str, ...]


PEERS = (
    Peer(
        "OpenTelemetry",
        (
            "opentelemetry-instrumentation-genai-openai",
            "opentelemetry-instrumentation-genai-anthropic",
        ),
    ),
    Peer(
        "OpenLLMetry",
        ("opentelemetry-instrumentation-openai", "opentelemetry-instrumentation-anthropic"),
    ),
    Peer(
        "OpenInference",
        ("openinference-instrumentation-openai", "openinference-instrumentation-anthropic"),
    ),
    Peer("Logfire", ("logfire",)),
    Peer("Langfuse", ("langfuse", "opentelemetry-instrumentation-anthropic")),
    Peer("OpenLIT", ("openlit>=1.40",)),
    Peer("MLflow", ("mlflow",)),
)
CLEW = Peer("Clew", ("clew",))
"""Itself, in the environment that runs this."""


def cache() -> Path:
    """Return the folder in which environments are kept."""
    given = os.environ.get("CLEW_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "clew"


def make(peer: Peer) -> tuple[Path | None, str]:
    """Return the Python of a peer's environment, or None and why it could not be installed."""
    wanted = (*_CLIENTS, *_OTEL, *peer.packages)
    text = "\n".join((sys.version, *wanted))
    folder = cache() / f"bench-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python, ""
    install = [python, "-m", "pip", "install", "--quiet", "--upgrade", *wanted]
    try:
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run(
            install, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, "installing took too long"
    except (OSError, subprocess.CalledProcessError) as error:
        return None, type(error).__name__
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    ready.touch()
    return python, ""


def versions(python: Path, peer: Peer) -> dict[str, str]:
    """Return the versions of Python, of a peer's own packages, of the clients and of the SDK."""
    names = [*(name.split(">=")[0] for name in peer.packages), *_CLIENTS, "opentelemetry-sdk"]
    code = (
        "import importlib.metadata as m, json, platform, sys;"
        "found = {n: m.version(n) for n in sys.argv[1:]};"
        "print(json.dumps({**found, 'Python': platform.python_version()}))"
    )
    done = subprocess.run(
        [python, "-c", code, *names], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    for each in PEERS:
        found, said = make(each)
        print(each.name, said if found is None else versions(found, each), flush=True)
