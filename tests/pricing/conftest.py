"""A book over the price library, and books over files of the user's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from clew.pricing import Prices

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture(scope="module")
def prices():
    """A book that has loaded the price library."""
    book = Prices()
    assert book.wait(60)
    return book


@pytest.fixture
def price_file(tmp_path):
    """Write a price file and return a book over it and genai-prices."""

    def write(*rows, version="2026-11-01", currency="USD", aliases=None, name="prices.json"):
        path = tmp_path / name
        content = {"version": version, "currency": currency, "prices": list(rows)}
        path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
        book = Prices(aliases, path)
        assert book.wait(60)
        return book

    return write
