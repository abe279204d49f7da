"""Clients of two providers, for tests with gates."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from clew.testing import Reply, ScriptedProvider

sys.path.insert(0, str(Path(__file__).parent / "support"))

from governed import KITS, Kit
from saying import MARK


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(lambda _: Reply(text=f"{MARK} answer")) as running:
        yield running


@pytest.fixture(params=KITS)
async def kit(request: pytest.FixtureRequest, server: ScriptedProvider) -> AsyncIterator[Kit]:
    made = Kit(request.param, server)
    yield made
    await made.close()
