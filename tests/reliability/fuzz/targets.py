"""Targets for a fuzzer: bytes from outside go in, and only the errors of Clew's own may come out.

`python targets.py NAME [libFuzzer options]` runs one with atheris (coverage-guided), for example
`-max_total_time=60`. Without atheris, `test_fuzzing.py` feeds them with hypothesis.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    atheris = None

ADDRESSES = (
    ("api.openai.com", "/v1/chat/completions", "text/event-stream"),
    ("api.openai.com", "/v1/responses", "text/event-stream"),
    ("api.anthropic.com", "/v1/messages", "text/event-stream"),
    (
        "generativelanguage.googleapis.com",
        "/v1beta/models/m:streamGenerateContent",
        "text/event-stream",
    ),
    (
        "bedrock-runtime.us-east-1.amazonaws.com",
        "/model/m/converse-stream",
        "application/vnd.amazon.eventstream",
    ),
    ("localhost:11434", "/api/chat", "application/x-ndjson"),
    ("api.cohere.com", "/v2/chat", "text/event-stream"),
)


def load() -> dict[str, Callable[[bytes], None]]:
    """Return the targets by name."""
    from clew.dialects import recognise
    from clew.errors import ClewError
    from clew.references import Reference
    from clew.sources import resolve
    from clew.sources.store import StoreSource
    from clew.store import otlp_json, otlp_protobuf
    from clew.store.records import Page, RunFilter
    from clew.store.writer import Writer

    path = Path(tempfile.mkdtemp()) / "data" / "clew.db"
    Writer(path).close()
    source = StoreSource(path)
    routes = [(recognise("POST", host, place), kind) for host, place, kind in ADDRESSES]

    def protobuf(data: bytes) -> None:
        with suppress(ClewError):
            otlp_protobuf.decode(data)

    def json(data: bytes) -> None:
        with suppress(ClewError):
            otlp_json.decode(data)

    def dialects(data: bytes) -> None:
        for route, kind in routes:
            assert route is not None
            route.dialect.request(data, route)
            for status in (200, 400):
                route.dialect.response(data, status, route)
            stream: Any = route.dialect.stream(route, kind)
            for first in range(0, len(data), 7):
                stream.feed(data[first : first + 7])
            stream.result()

    def references(data: bytes) -> None:
        with suppress(ClewError):
            Reference.parse(data.decode("utf-8", "surrogateescape"))

    def addresses(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        host, _, place = text.partition("/")
        recognise("POST", host, f"/{place}")

    def queries(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        with suppress(ClewError):
            source.runs(
                RunFilter(agent=text, status=text, model=text, tool=text, gate=text),
                Page(after=text),
            )
        with suppress(ClewError):
            resolve(source, text)

    return {
        "protobuf": protobuf,
        "json": json,
        "dialects": dialects,
        "references": references,
        "addresses": addresses,
        "queries": queries,
    }


NAMES = ("protobuf", "json", "dialects", "references", "addresses", "queries")


def main() -> None:
    """Fuzz one target with atheris; libFuzzer ends the process."""
    name = sys.argv.pop(1)
    with atheris.instrument_imports(include=["clew"]):
        target = load()[name]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
