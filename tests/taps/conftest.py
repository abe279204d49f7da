"""Providers for the frameworks, SDKs and clients that are tapped."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from clew.testing import ScriptedProvider

sys.path.insert(0, str(Path(__file__).parent / "support"))

from bedrock_kit import Bedrock, Kit
from callable_kit import Provider
from http_kit import Keep


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    """A provider on loopback."""
    with ScriptedProvider() as provider:
        yield provider


@pytest.fixture
def bedrock() -> Iterator[Bedrock]:
    """A server that answers as Bedrock does."""
    with Bedrock() as running:
        yield running


@pytest.fixture(params=["boto3", "aiobotocore", "aioboto3"])
def kit(request: pytest.FixtureRequest, bedrock: Bedrock) -> Kit:
    """A client of Bedrock from each of the libraries, which are asked the same way."""
    return Kit(request.param, bedrock)


@pytest.fixture
def provider() -> Provider:
    """An in-house provider, which speaks no HTTP."""
    return Provider()


@pytest.fixture
def keep() -> Iterator[Keep]:
    """Close, at the end of the test, each client that is passed through."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
async def session() -> AsyncIterator[Any]:
    """A session of aiohttp."""
    import aiohttp

    async with aiohttp.ClientSession() as made:
        yield made
