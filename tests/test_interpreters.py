"""Other interpreters than this one: how CI finds them, and what none of them takes."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NUMBERED = re.compile(r"\?[0-9]")
STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|REPLACE|CREATE)\b")


def test_no_statement_has_numbered_parameters() -> None:
    """Python 3.12 warns of `?1` with a sequence and 3.14 refuses it: parameters have names or `?`."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and STATEMENT.match(node.value)
        and NUMBERED.search(node.value)
    ]
    assert found == []


@pytest.fixture(scope="module")
def interpreters() -> Any:
    script = ROOT / ".ci" / "interpreters.py"
    spec = importlib.util.spec_from_file_location("interpreters", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(folder: Path, name: str, said: str) -> Path:
    """Make a program that says something and ends."""
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    made.write_text(f"#!/bin/sh\n{said}\n")
    made.chmod(0o755)
    return made


def test_interpreters_are_found_by_name(
    interpreters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PATH first, then in a pyenv root; one that does not work or is another is passed over."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    versions = tmp_path / "pyenv" / "versions"
    program(tmp_path / "path", "python3.12", "exit 127")  # as pyenv's own stand-ins do
    working = program(versions / "3.12.9" / "bin", "python3.12", "echo cpython 3.12.9 0")
    free = program(versions / "3.13.1t" / "bin", "python3.13t", "echo cpython 3.13.1 1")
    program(versions / "pypy" / "bin", "python3.13", "echo pypy 3.13.0 0")
    program(versions / "odd" / "bin", "python3.14", "echo cpython 3.13.1 0")
    assert {name: tuple(one) for name, one in interpreters.found().items()} == {
        "python3.12": (str(working), "3.12.9", False),
        "python3.13t": (str(free), "3.13.1", True),
    }


def test_the_one_that_runs_this_is_no_other(
    interpreters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole suite runs on it already."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / "bin" / name).symlink_to(sys.executable)
    assert interpreters.found() == {}


def test_an_environment_is_made_anew_when_dependencies_change(
    interpreters: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name has what it was made of."""
    monkeypatch.setenv("CLEW_CACHE", str(tmp_path))
    one = interpreters.Interpreter("python3.12", "3.12.9", free_threaded=False)
    before = interpreters.environment(one)
    assert before.parent == tmp_path / "interpreters"
    root = tmp_path / "root"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]")
    monkeypatch.setattr(interpreters, "ROOT", root)
    assert interpreters.environment(one) != before
