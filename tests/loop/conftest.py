"""The loop beside a scripted provider, sync and async, with Clew listening."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from clew.testing import CaptureExporter, ScriptedProvider

sys.path.insert(0, str(Path(__file__).parent / "support"))

from desk import Desk
from loop_kit import MODES, Kit


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def tolerate(tolerated: set[str]) -> Callable[[str], None]:
    """Return what says that a kind of fault may be swallowed in this test."""
    return tolerated.add


@pytest.fixture
def govern(govern: Callable[..., CaptureExporter]) -> Callable[..., CaptureExporter]:
    """The same, where what is at this machine is OpenAI."""
    return partial(govern, provider_hosts={"127.0.0.1": "openai"})


@pytest.fixture
async def kit(mode: str, govern: Callable[..., CaptureExporter]) -> AsyncIterator[Kit]:
    """A provider with an empty script, and Clew without gates."""
    with ScriptedProvider() as server:
        kit = Kit(mode, server, govern())
        async with kit.provider:
            yield kit


@pytest.fixture
def desk(kit: Kit, tmp_path: Path) -> Desk:
    """A loop with a tool that needs an approval."""
    return Desk(kit, tmp_path)
