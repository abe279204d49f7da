"""The page about recording: what its commands print is what it says, and its example runs.

With WRITE_DOCS set, the transcripts of the page are written anew.
"""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from prompt_rows import four_rounds

from clew.cli import main
from clew.settings import VARIABLES
from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import PromptRecord

PAGE = Path(__file__).parents[2] / "docs" / "recording.md"
CONSOLE = re.compile(r"^```console\n\$ clew (.*)\n((?:.*\n)*?)```$", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the calls that the page shows, and its file of rules."""
    data = tmp_path / "data"
    monkeypatch.setenv("CLEW_DATA_DIR", str(data))
    monkeypatch.setenv("CLEW_CAPTURE", "full")
    store = RecordStore(data)
    store.save(four_rounds())
    store.close()
    found = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompt-budget.yaml").write_text(found[1])
    return tmp_path


def printed(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        main(shlex.split(command))
    return "".join(line.rstrip() + "\n" for line in capsys.readouterr().out.splitlines())


@pytest.mark.usefixtures("folder")
def test_the_transcripts_are_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command of the page, in its order, on the same records."""
    page = PAGE.read_text()
    shown = {found[1]: found[2] for found in CONSOLE.finditer(page)}
    actual = {command: printed(command, capsys) for command in shown}
    assert len(actual) == 6
    if os.environ.get("WRITE_DOCS"):
        page = CONSOLE.sub(
            lambda found: f"```console\n$ clew {found[1]}\n{actual[found[1]]}```", page
        )
        PAGE.write_text(page)
        return
    assert shown == actual


@pytest.mark.usefixtures("folder")
def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python of the page prints the newest prompt of a tenant."""
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert 1 == len(found)
    exec(compile(found[0], str(PAGE), "exec"), {})  # noqa: S102 - the page is ours
    assert four_rounds()[-1][1].system.text == capsys.readouterr().out.removesuffix("\n")


def test_every_field_of_a_record_is_explained() -> None:
    """The table of the page has all that a payload file has, and nothing else."""
    page = PAGE.read_text()
    table = page[page.index("| field | holds |") : page.index("The system prompt has one normal")]
    named = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[2:]
    fields = {name for line in named for name in re.findall(r"`(\w+)`", line)}
    assert set(PromptRecord.__struct_fields__) == fields


def test_every_setting_is_explained() -> None:
    """By its variable and its name."""
    page = PAGE.read_text()
    mine = [each for each in VARIABLES if each.field.startswith("prompt_")]
    assert [] == [each for each in mine if f"| `{each.name}` | `{each.field}` |" not in page]
