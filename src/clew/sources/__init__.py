"""Where finished runs are read back from, all behind one protocol.

`open_source` turns what a user typed into a source. A new kind of source is one file with a class
that has the methods of `Source`, and one line in `SCHEMES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from clew.errors import ClewError
from clew.store.costs import CostFilter, CostTable
from clew.store.records import Page, RunFilter, RunPage, RunRecord, run_id_of
from clew.store.scopes import EVERYTHING, Scope

SCHEMES: Final = {
    "store": ("clew.sources.store", "StoreSource"),
    "file": ("clew.sources.otlp_json", "OtlpJsonSource"),
    "jaeger": ("clew.sources.jaeger", "JaegerSource"),
    "jaeger+https": ("clew.sources.jaeger", "SecureJaegerSource"),
    "tempo": ("clew.sources.tempo", "TempoSource"),
    "tempo+https": ("clew.sources.tempo", "SecureTempoSource"),
    "clickhouse": ("clew.sources.clickhouse", "ClickHouseSource"),
    "clickhouse+https": ("clew.sources.clickhouse", "SecureClickHouseSource"),
}
"""Kinds of source by the scheme of their address, each with its module and class.

A class is called with what follows `scheme://`.
"""

_DIGITS: Final = re.compile(r"[0-9a-f]{1,32}")
_SHOWN: Final = 5


class RunNotFoundError(ClewError, LookupError):
    """No run has this id, or begins with these digits."""


class AmbiguousRunError(ClewError, LookupError):
    """More than one run begins with these digits."""


class Source(Protocol):
    """Reads runs from one place. Every method may raise a `ClewError` that says what is wrong."""

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        """Return one page of the runs that `wanted` accepts, newest first."""
        ...

    def run(self, trace_id: str) -> RunRecord:
        """Return one run with all its spans, by its 32 hex digits.

        Raises:
            RunNotFoundError: there is no such run here.
        """
        ...

    def find(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the trace ids that begin with these hex digits, at most `limit` of them."""
        ...

    def agents(self, scope: Scope = EVERYTHING) -> tuple[str, ...]:
        """Return names of agents to offer as a filter; empty where that would be slow to tell."""
        ...

    def names(self, kind: str, scope: Scope = EVERYTHING) -> tuple[str, ...]:
        """Return names to offer as a filter: of `model`, `tool` or `gate`."""
        ...

    def covers(self, trace_id: str, scope: Scope) -> bool:
        """Tell whether there is a run with this id, and the scope covers it."""
        ...

    def costs(self, wanted: CostFilter) -> CostTable | None:
        """Return what model calls cost, None where that takes reading every run."""
        ...

    def version(self, trace_id: str) -> str | None:
        """Return a text that changes when the run changes, None where that is slow to tell.

        Raises:
            RunNotFoundError: there is no such run here.
        """
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class BaseSource:
    """What sources share: closed at the end of a `with` block, no agents to offer."""

    def agents(self, scope: Scope = EVERYTHING) -> tuple[str, ...]:
        """Return no names."""
        return ()

    def names(self, kind: str, scope: Scope = EVERYTHING) -> tuple[str, ...]:
        """Return no names."""
        return ()

    def covers(self, trace_id: str, scope: Scope) -> bool:
        """Read the run to tell."""
        try:
            run = self.run(trace_id).summary
        except RunNotFoundError:
            return False
        return scope.covers(tenant=run.tenant, agent=run.agent, actor=run.actor)

    def run(self, trace_id: str) -> RunRecord:
        """Return one run with all its spans."""
        raise NotImplementedError

    def costs(self, wanted: CostFilter) -> CostTable | None:
        """Return None: it takes reading every run."""

    def version(self, trace_id: str) -> str | None:
        """Return None: it takes reading the run."""

    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_source(address: str | None = None) -> Source:
    """Open a source: `scheme://...`, a file of OTLP JSON, or (None) the local store.

    Raises:
        ClewError: it cannot be opened, or no kind of source has this scheme.
    """
    if address is None:
        return _maker("store")("")
    scheme, separator, rest = address.partition("://")
    if not separator:
        return _maker("file")(address)
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES)
        raise ClewError(f"no kind of source is called {scheme!r}; known are {known} and a file")
    return _maker(scheme)(rest)


def _maker(scheme: str) -> Callable[[str], Any]:
    module, name = SCHEMES[scheme]
    return getattr(import_module(module), name)


def resolve(source: Source, reference: str) -> str:
    """Return the trace id that a user means: a uuid with or without dashes, or how one begins.

    Raises:
        RunNotFoundError: no run begins like this.
        AmbiguousRunError: several do.
    """
    digits = reference.strip().lower().replace("-", "")
    if not _DIGITS.fullmatch(digits):
        raise RunNotFoundError(
            f"{reference[:80]!r} is no run: give its uuid, or the first hex digits of it"
        )
    match source.find(digits, _SHOWN + 1):
        case ():
            raise RunNotFoundError(f"there is no run {reference[:80]!r}: `clew runs` lists them")
        case (only,):
            return only
        case found:
            shown = ", ".join(run_id_of(each) for each in found[:_SHOWN])
            more = ", ..." if len(found) > _SHOWN else ""
            raise AmbiguousRunError(
                f"several runs begin with {reference[:80]!r}: {shown}{more}; give more digits"
            )


def path_of(text: str) -> Path:
    """Return the path that a user typed, with `~` expanded."""
    return Path(text).expanduser()
