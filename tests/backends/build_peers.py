"""Build the real Jaeger and the real Collector of these tests, once, into the cache.

    python tests/backends/build_peers.py [jaeger] [collector]

Prints the path of each program. A program is built when the cache does not have it under its
version; the Collector's version includes its manifest, `collector-config/builder.yaml`. Needs Go
and the Go module proxy; only the standard library of Python.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

JAEGER = "v1.76.0"
JAEGER_MODULE = "github.com/jaegertracing/jaeger"
BUILDER = "go.opentelemetry.io/collector/cmd/builder"
MANIFEST = Path(__file__).parents[2] / "collector-config" / "builder.yaml"
PROGRAMS = ("jaeger", "collector")

_PROGRESS_S = 30


class BuildError(Exception):
    """A program could not be built; the message says why."""


def cache() -> Path:
    """Return the folder of the builds."""
    given = os.environ.get("CLEW_CACHE")
    return (Path(given) if given else Path.home() / ".cache" / "clew") / "backends"


def program(name: str) -> Path:
    """Return where a program is, or would be."""
    if name == "jaeger":
        return cache() / f"jaeger-{JAEGER}" / "jaeger"
    lines = (each.split("#")[0].rstrip() for each in MANIFEST.read_text().splitlines())
    said = "\n".join(each for each in lines if each)
    digest = hashlib.sha256(said.encode()).hexdigest()[:12]
    return cache() / f"collector-{digest}" / "clew-collector"


def build(name: str) -> Path:
    """Return the path of a program, after building it where the cache does not have it.

    Raises:
        BuildError: there is no Go, or the build failed.
    """
    wanted = program(name)
    wanted.parent.parent.mkdir(parents=True, exist_ok=True)
    with (wanted.parent.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another checkout may be building it
        if wanted.exists():
            return wanted
        if shutil.which("go") is None:
            raise BuildError(f"{name} is not in {cache()}, and there is no Go to build it with")
        began = time.monotonic()
        _say(f"{name}: building into {wanted.parent}")
        with tempfile.TemporaryDirectory(dir=wanted.parent.parent) as scratch:
            made = _MAKERS[name](Path(scratch))
            wanted.parent.mkdir(exist_ok=True)
            made.replace(wanted)
        _say(f"{name}: built in {time.monotonic() - began:.0f} s")
    return wanted


def _jaeger(scratch: Path) -> Path:
    """Build from the module's own source: its go.mod has replacements that `go install` refuses."""
    facts = json.loads(_output(["go", "mod", "download", "-json", f"{JAEGER_MODULE}@{JAEGER}"]))
    source = scratch / "jaeger"
    shutil.copytree(facts["Dir"], source, copy_function=shutil.copyfile)
    for folder in (source, *source.rglob("*/")):
        folder.chmod(0o755)  # the module cache is read-only
    made = scratch / "program"
    arguments = ["-trimpath", "-ldflags=-s -w", "-o", str(made), "./cmd/jaeger"]
    _run("jaeger", ["go", "build", *arguments], source, {})
    return made


def _collector(scratch: Path) -> Path:
    manifest = MANIFEST.read_text()
    found = re.search(r"^  version: (\S+)$", manifest, re.MULTILINE)
    if found is None:
        raise BuildError(f"{MANIFEST} names no version")
    output = scratch / "build"
    own = scratch / "builder.yaml"
    own.write_text(manifest.replace("output_path: ./build", f"output_path: {output}"))
    builder = ["go", "run", f"{BUILDER}@v{found[1]}", "--config", str(own)]
    _run("collector", [*builder, "--ldflags=-s -w", "--gcflags="], scratch, {})
    return output / "clew-collector"


_MAKERS: Mapping[str, Callable[[Path], Path]] = {"jaeger": _jaeger, "collector": _collector}


def _environment() -> dict[str, str]:
    return {**os.environ, "GOFLAGS": "-p=2", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, env=_environment(), cwd="/", capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _run(name: str, command: list[str], folder: Path, more: Mapping[str, str]) -> None:
    """Run a command of minutes, and say now and then that it still runs."""
    log = cache() / f"{name}.log"
    began = time.monotonic()
    with log.open("wb") as sink:
        nice = ["nice", "-n", "15"] if shutil.which("nice") else []
        running = subprocess.Popen(
            [*nice, *command],
            cwd=folder,
            env={**_environment(), **more},
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        while True:
            try:
                status = running.wait(_PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                _say(f"{name}: {time.monotonic() - began:.0f} s, still building")
            except BaseException:
                running.kill()
                running.wait()
                raise
    if status:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise BuildError(f"{name} could not be built (its log is {log}):\n{tail}")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main(names: list[str]) -> int:
    """Build what is named, or everything."""
    unknown = [each for each in names if each not in PROGRAMS]
    if unknown:
        _say(f"{unknown[0]} is none of {', '.join(PROGRAMS)}")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it has started, too
    try:
        for name in names or PROGRAMS:
            print(build(name), flush=True)
    except BuildError as error:
        _say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
