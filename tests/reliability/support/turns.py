"""One function after the other raises while a service works: what the service sees, what is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import CodeType, FunctionType
from typing import Any

import pytest
import seams

import clew
from clew import _guard
from clew.pipeline import runtime
from clew.settings import Settings

_NUMBERS = re.compile(rb"0{10,}\d+")


def unnumbered(data: bytes) -> bytes:
    """Return an answer without its number, which the provider gives it."""
    return _NUMBERS.sub(b"N", data)


def start(settings: Settings, exporter: Any) -> None:
    """Configure Clew, with its taps and all prices there."""
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    assert in_force().prices.wait(20)


def in_force() -> runtime.Runtime:
    current = runtime.get()
    assert current is not None
    return current


def reached_by(work: Callable[[], object]) -> set[CodeType]:
    """Return the code that a service reaches at all, from its configuration to its end."""

    def whole() -> None:
        work()
        clew.shutdown()

    found = seams.called(whole)
    clew.uninstrument()
    return found


def wrongs(
    functions: Mapping[str, FunctionType],
    work: Callable[[], object],
    bare: object,
    caplog: pytest.LogCaptureFixture,
    *,
    inside: bool,
    around: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext(),
    uncounted: Iterable[str] = (),
    lost_counts: bool = False,
) -> dict[str, str]:
    """Have functions raise in turn; return what went wrong, by the function that raised.

    Args:
        functions: what is to raise, by name.
        work: what the service does each time; returns all that it sees.
        bare: what it sees without Clew.
        caplog: the log of the test.
        inside: whether only calls from code of ours are to fail.
        around: stands around each turn and is no part of it; takes the name of the function.
        uncounted: beginnings of names of functions whose failure costs nothing.
        lost_counts: whether a line on how many spans were lost is count enough.
    """
    wrong: dict[str, str] = {}
    for name, function in functions.items():
        caplog.clear()
        _guard.forget()
        try:
            with around(name), seams.failing(function, inside=inside) as calls:
                seen = work()
        except BaseException as error:
            wrong[name] = f"the host sees {error!r}"
            continue
        said = [each.getMessage() for each in caplog.records if each.name == "clew"]
        counted = _guard.failures or (lost_counts and any("lost" in each for each in said))
        if seen != bare:
            wrong[name] = f"the host sees {seen!r:.500}"
        elif len(said) != len(set(said)) or seams.WORDS in caplog.text:
            wrong[name] = f"the log says {said}"
        elif calls and not counted and not name.startswith(tuple(uncounted)):
            wrong[name] = "it is not counted"
    return wrong
