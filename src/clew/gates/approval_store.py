"""Where pending approvals are kept: in memory, or in a SQLite file that several processes share.

A record holds the names of the tools and keyed digests of their arguments, never the arguments.
It holds the plain ids of who asked and who decided, for four eyes; the file is closed to others.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Literal, Protocol

import msgspec
from msgspec import Struct

from clew.errors import StoreError
from clew.store.paths import data_dir, prepare

FILE_NAME: Final = "approvals.db"
Status = Literal["pending", "approved", "denied"]
_BUSY_S = 5.0


class ApprovalCall(Struct, frozen=True, kw_only=True):
    """One tool call that waits for an approval."""

    name: str
    id: str | None = None
    effect: str | None = None
    arguments_bytes: int | None = None
    digest: str | None = None
    """Keyed digest of the call, arguments included; None where they are not known."""


class Approval(Struct, frozen=True, kw_only=True):
    """The tool calls of one turn that somebody has to approve, and what was decided."""

    id: str
    run_id: str
    agent: str | None
    reference: str | None
    """What `clew.resume` continues the run with."""
    calls: tuple[ApprovalCall, ...]
    salt: str
    """The key of the digests, random for each record."""
    digest: str
    """Digest of all calls: what an approval is for."""
    initiator: str | None
    """Id of the actor that the run acts for."""
    four_eyes: bool
    proposed_ns: int
    status: Status = "pending"
    decided_ns: int | None = None
    decided_by: str | None = None
    attribution: str | None = None
    """`self`, `second_person`, `initiator_unknown` or `unresolved`."""
    executed: tuple[int, ...] = ()
    """Which of the calls have been executed; none is executed twice."""


class ApprovalStore(Protocol):
    """Keeps approvals. `decide` and `claim` are atomic: one caller wins."""

    def add(self, approval: Approval) -> None:
        """Keep a pending approval."""
        ...

    def get(self, approval_id: str) -> Approval | None:
        """Return one by its id, or by how its id begins where only one does."""
        ...

    def of_run(self, run_id: str) -> list[Approval]:
        """Return those of a run, newest first."""
        ...

    def pending(self) -> list[Approval]:
        """Return those that nobody has decided on, oldest first."""
        ...

    def decide(self, decided: Approval) -> bool:
        """Keep a decision, or what is new about a pending one; False where it is not pending."""
        ...

    def claim(self, approval_id: str, call: int) -> bool:
        """Take the right to execute one approved call; False where it is taken."""
        ...


class MemoryApprovals:
    """Approvals in the memory of this process."""

    def __init__(self) -> None:
        self._kept: dict[str, Approval] = {}
        self._lock = threading.Lock()

    def add(self, approval: Approval) -> None:
        """Keep a pending approval."""
        with self._lock:
            self._kept[approval.id] = approval

    def get(self, approval_id: str) -> Approval | None:
        """Return one by its id, or by how its id begins where only one does."""
        found = [one for key, one in list(self._kept.items()) if key.startswith(approval_id)]
        return found[0] if approval_id and len(found) == 1 else None

    def of_run(self, run_id: str) -> list[Approval]:
        """Return those of a run, newest first."""
        return [one for one in reversed(list(self._kept.values())) if one.run_id == run_id]

    def pending(self) -> list[Approval]:
        """Return those that nobody has decided on, oldest first."""
        return [one for one in list(self._kept.values()) if one.status == "pending"]

    def decide(self, decided: Approval) -> bool:
        """Keep a decision; False where somebody else was faster."""
        with self._lock:
            if self._kept[decided.id].status != "pending":
                return False
            self._kept[decided.id] = decided
            return True

    def claim(self, approval_id: str, call: int) -> bool:
        """Take the right to execute one approved call; False where it is taken."""
        with self._lock:
            claimed = _claimed(self._kept[approval_id], call)
            if claimed is not None:
                self._kept[approval_id] = claimed
            return claimed is not None


class SqliteApprovals:
    """Approvals in a SQLite file, by default `approvals.db` in the data folder.

    Raises:
        StoreError: the file cannot be used; from each method.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or data_dir() / FILE_NAME

    def add(self, approval: Approval) -> None:
        """Keep a pending approval."""
        with self._open() as connection:
            connection.execute(
                "INSERT INTO approvals (id, run_id, status, proposed_ns, record)"
                " VALUES (?, ?, ?, ?, ?)",
                (
                    approval.id,
                    approval.run_id,
                    approval.status,
                    approval.proposed_ns,
                    msgspec.json.encode(approval),
                ),
            )

    def get(self, approval_id: str) -> Approval | None:
        """Return one by its id, or by how its id begins where only one does."""
        if not approval_id:
            return None
        found = self._select("substr(id, 1, ?) = ?", (len(approval_id), approval_id))
        return found[0] if len(found) == 1 else None

    def of_run(self, run_id: str) -> list[Approval]:
        """Return those of a run, newest first."""
        return self._select("run_id = ?", (run_id,))[::-1]

    def pending(self) -> list[Approval]:
        """Return those that nobody has decided on, oldest first."""
        return self._select("status = 'pending'", ())

    def decide(self, decided: Approval) -> bool:
        """Keep a decision; False where somebody else was faster."""
        with self._open() as connection:
            changed = connection.execute(
                "UPDATE approvals SET status = ?, record = ? WHERE id = ? AND status = 'pending'",
                (decided.status, msgspec.json.encode(decided), decided.id),
            )
            return changed.rowcount == 1

    def claim(self, approval_id: str, call: int) -> bool:
        """Take the right to execute one approved call; False where it is taken."""
        with self._open() as connection:
            row = connection.execute(
                "SELECT record FROM approvals WHERE id = ?", (approval_id,)
            ).fetchone()
            claimed = None if row is None else _claimed(_decode(row[0]), call)
            if claimed is None:
                return False
            connection.execute(
                "UPDATE approvals SET record = ? WHERE id = ?",
                (msgspec.json.encode(claimed), approval_id),
            )
            return True

    def _select(self, condition: str, values: tuple[object, ...]) -> list[Approval]:
        if not self.path.exists():
            return []
        with self._open() as connection:
            rows = connection.execute(
                f"SELECT record FROM approvals WHERE {condition}"  # noqa: S608 - ours, see above
                " ORDER BY proposed_ns, id",
                values,
            ).fetchall()
        return [_decode(row[0]) for row in rows]

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        """Give a connection inside a transaction that nobody else writes in."""
        try:
            prepare(self.path)
            with closing(
                sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)
            ) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS approvals (id TEXT PRIMARY KEY, run_id TEXT NOT"
                    " NULL, status TEXT NOT NULL, proposed_ns INTEGER NOT NULL, record BLOB NOT"
                    " NULL) STRICT"
                )
                connection.execute(
                    "CREATE INDEX IF NOT EXISTS approvals_of_run ON approvals (run_id)"
                )
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            kind = type(error).__name__
            raise StoreError(f"the approvals in {self.path} cannot be used: {kind}") from None


def _decode(record: bytes) -> Approval:
    try:
        return msgspec.json.decode(record, type=Approval)
    except msgspec.DecodeError:
        raise StoreError("an approval in the store cannot be read") from None


def _claimed(approval: Approval, call: int) -> Approval | None:
    if approval.status != "approved" or call in approval.executed:
        return None
    return msgspec.structs.replace(approval, executed=(*approval.executed, call))
