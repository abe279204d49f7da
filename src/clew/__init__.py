"""Clew: OpenTelemetry middleware for services that run LLM agents. One run, one trace.

    import clew

    clew.configure(service_name="support-bot")
    clew.instrument()
    with clew.run("triage") as run:
        ...

Importing this package loads nothing but this file; each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from clew.allow_list import AllowList
    from clew.capturing import capture
    from clew.context import bind
    from clew.decisions import decide
    from clew.errors import ClewError
    from clew.patching import instrument, uninstrument
    from clew.runs import current_run, resume, run
    from clew.settings import Settings
    from clew.setup import configure, shutdown
    from clew.tools import tool

__all__ = [
    "AllowList",
    "ClewError",
    "Settings",
    "bind",
    "capture",
    "configure",
    "current_run",
    "decide",
    "instrument",
    "resume",
    "run",
    "shutdown",
    "tool",
    "uninstrument",
]

_HOMES = {
    "AllowList": "clew.allow_list",
    "ClewError": "clew.errors",
    "Settings": "clew.settings",
    "bind": "clew.context",
    "capture": "clew.capturing",
    "configure": "clew.setup",
    "current_run": "clew.runs",
    "decide": "clew.decisions",
    "instrument": "clew.patching",
    "resume": "clew.runs",
    "run": "clew.runs",
    "shutdown": "clew.setup",
    "tool": "clew.tools",
    "uninstrument": "clew.patching",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
