"""Grafana Tempo as a source: `tempo://HOST:3200`, over TLS `tempo+https://HOST:3200`.

Uses two endpoints of https://grafana.com/docs/tempo/latest/api_docs/: a trace by its id, as OTLP in
protobuf, and the search by TraceQL. Tempo answers a search with some of the matches, so lists are
read window by window (`clew.sources.windows`). The option `tenant` is sent as `X-Scope-OrgID`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from msgspec import Struct

from clew import semconv
from clew.sources import BaseSource, RunNotFoundError
from clew.sources.http import Http, SourceError
from clew.sources.otlp_json import record_of
from clew.sources.windows import Found, page_of
from clew.store.otlp import OtlpError
from clew.store.otlp_protobuf import decode
from clew.store.records import Page, RunFilter, RunPage, RunRecord, RunSummary, run_id_of

_PROTOBUF: Final = "application/protobuf"
_DEPTH: Final = 100
"""Traces in one answer at the most."""
_AT_ONCE: Final = 8
"""Traces that are read at the same time."""
_WHOLE: Final = re.compile(r"[0-9a-f]{32}")
_NOT_HEX: Final = re.compile(r"[^0-9a-f]")


class _Trace(Struct, rename={"trace_id": "traceID"}):
    trace_id: str


class _Answer(Struct):
    traces: list[_Trace] | None = None


class TempoSource(BaseSource):
    """Reads runs from Tempo.

    Args:
        rest: its address; see `clew.sources.http`.

    Raises:
        SourceError: the address cannot be used.
    """

    TLS = False

    def __init__(self, rest: str) -> None:
        self._http = Http("Tempo", rest, port=3200, tls=self.TLS, options=("tenant",))
        tenant = self._http.options.get("tenant")
        self._headers: dict[str, str] = {"x-scope-orgid": tenant} if tenant else {}

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        """Return one page of runs, newest first."""
        query = _query(wanted)

        def search(low: int, high: int) -> Found:
            ids = self._search(query, low, high)
            return Found(tuple(self._summaries(ids)), len(ids) < _DEPTH)

        return page_of(search, wanted, page, self._http.range_ns)

    def run(self, trace_id: str) -> RunRecord:
        """Return one run with all its spans."""
        record = self._read(trace_id)
        if record is None:
            raise RunNotFoundError(f"there is no run {run_id_of(trace_id)} in {self._http.base}")
        return record

    def find(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the trace ids that begin with these hex digits, of the newest runs of a list.

        Tempo looks up whole ids only: with one, the run is found however old it is.
        """
        if _WHOLE.fullmatch(prefix):
            return (prefix,)
        recent = self.runs(RunFilter(everything=True), Page(limit=200)).runs
        return tuple(sorted(e.trace_id for e in recent if e.trace_id.startswith(prefix))[:limit])

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _search(self, query: str, low: int, high: int) -> list[str]:
        # Whole seconds, outwards: what lies outside the window is left out afterwards.
        parameters = {
            "q": query,
            "start": low // 10**9,
            "end": -(-high // 10**9),
            "limit": _DEPTH,
            "spss": 1,
        }
        body = self._http.get("/api/search", parameters, headers=self._headers)
        if body is None:
            raise self._not_tempo()
        try:
            found = msgspec.json.decode(body, type=_Answer).traces or []
        except msgspec.DecodeError:
            raise self._not_tempo() from None
        # Tempo leaves zeros at the beginning of an id away.
        return [each.trace_id.lower().rjust(32, "0") for each in found]

    def _summaries(self, ids: Iterable[str]) -> list[RunSummary]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            records = list(pool.map(self._read, ids))
        return [each.summary for each in records if each is not None]

    def _read(self, trace_id: str) -> RunRecord | None:
        if len(trace_id) != 32 or _NOT_HEX.search(trace_id):
            raise self._not_tempo()
        path = f"/api/traces/{trace_id}"
        body = self._http.get(path, accept=_PROTOBUF, headers=self._headers)
        if body is None:
            return None
        try:
            # A trace of Tempo's has the same bytes as a request of OTLP: field 1, resource spans.
            spans = [each for each in decode(body).spans if each.trace_id == trace_id]
        except OtlpError:
            raise self._not_tempo() from None
        return record_of(trace_id, spans) if spans else None

    def _not_tempo(self) -> SourceError:
        return SourceError(
            f"{self._http.base} does not answer as Tempo does: is this the address of its query "
            "frontend (usually port 3200)?"
        )


class SecureTempoSource(TempoSource):
    """Reads runs from Tempo over TLS."""

    TLS = True


def _query(wanted: RunFilter) -> str:
    """Return the TraceQL that finds at least the wanted runs; the rest is looked at here."""
    if wanted.everything:
        return "{ }"
    if wanted.agent is not None:
        agent = wanted.agent.replace("\\", "\\\\").replace('"', '\\"')
        return f'{{ span.{semconv.RUN_ID} != nil && span.{semconv.AGENT_NAME} = "{agent}" }}'
    return f"{{ span.{semconv.RUN_ID} != nil }}"
