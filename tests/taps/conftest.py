"""A provider for the frameworks and SDKs that are tapped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.testing import ScriptedProvider

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider
