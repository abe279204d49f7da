"""Configure Clew and shut it down: settings to provider, pipeline and runtime."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from clew import exchange, leaving, semconv
from clew._forks import in_each_child
from clew._guard import guard, logger, warn_once
from clew.allow_list import AllowList
from clew.digests import LazyDigests
from clew.errors import ConfigurationError
from clew.governance.governor import Governor
from clew.ids import RunIdGenerator
from clew.levels import REDACTED, number_of
from clew.pipeline import exporters, meters, runtime, sampling
from clew.pipeline.chains import Chains
from clew.pipeline.exporters import Fanout, SpoolOptions
from clew.pipeline.filter import Filter, instance_id
from clew.pipeline.keeping import Keeper
from clew.pipeline.light import LightSpans
from clew.pipeline.metrics import Metrics
from clew.pipeline.processor import Exporting, RootProcessor, let_go
from clew.pipeline.runtime import Runtime
from clew.pipeline.worker import Worker
from clew.pricing import Prices
from clew.recording.starting import Recording, wanted
from clew.rules import Captured
from clew.settings import Settings
from clew.store.journal import Journal

_lock = threading.RLock()
_signature: tuple[Any, ...] | None = None
_own_providers: weakref.WeakSet[TracerProvider] = weakref.WeakSet()
_processors: weakref.WeakKeyDictionary[TracerProvider, RootProcessor] = weakref.WeakKeyDictionary()


def configure(
    service_name: str | None = None,
    *,
    settings: Settings | None = None,
    span_exporters: Sequence[SpanExporter] | None = None,
    tracer_provider: trace.TracerProvider | None = None,
) -> None:
    """Set Clew up in this process.

    Without a tracer provider in the process, Clew makes one, and every span in the process passes
    its allow-list. Otherwise it joins the one that is there: its processors stay as they are, and
    Clew exports nothing unless `span_exporters` is given, and then only traces that it has a part
    in. Called again with the same arguments it changes nothing; with others it says so.

    Args:
        service_name: the name of the service, by default from OTEL_SERVICE_NAME.
        settings: by default from the environment (see `Settings.from_environment`).
        span_exporters: where spans go, instead of the OTLP exporter.
        tracer_provider: an OpenTelemetry SDK provider to join.

    Raises:
        ConfigurationError: a setting or an environment variable is wrong.
        MissingExtraError: an optional part that is asked for is not installed.
    """
    global _signature  # noqa: PLW0603 - one per process is what it is
    with _lock:
        settings = settings or Settings.from_environment()
        if service_name is not None:
            settings = settings.model_copy(update={"service_name": service_name})
        given = None if span_exporters is None else tuple(id(one) for one in span_exporters)
        signature = (settings, given, id(tracer_provider) if tracer_provider else None)
        if runtime.get() is not None:
            if signature != _signature:
                logger.warning(
                    "clew.configure was called again with other arguments and changed nothing; "
                    "call clew.shutdown() first"
                )
            return
        if settings.disabled:
            return
        _start(settings, span_exporters, tracer_provider)
        _signature = signature
        atexit.register(shutdown)
        leaving.before_leaving(shutdown)
        if settings.flush_on_sigterm:
            leaving.on_termination(_terminated)


def _start(
    settings: Settings,
    span_exporters: Sequence[SpanExporter] | None,
    tracer_provider: trace.TracerProvider | None,
) -> None:
    digests = runtime.digests_of(settings)
    allow_list = allow_list_in_force(settings, digests)
    provider, own = _provider(settings, tracer_provider)
    chosen = (_exporters(settings) if own else ()) if span_exporters is None else span_exporters
    # An own provider cannot be replaced once it is the process's: the resource of a later
    # configuration is put on the exported copies.
    resource = _resource(settings)
    instance = provider.resource.attributes.get("service.instance.id")
    filter_ = Filter(allow_list, resource.attributes if own else {}, instance is None)
    chains = Chains.of(settings)
    exporting = Exporting(filter_, Fanout(chosen), chains)
    worker = Worker(
        exporting,
        queue_size=settings.queue_size,
        batch_size=settings.batch_size,
        delay=settings.export_delay_ms / 1000,
        let_go=let_go,
    )
    # What an earlier process has left is sent, too, without waiting for a span.
    for each in chosen:
        if hasattr(each, "replay"):
            worker.each_turn(getattr(each, "replay"), every=1.0)  # noqa: B009
    metered = meters.choose(
        settings,
        lambda: filter_.resource(provider.resource),
        by_default=own and span_exporters is None,
    )
    prices = Prices(settings.model_aliases, settings.prices_file)
    prices.load_in_background()
    tracer = provider.get_tracer(semconv.SCOPE, metadata.version("clew"))
    if not own:
        with guard("give the tracer Clew's ids"):
            tracer.id_generator = RunIdGenerator()  # type: ignore[attr-defined]
    started = Runtime(
        tracer=tracer, settings=settings, prices=prices, worker=worker, digests=digests
    )
    exporting.runtime = started
    if metered is not None:
        started.metrics = Metrics(started, metered, filter_=filter_, fanout=exporting.fanout)
        started.metrics.start()
    processor = _processor(provider, runs_only=not own)
    processor.exports = bool(chosen)
    if not own and not chosen:
        started.chains = chains
    processor.runtime = started
    base = resource if own else provider.resource
    _lighten(started, provider, filter_.resource(base), processor, own=own)
    if not own:
        _look_at(provider)
    _go(started)
    in_each_child(exporting, lambda renewed: _renew_after_fork(renewed, base))
    worker.start()


def _exporters(settings: Settings) -> list[SpanExporter]:
    """Return the exporters that the environment names."""
    spool = None
    if settings.spool_dir is not None:
        spool = SpoolOptions(settings.spool_dir.expanduser(), settings.spool_max_bytes)
    return exporters.from_environment(stock_encoder=settings.otlp_encoder == "stock", spool=spool)


def _look_at(provider: TracerProvider) -> None:
    """Warn of a sampler that a host has chosen without runs in mind."""
    if sampling.harms_runs(provider.sampler):
        logger.warning(
            "The tracer provider samples by a ratio of the trace id, which for uuids keeps nearly "
            "all runs or none: use clew.pipeline.sampling.RunRatioSampler in its place"
        )


def _go(started: Runtime) -> None:
    """Make a runtime that is complete the one of the process."""
    settings = started.settings
    if settings.redaction_detectors:
        from clew import redaction  # not loaded where nothing is masked

        redaction.ask_also(settings.redaction_detectors)
    started.recording = recording = Recording(started)
    recording.start()
    exchange.forget_targets()
    started.govern = partial(_govern, started)
    if settings.audit != "off":
        started.journal = Journal(settings.data_dir, fail_closed=settings.audit == "fail_closed")
    if settings.gates or started.journal is not None:
        started.govern()
    runtime.set_current(started)


def _lighten(
    started: Runtime,
    provider: TracerProvider,
    resource: Resource,
    processor: RootProcessor,
    *,
    own: bool,
) -> None:
    """Make spans without the SDK, where that is the same; see `clew.pipeline.light`."""
    if not (own or processor.exports) or not sampling.ignores_attributes(provider.sampler):
        return
    scope = InstrumentationScope(semconv.SCOPE, metadata.version("clew"))
    queue = started.worker.submit_soon if processor.exports else processor.ended
    light = LightSpans(provider, scope, resource, processor.ended, queue, alone=own)
    _hold_back(started, light, provider, processor)
    if own or light.held is not None:
        started.light = light


def _hold_back(
    started: Runtime, light: LightSpans, provider: TracerProvider, processor: RootProcessor
) -> None:
    """Have runs that are sampled out recorded, where some of them are to be kept."""
    settings = started.settings
    wanted = settings.keep or settings.keep_above_usd is not None
    if not (wanted and processor.exports and sampling.drops_some(provider.sampler)):
        return
    keeper = Keeper(
        settings.keep,
        settings.keep_above_usd,
        settings.keep_spans,
        processor.ended,
        started.segments,
    )
    started.keeper = keeper
    light.hold(provider, keeper)


def _processor(provider: TracerProvider, *, runs_only: bool) -> RootProcessor:
    processor = _processors.get(provider)
    if processor is None:
        processor = _processors[provider] = RootProcessor(runs_only=runs_only)
        provider.add_span_processor(processor)
    return processor


def _govern(started: Runtime) -> None:
    """Have the gates asked from now on."""
    with _lock:
        if started.governor is None:
            settings = started.settings
            started.governor = Governor(started, settings.gates, record_allow=settings.record_allow)


def allow_list_in_force(settings: Settings, digests: LazyDigests) -> AllowList:
    """Return the list in force; with the keys of content where captured content may leave."""
    allow_list = settings.effective_allow_list().bound(
        None if settings.capture == "none" else lambda text: digests.get().of(text)
    )
    highest = max(number_of(settings.capture), number_of(settings.capture_max or "none"))
    if highest < REDACTED:
        return allow_list
    if not settings.content_to and not wanted(settings):
        logger.warning(
            "The capture level lets content through, but no place is named for it (content_to, "
            "CLEW_CONTENT_TO): none is captured"
        )
    if "spans" not in settings.content_to:
        return allow_list
    # An empty list passes nothing, whatever else is set.
    keys = semconv.CONTENT if allow_list.spans else ()
    return allow_list.extended({key: Captured() for key in keys})


def _renew_after_fork(exporting: Exporting, resource: Resource) -> None:
    """Give a forked child a `service.instance.id` of its own."""
    started = exporting.runtime
    if started is not None and runtime.get() is started:
        with guard("renew the instance after a fork"):
            exporting.renew()
            started.segments.renew()
            if started.chains is not None:
                started.chains.clear()
            if started.light is not None:
                started.light.renew(exporting.filter.resource(resource))


def unwrapped(provider: trace.TracerProvider) -> trace.TracerProvider:
    """Return the SDK's provider inside another (Logfire's is one around it), or what was given."""
    inside = getattr(provider, "provider", None)
    return inside if isinstance(inside, TracerProvider) else provider


def _provider(
    settings: Settings, given: trace.TracerProvider | None
) -> tuple[TracerProvider, bool]:
    """Return the provider, and whether it is Clew's own."""
    if given is not None:
        given = unwrapped(given)
        if not isinstance(given, TracerProvider):
            raise ConfigurationError(
                f"tracer_provider has type {type(given).__name__}; give an "
                "opentelemetry.sdk.trace.TracerProvider, or none to let Clew make its own"
            )
        return given, given in _own_providers
    current = unwrapped(trace.get_tracer_provider())
    if isinstance(current, TracerProvider):
        return current, current in _own_providers
    provider = TracerProvider(
        sampler=sampling.from_environment(os.environ),
        resource=_resource(settings),
        id_generator=RunIdGenerator(),  # type: ignore[arg-type]
        shutdown_on_exit=False,
    )
    _own_providers.add(provider)
    if isinstance(current, trace.ProxyTracerProvider):
        trace.set_tracer_provider(provider)
    else:
        warn_once(
            "join a foreign tracer provider",
            "The process has a tracer provider that is not OpenTelemetry's SDK (%s); "
            "Clew uses a private one beside it.",
            type(current).__name__,
        )
    return provider, True


def provider_in_force() -> tuple[TracerProvider | None, bool]:
    """Return the provider that Clew is a part of, and whether it is Clew's own."""
    current = runtime.get()
    for provider, processor in list(_processors.items()):
        if current is not None and processor.runtime is current:
            return provider, provider in _own_providers
    return None, False


def exporters_in_force() -> list[SpanExporter]:
    """Return the exporters that Clew's spans go through."""
    current = runtime.get()
    exporting = getattr(current.worker, "exporting", None) if current is not None else None
    return list(exporting.fanout.exporters) if isinstance(exporting, Exporting) else []


def _resource(settings: Settings) -> Resource:
    attributes: dict[str, Any] = {}
    if settings.service_name:
        attributes["service.name"] = settings.service_name
    resource = Resource.create(attributes)
    if "service.instance.id" not in resource.attributes:
        resource = resource.merge(Resource({"service.instance.id": instance_id()}))
    return resource


def _terminated() -> None:
    """End and export what is there, because the process is about to end."""
    current = runtime.get()
    if current is not None:
        with guard("end what is open"):
            leaving.end_what_is_open(current)
        shutdown(min(current.settings.shutdown_s, leaving.TERMINATION_S * 0.9))


def _stop(stopping: Runtime, seconds: float) -> None:
    """End what is open, export, stop the threads; what one part fails at does not keep the others.

    Args:
        stopping: the runtime.
        seconds: how long it may take.
    """
    deadline = time.monotonic() + seconds
    lost = 0
    with guard("shut down"):
        stopping.settle(everywhere=True)
        stopping.hold_streams()
    with guard("stop measuring"):
        if stopping.metrics is not None:
            stopping.metrics.begin_close(deadline)
    with guard("write the last records"):
        if stopping.recording is not None:
            # Exporters that wait for a collector may leave no time for it later.
            stopping.recording.flush(seconds / 4)
    with guard("close the journal"):
        if stopping.journal is not None:
            stopping.journal.close()
    with guard("export the last spans"):
        lost = stopping.worker.shutdown(max(0.0, deadline - time.monotonic()))
        lost += stopping.worker.dropped
        if isinstance(stopping.worker.exporting, Exporting):
            lost += stopping.worker.exporting.fanout.failed
    with guard("stop recording"):
        if stopping.recording is not None:
            stopping.recording.shutdown(deadline)
    with guard("export the last metrics"):
        if stopping.metrics is not None:
            stopping.metrics.end_close(deadline)
    if lost:
        logger.warning("Clew has lost %d spans: they were not exported in time", lost)


def shutdown(timeout: float | None = None) -> None:
    """Export what has ended, seal the runs, and stop; afterwards Clew is a no-op again.

    Args:
        timeout: seconds, by default the setting (5).
    """
    global _signature  # noqa: PLW0603
    with _lock:
        stopping = runtime.get()
        if stopping is None:
            return
        _stop(stopping, stopping.settings.shutdown_s if timeout is None else timeout)
        for processor in _processors.values():
            if processor.runtime is stopping:
                processor.runtime = None
        runtime.set_current(None)
        if stopping.settings.redaction_detectors:
            from clew import redaction

            redaction.ask_also(())
        listing = sys.modules.get("clew.content.listing")
        if listing is not None:  # content was captured
            listing.forget()
        _signature = None
        leaving.leave_termination()
        atexit.unregister(shutdown)
