"""What the contract tests share: the SDKs, each call made without and with Clew.

`compare` runs a scenario twice against equal scripted providers, once as if Clew were not there, and
checks what must hold for every call: the caller gets equal objects and exceptions, the requests are
equal, the connection is given back as without Clew, the current span does not move, nothing
more is logged, exactly one round is exported, and no content with it.

`kit` is one SDK, sync or async. A test gets those that its marks leave:

    @pytest.mark.kits("stainless")             openai and anthropic, also if there is no mark
    @pytest.mark.kits("sdks", having="retries")    the others, if they can do so
    @pytest.mark.kits("all")                   both
    @pytest.mark.kits(asynchronous=True)
    @pytest.mark.kits(provider="openai")

`@pytest.mark.covers("stream")` names what a test proves in the table of `docs/coverage.md`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("kits")

from kits.choosing import PER_KIT, chosen  # noqa: E402
from kits.comparing import Compared, Scenario, compared  # noqa: E402

from clew.testing import Reply  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    """Make the marks known."""
    config.addinivalue_line("markers", "kits(group, ...): which SDKs a test is made with")
    config.addinivalue_line("markers", "covers(*features): what a test proves, for the table")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test once for each of its kits, and of the kit's variants or statuses."""
    if "kit" not in metafunc.fixturenames:
        return
    kits = chosen(metafunc.definition.iter_markers("kits"))
    for name, places in PER_KIT.items():
        if name in metafunc.fixturenames:
            cases = [
                pytest.param(kit, each, marks=kit.marks, id=f"{kit}-{each}".replace(" ", "-"))
                for kit in kits
                for each in places(kit)
            ]
            metafunc.parametrize(("kit", name), cases)
            return
    metafunc.parametrize("kit", [pytest.param(kit, marks=kit.marks, id=str(kit)) for kit in kits])


@pytest.fixture(scope="module", autouse=True)
def _thaw() -> Iterator[None]:
    """Undo the freezing of `make`, and collect what has become garbage since it was frozen."""
    yield
    gc.unfreeze()
    gc.collect()


Compare = Callable[..., Awaitable[Compared]]


@pytest.fixture
def compare(kit: Any) -> Compare:
    """Return a function that makes a scenario without and with Clew and compares the two."""

    async def compare(
        scenario: Scenario, *script: Reply, settings: dict[str, Any] | None = None, **options: Any
    ) -> Compared:
        found = await compared(kit, scenario, script or (kit.reply,), settings, options)
        assert len(found.rounds) == 1
        return found

    return compare


@pytest.fixture
def compare_all(kit: Any) -> Compare:
    """Return the same for scenarios with any number of rounds."""

    async def compare(
        scenario: Scenario, *script: Reply, settings: dict[str, Any] | None = None, **options: Any
    ) -> Compared:
        return await compared(kit, scenario, script or (kit.reply,), settings, options)

    return compare
