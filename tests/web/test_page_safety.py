"""What no page may do: come in part, tell of a fault, take what was sent for markup."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import sample_runs
from page_text import tags, words
from sample_messages import send
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from clew import semconv
from clew.sources import BaseSource
from clew.store.database import connect
from clew.store.records import Page, RunFilter, RunPage, RunRecord
from clew.web.gate import AccessControl
from clew.web.guard import HEADERS
from clew.web.pages import Pages
from clew.web.server import Running, start
from clew.web.views import environment

TRIAGE = sample_runs.triage()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server over an empty store."""
    with start(port=0, store_path=tmp_path_factory.mktemp("safe") / "clew.db") as running:
        yield running


def test_no_page_is_sent_in_part(store_file: Path) -> None:
    """When the store fails, the answer is a whole error page with its status, never half a page."""
    with (
        start(port=0, store_path=store_file) as running,
        httpx.Client(base_url=running.address, trust_env=False) as client,
    ):
        send(running.address, TRIAGE)
        connection = connect(store_file)
        connection.execute("UPDATE spans SET attributes = '{' WHERE seq > 10")
        connection.execute("UPDATE runs SET fold = '{'")
        connection.close()
        for path in ("/", f"/runs/{TRIAGE.run_id}"):
            page = client.get(path)
            assert 503 == page.status_code
            assert page.text.rstrip().endswith("</html>")
            assert "<table" not in page.text
        assert 503 == client.get("/api/runs").json()["error"]["status"]


class BrokenSource(BaseSource):
    """A source with a fault of its own."""

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        raise ZeroDivisionError("a secret")

    def run(self, trace_id: str) -> RunRecord:
        raise ZeroDivisionError("a secret")


def test_a_fault_is_500_without_details(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected fault shows a page of its own, is logged, and tells the reader nothing."""
    pages = Pages(BrokenSource(), address="")
    control = Middleware(
        AccessControl, authenticator=None, digest_of=str, log=None, views=pages.views
    )
    client = TestClient(Starlette(routes=pages.routes(), middleware=[control]))
    for path in ("/", f"/runs/{TRIAGE.run_id}"):
        page = client.get(path)
        assert 500 == page.status_code
        assert "500 Internal Server Error" in words(page.text)
        assert "secret" not in page.text
    assert 500 == client.get("/api/runs").json()["error"]["status"]
    assert "Clew could not show a page (SearchPage" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert "in runs" in caplog.text
    assert "secret" not in caplog.text.replace('raise ZeroDivisionError("a secret")', "")


HOSTILE = "<img src=x onerror=\"document.title='owned'\">'\"&{{7*7}}</script>\u202egnp\x00\x1b[2J"


def hostile() -> sample_runs.Sample:
    run = sample_runs.Sample(service=HOSTILE)
    root = run.root(HOSTILE, 0, 100, **{
        semconv.RUN_STATUS: "failed", semconv.ERROR_TYPE: HOSTILE, semconv.TENANT: HOSTILE,
        semconv.RUN_TERMINATION_REASON: HOSTILE, semconv.CONVERSATION_ID: HOSTILE,
        semconv.RUN_PARENT_ID: "javascript:alert(1)//",
    })  # fmt: skip
    root.status = 2
    root.name = HOSTILE
    root.events.append((HOSTILE, 5, {HOSTILE: HOSTILE}))
    root.links.append(("ab" * 16, "cd" * 8))
    run.add(
        HOSTILE, 1, 2, root, {HOSTILE: [HOSTILE], "m": {HOSTILE: HOSTILE}}, scope=HOSTILE, status=2
    )
    run.model(1, 3, 50, root, model=HOSTILE)
    run.tool(HOSTILE, 51, 60, root, HOSTILE)
    run.decide(HOSTILE, HOSTILE, 61, root, HOSTILE, HOSTILE)
    return run


def test_everything_that_was_sent_is_escaped(served: Running, viewer: httpx.Client) -> None:
    """Markup in any name or value is text on every page; no script, style or handler appears."""
    run = hostile()
    send(served.address, run)
    pages = [viewer.get("/"), viewer.get("/", params={"agent": HOSTILE})]
    for span in run.spans:
        pages.append(viewer.get(f"/runs/{run.run_id}", params={"span": span.span_id}))
        pages.append(viewer.get(f"/runs/{run.run_id}/spans/{span.span_id}"))
    for page in pages:
        assert 200 == page.status_code
        seen = tags(page.text)
        assert "img" not in {tag for tag, _ in seen}
        scripts = [each for tag, each in seen if tag == "script"]
        assert all({"src", "defer"} == set(each) for each in scripts)
        assert all((each["src"] or "").startswith("/static/") for each in scripts)
        for _, attributes in seen:
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            assert not (attributes.get("href") or "").startswith("javascript:")
        assert "49" not in page.text.split("{{7*7}}")[0][-20:]
        assert HOSTILE.replace("\x00", "").split("<")[1][:9] in words(page.text).replace(
            "\ufffd", ""
        )


def test_the_security_headers_are_everywhere(viewer: httpx.Client) -> None:
    """Pages, twins, files, errors and the receiver all carry the policy."""
    for path in ("/", "/api/runs", "/static/clew.css", "/nothing", "/v1/traces"):
        answer = viewer.get(path)
        assert HEADERS == {name: answer.headers[name] for name in HEADERS}
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_templates_print_nothing_unescaped() -> None:
    """No template switches escaping off."""
    env = environment(address="")
    for name in env.list_templates():
        assert env.loader
        source = env.loader.get_source(env, name)[0]
        assert not re.search(r"\|\s*safe|autoescape|style=|<style|javascript:", source)
