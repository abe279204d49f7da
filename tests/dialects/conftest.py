"""Where the tests of dialects find what they share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew import _guard

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture
def no_faults() -> Iterator[None]:
    """Fail where a fault was swallowed."""
    yield
    assert dict(_guard.failures) == {}
