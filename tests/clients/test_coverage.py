"""The page that says what is covered says what the tests cover."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def generator() -> Any:
    path = Path(__file__).with_name("coverage.py")
    spec = importlib.util.spec_from_file_location("contract_coverage", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_tests_say():
    """`python tests/clients/coverage.py` writes it anew."""
    made = generator()
    assert made.PAGE.read_text(encoding="utf-8") == made.page()


def test_every_client_makes_and_streams_calls():
    """No client of the table is without the two plain ways, and no mark is missing from a table."""
    made = generator()
    found = made.covered()
    kinds = {row: features["plain"] for row, features in found.items()}
    assert kinds == {row: features["stream"] for row, features in found.items()}
    assert all(kinds.values())
    assert len(found) == 13
    known = {name for names in made.TABLES.values() for name in names}
    marked = {
        name
        for _, marks in made.tests()
        for mark in marks
        if mark.name == "covers"
        for name in mark.args
    }
    assert marked - known == set()
