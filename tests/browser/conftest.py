"""A real Chromium in front of a real server."""

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "store" / "support"))
sys.path.insert(0, str(Path(__file__).parent / "support"))

import sample_messages

CHROMIUM = os.environ.get("CLEW_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing(what: str) -> None:
    """Skip on a user's machine; in CI a browser test that cannot run has failed."""
    message = f"{what} is not installed"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Chromium, started once for a file.

    While it runs, playwright keeps an event loop running in this thread, which asynchronous tests
    of other files must not find.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright")
    if not Path(CHROMIUM).exists():
        missing("Chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A server over a store of its own."""
    from clew.web.server import start

    path = tmp_path_factory.mktemp("browser") / "clew.db"
    with start(port=0, store_path=path) as running:
        running.folder = path.parent
        yield running


@pytest.fixture
def send(served):
    """Send hand-built runs to the server."""
    return partial(sample_messages.send, served.address)


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    """Both colour schemes."""
    return request.param


@pytest.fixture
def page(browser, served, scheme: str = "light") -> Iterator[object]:
    """A fresh page that fails the test on console errors and on requests to anywhere else."""
    yield from opened(browser, served)


@pytest.fixture
def coloured_page(browser, served, scheme: str) -> Iterator[object]:
    """The same in both colour schemes."""
    yield from opened(browser, served, color_scheme=scheme)


@pytest.fixture
def plain_page(browser, served) -> Iterator[object]:
    """The same without JavaScript."""
    yield from opened(browser, served, java_script_enabled=False)


def opened(browser, served, **options) -> Iterator[object]:
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, base_url=served.address, **options
    )
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(served.address)
            else faults.append(f"outside: {request.url}")
        ),
    )
    page.on(
        "response",
        lambda response: (
            faults.append(f"{response.status}: {response.url}") if response.status >= 400 else None
        ),
    )
    page.faults = faults
    yield page
    context.close()
    assert page.faults == []
