"""A provider for the frameworks and SDKs that are tapped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clew.testing import ScriptedProvider


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as provider:
        yield provider
