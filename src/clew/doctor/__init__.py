"""`clew doctor`: what is wrong with a set-up, in plain words.

`examine` looks at versions and taps, settings that cancel each other, other instrumentations and
their switches for content, the tracer provider, whether spans arrive, and the data folder. It looks
at the environment that it is started in; with an application named, at what that sets up.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from clew.doctor import delivery, files, neighbours, packages, process
from clew.doctor import settings as settings_room
from clew.doctor.findings import Finding, Report, note
from clew.pipeline import runtime
from clew.settings import Settings
from clew.setup import exporters_in_force

__all__ = ["examine"]


def examine(
    *,
    application: str | None = None,
    source: str | None = None,
    wait_s: float = 10.0,
    send: bool = True,
    imports: bool = True,
) -> Report:
    """Look at everything, and return what was found.

    Args:
        application: a module that sets the process up, or `module:function`.
        source: where to read a test span back from.
        wait_s: seconds that it may take to get there.
        send: whether a test span is sent.
        imports: whether client libraries are imported to look for their taps.

    Raises:
        ClewError: the application cannot be set up.
    """
    if application is not None:
        process.load(application)
    return Report(findings=tuple(_all(application, source, wait_s, send=send, imports=imports)))


def _all(
    application: str | None, source: str | None, wait_s: float, *, send: bool, imports: bool
) -> Iterator[Finding]:
    environ = os.environ
    yield from packages.versions()
    settings, found = settings_room.read(environ)
    yield from found
    current = runtime.get()
    if current is not None:
        settings = current.settings
    yield from settings_room.variables(environ)
    yield from settings_room.contradictions(settings, environ)
    if application is not None:
        yield from process.examine()
    else:
        yield note(
            "provider",
            "What the application itself sets up was not looked at",
            "Name the module that does it: clew doctor --app my_service.telemetry",
        )
    if imports:
        yield from packages.taps()
    installed = neighbours.installed()
    yield from neighbours.doubles(installed)
    yield from neighbours.content(installed, environ)
    if send and not settings.disabled:
        chosen = exporters_in_force() if current is not None else None
        yield from delivery.examine(settings, environ, chosen, source, wait_s)
    yield from files.examine(_placed(settings))
    yield from files.spool(settings, environ)


def _placed(settings: Settings) -> Settings:
    return settings.model_copy(update={"data_dir": settings.data_dir.expanduser()})
