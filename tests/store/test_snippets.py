"""Snippets and skills in the local store: putting, replacing, deleting, and stores of others."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sample_messages
import sample_runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clew.errors import StoreError
from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet
from clew.store import migrations, paths
from clew.store.database import connect
from clew.store.migrations import MIGRATIONS
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter
from clew.store.snippets import Changes, SqliteRepository
from clew.store.writer import Writer

NOVA = Snippet(identifier="nova", name="Nova", text="You are Nova.", tags="persona")
TONE = Snippet(identifier="tone", name="Tone", text="Be kind.", tags="style", sorting=-1)
PDF = Skill(identifier="pdf", source="acme", body="Read.", checksum=checksum("Read."))


@pytest.fixture
def kept(store_file: Path) -> SqliteRepository:
    return SqliteRepository(store_file)


def rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_what_was_put_is_there_for_another_object(kept: SqliteRepository):
    """Everything is in the file; the first call makes it, closed to others."""
    assert Changes(added=("snippet tone", "snippet nova", "skill acme#pdf")) == kept.put(
        [NOVA, TONE], [PDF]
    )
    other = SqliteRepository(kept.path)
    assert ([TONE, NOVA], [PDF]) == (list(other.snippets()), list(other.skills()))
    assert 0o600 == stat.S_IMODE(kept.path.stat().st_mode)
    assert 0o700 == stat.S_IMODE(kept.path.parent.stat().st_mode)


def test_putting_again_changes_nothing(kept: SqliteRepository):
    """Not even the time of the change."""
    kept.put([NOVA, TONE], [PDF])
    before = rows(kept.path, "SELECT identifier, changed_ns FROM snippets")
    assert Changes(unchanged=("snippet tone", "snippet nova", "skill acme#pdf")) == kept.put(
        [NOVA, TONE], [PDF]
    )
    assert before == rows(kept.path, "SELECT identifier, changed_ns FROM snippets")


def test_the_same_identifier_is_replaced(kept: SqliteRepository):
    """In any case of its letters; a skill by its source, too. The rest stays."""
    kept.put([NOVA, TONE], [PDF])
    nova = replace(NOVA, identifier="NOVA", text="New.")
    skill = replace(PDF, identifier="Pdf", source="Acme", enabled=False)
    other = replace(PDF, source="zeta")
    assert Changes(
        added=("skill zeta#pdf",), changed=("snippet NOVA", "skill Acme#Pdf")
    ) == kept.put([nova], [skill, other])
    assert ([TONE, nova], [skill, other]) == (list(kept.snippets()), list(kept.skills()))


def test_a_dry_run_only_tells(kept: SqliteRepository):
    """It makes no file, and changes none."""
    assert Changes(added=("snippet nova",)) == kept.put([NOVA], dry_run=True)
    assert not kept.path.parent.exists()
    kept.put([NOVA])
    new = replace(NOVA, text="New.")
    assert Changes(changed=("snippet nova",)) == kept.put([new], dry_run=True)
    assert [NOVA] == list(kept.snippets())


def test_all_or_nothing_is_stored(kept: SqliteRepository):
    """One text that cannot be written keeps the others out, too."""
    kept.put([TONE])
    with pytest.raises(StoreError, match="snippet broken: its text cannot be written as UTF-8"):
        kept.put([NOVA, Snippet(identifier="broken", text="\ud800")])
    with pytest.raises(StoreError, match="snippet far: its sorting has more than 64 bits"):
        kept.put([NOVA, Snippet(identifier="far", sorting=2**63)])
    assert [TONE] == list(kept.snippets())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(),
    other=st.text(),
    sorting=st.integers(-(2**63), 2**63 - 1),
    flags=st.tuples(st.booleans(), st.booleans()),
)
def test_whatever_was_put_comes_back(
    kept: SqliteRepository, text: str, other: str, sorting: int, flags: tuple[bool, bool]
):
    """Any text, a zero byte in it too, any number of 64 bits, either state."""
    snippet = Snippet(
        identifier="a",
        name=other,
        description=text,
        text=text,
        tags=other,
        metadata=text,
        sorting=sorting,
        active=flags[0],
        hidden=flags[1],
    )
    skill = Skill(identifier="a", name=other, body=text, trust=other, enabled=flags[0])
    kept.put([snippet], [skill])
    assert ([snippet], [skill]) == (list(kept.snippets()), list(kept.skills()))


def test_what_was_deleted_is_never_found(kept: SqliteRepository):
    """Not by its id either, for runs that are resumed."""
    kept.put([NOVA, TONE], [PDF])
    assert (True, False) == (kept.remove(" NOVA "), kept.remove("nova"))
    assert [TONE] == kept.find_existing_by_ids(["nova", "tone"])
    assert (False, True) == (kept.remove_skill("pdf"), kept.remove_skill("pdf", "acme"))
    assert [] == list(kept.skills())


def test_without_a_store_there_is_nothing(kept: SqliteRepository):
    """Asking makes no file; deleting neither."""
    assert ((), (), False) == (kept.snippets(), kept.skills(), kept.remove("nova"))
    assert not kept.path.parent.exists()


def test_the_default_is_the_store_of_the_data_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The file that runs are in."""
    monkeypatch.setenv("CLEW_DATA_DIR", str(tmp_path / "here"))
    SqliteRepository().put([NOVA])
    assert (tmp_path / "here" / "clew.db") == paths.store_path()
    assert [NOVA] == list(SqliteRepository(paths.store_path()).snippets())


def test_runs_and_snippets_share_a_file(kept: SqliteRepository):
    """While a writer has it open, snippets are put; each sees what the other wrote."""
    writer = Writer(kept.path)
    try:
        kept.put([NOVA])
        writer.write(sample_messages.spans_of(sample_runs.running()))
        kept.put([TONE])
    finally:
        writer.close()
    reader = Reader(kept.path)
    try:
        assert 1 == len(reader.runs(RunFilter(), Page(limit=5)).runs)
    finally:
        reader.close()
    assert [TONE, NOVA] == list(kept.snippets())


def test_several_put_at_once(kept: SqliteRepository):
    """Writers wait for each other; nothing is lost."""
    snippets = [Snippet(identifier=f"s{number:02}") for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda each: SqliteRepository(kept.path).put([each]), snippets))
    assert [(f"snippet {each.identifier}",) for each in snippets] == [each.added for each in done]
    assert snippets == list(kept.snippets())


STEP = next(
    number for number, each in enumerate(MIGRATIONS, 1) if each.name == "snippets and skills"
)


def test_an_older_store_has_none_until_something_is_put(
    kept: SqliteRepository, monkeypatch: pytest.MonkeyPatch
):
    """Reading does not change it; putting brings it up to date."""
    with monkeypatch.context() as older:
        older.setattr(migrations, "MIGRATIONS", MIGRATIONS[: STEP - 1])
        Writer(kept.path).close()
    assert ((), ()) == (kept.snippets(), kept.skills())
    assert [(STEP - 1,)] == rows(kept.path, "SELECT max(number) FROM migrations")
    kept.put([NOVA])
    assert [NOVA] == list(kept.snippets())
    assert [(len(MIGRATIONS),)] == rows(kept.path, "SELECT max(number) FROM migrations")


def test_a_newer_store_is_refused(kept: SqliteRepository):
    """For reading and for writing."""
    kept.put([NOVA])
    execute(kept.path, "INSERT INTO migrations VALUES (999, 'from the future', 0)")
    for call in (kept.snippets, kept.skills, lambda: kept.put([TONE]), lambda: kept.remove("a")):
        with pytest.raises(StoreError, match="written by a newer Clew"):
            call()


def test_a_file_of_another_program_is_refused(kept: SqliteRepository):
    """It is left as it is."""
    kept.path.parent.mkdir()
    execute(kept.path, "CREATE TABLE snippets (a)")
    for call in (kept.snippets, lambda: kept.put([NOVA])):
        with pytest.raises(StoreError, match="is a database of another program"):
            call()


def test_a_row_that_is_no_snippet_is_an_error(kept: SqliteRepository):
    """Somebody else wrote it; the message says which rule it breaks."""
    kept.put([NOVA])
    execute(kept.path, "UPDATE snippets SET data_class = 'nonsense'")
    with pytest.raises(StoreError, match="cannot be used: data class 'nonsense' is unknown"):
        kept.snippets()
    execute(kept.path, "UPDATE snippets SET data_class = '', text = x'00'")
    with pytest.raises(StoreError, match="cannot be used: Expected `str`, got `bytes`"):
        kept.snippets()


def test_a_locked_store_is_said_to_be_locked(
    kept: SqliteRepository, monkeypatch: pytest.MonkeyPatch
):
    """Another program holds it for longer than writers wait; reading goes on."""
    kept.put([NOVA])
    monkeypatch.setattr("clew.store.snippets.connect", partial(connect, busy_s=0.1))
    with closing(sqlite3.connect(kept.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is locked by another program"):
            kept.put([TONE])
        assert [NOVA] == list(kept.snippets())
        other.execute("ROLLBACK")
    assert ("snippet tone",) == kept.put([TONE]).added
