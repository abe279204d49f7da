"""Where the instruments live: a meter provider of Clew's own, or the one that the process has.

Clew's own provider is private to Clew: metrics of other libraries, whose labels no allow-list of
Clew's has seen, do not leave through it. OTEL_METRICS_EXPORTER chooses where its metrics go
(`otlp`, `console`, `prometheus`, `none`); the exporters read their own OTEL_EXPORTER_* variables,
OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE among them.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics as api

from clew import semconv
from clew._forks import fork_waits
from clew._guard import guard
from clew.errors import ConfigurationError
from clew.pipeline.exporters import otlp_module
from clew.pipeline.prometheus import PrometheusEndpoint
from clew.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource

    from clew.pipeline.metrics import Meters

THREAD_NAME = "clew-metrics"
_COLLECT_MS = 30_000.0
_FORK_PATIENCE_S = 1.0
_NO_TIME = 0.05
"""Seconds that a last collection gets when the deadline has passed."""

Drain = Callable[[], None]


def choose(
    settings: Settings,
    resource: Callable[[], Resource],
    *,
    by_default: bool,
    environ: Mapping[str, str] | None = None,
) -> Meters | None:
    """Return where metrics go, or None when nobody wants any.

    `settings.metric_readers` come first, then the process's own meter provider, then
    OTEL_METRICS_EXPORTER.

    Args:
        settings: the readers, and how often to export.
        resource: returns the resource of the metrics, in a forked child again.
        by_default: whether metrics go out by OTLP, where spans do, when the environment does not
            say.
        environ: the environment, by default the process's.

    Raises:
        ConfigurationError: an exporter or protocol that Clew does not know, or a reader that
            serves another provider already.
        MissingExtraError: `grpc` or `prometheus` is asked for and not installed.
    """
    environ = os.environ if environ is None else environ
    if settings.metric_readers:
        return OwnMeters(resource, Sinks(given=settings.metric_readers), interval_s=math.inf)
    joined = _process_provider()
    if joined is not None:
        return JoinedMeters(joined)
    names = _names(environ, "OTEL_METRICS_EXPORTER")
    if not names and by_default and "otlp" in (_names(environ, "OTEL_TRACES_EXPORTER") or ["otlp"]):
        names = ["otlp"]
    sinks = Sinks(names=names, environ=environ)
    if not sinks.wanted:
        return None
    return OwnMeters(resource, sinks, interval_s=settings.metric_interval_ms / 1000)


def _names(environ: Mapping[str, str], variable: str) -> list[str]:
    parts = (part.strip() for part in environ.get(variable, "").split(","))
    return [part for part in parts if part]


def _process_provider() -> api.MeterProvider | None:
    """Return the meter provider of the process, if somebody has set one that measures."""
    provider = api.get_meter_provider()
    stands_in = type(provider).__name__ == "_ProxyMeterProvider"
    return None if stands_in or isinstance(provider, api.NoOpMeterProvider) else provider


class JoinedMeters:
    """The process's meter provider. Its readers stay as they are, and nothing is added."""

    def __init__(self, provider: api.MeterProvider) -> None:
        self._provider = provider
        self._drain: Drain | None = None

    def open(self, drain: Drain) -> api.Meter:
        """Return a meter."""
        self._drain = drain
        return self._provider.get_meter(semconv.SCOPE, metadata.version("clew"))

    def forked(self) -> bool:
        """Keep the instruments: the provider is the host's, in a child too."""
        return False

    def begin_close(self, deadline: float) -> None:
        """Do nothing: nothing has to be sent."""

    def end_close(self, deadline: float) -> bool:
        """Hand over what happened until now."""
        if self._drain is not None:
            self._drain()
        return True


class Sinks:
    """The metric readers to make, or those that were given.

    Args:
        given: readers of the user's own.
        names: names of exporters, as in OTEL_METRICS_EXPORTER.
        environ: the environment.
    """

    def __init__(
        self,
        *,
        given: Sequence[Any] = (),
        names: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.given = given
        self._names = [name for name in names if name != "none"]
        self._environ = environ or {}
        for name in self._names:
            if name not in ("otlp", "console", "prometheus"):
                raise ConfigurationError(
                    f"OTEL_METRICS_EXPORTER names {name!r}; Clew knows otlp, console, prometheus "
                    "and none. Give other readers in code: clew.Settings(metric_readers=(...,))"
                )
        self.wanted = bool(given or self._names)

    def make(self) -> tuple[list[MetricReader], PrometheusEndpoint | None]:
        """Return new readers that have to be told when to collect, and the endpoint."""
        from opentelemetry.sdk.metrics.export import (
            ConsoleMetricExporter,
            PeriodicExportingMetricReader,
        )

        readers: list[MetricReader] = []
        endpoint: PrometheusEndpoint | None = None
        for name in self._names:
            if name == "prometheus":
                endpoint = PrometheusEndpoint(self._environ)
                continue
            if name == "otlp":
                exporter = otlp_module(self._environ, "metric").OTLPMetricExporter()
            else:
                exporter = ConsoleMetricExporter()
            # Without an interval the reader starts no thread: Clew's knows of forks and deadlines.
            readers.append(PeriodicExportingMetricReader(exporter, math.inf))
        return readers, endpoint


class OwnMeters:
    """A meter provider of Clew's own, with a thread that collects and exports.

    Args:
        resource: returns the resource of the metrics.
        sinks: where they go.
        interval_s: seconds between two exports.

    Raises:
        ConfigurationError: see `choose`.
        MissingExtraError: see `choose`.
    """

    def __init__(
        self, resource: Callable[[], Resource], sinks: Sinks, *, interval_s: float
    ) -> None:
        self._resource = resource
        self._sinks = sinks
        self._interval_s = interval_s
        self._made: tuple[list[MetricReader], PrometheusEndpoint | None] | None = sinks.make()
        self._periodic: list[MetricReader] = []
        self._endpoint: PrometheusEndpoint | None = None
        self._provider: Any = None
        self._inherited: list[Any] = []
        self._drain: Drain | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._deadline = math.inf

    def open(self, drain: Drain) -> api.Meter:
        """Make the provider and start what collects from it; return a meter."""
        from opentelemetry.sdk.metrics import MeterProvider

        self._drain = drain
        self._periodic, self._endpoint = self._made or self._sinks.make()
        self._made = None
        readers = [*self._periodic, *self._sinks.given]
        if self._endpoint is not None:
            readers.append(self._endpoint.reader)
        try:
            self._provider = MeterProvider(
                readers, self._resource(), shutdown_on_exit=False, views=()
            )
        except Exception as error:
            raise ConfigurationError(
                f"the metric readers cannot be used ({error}); a reader serves one provider, so "
                "make a new one for each configuration"
            ) from None
        if self._endpoint is not None:
            self._endpoint.start(drain)
        if self._periodic:
            # Of the kind that fits the thread: see `Worker.start`.
            self._stop = threading.Event()
            self._thread = self._start_thread(self._run)
        return self._provider.get_meter(semconv.SCOPE, metadata.version("clew"))

    def forked(self) -> bool:
        """In a forked child, forget the parent's provider, thread and sockets.

        Readers that were given in code stay: they cannot be made anew, and restart themselves.
        """
        if self._sinks.given:
            return False
        if self._endpoint is not None:
            self._endpoint.forked()
        # Dropping them would close connections that the parent uses.
        self._inherited += [self._provider, self._periodic]
        self._thread = None
        return True

    def begin_close(self, deadline: float) -> None:
        """Let the thread collect, export and shut the provider down."""
        self._deadline = deadline
        self._stop.set()

    def end_close(self, deadline: float) -> bool:
        """Wait for that, at most until `deadline`."""
        self._deadline = deadline
        self._stop.set()
        thread = self._thread
        if thread is None:
            try:
                thread = self._start_thread(self._finish)
            except RuntimeError:  # the interpreter is too far gone for a new thread
                self._finish()
                return True
        thread.join(max(_NO_TIME, deadline - time.monotonic()))
        return not thread.is_alive()

    def _start_thread(self, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=THREAD_NAME, daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            with guard("collect metrics"):
                self._collect()
        with guard("collect metrics"):
            self._finish()

    def _collect(self) -> None:
        with fork_waits(_FORK_PATIENCE_S):
            if self._drain is not None:
                self._drain()
            for reader in self._periodic:
                with guard("export metrics"):
                    reader.collect(_COLLECT_MS)

    def _finish(self) -> None:
        with guard("collect metrics"):
            self._collect()
        with guard("shut the meter provider down"):
            left = max(_NO_TIME, self._deadline - time.monotonic())
            self._provider.shutdown(left * 1000)
        if self._endpoint is not None:
            self._endpoint.close()
