"""Makes the hand-built runs of `support/` importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "store" / "support"))


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    """Where a test keeps its store."""
    return tmp_path / "data" / "clew.db"
