"""A real server on loopback over an empty store, and one over recorded calls."""

import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from clew.web.server import Running, start

sys.path.insert(0, str(Path(__file__).parents[1] / "store" / "support"))
sys.path.insert(0, str(Path(__file__).parent / "support"))

from house import House, house_in
from shop import Shop


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    """Where a test keeps its store."""
    return tmp_path / "data" / "clew.db"


@pytest.fixture
def server(store_file: Path) -> Iterator[Running]:
    """A running server."""
    with start(port=0, store_path=store_file) as running:
        yield running


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    """A client of that server."""
    with httpx.Client(base_url=server.address, timeout=20, trust_env=False) as client:
        yield client


@pytest.fixture
def viewer(served: Running) -> Iterator[httpx.Client]:
    """A client of the server that a file calls `served`."""
    with httpx.Client(base_url=served.address, timeout=20, trust_env=False) as client:
        yield client


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A running server, and what puts recorded calls into its folder."""
    with start(port=0, store_path=tmp_path / "clew.db") as running:
        found = Shop(running, tmp_path)
        yield found
        found.http.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A running server that asks who is there."""
    with house_in(tmp_path_factory.mktemp("house")) as running:
        yield running
