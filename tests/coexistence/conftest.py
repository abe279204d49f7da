"""Virtual environments with other instrumentations in them, made once for each set of versions."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def cache() -> Path:
    """Return the folder in which environments are kept."""
    given = os.environ.get("CLEW_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "clew-tests"


def wanted() -> bool:
    """Tell whether the tests that make environments shall run."""
    return bool(os.environ.get("CI") or WANTED)


# Read before the tests' own fixture clears the environment of CLEW_ variables.
WANTED = os.environ.get("CLEW_COEXISTENCE")


def make(requirements: tuple[str, ...]) -> Path:
    """Return the Python of an environment with Clew and these packages."""
    text = "\n".join((sys.version, str(ROOT), *requirements))
    folder = cache() / f"coexistence-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [python, "-m", "pip", "install", "--quiet", "--editable", ROOT, *requirements]
        done = subprocess.run(install, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        ready.touch()
    return python


@pytest.fixture(scope="session")
def environment() -> Callable[..., Path]:
    """Give the maker of environments, or skip."""
    if not wanted():
        pytest.skip("takes minutes: set CLEW_COEXISTENCE=1")
    made: dict[Any, Path] = {}

    def get(*requirements: str) -> Path:
        if requirements not in made:
            made[requirements] = make(requirements)
        return made[requirements]

    return get
