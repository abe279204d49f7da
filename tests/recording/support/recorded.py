"""A Clew that records, and what it has recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from clew.pipeline import runtime
from clew.store.prompt_index import PromptReader
from clew.store.prompt_records import EVERYTHING, PromptFilter, PromptRecord, PromptRow
from clew.store.records import Page
from clew.testing import CaptureExporter


class Session:
    """A configured Clew that records."""

    def __init__(self, folder: Path, exporter: CaptureExporter) -> None:
        self.folder = folder
        self.exporter = exporter

    @property
    def runtime(self) -> Any:
        current = runtime.get()
        assert current is not None
        return current

    def rows(self) -> list[PromptRow]:
        """Return what is in the index once everything was written, oldest first."""
        current = runtime.get()
        if current is not None:
            current.settle(everywhere=True)
            assert current.worker.flush(10)
            assert current.recording is not None
            assert current.recording.flush(10)
        if not (self.folder / "clew.db").exists():
            return []
        reader = PromptReader(self.folder)
        try:
            return list(
                reversed(reader.records(PromptFilter(), Page(limit=1000), EVERYTHING).records)
            )
        finally:
            reader.close()

    def records(self) -> list[PromptRecord]:
        """Return the whole records, oldest first."""
        rows = self.rows()
        reader = PromptReader(self.folder)
        try:
            return [reader.record(row) for row in rows]
        finally:
            reader.close()

    def only(self) -> tuple[PromptRow, PromptRecord]:
        """Return the row and the record of the one call that was made."""
        (row,), (record,) = self.rows(), self.records()
        return row, record


Start = Callable[..., Session]


class Wire:
    """A transport that keeps what came over it, and gives one answer."""

    def __init__(self, answer: Any, *, status: int = 200, content_type: str | None = None) -> None:
        self.bodies: list[bytes] = []
        self._answer = answer
        self._status = status
        self._content_type = content_type

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content)
        if isinstance(self._answer, bytes):
            headers = {"content-type": self._content_type or "application/json"}
            return httpx.Response(self._status, content=self._answer, headers=headers)
        return httpx.Response(self._status, json=self._answer)


async def post(url: str, body: Any, wire: Wire, *, asynchronous: bool = False) -> None:
    """Send one request, as a client library would."""
    if asynchronous:
        async with httpx.AsyncClient(transport=httpx.MockTransport(wire)) as client:
            await client.post(url, json=body)
    else:
        with httpx.Client(transport=httpx.MockTransport(wire)) as client:
            client.post(url, json=body)


def send(url: str, wire: Wire, **request: Any) -> None:
    """Send one request with what httpx takes."""
    with httpx.Client(transport=httpx.MockTransport(wire)) as client:
        client.post(url, **request)
