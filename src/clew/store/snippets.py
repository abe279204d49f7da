"""Snippets and skills in the local store.

They are few and change seldom: each call opens the file, reads or writes in one transaction, and
closes it. Writing waits for other writers; it may be done beside a service or `clew serve`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from clew.errors import StoreError
from clew.prompts.blocks import BlockSource
from clew.prompts.repository import Repository
from clew.prompts.skills import Skill, skills_in_order
from clew.prompts.snippets import Snippet, in_order
from clew.store.database import connect, explained, transaction
from clew.store.migrations import migrate, pending
from clew.store.paths import prepare, store_path

T = TypeVar("T", Snippet, Skill)

_BOOLS: Final = frozenset({"active", "hidden", "enabled", "orphaned"})


class Changes(Struct, frozen=True, kw_only=True):
    """What putting snippets and skills into a store changed; each by what names it."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()


class SqliteRepository(Repository):
    """Snippets and skills in the local store; a store without any, or none yet, has none.

    Args:
        path: the file of the store, by default that in the data folder.

    Raises:
        StoreError: the store cannot be used, or is newer than this program; from each method.
    """

    block_source: BlockSource = "store"

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or store_path()

    def snippets(self) -> Sequence[Snippet]:
        """Return all snippets, those that are not active or hidden too: by sorting, then name."""
        return in_order(self._read("snippets", Snippet))

    def skills(self) -> Sequence[Skill]:
        """Return all skills, by source, then identifier."""
        return skills_in_order(self._read("skills", Skill))

    def put(
        self,
        snippets: Iterable[Snippet] = (),
        skills: Iterable[Skill] = (),
        *,
        dry_run: bool = False,
    ) -> Changes:
        """Add or replace snippets and skills, all of them or none; equal ones change nothing.

        Args:
            snippets: each replaces the one with its identifier.
            skills: each replaces the one with its source and identifier.
            dry_run: only say what would change; makes no store.
        """
        new = [*in_order(snippets), *skills_in_order(skills)]
        if dry_run:
            return self._changes(new, [*self.snippets(), *self.skills()])
        prepare(self.path)
        with closing(connect(self.path)) as connection:
            migrate(connection, self.path)
            with explained(self.path), transaction(connection):
                stored = [
                    *self._rows(connection, "snippets", Snippet),
                    *self._rows(connection, "skills", Skill),
                ]
                changes = self._changes(new, stored)
                for each in new:
                    if name_of(each) not in changes.unchanged:
                        self._write(connection, each)
        return changes

    def remove(self, identifier: str) -> bool:
        """Delete a snippet; False where there is none with this identifier."""
        return self._delete("DELETE FROM snippets WHERE identifier = ?", (identifier.strip(),))

    def remove_skill(self, identifier: str, source: str = "") -> bool:
        """Delete a skill; False where there is none with this identifier and source."""
        return self._delete(
            "DELETE FROM skills WHERE source = ? AND identifier = ?",
            (source.strip(), identifier.strip()),
        )

    def _read(self, table: str, kind: type[T]) -> list[T]:
        if not self.path.is_file():
            return []
        with self._reading() as connection:
            pending(connection, self.path)  # refuses a newer store, and other programs' files
            there = connection.execute(
                "SELECT count(*) FROM sqlite_schema WHERE name = ?", (table,)
            ).fetchone()[0]
            # A store that an older Clew wrote has no such table, hence none of them.
            return self._rows(connection, table, kind) if there else []

    def _rows(self, connection: sqlite3.Connection, table: str, kind: type[T]) -> list[T]:
        names = kind.__struct_fields__
        rows = connection.execute(f"SELECT {', '.join(names)} FROM {table}")  # noqa: S608 - our own
        found: list[T] = []
        for row in rows:
            members: dict[str, Any] = {
                name: bool(value) if name in _BOOLS else value
                for name, value in zip(names, row, strict=True)
            }
            try:
                found.append(msgspec.convert(members, kind))
            except msgspec.ValidationError as error:
                raise StoreError(f"the store {self.path} cannot be used: {error}") from None
        return found

    def _write(self, connection: sqlite3.Connection, value: Snippet | Skill) -> None:
        table = "snippets" if isinstance(value, Snippet) else "skills"
        names = (*value.__struct_fields__, "changed_ns")
        values: list[Any] = [getattr(value, name) for name in value.__struct_fields__]
        marks = ", ".join("?" * len(names))
        try:
            connection.execute(
                f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({marks})",  # noqa: S608 - our own
                (*values, time.time_ns()),
            )
        except UnicodeEncodeError:
            raise StoreError(f"{name_of(value)}: its text cannot be written as UTF-8") from None
        except OverflowError:
            raise StoreError(f"{name_of(value)}: its sorting has more than 64 bits") from None

    def _changes(
        self, new: Sequence[Snippet | Skill], stored: Sequence[Snippet | Skill]
    ) -> Changes:
        known = {(type(each), each.key): each for each in stored}
        sorted_out: dict[str, list[str]] = {"added": [], "changed": [], "unchanged": []}
        for each in new:
            old = known.get((type(each), each.key))
            where = "added" if old is None else "unchanged" if old == each else "changed"
            sorted_out[where].append(name_of(each))
        return Changes(**{where: tuple(names) for where, names in sorted_out.items()})

    def _delete(self, statement: str, values: tuple[str, ...]) -> bool:
        if not self.path.is_file():
            return False
        with closing(connect(self.path)) as connection:
            migrate(connection, self.path)
            with explained(self.path), transaction(connection):
                return connection.execute(statement, values).rowcount > 0

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with closing(connect(self.path, read_only=True)) as connection, explained(self.path):
            yield connection


def name_of(value: Snippet | Skill) -> str:
    """Return what names a snippet or skill among all of both: `snippet nova`, `skill acme#pdf`."""
    if isinstance(value, Snippet):
        return f"snippet {value.identifier}"
    return f"skill {value.reference}"
