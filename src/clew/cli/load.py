"""`clew load`."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable
from ipaddress import ip_address
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from clew.cli.output import print_json, say
from clew.errors import ClewError

_MOST_SECONDS: Final = 600
_MOST_RATE: Final = 10_000


def load(
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="An OTLP/HTTP receiver on loopback.")
    ] = "http://127.0.0.1:4318",
    rate: Annotated[
        float, typer.Option(min=0.1, max=_MOST_RATE, help="Runs a second to aim at.")
    ] = 50,
    seconds: Annotated[float, typer.Option(min=1, max=_MOST_SECONDS, help="For how long.")] = 10,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads that run agents.")] = 4,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Send made-up runs to a receiver on this machine, and tell how many spans a second arrive.

    Each run has two rounds, two tool calls and two decisions, recorded by Clew as a service's would
    be; no model is asked. Only loopback addresses are taken.
    """
    base = _loopback(to)
    figures = _measured(base, rate, seconds, threads)
    if json:
        print_json(figures)
        return
    say(f"{figures['runs']} runs in {figures['seconds']:.1f} s to {base}")
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):<24}{value:,.2f}".rstrip("0").rstrip("."))


def _measured(base: str, rate: float, seconds: float, threads: int) -> dict[str, Any]:
    import clew
    from clew.pipeline import runtime
    from clew.testing.session import settings_for_a_session

    exporter = _exporter(f"{base}/v1/traces")
    settings = settings_for_a_session(
        service_name="clew-load",
        queue_size=65_536,
        export_delay_ms=200,
        seal_grace_s=0,
        shutdown_s=30,
    )
    clew.configure(settings=settings, span_exporters=[exporter])
    current = runtime.get()
    if current is None:
        raise ClewError("Clew is switched off (OTEL_SDK_DISABLED)")
    cpu, began = time.process_time(), time.monotonic()
    counted = _Runs(_agent(), rate, seconds, threads)
    counted.go()
    running = time.monotonic() - began
    clew.shutdown()
    spent = time.process_time() - cpu
    whole = time.monotonic() - began
    runs = max(1, counted.done)
    return {
        "runs": counted.done,
        "seconds": round(running, 2),
        "runs_per_second": round(counted.done / running, 2),
        "spans": exporter.spans,
        "spans_per_second": round(exporter.spans / whole, 2),
        "spans_lost": current.worker.dropped,
        "spans_refused": exporter.refused,
        "requests": exporter.requests,
        "bytes_per_run": round(exporter.bytes / runs),
        "bytes_per_span": round(exporter.bytes / max(1, exporter.spans)),
        "packed_bytes_per_run": round(exporter.packed / runs),
        "cpu_ms_per_run": round(1000 * spent / runs, 3),
    }


class _Runs:
    """Runs agents at a rate, on some threads."""

    def __init__(self, once: Callable[[], None], rate: float, seconds: float, threads: int) -> None:
        self._once = once
        self._step = threads / rate
        self._until = time.monotonic() + seconds
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        self._lock = threading.Lock()
        self.done = 0

    def go(self) -> None:
        """Run until the time is over."""
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        due = time.monotonic()
        done = 0
        while (now := time.monotonic()) < self._until:
            if now < due:
                time.sleep(min(due - now, 0.05))
                continue
            due = max(due + self._step, now - 1)  # what is missed by more than a second is missed
            self._once()
            done += 1
        with self._lock:
            self.done += done


_FACTS: Final = {
    "provider": "openai",
    "model": "model",
    "response_model": "model",
    "input_tokens": "input",
    "output_tokens": "output",
    "finish_reason": "finish",
}


def _agent() -> Callable[[], None]:
    """Return an agent that asks no model: its answers are made up, its spans are not."""
    import clew

    def complete(model: str) -> dict[str, Any]:
        return {"model": model, "input": 1200, "output": 80, "finish": "stop"}

    def look_up(order: str) -> str:
        return order

    ask = clew.instrument(complete, facts=_FACTS)
    tool = clew.tool(effect="read_only")(look_up)

    def once() -> None:
        with clew.run("load", run_id=uuid.uuid4(), tenant="load"):
            for _ in range(2):
                ask(model="gpt-4o-mini")
                clew.decide("tool", "allow", subject="look_up", reason="read_only")
                tool("20417")

    return once


def _exporter(endpoint: str) -> Any:
    """Return an exporter that counts what it sends."""
    import gzip

    import requests
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    class Counting(OTLPSpanExporter):
        spans = refused = requests = bytes = packed = 0

        def export(self, spans: Any) -> Any:
            result = super().export(spans)
            if getattr(result, "value", 1) == 0:
                self.spans += len(spans)
            else:
                self.refused += len(spans)
            return result

    class Weighing(requests.Session):
        def request(self, method: Any, url: Any, *more: Any, **options: Any) -> Any:
            body = options.get("data") or b""
            made.requests += 1
            made.packed += len(body)
            made.bytes += len(gzip.decompress(body))
            return super().request(method, url, *more, **options)

    session = Weighing()
    session.trust_env = False
    made = Counting(endpoint, session=session, compression=Compression.Gzip)
    return made


def _loopback(address: str) -> str:
    """Return the address, if it is one of this machine."""
    host = urlsplit(address).hostname or ""
    try:
        own = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        own = False
    if not own or urlsplit(address).scheme != "http":
        raise ClewError(
            f"{address[:200]!r} is not on loopback: load is only for receivers of this machine, "
            "for example http://127.0.0.1:4318"
        )
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        os.environ.pop(name, None)
    return address.rstrip("/")
