"""Clew for the length of a block, keeping what it exports."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from clew.settings import Settings
from clew.testing.capture import CaptureExporter

FLUSH_SECONDS: Final = 10.0


def settings_for_a_session(**options: Any) -> Settings:
    """Return settings from the environment for a process that keeps nothing.

    A disabled SDK is for services. Without a key for digests, one is made up: none is written to
    the data folder, and nobody is warned.
    """
    chosen: dict[str, Any] = {"disabled": False, **options}
    if not os.environ.get("CLEW_DIGEST_KEY"):
        chosen.setdefault("digest_key", secrets.token_hex(16))
    return Settings.from_environment(None, **chosen)


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
    settings = settings_for_a_session(**options)
    clew.configure(settings=settings, span_exporters=[exporter])
    current = runtime.get()
    if current is not None:
        exporter.flush = lambda: current.worker.flush(FLUSH_SECONDS)
    try:
        if instrument:
            clew.instrument()
        yield exporter
    finally:
        clew.uninstrument()
        clew.shutdown()
