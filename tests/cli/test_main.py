"""The command line as a whole: what it lists, what it imports, how it fails."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import sample_runs
from commands import Clew, fill

import clew as clew_package
from clew.cli import COMMANDS


def test_help_lists_every_command(clew: Clew) -> None:
    """`clew --help` shows each command with its line; so does `clew` alone, as wrong usage."""
    code, out, _ = clew("--help")
    assert 0 == code
    for command in COMMANDS:
        assert re.search(rf"^  {command.name}\s+{re.escape(command.help)}$", out, re.MULTILINE)
    assert 2 == clew()[0]


@pytest.mark.parametrize("command", [each.name for each in COMMANDS])
def test_every_command_has_help(clew: Clew, command: str) -> None:
    """Each line of the table names a function that exists and is documented."""
    code, out, _ = clew(command, "--help")
    assert 0 == code
    assert f"Usage: clew {command}" in out


def test_the_page_about_the_viewer_names_every_option(clew: Clew) -> None:
    """Each option of `clew serve` is explained in its page."""
    page = (Path(__file__).parents[2] / "docs" / "viewer.md").read_text()
    options = set(re.findall(r"--[a-z-]+", clew("serve", "--help")[1])) - {"--help"}
    assert len(options) > 3
    assert {each for each in options if f"`{each}`" not in page} == set()


def test_help_imports_little() -> None:
    """`clew --help` takes under 250 ms of CPU and loads neither rich nor any command."""
    script = (
        "import sys, time\nfrom clew.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('rich', 'sqlite3', 'pydantic', 'opentelemetry', 'httpx', 'starlette', 'msgspec')\n"
        "loaded = sorted(each for each in heavy if each in sys.modules)\n"
        "print(loaded, time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded, _, seconds = done.stderr.strip().rpartition(" ")
    assert "[]" == loaded
    assert float(seconds) < 0.25


def test_a_command_imports_only_its_own_needs(data_dir: Path) -> None:
    """Reading the store loads no web framework, no protobuf and no exporter."""
    fill(data_dir, sample_runs.triage())
    script = (
        "import sys\nfrom clew.cli import main\n"
        "try: main(['runs'])\nexcept SystemExit: pass\n"
        "heavy = ('google.protobuf', 'starlette', 'httpx', 'opentelemetry', 'rich')\n"
        "print([each for each in heavy if each in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert "[]" == done.stderr.strip()


def test_the_version_is_printed(clew: Clew) -> None:
    """`--version` names the program and the attribute contract."""
    code, out, _ = clew("--version")
    assert 0 == code
    assert re.fullmatch(r"clew \S+ \(attribute contract \d+\)\n", out)


def test_wrong_usage_is_exit_code_2(clew: Clew) -> None:
    """Unknown commands and options are told on stderr."""
    for arguments in (("nope",), ("runs", "--nope"), ("show",), ("runs", "--limit", "0")):
        code, out, err = clew(*arguments)
        assert (2, "") == (code, out)
        assert err


def test_a_missing_extra_is_one_sentence() -> None:
    """Without typer the command says what to install, without a traceback."""
    without_packages = [sys.executable, "-S", "-c"]
    home = str(Path(clew_package.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {home!r}); from clew.cli import main; main(['runs'])"
    done = subprocess.run(
        [*without_packages, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (2, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert "pip install 'clew[cli]'" in done.stderr


def test_an_error_is_one_sentence_and_exit_code_1(clew: Clew) -> None:
    """Errors of Clew have no traceback and leave stdout empty."""
    code, out, err = clew("runs")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert err.startswith("clew: there is no store")
