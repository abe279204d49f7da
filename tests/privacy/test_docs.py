"""The pages about privacy and capture: their examples run, their tables are complete."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import clew
from clew import rule_data, semconv
from clew.allow_list import AllowList
from clew.settings import VARIABLES

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", ["privacy.md", "capture.md"])
def test_the_examples_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example works as it stands, after those above it on its page."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
    monkeypatch.setenv("CLEW_DIGEST_KEY", "a key of the tests")
    names: dict[str, Any] = {}
    found = blocks(page, "python")
    assert found
    for code in found:
        exec(compile(code, page, "exec"), names)  # noqa: S102 - the pages are ours
    clew.shutdown()


def test_the_example_of_a_file_is_a_list(tmp_path: Path) -> None:
    """The file that the page shows adds what the page says."""
    path = tmp_path / "list.yaml"
    path.write_text(blocks("privacy.md", "yaml")[0])
    found = AllowList.read(path)
    assert {"acme.plan", "acme.region", "acme.customer"} == set(found.spans)
    assert {"acme.cell"} == set(found.resource)


def test_every_rule_and_every_key_of_content_is_explained() -> None:
    """The tables name all that the code knows."""
    privacy, capture = ((DOCS / page).read_text() for page in ("privacy.md", "capture.md"))
    table = privacy[privacy.index("| rule in a file |") :]
    assert [] == [name for name in rule_data.NAMES if f"`{name}`" not in table]
    assert [] == [key for key in semconv.CONTENT if f"`{key}`" not in capture]
    assert [] == [level for level in semconv.CAPTURE_LEVELS if f"| `{level}`" not in capture]
    mine = {each.name for each in VARIABLES if each.field.startswith(("capture", "content"))}
    assert set() == {name for name in mine if name not in capture}
