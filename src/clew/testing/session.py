"""Clew for the length of a block, keeping what it exports."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from clew.testing.capture import CaptureExporter

FLUSH_SECONDS: Final = 10.0


@contextmanager
def captured(*, instrument: bool = True, **options: Any) -> Generator[CaptureExporter]:
    """Configure Clew to keep its spans, listen to the client libraries, and undo it all.

    Args:
        instrument: whether every known client library is listened to.
        options: settings (fields of `clew.Settings`); the environment fills the others.

    Yields:
        The exporter; reading its spans waits until everything that has ended was exported.

    Raises:
        RuntimeError: Clew is configured in this process already.
    """
    import clew
    from clew.pipeline import runtime

    if runtime.get() is not None:
        raise RuntimeError("Clew is configured already: call clew.shutdown() first")
    exporter = CaptureExporter()
    settings = clew.Settings.from_environment(None, **{"disabled": False, **options})
    clew.configure(settings=settings, span_exporters=[exporter])
    current = runtime.get()
    if current is not None:
        exporter.flush = lambda: current.worker.flush(FLUSH_SECONDS)
    if instrument:
        clew.instrument()
    try:
        yield exporter
    finally:
        clew.uninstrument()
        clew.shutdown()
