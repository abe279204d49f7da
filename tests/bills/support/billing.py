"""A server that answers as it is told, and Clew with prices that are known."""

from __future__ import annotations

import json
from typing import Any

import httpx
from bill_answers import Bill, answer_of, streamed

import clew
from clew.pipeline import runtime
from clew.settings import Settings
from clew.testing import CaptureExporter, LoopbackServer, ReceivedRequest
from clew.testing.loopback import Connection

RATES = {
    "model": "model-x", "input": 2, "output": 8, "cache_read": 0.5, "cache_write": 2.5,
    "input_audio": 40, "output_audio": 80,
}  # fmt: skip
"""US dollars for a million tokens."""
SILENT = {key: rate for key, rate in RATES.items() if "audio" not in key} | {"model": "model-s"}
"""The same without rates for sound."""
TIERED = {
    "model": "model-t", "input": 2, "output": 8, "web_search": 0.01,
    "tiers": [{"above": 200_000, "input": 4, "output": 16}],
}  # fmt: skip
"""With a higher tier, and a fee for each search."""
PER = 1e-6


class Answering(LoopbackServer):
    """Answers with what it is told."""

    kind, body = "application/json", b""

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.head(200, {"content-type": self.kind}, len(self.body))
        connection.send(self.body)

    def gives(self, bill: Bill, how: str = "plain") -> str:
        """Answer with a bill from now on, as a whole or `streamed`; return the path to ask."""
        if how == "streamed":
            path, self.kind, self.body = streamed(bill)
            return path
        self.kind, self.body = "application/json", json.dumps(answer_of(bill)).encode()
        return bill.path


def start(settings: Settings, exporter: CaptureExporter) -> runtime.Runtime:
    """Configure Clew and return what is in force, with all prices there."""
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    clew.instrument()
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(60)
    return current


def change(exporter: CaptureExporter, **settings: Any) -> None:
    """Configure Clew anew, with some settings changed."""
    current = runtime.get()
    assert current is not None
    clew.shutdown()
    start(current.settings.model_copy(update=settings), exporter)


async def ask(url: str, body: Any, twin: str) -> None:
    """Send a request and read its answer to the end."""
    if twin == "sync":
        with httpx.Client(trust_env=False) as client:  # noqa: SIM117
            with client.stream("POST", url, json=body) as response:  # noqa: ASYNC212
                for _ in response.iter_raw():
                    pass
        return
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", url, json=body) as response,
    ):
        async for _ in response.aiter_raw():
            pass
