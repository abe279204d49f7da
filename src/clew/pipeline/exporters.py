"""Build the span exporters that the environment asks for.

OTEL_TRACES_EXPORTER (`otlp`, `console`, `none`) and OTEL_EXPORTER_OTLP_[TRACES_]PROTOCOL
(`http/protobuf`, `grpc`) as in
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/.
The exporters read their own OTEL_EXPORTER_OTLP_* variables.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter

from clew._forks import in_each_child
from clew._guard import guard
from clew.errors import ClewError, ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from clew.pipeline.otlp_sending import Sending

_OTLP = "opentelemetry.exporter.otlp.proto."


class SpoolOptions(NamedTuple):
    """Where batches wait that the receiver does not take, and how many bytes at the most."""

    folder: Path
    most: int


def from_environment(
    environ: Mapping[str, str] | None = None,
    *,
    stock_encoder: bool = False,
    spool: SpoolOptions | None = None,
) -> list[SpanExporter]:
    """Return the exporters that the environment names; OTLP over HTTP by default.

    Args:
        environ: the environment, by default the process's.
        stock_encoder: whether OTLP is encoded as OpenTelemetry's own exporter does it.
        spool: where OTLP batches wait while the receiver does not take them; None: nowhere.

    Raises:
        ConfigurationError: an exporter or protocol that Clew does not know, or a variable that
            the exporter does not understand.
        MissingExtraError: `grpc` is asked for and its package is not installed.
    """
    environ = os.environ if environ is None else environ
    names = environ.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    exporters: list[SpanExporter] = []
    for name in (part.strip() for part in names.split(",")):
        if name == "otlp":
            try:
                exporters.append(_otlp(environ, stock_encoder, spool))
            except ClewError:
                raise
            except Exception as error:
                raise ConfigurationError(
                    f"No OTLP exporter can be made with these OTEL_EXPORTER_OTLP_* variables: "
                    f"{error}"
                ) from error
        elif name == "console":
            exporters.append(ConsoleSpanExporter())
        elif name not in ("none", ""):
            raise ConfigurationError(
                f"OTEL_TRACES_EXPORTER names {name!r}; Clew knows otlp, console and none. "
                "Give other exporters in code: clew.configure(span_exporters=[...])"
            )
    return exporters


def _otlp(
    environ: Mapping[str, str], stock_encoder: bool, spool: SpoolOptions | None
) -> SpanExporter:
    module = otlp_module(environ, "trace")
    if stock_encoder and spool is None:
        return module.OTLPSpanExporter()
    exporter: Sending
    if ".http." in module.__name__:
        if spool is not None:
            from clew.pipeline.otlp_spool import SpoolingOTLPSpanExporter

            exporter = SpoolingOTLPSpanExporter(spool.folder, spool.most)
        else:
            from clew.pipeline.otlp_http import FastOTLPSpanExporter

            exporter = FastOTLPSpanExporter()
    else:
        from clew.pipeline import otlp_grpc

        if spool is not None:
            exporter = otlp_grpc.SpoolingGrpcSpanExporter(spool.folder, spool.most)
        else:
            exporter = otlp_grpc.FastGrpcSpanExporter()
    if stock_encoder:
        from clew.pipeline.otlp_sending import stock_encode

        exporter.encode = stock_encode
    return cast("SpanExporter", exporter)


def otlp_module(environ: Mapping[str, str], signal: Literal["trace", "metric"]) -> Any:
    """Return the module with the OTLP exporter for a signal, by the protocol asked for.

    Raises:
        ConfigurationError: a protocol that Clew does not know.
        MissingExtraError: `grpc` is asked for and its package is not installed.
    """
    protocol = (
        environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}S_PROTOCOL", "").strip()
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
        or "http/protobuf"
    )
    if protocol == "http/protobuf":
        return importlib.import_module(f"{_OTLP}http.{signal}_exporter")
    if protocol != "grpc":
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; Clew knows http/protobuf and grpc"
        )
    try:
        return importlib.import_module(f"{_OTLP}grpc.{signal}_exporter")
    except ImportError:
        raise MissingExtraError(
            "OTLP over gRPC (OTEL_EXPORTER_OTLP_PROTOCOL=grpc)", "grpc"
        ) from None


_left_by_fork: list[Any] = []
"""Connections of a parent process. They stay: closing them may wait for a lock of its threads."""


def leave_connections(exporter: Any) -> None:
    """Have an exporter open connections of its own, in a forked child.

    Two processes that write to one connection garble what both say. OTLP over HTTP goes through a
    session of requests, which is found whichever version of the exporter holds it.
    """
    client = getattr(exporter, "_client", None)
    for holder in (exporter, client, getattr(client, "_transport", None)):
        session = getattr(holder, "_session", None)
        adapters: dict[str, Any] = getattr(session, "adapters", {})
        for adapter in adapters.values():
            _left_by_fork.append((adapter.poolmanager, adapter.proxy_manager))
            adapter.proxy_manager = {}
            adapter.init_poolmanager(
                adapter._pool_connections, adapter._pool_maxsize, block=adapter._pool_block
            )


class Fanout:
    """Exports a batch through several exporters; a failing one does not stop the others."""

    def __init__(self, exporters: Sequence[SpanExporter]) -> None:
        self.exporters = list(exporters)
        self._failed = 0
        in_each_child(self, _after_fork)

    @property
    def failed(self) -> int:
        """Spans whose export an exporter did not confirm, or that it has given up since."""
        known = (_lost(exporter) for exporter in self.exporters)
        return self._failed + sum(number for number in known if number is not None)

    def export(self, batch: Sequence[Any]) -> None:
        """Export to each."""
        for exporter in self.exporters:
            confirmed = answered = False
            with guard(f"export through {type(exporter).__name__}"):
                result = exporter.export(batch)
                answered = True
                confirmed = getattr(result, "value", 0) == 0
            if not confirmed and not (answered and _lost(exporter) is not None):
                self._failed += len(batch)

    def hurry(self, deadline: float) -> None:
        """Tell those that want to know by when (monotonic time) they have to be done."""
        for exporter in self.exporters:
            if hasattr(exporter, "deadline"):
                cast("Any", exporter).deadline = deadline

    def keeps(self) -> bool:
        """Tell whether an exporter can have spans wait until another process sends them."""
        return any(hasattr(exporter, "keep") for exporter in self.exporters)

    def keep(self, batch: Sequence[Any]) -> None:
        """Have spans wait where that is possible; elsewhere they are lost."""
        for exporter in self.exporters:
            kept = False
            keep = getattr(exporter, "keep", None)
            if keep is None:
                self._failed += len(batch)
                continue
            with guard("keep spans at shutdown"):
                kept = True
                keep(batch)
            if not kept:
                self._failed += len(batch)

    def close(self, deadline: float) -> None:
        """Shut each down, unless the deadline has passed."""
        for exporter in self.exporters:
            if time.monotonic() < deadline:
                with guard(f"shut down {type(exporter).__name__}"):
                    exporter.shutdown()


def _lost(exporter: Any) -> int | None:
    """Return how many spans an exporter has lost; None where it does not count them itself."""
    for name in ("spans_lost", "lost"):
        number = getattr(exporter, name, None)
        if isinstance(number, int):
            return number
    return None


def _after_fork(fanout: Fanout) -> None:
    fanout._failed = 0
    for exporter in fanout.exporters:
        with guard("leave the connections of the parent process"):
            leave_connections(exporter)
        with guard("leave what the parent process has lost"):
            forget = getattr(exporter, "forget", None)
            if forget is not None:
                forget()
