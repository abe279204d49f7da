"""The page on reliability names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"


def known() -> set[str]:
    """Return every test as `file.py::name`."""
    return {
        f"{path.name}::{node.name}"
        for path in TESTS.rglob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def test_every_row_is_a_test() -> None:
    """Each row of the tables names at least one, and each that is named exists."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| fault", "| ---"))]
    named = [re.findall(r"`(test_\w+\.py::\w+)`", row) for row in rows]
    assert [row for row, names in zip(rows, named, strict=True) if not names] == []
    assert {each for names in named for each in names} - known() == set()


def test_every_fault_of_this_folder_is_on_the_page() -> None:
    """A fault that is injected here has a row."""
    mine = {path.name for path in Path(__file__).parent.glob("test_*.py")} - {"test_docs.py"}
    page = PAGE.read_text()
    listed = {each for each in known() if each.split("::")[0] in mine}
    elsewhere = {"test_termination.py::test_the_switch_and_shutdown_leave_the_signal_alone"}
    assert {each for each in listed - elsewhere if each not in page} == set()
