"""Writes `docs/coverage.md` from the contract tests: `python tests/clients/coverage.py`."""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "coverage.md"
for folder in (HERE.parent / "support", HERE):  # as pytest does it
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from kits import SDKS, STAINLESS  # noqa: E402
from kits.choosing import chosen  # noqa: E402
from surfaces import SURFACES  # noqa: E402

from clew.dialects.endpoints import ACTIONS, ENDPOINTS, PARTNERS  # noqa: E402

TABLES = {
    "Calls": (
        "plain",
        "stream",
        "with",
        "stream helper",
        "raw response",
        "streaming response",
        "structured output",
        "tools run by the SDK",
        "wrapped twice",
        "usage absent",
        "zero usage",
        "large answer",
    ),
    "Endings": ("early break", "close", "drop", "caller's exception", "cancel"),
    "Failures": (
        "error status",
        "retry",
        "retries used up",
        "connection reset",
        "body cut short",
        "timeout",
        "nobody there",
        "nonsense",
        "error in a stream",
    ),
}
NAMED = {"openai": ("OpenAI", "chat completions"), "anthropic": ("Anthropic", "messages")}
INTRO = """\
# What is covered

Generated from the tests by `python tests/clients/coverage.py`; a test fails when it is stale.

Each mark stands for tests that make a call through the real client, on loopback, without and with
Clew: the caller gets equal objects and exceptions, the requests are equal bytes, the connection is
given back, the current span does not move, exactly one round is exported with the provider's
figures, and no content. **s** is the blocking client, **a** the asynchronous one; an empty cell is
something that the client does not have.
"""


def tests() -> Iterator[tuple[Any, list[Any]]]:
    """Give every test function of the contract suite with its marks."""
    for path in sorted(HERE.glob("test_*.py")):
        if path.stem == "test_coverage":
            continue
        module = load(path)
        around = getattr(module, "pytestmark", [])
        around = around if isinstance(around, list) else [around]
        for name, test in vars(module).items():
            if name.startswith("test_"):
                own = getattr(test, "pytestmark", [])
                yield test, [*own, *(mark.mark for mark in around)]


def load(path: Path) -> Any:
    """Import a test module by its path."""
    name = f"contract_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


Row = tuple[str, str, str]


def row_of(kit: Any) -> Row:
    """Return provider, API and client of a kit."""
    if kit in STAINLESS:
        return (*NAMED[kit.provider], f"{kit.provider} on httpx2")
    return kit.provider, kit.api, f"{kit.sdk} on {kit.http}"


def covered() -> dict[Row, dict[str, set[bool]]]:
    """Return, for each client, its features with whether they are covered sync and async."""
    found: dict[Row, dict[str, set[bool]]] = {
        row_of(kit): defaultdict(set) for kit in (*STAINLESS, *SDKS)
    }
    for test, marks in tests():
        features = [name for mark in marks if mark.name == "covers" for name in mark.args]
        for kit in chosen(mark for mark in marks if mark.name == "kits"):
            for feature in features:
                found[row_of(kit)][feature].add(kit.asynchronous)
        parameters = test.__code__.co_varnames[: test.__code__.co_argcount]
        for parameter in ("plain_variant", "stream_variant"):
            if parameter in parameters:
                for kit in SDKS:
                    for name in getattr(kit, f"{parameter}s"):
                        found[row_of(kit)][name].add(kit.asynchronous)
    return found


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cell(kinds: set[bool]) -> str:
    """Say which kinds of client are covered."""
    return " ".join(letter for kind, letter in ((False, "s"), (True, "a")) if kind in kinds)


def clients() -> Iterator[str]:
    """Give the tables of clients."""
    found = covered()
    known = {name for names in TABLES.values() for name in names}
    for title, features in TABLES.items():
        yield f"## {title}\n"
        head = ["provider", "API", "client", *features]
        yield table(head, ([*row, *(cell(found[row][name]) for name in features)] for row in found))
    yield "aioboto3 hands out the clients of aiobotocore.\n"
    yield "Some clients have ways of their own, each of them covered as well:\n"
    for row, features in found.items():
        own = sorted(set(features) - known)
        if own:
            yield f"- {row[2]}, {row[1]}: {', '.join(own)}"
    yield ""


def methods() -> Iterator[str]:
    """Give the methods of the SDKs: those that are listened to, and those that are not."""
    yield "## Methods\n"
    yield "Every public method of these clients that reaches a model was looked at.\n"
    for surface in SURFACES:
        if surface.listened:
            rows = ([f"`{name}`", made[0]] for name, made in sorted(surface.listened.items()))
            yield f"### {surface.sdk}: one span for each call\n"
            yield table(["method", "operation"], rows)
        yield f"### {surface.sdk}: not supported\n"
        yield "Calls of these leave no span.\n"
        for reason, names in surface.unheard.items():
            yield f"- {reason}: {', '.join(f'`{name}`' for name in sorted(names))}"
        yield ""


def endpoints() -> Iterator[str]:
    """Give the endpoints that are known by their path, dialect by dialect."""
    rows: dict[str, list[list[str]]] = defaultdict(list)
    for last, entries in ENDPOINTS.items():
        for entry in entries:
            for after in entry.after.split():
                path = {"/": "", "*": "…/"}.get(after, f"…/{after}/")
                tail = f"`/{path}{last}`" if not path.startswith("…") else f"`{path}{last}`"
                where = entry.only.replace(" ", ", ") or "any host"
                rows[entry.dialect.name].append([tail, entry.operation, where])
    for action, entry in ACTIONS.items():
        rows[entry.dialect.name].append(
            [f"`…/models/{{model}}:{action}`", entry.operation, "any host"]
        )
    for publisher, dialect in PARTNERS.items():
        path = f"`…/publishers/{publisher}/models/{{model}}:rawPredict`"
        rows[dialect.name].append([path, "chat", "any host"])
    yield "## Endpoints\n"
    yield "A request is recognised by method (POST) and path; `*` is any segment, `vN` any version.\n"
    for name in sorted(rows):
        yield f"### {name}\n"
        yield table(["path", "operation", "where"], rows[name])


def page() -> str:
    """Return the page."""
    return "\n".join([INTRO, *clients(), *methods(), *endpoints()]).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
