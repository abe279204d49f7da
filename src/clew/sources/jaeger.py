"""Jaeger 2 as a source: `jaeger://HOST:16686`, over TLS `jaeger+https://HOST:16686`.

Reads the OTLP JSON of its query API,
https://www.jaegertracing.io/docs/2.13/architecture/apis/#query-json-over-http. Jaeger finds traces
by service only, so a list asks for each service, or for the one of the option `service`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from clew.sources import BaseSource, RunNotFoundError
from clew.sources.http import Http, SourceError
from clew.sources.otlp_json import record_of
from clew.sources.windows import Found, page_of
from clew.store.otlp import OtlpError
from clew.store.otlp_json import decode
from clew.store.records import (
    Page,
    RunFilter,
    RunPage,
    RunRecord,
    RunSummary,
    SpanRecord,
    run_id_of,
)

_WARNINGS: Final = "@jaeger@warnings"
"""An attribute that Jaeger adds to spans on which it has changed something."""
_MADE_LONGER: Final = "Negative duration"
"""How the warning begins that a span without length was given one nanosecond."""
_DEPTH: Final = 200
"""Traces in one answer at the most."""
_MOST_SERVICES: Final = 200
_WHOLE: Final = re.compile(r"[0-9a-f]{32}")


class _Services(Struct):
    services: list[str] | None = None


class _Answer(Struct):
    result: msgspec.Raw = msgspec.Raw()


class JaegerSource(BaseSource):
    """Reads runs from Jaeger's query service.

    Args:
        rest: its address; see `clew.sources.http`. The option `service` names the one service to
            list runs of.

    Raises:
        SourceError: the address cannot be used.
    """

    TLS = False

    def __init__(self, rest: str) -> None:
        self._http = Http("Jaeger", rest, port=16_686, tls=self.TLS, options=("service",))

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        """Return one page of runs, newest first."""
        services = self._services()

        def search(low: int, high: int) -> Found:
            found: dict[str, RunSummary] = {}
            complete = True
            for service in services:
                records = self._search(service, low, high)
                complete = complete and len(records) < _DEPTH
                found.update((each.summary.trace_id, each.summary) for each in records)
            return Found(tuple(found.values()), complete)

        return page_of(search, wanted, page, self._http.range_ns)

    def run(self, trace_id: str) -> RunRecord:
        """Return one run with all its spans."""
        body = self._http.get(f"/api/v3/traces/{trace_id}")
        spans = self._spans(body)
        if not spans:
            raise RunNotFoundError(f"there is no run {run_id_of(trace_id)} in {self._http.base}")
        return record_of(trace_id, spans)

    def find(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the trace ids that begin with these hex digits, of the newest runs of a list.

        Jaeger looks up whole ids only: with one, the run is found however old it is.
        """
        if _WHOLE.fullmatch(prefix):
            return (prefix,)
        recent = self.runs(RunFilter(everything=True), Page(limit=1000)).runs
        return tuple(sorted(e.trace_id for e in recent if e.trace_id.startswith(prefix))[:limit])

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _services(self) -> list[str]:
        if self._http.options.get("service"):
            return [self._http.options["service"]]
        body = self._http.get("/api/v3/services")
        try:
            services = msgspec.json.decode(body or b"{}", type=_Services).services or []
        except msgspec.DecodeError:
            raise self._not_jaeger() from None
        if len(services) > _MOST_SERVICES:
            raise SourceError(
                f"Jaeger knows {len(services)} services: name one by the option service=NAME"
            )
        return sorted(services)

    def _search(self, service: str, low: int, high: int) -> list[RunRecord]:
        body = self._http.get(
            "/api/v3/traces",
            {
                "query.service_name": service,
                "query.start_time_min": _time(low),
                "query.start_time_max": _time(high),
                "query.num_traces": _DEPTH,
            },
        )
        traces: defaultdict[str, list[SpanRecord]] = defaultdict(list)
        for span in self._spans(body):
            traces[span.trace_id].append(span)
        return [record_of(trace_id, spans) for trace_id, spans in traces.items()]

    def _spans(self, body: bytes | None) -> list[SpanRecord]:
        if body is None:
            return []
        try:
            result = msgspec.json.decode(body, type=_Answer).result
            return [_as_sent(each) for each in decode(bytes(result)).spans]
        except (msgspec.DecodeError, OtlpError):
            raise self._not_jaeger() from None

    def _not_jaeger(self) -> SourceError:
        return SourceError(
            f"{self._http.base} does not answer as Jaeger 2 does: is this the address of its "
            "query service (usually port 16686)?"
        )


class SecureJaegerSource(JaegerSource):
    """Reads runs from Jaeger over TLS."""

    TLS = True


def _as_sent(span: SpanRecord) -> SpanRecord:
    """Undo what Jaeger does to a span when it stores it."""
    warnings = span.attributes.get(_WARNINGS)
    if warnings is None:
        return span
    attributes = {key: value for key, value in span.attributes.items() if key != _WARNINGS}
    longer = any(str(each).startswith(_MADE_LONGER) for each in warnings)
    end_ns = span.start_ns if longer and span.duration_ns == 1 else span.end_ns
    return msgspec.structs.replace(span, attributes=attributes, end_ns=end_ns)


def _time(time_ns: int) -> str:
    seconds, rest = divmod(max(0, time_ns), 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
