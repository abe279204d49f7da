"""Every function of some modules, and a way to make one of them raise wherever it is called."""

from __future__ import annotations

import builtins
import importlib
import inspect
import pkgutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

WORDS = "zqmark in the text of a fault"


class Fault(Exception):  # noqa: N818 - that is what it is
    """What is raised."""


def modules(*packages: str) -> list[ModuleType]:
    """Return all modules of some packages."""
    found: list[ModuleType] = []
    for name in packages:
        package = importlib.import_module(name)
        found.append(package)
        names = [each.name for each in pkgutil.iter_modules(package.__path__, f"{name}.")]
        found += [importlib.import_module(each) for each in names]
    return found


def functions(module: ModuleType) -> dict[str, FunctionType]:
    """Return the functions and methods that are written in a module, by qualified name."""
    found: dict[str, FunctionType] = {}
    for value in list(vars(module).values()):
        if isinstance(value, type):
            if value.__module__ == module.__name__:
                for each in vars(value).values():
                    _take(found, each, module)
        else:
            _take(found, value, module)
    return found


def _take(found: dict[str, FunctionType], value: Any, module: ModuleType) -> None:
    for each in (
        value,
        getattr(value, "__func__", None),
        *(getattr(value, part, None) for part in ("fget", "func", "__wrapped__")),
    ):
        function = inspect.unwrap(each) if callable(each) else None
        if isinstance(function, FunctionType) and function.__code__.co_filename == module.__file__:
            found[f"{module.__name__}.{function.__qualname__}"] = function


def called(work: Callable[[], object]) -> set[CodeType]:
    """Return the code of all functions of ours that are called meanwhile, in any thread."""
    seen: set[CodeType] = set()

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/clew/" in frame.f_code.co_filename:
            seen.add(frame.f_code)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def _raising(names: tuple[str, ...]) -> CodeType:
    """Return code that raises, with as many free variables as a function has."""
    arguments = ", ".join(f"v{number}" for number in range(len(names)))
    used = "".join(f"        v{number}\n" for number in range(len(names)))
    source = (
        f"def make({arguments}):\n    def fails(*args, **kwargs):\n"
        f"        raise _clew_fault()\n{used}    return fails\n"
    )
    scope: dict[str, Any] = {}
    exec(source, scope)  # noqa: S102 - our own words
    return scope["make"](*names).__code__


@contextmanager
def failing(function: FunctionType) -> Iterator[list[int]]:
    """Have a function raise, by whatever name it is known; gives a list with one entry a call."""
    calls: list[int] = []

    def fault() -> Fault:
        calls.append(1)
        return Fault(WORDS)

    before = function.__code__
    builtins._clew_fault = fault  # type: ignore[attr-defined]
    function.__code__ = _raising(before.co_freevars)
    try:
        yield calls
    finally:
        function.__code__ = before
