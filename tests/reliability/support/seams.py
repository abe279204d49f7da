"""Every function of some modules, and a way to make one of them raise wherever it is called."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pkgutil
import sys
import textwrap
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, ModuleType
from typing import Any

WORDS = "zqmark in the text of a fault"


class Fault(Exception):  # noqa: N818 - that is what it is
    """What is raised."""


def modules(*packages: str) -> list[ModuleType]:
    """Return all modules of some packages; a plain module stands for itself."""
    found: list[ModuleType] = []
    for name in packages:
        package = importlib.import_module(name)
        found.append(package)
        path: Any = getattr(package, "__path__", ())
        names = [each.name for each in pkgutil.iter_modules(path, f"{name}.")]
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


@contextmanager
def watching() -> Iterator[set[CodeType]]:
    """Give the code of all functions of ours that are called meanwhile, in any thread."""
    seen: set[CodeType] = set()

    def look(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/clew/" in frame.f_code.co_filename:
            seen.add(frame.f_code)

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def called(work: Callable[[], object]) -> set[CodeType]:
    """Return the code of all functions of ours that are called by some work, in any thread."""
    with watching() as seen:
        work()
    return seen


def _raising(names: tuple[str, ...]) -> CodeType:
    """Return code that raises, with as many free variables as a function has."""
    arguments = ", ".join(f"v{number}" for number in range(len(names)))
    used = "".join(f"        v{number}\n" for number in range(len(names)))
    source = (
        f"def make({arguments}):\n    def fails(*args, **kwargs):\n"
        f"        return _clew_fault(args, kwargs)\n{used}    return fails\n"
    )
    scope: dict[str, Any] = {}
    exec(source, scope)  # noqa: S102 - our own words
    return scope["make"](*names).__code__


def _is_ours(path: str) -> bool:
    return "/clew/" in path and "/clew/testing/" not in path


@contextmanager
def failing(function: FunctionType, *, inside: bool = False) -> Iterator[list[int]]:
    """Have a function raise, by whatever name it is known; gives a list with one entry a fault.

    With `inside` it does so only where code of ours calls it: what somebody else calls is an
    entrance, with nothing of ours around it.
    """
    calls: list[int] = []
    before = function.__code__
    same = FunctionType(
        before, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    same.__kwdefaults__ = function.__kwdefaults__

    def fault(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        caller = sys._getframe(2)
        if inside and not _is_ours(caller.f_code.co_filename):
            return same(*args, **kwargs)
        calls.append(1)
        raise Fault(WORDS)

    builtins._clew_fault = fault  # type: ignore[attr-defined]
    function.__code__ = _raising(before.co_freevars)
    try:
        yield calls
    finally:
        function.__code__ = before


_HARMLESS = frozenset(
    {"isinstance", "getattr", "hasattr", "len", "type", "cast", "bool", "super", "max", "min",
     "get", "set", "pop", "append", "_claim", "reset", "time_ns", "perf_counter_ns", "monotonic"}
)  # fmt: skip
"""Calls that read and store, and raise for nothing that they are given here."""


def _body(function: FunctionType) -> list[ast.stmt]:
    source = textwrap.dedent(inspect.getsource(function))
    (node,) = ast.parse(source).body
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    body = node.body
    first = body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return body[1:] if documented else body


def is_plain(function: FunctionType) -> bool:
    """Tell whether a function only reads and stores: nothing in it can fail."""
    for node in (each for statement in _body(function) for each in ast.walk(statement)):
        if isinstance(node, (ast.For, ast.While, ast.comprehension, ast.Raise, ast.Await)):
            return False
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Subscript, ast.BinOp, ast.JoinedStr)):
            return False
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name not in _HARMLESS:
                return False
    return True


def _guards(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Try):
        caught = [handler.type for handler in statement.handlers]
        return any(isinstance(each, ast.Name) and each.id == "Exception" for each in caught)
    if isinstance(statement, ast.With):
        call = statement.items[0].context_expr
        return isinstance(call, ast.Call) and getattr(call.func, "id", "") == "guard"
    return False


def _simple(statement: ast.stmt) -> bool:
    """Tell whether a statement only reads and stores, or decides on nothing else."""
    inside = list(ast.walk(statement))
    calls = [each for each in inside if isinstance(each, ast.Call)]
    names = [
        each.func.attr if isinstance(each.func, ast.Attribute) else getattr(each.func, "id", "")
        for each in calls
    ]
    return all(name in _HARMLESS for name in names)


def is_guarded(function: FunctionType) -> bool:
    """Tell whether all that a function does is inside a guard: what it calls fails in its place."""
    body = _body(function)
    return any(map(_guards, body)) and all(_guards(each) or _simple(each) for each in body)


def reachable(
    module: str, packages: Iterable[str], reached: Container[CodeType], apart: Container[str] = ()
) -> dict[str, FunctionType]:
    """Return the functions of a module that can be made to fail.

    Args:
        module: its name.
        packages: where modules are looked for.
        reached: the code that a use of everything calls.
        apart: names of functions that are left out, each for a reason given beside it.
    """
    (found,) = [each for each in modules(*packages) if each.__name__ == module]
    return {
        name: function
        for name, function in functions(found).items()
        if function.__code__ in reached and name not in apart
    }


def chosen(
    module: str, packages: Iterable[str], reached: Container[CodeType], apart: Container[str] = ()
) -> dict[str, FunctionType]:
    """Return those of a module's reachable functions that can fail by themselves."""
    return {
        name: function
        for name, function in reachable(module, packages, reached, apart).items()
        if not is_plain(function) and not is_guarded(function)
    }
