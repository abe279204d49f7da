"""Real peers for these tests: built once, started once for each file that asks for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "store" / "support"))

import real_peers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests more time: programs start, and a busy machine is slow."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def programs() -> None:
    """Skip where a program is missing; in CI that is a failure."""
    lacking = real_peers.missing()
    if lacking is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{lacking} (required in CI)")
    pytest.skip(lacking)


@pytest.fixture(scope="module")
def jaeger(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_peers.Jaeger]:
    """Jaeger, with its storage in memory."""
    with real_peers.Jaeger(tmp_path_factory.mktemp("jaeger")) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(
    jaeger: real_peers.Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[real_peers.Collector]:
    """The Collector under `gateway.yaml`, before Jaeger."""
    folder = tmp_path_factory.mktemp("gateway")
    with real_peers.Collector(folder, "gateway", CLEW_JAEGER=jaeger.otlp) as running:
        yield running
