"""The public names: a list that this test owns."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import clew

NAMES = [
    "AllowList",
    "ClewError",
    "Settings",
    "bind",
    "capture",
    "configure",
    "current_run",
    "decide",
    "instrument",
    "resume",
    "run",
    "shutdown",
    "tool",
    "uninstrument",
]


def test_the_facade_has_exactly_these_names() -> None:
    """A new public name is a decision, and is written down here."""
    assert sorted(clew.__all__) == NAMES
    assert [name for name in dir(clew) if name in clew.__all__] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_what_its_home_defines(name: str) -> None:
    """The facade hands out the object itself, with a docstring."""
    value = getattr(clew, name)
    assert value is getattr(importlib.import_module(clew._HOMES[name]), name)
    assert value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy facade answers like any module."""
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = clew.nothing_like_this


def test_type_checkers_see_the_same_names() -> None:
    """What is imported for type checkers is what is handed out at run time."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(clew.__file__).read_text())
    homes = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clew.")
        for alias in node.names
    }
    assert homes == clew._HOMES


def test_importing_clew_imports_nothing_else_of_it() -> None:
    """`import clew` loads one file."""
    program = "import sys, clew; print([m for m in sys.modules if m.startswith('clew.')])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
