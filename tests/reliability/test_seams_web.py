"""Every function behind the viewer's pages raises in turn: that page fails, and nothing else does."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import httpx
import pytest
import seams

import clew
from clew import _guard
from clew.pipeline import otlp_writer
from clew.settings import Settings
from clew.testing import CaptureExporter
from clew.web.server import Running, start

PACKAGES = ("clew.web", "clew.sources", "clew.store")
MODULES = [each.__name__ for each in seams.modules(*PACKAGES)]
_TOKENS = re.compile(rb'name="token" value="[^"]*"')
PROTOBUF = {"content-type": "application/x-protobuf"}


def spans() -> tuple[str, bytes]:
    """Return the id of a run, and its spans as a message."""
    exporter = CaptureExporter()
    settings = Settings(digest_key="k", export_delay_ms=5, seal_grace_s=0)
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    with clew.run("desk", actor="ann") as run, clew.tool("search"):
        clew.decide("tool", "deny", reason="no_rule", enforced=True)
    clew.shutdown()
    return str(run.run_id), otlp_writer.encode(exporter.spans)


class Viewer:
    """A server with a run in it, and the pages that it shows."""

    def __init__(self, http: httpx.Client, run: str, message: bytes) -> None:
        self.http = http
        self.message = message
        self.pages = [
            "/", "/?status=completed&q=desk", "/costs", f"/runs/{run}", "/settings", "/prompts",
            "/snippets", "/openapi.json", "/api/runs", f"/api/runs/{run}", "/api/costs",
            f"/runs/{run}/decisions", "/runs/none", "/static/none.css",
        ]  # fmt: skip

    def show(self, page: str) -> tuple[int, bytes]:
        got = self.http.get(page)
        return got.status_code, _TOKENS.sub(b"", got.content)

    def send(self) -> int:
        return self.http.post("/v1/traces", content=self.message, headers=PROTOBUF).status_code


@contextmanager
def serving(folder: Path) -> Iterator[tuple[Running, httpx.Client]]:
    """Start a server with an empty store, and a client of it."""
    with (
        start(port=0, store_path=folder / "clew.db") as server,
        httpx.Client(base_url=server.address, timeout=20, trust_env=False) as http,
    ):
        yield server, http


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    run, message = spans()
    with serving(tmp_path_factory.mktemp("viewer")) as (server, http):
        found = Viewer(http, run, message)
        assert found.send() == 200
        yield found
        assert server.alive


@pytest.fixture(scope="module")
def reached(viewer: Viewer, tmp_path_factory: pytest.TempPathFactory) -> dict[CodeType, str]:
    """For each function the first page that reaches it; "" stands for the receiver."""
    found: dict[CodeType, str] = {}
    folder = tmp_path_factory.mktemp("reached")
    with seams.watching() as calls, serving(folder) as (_, http):
        here = Viewer(http, "", viewer.message)
        here.send()
        calls.clear()
        for page in viewer.pages:
            here.show(page)
            for code in list(calls):
                found.setdefault(code, page)
        calls.clear()
        here.send()
        for code in list(calls):
            found.setdefault(code, "")
    return found


@pytest.mark.parametrize("module", MODULES)
def test_each_function_behind_a_page_raises_in_turn(
    module: str, viewer: Viewer, reached: dict[CodeType, str], caplog: pytest.LogCaptureFixture
) -> None:
    """It is answered with an error that says nothing of it; what comes after is as it was before."""
    caplog.set_level(logging.INFO)
    wrong: dict[str, str] = {}
    before: dict[str, int] = {}
    for name, function in seams.chosen(module, PACKAGES, reached).items():
        page = reached[function.__code__]
        if page not in before:
            before[page] = viewer.show(page)[0] if page else viewer.send()
        caplog.clear()
        _guard.forget()
        try:
            with seams.failing(function, inside=True):
                status, content = viewer.show(page) if page else (viewer.send(), b"")
        except httpx.HTTPError as error:
            wrong[name] = f"{page}: {error!r}"
            continue
        if status not in (before[page], 200, 500, 503):
            wrong[name] = f"{page}: {status}"
        elif b"zqmark" in content or "zqmark" in caplog.text:
            wrong[name] = f"{page}: words of the fault in {caplog.text[-300:] or 'the page'}"
        elif status == 500 and not _guard.failures:
            wrong[name] = f"{page}: not counted"
        elif viewer.send() != 200:
            wrong[name] = f"{page}: nothing is received any more"
    after = {page: viewer.show(page)[0] if page else viewer.send() for page in before}
    assert wrong == {}
    assert after == before
