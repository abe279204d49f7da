"""The pages about gates: there is one for each, and its example does what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import _guard
from clew.testing import ReceivedRequest, Reply, ScriptedProvider

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "gates").glob("*.md"))
GATES = {path.stem for path in (ROOT / "src" / "clew" / "gates").glob("*.py")}
PRINTED = re.compile(r"^ *print\(.*\)  # (.+)$", re.MULTILINE)


def code(page: Path, language: str) -> str:
    """Return what stands in a page's blocks of a language."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    return "\n".join(blocks)


def answer(request: ReceivedRequest) -> Reply:
    text = request.json()["messages"][-1]["content"]
    return Reply(text=text.removeprefix("repeat: ") if "repeat" in text else "Hello yourself.")


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A provider where the clients look for one, nobody to export to, and an empty folder."""
    with ScriptedProvider(answer) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.openai_base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        monkeypatch.chdir(tmp_path)
        yield
        clew.shutdown()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_example_of_a_page_runs(
    page: Path, surroundings: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the example prints is what its comments say, in this order."""
    rules = code(page, "yaml")
    if rules:
        Path("rules.yaml").write_text(rules)
    example = code(page, "python")
    namespace: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, str(page), "exec"), namespace)  # noqa: S102 - our own page
    printed = capsys.readouterr().out.splitlines()
    expected = PRINTED.findall(example)
    assert expected
    assert [line for line in printed if line in expected] == expected
    told = page.read_text("utf-8")
    assert [line for line in printed if line not in expected and f"`{line}`" not in told] == []
    assert [kind for kind in _guard.failures if page.stem != "opa"] == []


def test_every_gate_has_a_page() -> None:
    """A new gate comes with a page."""
    pages = {page.stem.replace("-", "_") for page in PAGES}
    assert GATES - {"__init__", "base", "approval_store"} == pages - {"README"}


def test_the_first_page_leads_to_the_others() -> None:
    """Each page is linked, and each link leads somewhere."""
    text = (ROOT / "docs" / "gates" / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", text))
    assert linked == {page.name for page in PAGES} - {"README.md"}
