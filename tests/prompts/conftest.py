"""Makes what these tests share importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one, so that messages name files by short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
