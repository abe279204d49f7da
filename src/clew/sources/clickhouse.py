"""ClickHouse as a source: `clickhouse://HOST:8123`, over TLS `clickhouse+https://HOST:8443`.

Reads the tables that the Collector's ClickHouse exporter makes (release 0.161, attributes as maps),
https://github.com/open-telemetry/opentelemetry-collector-contrib/tree/v0.161.0/exporter/clickhouseexporter,
through ClickHouse's HTTP interface. Options: `database` (default `otel`) and `table` (default
`otel_traces`).

The tables hold every attribute value as text. The values of Clew's own keys, and of those that the
allow-list knows, get their types back by the keys' rules; others stay text. What the tables do not
hold (flags, schema URLs, attributes of scopes, counts of what was dropped) is empty.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from clew import semconv
from clew.foreign_rules import FOREIGN_RULES, RESOURCE_RULES
from clew.rules import Each, Flag, Number, Rule
from clew.sources import BaseSource, RunNotFoundError
from clew.sources.http import Http, SourceError
from clew.sources.otlp_json import record_of
from clew.store.records import (
    SPAN_KINDS,
    STATUS_CODES,
    Event,
    Link,
    Page,
    Resource,
    RunFilter,
    RunPage,
    RunRecord,
    RunSummary,
    Scope,
    SpanRecord,
    cursor,
    run_id_of,
    span_type,
)

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_WHOLE: Final = re.compile(r"-?[0-9]{1,19}")
_RULES: Final[Mapping[str, Rule]] = {**FOREIGN_RULES, **semconv.RULES}
_MOST_TURNS: Final = 50
_LAST_NS: Final = 2**63 - 1

_SPANS: Final = """
SELECT TraceId AS trace_id, SpanId AS span_id, ParentSpanId AS parent_id, TraceState AS trace_state,
    SpanName AS name, SpanKind AS kind, toString(toUnixTimestamp64Nano(Timestamp)) AS start,
    toString(Duration) AS duration, StatusCode AS status, StatusMessage AS message,
    ResourceAttributes AS resource, ScopeName AS scope, ScopeVersion AS version,
    SpanAttributes AS attributes,
    arrayMap(each -> toString(toUnixTimestamp64Nano(each)), Events.Timestamp) AS event_times,
    Events.Name AS event_names, Events.Attributes AS event_attributes,
    Links.TraceId AS link_traces, Links.SpanId AS link_spans, Links.TraceState AS link_states,
    Links.Attributes AS link_attributes
FROM {database:Identifier}.{table:Identifier}
WHERE TraceId IN {ids:Array(String)}
    AND Timestamp >= (SELECT min(Start) FROM {database:Identifier}.{lookup:Identifier}
                      WHERE TraceId IN {ids:Array(String)})
    AND Timestamp < (SELECT max(End) + 1 FROM {database:Identifier}.{lookup:Identifier}
                     WHERE TraceId IN {ids:Array(String)})
ORDER BY Timestamp
FORMAT JSONEachRow
"""
_TRACES: Final = """
SELECT TraceId AS trace_id, toString(toUnixTimestamp64Nano(min(Timestamp))) AS start
FROM {database:Identifier}.{table:Identifier}
WHERE Timestamp >= fromUnixTimestamp64Nano({since:Int64})
    AND Timestamp < fromUnixTimestamp64Nano({until:Int64})
GROUP BY TraceId
HAVING (toUnixTimestamp64Nano(min(Timestamp)), TraceId) < ({start:Int64}, {trace:String})
    AND ({everything:UInt8} OR countIf(mapContains(SpanAttributes, {run_id:String})) > 0)
    AND ({agent:String} = ''
         OR countIf(SpanAttributes[{agent_name:String}] = {agent:String}) > 0)
ORDER BY min(Timestamp) DESC, TraceId DESC
LIMIT {limit:UInt32}
FORMAT JSONEachRow
"""
_FIND: Final = """
SELECT DISTINCT TraceId AS trace_id, '0' AS start
FROM {database:Identifier}.{lookup:Identifier}
WHERE startsWith(TraceId, {prefix:String})
ORDER BY TraceId LIMIT {limit:UInt32}
FORMAT JSONEachRow
"""


class _Found(Struct):
    trace_id: str
    start: str


class _Row(Struct):
    trace_id: str
    span_id: str
    parent_id: str
    trace_state: str
    name: str
    kind: str
    start: str
    duration: str
    status: str
    message: str
    resource: dict[str, str]
    scope: str
    version: str
    attributes: dict[str, str]
    event_times: list[str]
    event_names: list[str]
    event_attributes: list[dict[str, str]]
    link_traces: list[str]
    link_spans: list[str]
    link_states: list[str]
    link_attributes: list[dict[str, str]]


_rows: Final = msgspec.json.Decoder(_Row)
_found: Final = msgspec.json.Decoder(_Found)


class ClickHouseSource(BaseSource):
    """Reads runs from ClickHouse.

    Args:
        rest: its address; see `clew.sources.http`.

    Raises:
        SourceError: the address cannot be used.
    """

    TLS = False
    PORT = 8123

    def __init__(self, rest: str) -> None:
        self._http = Http(
            "ClickHouse", rest, port=self.PORT, tls=self.TLS, options=("database", "table")
        )
        table = self._named("table", "otel_traces")
        self._names = {
            "database": self._named("database", "otel"),
            "table": table,
            "lookup": f"{table}_trace_id_ts",
        }

    def runs(self, wanted: RunFilter, page: Page) -> RunPage:
        """Return one page of runs, newest first."""
        until = time.time_ns() + 600 * 10**9 if wanted.until_ns is None else wanted.until_ns
        since = until - self._http.range_ns if wanted.since_ns is None else wanted.since_ns
        position = page.position() or (_LAST_NS, "")
        found: list[RunSummary] = []
        for _ in range(_MOST_TURNS):
            limit = page.limit + 1
            traces = self._traces(wanted, (since, until), position, limit)
            records = self._read([each.trace_id for each in traces])
            # In the order of the search: a run that began before the range is left out here.
            summaries = [records[e.trace_id].summary for e in traces if e.trace_id in records]
            found += [e for e in summaries if e.start_ns >= since and wanted.accepts(e)]
            if len(found) > page.limit or len(traces) < limit:
                break
            position = int(traces[-1].start), traces[-1].trace_id
        else:
            raise SourceError("the list takes too many questions: narrow it by --since and --until")
        more = len(found) > page.limit
        found = found[: page.limit]
        return RunPage(runs=tuple(found), next=cursor(found[-1]) if more else None)

    def run(self, trace_id: str) -> RunRecord:
        """Return one run with all its spans."""
        records = self._read([trace_id])
        if trace_id not in records:
            raise RunNotFoundError(f"there is no run {run_id_of(trace_id)} in {self._http.base}")
        return records[trace_id]

    def find(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the trace ids that begin with these hex digits."""
        body = self._ask(_FIND, prefix=prefix, limit=limit)
        return tuple(each.trace_id for each in self._lines(_found, body))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _traces(
        self, wanted: RunFilter, span: tuple[int, int], position: tuple[int, str], limit: int
    ) -> list[_Found]:
        body = self._ask(
            _TRACES,
            since=span[0],
            until=span[1],
            start=position[0],
            trace=position[1],
            everything=int(wanted.everything),
            run_id=semconv.RUN_ID,
            agent=wanted.agent or "",
            agent_name=semconv.AGENT_NAME,
            limit=limit,
        )
        return self._lines(_found, body)

    def _read(self, ids: Sequence[str]) -> dict[str, RunRecord]:
        if not ids:
            return {}
        body = self._ask(_SPANS, ids="[" + ",".join(f"'{each}'" for each in ids) + "]")
        spans: defaultdict[str, list[SpanRecord]] = defaultdict(list)
        for row in self._lines(_rows, body):
            spans[row.trace_id].append(_span(row))
        return {trace_id: record_of(trace_id, each) for trace_id, each in spans.items()}

    def _ask(self, sql: str, **given: str | int) -> bytes:
        parameters = {f"param_{name}": value for name, value in {**self._names, **given}.items()}
        return self._http.post("/", {**parameters, "readonly": 1}, sql, content_type="text/plain")

    def _lines(self, decoder: Any, body: bytes) -> list[Any]:
        try:
            return decoder.decode_lines(body)
        except msgspec.DecodeError:
            said = " ".join(body[:200].decode("utf-8", "replace").split())
            raise SourceError(
                f"{self._http.base} does not answer as ClickHouse does: {said!r}"
            ) from None

    def _named(self, option: str, usual: str) -> str:
        name = self._http.options.get(option, usual)
        if not _NAME.fullmatch(name):
            raise SourceError(f"ClickHouse: {option}={name!r} is no name")
        return name


class SecureClickHouseSource(ClickHouseSource):
    """Reads runs from ClickHouse over TLS."""

    TLS = True
    PORT = 8443


def _span(row: _Row) -> SpanRecord:
    attributes = _typed(row.attributes, _RULES)
    start_ns = int(row.start)
    return SpanRecord(
        trace_id=row.trace_id,
        span_id=row.span_id,
        parent_id=row.parent_id if row.parent_id.strip("0") else None,
        type=span_type(attributes, row.scope),
        name=row.name,
        kind=_place(row.kind, SPAN_KINDS),
        start_ns=start_ns,
        end_ns=start_ns + int(row.duration),
        status=_place(row.status, STATUS_CODES),
        status_message=row.message,
        trace_state=row.trace_state,
        attributes=attributes,
        events=tuple(
            Event(name=name, time_ns=int(moment), attributes=_typed(found, _RULES))
            for name, moment, found in zip(
                row.event_names, row.event_times, row.event_attributes, strict=True
            )
        ),
        links=tuple(
            Link(trace_id=trace, span_id=span, trace_state=state, attributes=_typed(found, _RULES))
            for trace, span, state, found in zip(
                row.link_traces, row.link_spans, row.link_states, row.link_attributes, strict=True
            )
        ),
        resource=Resource(attributes=_typed(row.resource, RESOURCE_RULES)),
        scope=Scope(name=row.scope, version=row.version),
    )


def _place(name: str, names: tuple[str, ...]) -> int:
    lowered = name.lower()
    return names.index(lowered) if lowered in names else 0


def _typed(found: Mapping[str, str], rules: Mapping[str, Rule]) -> dict[str, Any]:
    return {key: _value(rules.get(key), value) for key, value in found.items()}


def _value(rule: Rule | None, text: str) -> Any:
    """Return a value with the type that its rule asks for, or the text where it has none."""
    if isinstance(rule, Flag):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(rule, Number):
        if _WHOLE.fullmatch(text):
            return int(text)
        try:
            return float(text)
        except ValueError:
            return text
    if isinstance(rule, Each):
        try:
            entries: Any = json.loads(text)
        except ValueError:
            return text
        return cast("list[Any]", entries) if isinstance(entries, list) else text
    return text
