"""A store, and a folder of recorded calls, for one test each."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.store.prompt_index import PromptReader, RecordStore
from clew.store.reader import Reader
from clew.store.writer import Writer

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder that nothing has made yet."""
    return tmp_path / "data"


@pytest.fixture
def store_file(folder: Path) -> Path:
    """Where a test keeps its store."""
    return folder / "clew.db"


@pytest.fixture
def writer(store_file: Path) -> Iterator[Writer]:
    """What writes to the store."""
    opened = Writer(store_file, busy_s=0.2)
    yield opened
    opened.close()


@pytest.fixture
def reader(writer: Writer) -> Iterator[Reader]:
    """What reads the same store."""
    opened = Reader(writer.path)
    yield opened
    opened.close()


@pytest.fixture
def store(folder: Path) -> Iterator[RecordStore]:
    """What keeps recorded calls in the folder."""
    opened = RecordStore(folder)
    yield opened
    opened.close()


@pytest.fixture
def prompt_reader(store: RecordStore) -> Iterator[PromptReader]:
    """What reads the recorded calls again."""
    opened = PromptReader(store.folder)
    yield opened
    opened.close()
