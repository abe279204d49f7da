"""The command line in this process, over a data folder of the test's own."""

import sys
from functools import partial
from pathlib import Path

import pytest

from clew.cli import main

sys.path.insert(0, str(Path(__file__).parents[1] / "store" / "support"))
sys.path.insert(0, str(Path(__file__).parent / "support"))

from commands import Clew


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    """Where a test keeps its store."""
    return tmp_path / "data" / "clew.db"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data folder of every command; nothing has made it yet."""
    return tmp_path / "data"


@pytest.fixture
def clew(capsys: pytest.CaptureFixture[str]) -> Clew:
    """Run a command in this process: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def prompt(clew: Clew) -> Clew:
    """Run a command of `clew prompt`."""
    return partial(clew, "prompt")
