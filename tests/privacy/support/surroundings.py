"""Everything that leaves or is written while an agent runs, collected for a search."""

from __future__ import annotations

import base64
import io
import logging
import re
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from marks import PREFIX

import clew
from clew.cli import main
from clew.settings import Settings
from clew.store import otlp_protobuf
from clew.store.writer import Writer
from clew.testing import LoopbackServer, OtlpSink
from clew.testing.loopback import Connection, ReceivedRequest


class Answers(LoopbackServer):
    """Answers each request with what was put in last: status, media type, pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.media_type = "application/json"
        self.pieces: list[bytes] = []
        self.hangs_after: int | None = None

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.head(self.status, {"content-type": self.media_type}, None)
        for at, piece in enumerate(self.pieces):
            if at == self.hangs_after:
                connection.pause(20)
            connection.send(piece)
        connection.end()


class Everything:
    """Every byte that left or was written, by where."""

    def __init__(self, sink: OtlpSink, data_dir: Path) -> None:
        self.sink = sink
        self.data_dir = data_dir
        self.log = io.StringIO()
        self.places: dict[str, bytes] = {}

    def collect(self) -> None:
        """Write the store from what was exported, print it, and gather it all."""
        bodies = self.sink.bodies
        self.places["otlp"] = b"\n".join(bodies)
        self.places["log"] = self.log.getvalue().encode()
        records = [
            span
            for body, message in zip(self._traces(), self.sink.traces, strict=True)
            if message.resource_spans
            for span in otlp_protobuf.decode(body).spans
        ]
        writer = Writer(self.data_dir / "clew.db")
        writer.write(records)
        writer.close()
        runs = sorted({str(span.attributes.get("clew.run.id")) for span in records} - {"None"})
        commands = [["runs"], ["runs", "--json"]]
        for run in runs:
            commands += [["show", run], ["show", run, "--json"], ["show", run, "--otlp"]]
        self.places["printed"] = b"".join(map(_printed, commands))
        for path in self.data_dir.rglob("*"):
            if path.is_file():
                self.places[str(path.relative_to(self.data_dir))] = path.read_bytes()

    def _traces(self) -> list[bytes]:
        return [message.SerializeToString() for message in self.sink.traces]

    def found(self, word: str = PREFIX) -> dict[str, list[str]]:
        """Return where a word stands, and a little of what stands around it."""
        forms = _forms(word)
        return {
            place: [repr(content[max(0, at.start() - 60) : at.end() + 30]) for at in hits[:4]]
            for place, content in self.places.items()
            if (hits := list(re.finditer(forms, content, re.IGNORECASE)))
        }

    @property
    def spans(self) -> list[Any]:
        """Return the spans that were exported."""
        return list(self.sink.spans)


def _forms(word: str) -> bytes:
    """Return a pattern for a word as it is, in base64 at each offset, in hex, and escaped."""
    raw = word.encode()
    forms = {raw, raw.hex().encode(), urllib.parse.quote(word).encode()}
    forms |= {base64.b64encode(b"\0" * pad + raw)[4 if pad else 0 : -4] for pad in range(3)}
    forms.add(word.encode("utf-16-le"))
    return b"|".join(re.escape(form) for form in forms if form == raw or len(form) > 8)


def _printed(arguments: list[str]) -> bytes:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (None, 0), (arguments, err.getvalue())
    return (out.getvalue() + err.getvalue()).encode()


@contextmanager
def watched(data_dir: Path, monkeypatch: Any, **options: Any) -> Iterator[Everything]:
    """Configure Clew with the real exporters against a receiver; collect when the block ends."""
    import logging as logging_module

    with OtlpSink() as sink:
        everything = Everything(sink, data_dir)
        data_dir.mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("CLEW_DATA_DIR", str(data_dir))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.base_url)
        monkeypatch.setenv("CLEW_DIGEST_KEY", "a key of the tests")
        options = {"export_delay_ms": 20, "seal_grace_s": 0.01, **options}
        handler = logging_module.StreamHandler(everything.log)
        handler.setFormatter(logging_module.Formatter("%(message)s %(exc_info)s %(args)s"))
        logger = logging.getLogger("clew")
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        try:
            clew.configure("tests", settings=Settings.from_environment(None, **options))
            clew.instrument()
            yield everything
        finally:
            clew.uninstrument()
            clew.shutdown()
            logger.removeHandler(handler)
            logger.setLevel(before)
        everything.collect()
