"""Lists of runs from backends that answer a search with some of the matches, in no order.

Time is walked backwards, window by window. A window with more traces than one answer may hold is
made smaller, so that what a page shows is complete as far as it goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct

from clew.sources.http import SourceError
from clew.store.records import Page, QueryError, RunFilter, RunPage, RunSummary, cursor

_FIRST_NS: Final = 3600 * 10**9
_SMALLEST_NS: Final = 10**9
_MOST_QUESTIONS: Final = 200


class Found(Struct, frozen=True):
    """What one search gave."""

    runs: tuple[RunSummary, ...]
    """Runs with a span in the window; those that began before it are looked at later."""
    complete: bool
    """Whether there were no others."""


Search = Callable[[int, int], Found]
"""Asks for the runs of a window: nanoseconds from, and nanoseconds up to (not included)."""


def page_of(search: Search, wanted: RunFilter, page: Page, range_ns: int) -> RunPage:
    """Return one page of runs, newest first.

    Args:
        search: asks the backend.
        wanted: which runs.
        page: which stretch of the list.
        range_ns: how far back to look where `wanted` does not say.

    Raises:
        SourceError: the backend has too much to tell.
    """
    if wanted.asks_for_spans:
        raise QueryError("this source cannot search by tool, gate or outcome: the local store can")
    position = page.position()
    # A clock elsewhere may be ahead of this one.
    until = time.time_ns() + 600 * 10**9 if wanted.until_ns is None else wanted.until_ns
    since = until - range_ns if wanted.since_ns is None else wanted.since_ns
    if position is not None:
        until = min(until, position[0] + 1)
    found: list[RunSummary] = []
    for run in _newest_first(search, since, until):
        if wanted.accepts(run) and (position is None or _place(run) < position):
            found.append(run)
            if len(found) > page.limit:
                break
    more = len(found) > page.limit
    found = found[: page.limit]
    return RunPage(runs=tuple(found), next=cursor(found[-1]) if more else None)


def _newest_first(search: Search, since: int, until: int) -> Iterator[RunSummary]:
    size = _FIRST_NS
    for _ in range(_MOST_QUESTIONS):
        if until <= since:
            return
        low = max(since, until - size)
        answer = search(low, until)
        if not answer.complete and until - low > _SMALLEST_NS:
            size = max(_SMALLEST_NS, (until - low) // 4)
            continue
        inside = [each for each in answer.runs if low <= each.start_ns < until]
        yield from sorted(inside, key=_place, reverse=True)
        until = low
        size = min(size * 4, 32 * 86_400 * 10**9)
    raise SourceError("the list takes too many questions: narrow it by --since and --until")


def _place(run: RunSummary) -> tuple[int, str]:
    return run.start_ns, run.trace_id
