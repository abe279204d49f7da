"""Run a part of the tests on every other interpreter that this machine has.

    python .ci/interpreters.py install
    python .ci/interpreters.py test

Interpreters are found by their names on PATH and in a pyenv root. Each has an environment of its
own below $CLEW_CACHE (default: ~/.cache/clew), made anew when pyproject.toml changes. One that is
not there is named and skipped: no machine has them all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
NAMES = ("python3.11", "python3.12", "python3.13", "python3.14", "python3.13t", "python3.14t")
EXTRAS = "cli,serve,demo,audit,grpc,prometheus,yaml,prompts"
PACKAGES = (
    "pytest>=8.3", "pytest-asyncio>=0.25", "pytest-timeout>=2.3", "pytest-xdist>=3.6",
    "pytest-rerunfailures>=15", "hypothesis>=6.120", "httpx2>=2", "trustme>=1", "boto3>=1.43",
    "cohere>=7", "google-genai>=3", "mistralai>=3", "groq>=1", "ollama>=0.6", "openrouter>=1",
    "aiobotocore>=3.10",
    "opentelemetry-distro>=0.51b0", "opentelemetry-instrumentation-httpx>=0.51b0", "aiohttp>=3.14",
)  # fmt: skip
TESTS = (
    "tests/test_facade.py", "tests/test_setup.py", "tests/test_setup_joining.py",
    "tests/test_runs.py", "tests/test_runs_contexts.py", "tests/test_runs_decorated.py",
    "tests/test_context.py", "tests/test_streams.py", "tests/test_tools.py",
    "tests/test_decisions.py",
    "tests/pipeline", "tests/store", "tests/audit/test_verify.py", "tests/audit/test_tampering.py",
    "tests/audit/test_erasure.py", "tests/processes/test_child_processes.py",
    "tests/clients/test_endings.py", "tests/clients/test_attempts.py",
)  # fmt: skip
"""The facade, runs, streams, taps with the real clients, the pipeline, the store, integrity."""
LEFT_OUT = ("tests/store/test_speed.py", "tests/store/test_search_work.py")
"""They measure, which once is enough."""
INSTALL_S = 300
TEST_S = 300


class Interpreter(NamedTuple):
    """One that was found."""

    program: str
    version: str
    free_threaded: bool

    @property
    def name(self) -> str:
        """What it is called in what is printed."""
        return self.version + ("t" if self.free_threaded else "")

    @property
    def program_name(self) -> str:
        """What such a program is called."""
        return f"python{self.version.rpartition('.')[0]}{'t' if self.free_threaded else ''}"


ASK = (
    "import sys, sysconfig; print(sys.implementation.name, '%d.%d.%d' % sys.version_info[:3],"
    " int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))"
)


def _asked(program: str) -> Interpreter | None:
    """Ask a program what it is; None where it is no interpreter that works."""
    try:
        done = subprocess.run(
            [program, "-c", ASK], capture_output=True, text=True, timeout=20, check=True
        )
        implementation, version, free = done.stdout.split()
    except (subprocess.SubprocessError, OSError, ValueError):
        return None
    return Interpreter(program, version, free == "1") if implementation == "cpython" else None


def _candidates() -> Iterator[tuple[str, str]]:
    """Give names and programs, those on PATH first."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for name in NAMES:
        found = shutil.which(name)
        if found is not None:
            yield name, found
        for program in sorted(root.glob(f"versions/*/bin/{name}"), reverse=True):
            yield name, str(program)


def found() -> dict[str, Interpreter]:
    """Return the others by their names; one for each name, and none that is like this one."""
    others: dict[str, Interpreter] = {}
    me = _asked(sys.executable)
    for name, program in _candidates():
        if name in others or (me is not None and name == me.program_name):
            continue
        one = _asked(program)
        if one is not None and name == one.program_name:
            others[name] = one
    return others


def environment(one: Interpreter) -> Path:
    """Return where its environment is."""
    cache = Path(os.environ.get("CLEW_CACHE") or Path.home() / ".cache" / "clew")
    made_of = (ROOT / "pyproject.toml").read_bytes() + Path(__file__).read_bytes()
    key = hashlib.sha256(made_of + str(ROOT).encode()).hexdigest()[:12]
    return cache / "interpreters" / f"{one.name}-{key}"


def install(one: Interpreter) -> bool:
    """Make its environment; return whether it is there."""
    folder = environment(one)
    if (folder / ".ready").exists():
        return True
    for old in folder.parent.glob(f"{one.name}-*"):
        shutil.rmtree(old, ignore_errors=True)
    steps = (
        [one.program, "-m", "venv", folder],
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--prefer-binary",
         "--editable", f"{ROOT}[{EXTRAS}]", *PACKAGES],
    )  # fmt: skip
    try:
        for step in steps:
            subprocess.run(step, check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"Python {one.name}: not installed ({type(error).__name__})", file=sys.stderr)
        return False
    (folder / ".ready").touch()
    return True


def test(one: Interpreter) -> bool:
    """Run the tests; return whether all passed. What they print is kept for one that failed."""
    python = environment(one) / "bin" / "python"
    command = [python, "-m", "pytest", "-q", "-m", "not soak", "-n", "2", "--dist", "loadfile",
               "--reruns", "2", "-p", "no:cacheprovider", "-k", "not memory",
               *(f"--ignore={each}" for each in LEFT_OUT), *TESTS]  # fmt: skip
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, timeout=TEST_S, check=False, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        said = (error.stdout or b"").decode("utf-8", "replace")
        print(f"{said}\nPython {one.name}: not done after {TEST_S} s", file=sys.stderr)
        return False
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    last = lines[-1].strip("= ") if lines else "said nothing"
    print(f"Python {one.name}: {last} ({time.monotonic() - began:.0f} s)")
    return done.returncode == 0


def main(step: str) -> int:
    """Do a step for each; return the exit code."""
    others = found()
    me = _asked(sys.executable)
    there = {*others, me.program_name if me is not None else ""}
    missing = [name for name in NAMES if name not in there]
    if step == "test" and missing:
        print(f"not on this machine, so not tested: {', '.join(missing)}")
    do = install if step == "install" else lambda one: install(one) and test(one)
    done = [do(one) for one in others.values()]  # each, whatever becomes of the others
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
