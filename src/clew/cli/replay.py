"""`clew replay`: send recorded exchanges again and say what Clew makes of them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer

from clew import semconv
from clew.rules import OTHER

if TYPE_CHECKING:
    import httpx

    from clew.endings import RoundRecord
    from clew.testing import CaptureExporter, RecordedExchange, ReplayServer

TIMEOUT_S: Final = 20.0
"""How long one exchange may take; the answers come from this process."""

_USAGE: Final = {
    "input_tokens": semconv.USAGE_INPUT,
    "output_tokens": semconv.USAGE_OUTPUT,
    "cache_read_tokens": semconv.USAGE_CACHE_READ,
    "cache_write_tokens": semconv.USAGE_CACHE_WRITE,
    "reasoning_tokens": semconv.USAGE_REASONING,
}
_ATTRIBUTES: Final = {
    "operation": semconv.OPERATION,
    "request_model": semconv.REQUEST_MODEL,
    "response_model": semconv.RESPONSE_MODEL,
    "response_id": semconv.RESPONSE_ID,
    "stream_outcome": semconv.STREAM_OUTCOME,
    "cost_usd": semconv.COST_USD,
    "cost_status": semconv.COST_STATUS,
}


def replay(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Recordings, or folders of them.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each exchange, one a line.")
    ] = False,
) -> None:
    """Send recorded provider traffic again, over loopback, and print what is learnt from it.

    A recording is a JSON file with a list of HTTP exchanges. Each goes through a real HTTP client
    and Clew's own tap, which sees the recorded URL. Files that are no recordings are named on
    stderr; the others are replayed all the same, and the exit code is 1.
    """
    faults: list[str] = []
    with Replayer(faults) as replayer:
        rows = (replayer.facts_of(exchange) for exchange in _exchanges(paths, faults))
        if as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
        else:
            _print_table(rows)
    for fault in faults:
        print(f"clew: {fault}", file=sys.stderr)
    if faults:
        raise typer.Exit(1)


class Replayer:
    """Clew, an HTTP client and the answering server, for as long as the block is open.

    It takes the place of whatever Clew is configured in this process, so it is for a process of
    its own.

    Args:
        faults: where an exchange is named that the client could not finish.
    """

    def __init__(self, faults: list[str]) -> None:
        self._faults = faults
        self._records: list[RoundRecord] = []
        self._server: ReplayServer
        self._client: httpx.Client
        self._spans: CaptureExporter

    def __enter__(self) -> Self:
        import httpx

        import clew
        from clew.pipeline import runtime
        from clew.testing import CaptureExporter, RedirectedTransport, ReplayServer
        from clew.testing.session import settings_for_a_session

        self._spans = CaptureExporter()
        self._server = ReplayServer().start()
        settings = settings_for_a_session(service_name="clew-replay")
        clew.configure(settings=settings, span_exporters=[self._spans])
        current = runtime.get()
        if current is None:
            raise RuntimeError("Clew could not be configured in this process")
        current.observers.append(self._records.append)
        self._forget_tool_calls = current.loose.clear
        current.prices.wait(TIMEOUT_S)
        self._spans.flush = lambda: current.worker.flush(TIMEOUT_S)
        transport = RedirectedTransport(self._server.address)
        self._client = httpx.Client(transport=transport, timeout=TIMEOUT_S, trust_env=False)
        clew.instrument(self._client)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import clew

        self._client.close()
        self._server.close()
        clew.shutdown()

    def facts_of(self, exchange: RecordedExchange) -> dict[str, Any]:
        """Replay one exchange and return its facts, one entry for each key of the output."""
        self._records.clear()
        self._spans.clear()
        self._forget_tool_calls()  # each exchange stands alone
        self._send(exchange)
        spans = self._spans.spans
        record = self._records[-1] if self._records else None
        attributes: Mapping[str, Any] = {}
        if record is not None:
            for span in spans:
                context = span.get_span_context()
                if context is not None and context.span_id == record.span_id:
                    attributes = span.attributes or {}
        facts: dict[str, Any] = {"id": exchange.id, "exchange": exchange.exchange}
        facts |= _facts(attributes, record)
        return facts | {"spans": len(spans)}

    def _send(self, exchange: RecordedExchange) -> None:
        import httpx

        self._server.clear()
        self._server.add(exchange)
        try:
            request = self._client.build_request(
                exchange.method,
                exchange.url,
                headers=list(exchange.request_headers),
                content=exchange.request_body,
            )
            with contextlib.closing(self._client.send(request, stream=exchange.streamed)) as answer:
                for _ in answer.iter_bytes():
                    pass
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            where = f"{exchange.id} exchange {exchange.exchange}"
            self._faults.append(f"{where}: the client gave up: {type(error).__name__}: {error}")


def _facts(attributes: Mapping[str, Any], record: RoundRecord | None) -> dict[str, Any]:
    """Put together what the span says and what only the round knew; null is "not told"."""
    known = {name: attributes.get(key) for name, key in _ATTRIBUTES.items()}
    provider = attributes.get(semconv.PROVIDER)
    usage = {name: attributes.get(key) for name, key in _USAGE.items()}
    response = record.ending.response if record is not None else None
    return {
        "operation": known["operation"],
        "provider": None if provider == OTHER else provider,
        "request_model": known["request_model"],
        "response_model": known["response_model"],
        "response_id": known["response_id"],
        "finish_reasons": _words(response.finish_reasons if response else ()),
        "finish_reasons_raw": _words(response.finish_reasons_raw if response else ()),
        "usage": usage if any(count is not None for count in usage.values()) else None,
        "tool_calls": (
            None
            if response is None
            else [{"id": call.id, "name": call.name} for call in response.tool_calls]
        ),
        "error": _error(record),
        "stream": None if record is None else record.request.stream or record.route.stream,
        "stream_outcome": known["stream_outcome"],
        "cost_usd": known["cost_usd"],
        "cost_status": known["cost_status"],
    }


def _words(reasons: tuple[str | None, ...]) -> list[str | None] | None:
    """Return one word for each choice; None when there is no choice."""
    return list(reasons) or None


def _error(record: RoundRecord | None) -> dict[str, Any] | None:
    if record is None:
        return None
    status, error = record.ending.status, record.ending.response.error
    if error is None and (status is None or status < 400):
        return None
    return {
        "status": status,
        "type": error.type if error is not None else None,
        "code": error.code if error is not None else None,
    }


def _exchanges(paths: Iterable[Path], faults: list[str]) -> Iterator[RecordedExchange]:
    """Give every exchange that can be read; say of each file that cannot what is wrong with it."""
    from clew.testing import RecordingError, find_recordings, read_recording

    for path in paths:
        try:
            files = find_recordings(path)
        except RecordingError as error:
            faults.append(f"{path}: {error}")
            continue
        if not files:
            faults.append(f"{path}: no recordings in this folder")
        for file in files:
            try:
                yield from read_recording(file)
            except RecordingError as error:
                faults.append(f"{file}: {error}")


def _print_table(rows: Iterable[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        # A file or a pipe has no width to fit into.
        console.width = 400
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("recording", "operation", "provider", "model", "finish", "status"):
        table.add_column(heading, no_wrap=True)
    for heading in ("in", "out", "tools", "cost USD"):
        table.add_column(heading, no_wrap=True, justify="right")
    totals = _Totals()
    for row in rows:
        totals.add(row)
        table.add_row(*map(escape, _cells(row)))
    console.print(table)
    console.print(totals.line())


def _cells(row: Mapping[str, Any]) -> list[str]:
    usage: dict[str, int | None] = row["usage"] or {}
    error = row["error"]
    status = row["stream_outcome"] or ("ok" if row["operation"] else "not a model call")
    if error is not None:
        status = f"error {error['status']} {error['type'] or error['code'] or ''}".rstrip()
    cost = row["cost_usd"]
    return [
        f"{row['id']} {row['exchange']}",
        row["operation"] or "",
        row["provider"] or "",
        row["response_model"] or row["request_model"] or "",
        ",".join(reason or "?" for reason in row["finish_reasons"] or ()),
        status,
        _number(usage.get("input_tokens")),
        _number(usage.get("output_tokens")),
        str(len(row["tool_calls"])) if row["tool_calls"] else "",
        f"{cost:.6f}" if cost is not None else (row["cost_status"] or ""),
    ]


def _number(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


class _Totals:
    def __init__(self) -> None:
        self.exchanges = self.spans = self.errors = self.input = self.output = 0
        self.cost = 0.0
        self.priced = 0

    def add(self, row: Mapping[str, Any]) -> None:
        usage: dict[str, int | None] = row["usage"] or {}
        self.exchanges += 1
        self.spans += row["spans"]
        self.errors += row["error"] is not None
        self.input += usage.get("input_tokens") or 0
        self.output += usage.get("output_tokens") or 0
        if row["cost_usd"] is not None:
            self.priced += 1
            self.cost += row["cost_usd"]

    def line(self) -> str:
        return (
            f"{self.exchanges} exchanges, {self.spans} spans, {self.errors} errors; "
            f"{self.input:,} tokens in, {self.output:,} out; "
            f"{self.cost:.6f} USD for the {self.priced} that have a cost"
        )
