"""The local store as a source: `store://` (the data folder) or `store://PATH`."""

from __future__ import annotations

from pathlib import Path

from clew.sources import BaseSource, RunNotFoundError, path_of
from clew.store.costs import CostFilter, CostTable
from clew.store.paths import store_path
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter, RunPage, RunRecord, run_id_of
from clew.store.scopes import EVERYTHING, Scope


class StoreSource(BaseSource):
    """Reads a store, while others may write to it.

    Args:
        where: the file, or the folder that it is in; empty for the data folder.

    Raises:
        StoreError: there is no store, or it cannot be read.
    """

    def __init__(self, where: str | Path = "") -> None:
        path = path_of(str(where)) if str(where) else store_path()
        self._reader = Reader(store_path(path) if path.is_dir() else path)

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        """Return one page of runs, newest first."""
        return self._reader.runs(wanted, page)

    def run(self, trace_id: str) -> RunRecord:
        """Return one run with all its spans."""
        record = self._reader.run(trace_id)
        if record is None:
            raise RunNotFoundError(f"there is no run {run_id_of(trace_id)}")
        return record

    def find(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the trace ids that begin with these hex digits."""
        return self._reader.find(prefix, limit)

    def agents(self, scope: Scope = EVERYTHING) -> tuple[str, ...]:
        """Return the names of the agents that have runs here."""
        return self._reader.agents(scope)

    def names(self, kind: str, scope: Scope = EVERYTHING) -> tuple[str, ...]:
        """Return models, tools or gates of the runs here; none where not all may be read."""
        return self._reader.names(kind) if scope.everything else ()

    def covers(self, trace_id: str, scope: Scope) -> bool:
        """Tell whether there is a run with this id, and the scope covers it."""
        return self._reader.covers(trace_id, scope)

    def costs(self, wanted: CostFilter) -> CostTable:
        """Return what model calls cost."""
        return self._reader.costs(wanted)

    def version(self, trace_id: str) -> str | None:
        """Return what the summary of a run was made from: it changes with every span."""
        version = self._reader.version(trace_id)
        if version is None:
            raise RunNotFoundError(f"there is no run {run_id_of(trace_id)}")
        return version

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
