"""A run that does a bit of everything, and its OTLP JSON document to change in place."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx

import clew
from clew.audit.keys import KeyRing
from clew.integrity import Key
from clew.settings import Settings
from clew.sources.otlp_json import OtlpJsonSource
from clew.store.records import RunRecord
from clew.testing import CaptureExporter

SECRET = "a secret of the tests"
BODY = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hello"}]}
FACTS: dict[str, Any] = {
    "tenant": "acme",
    "conversation_id": "c-1",
    "configuration": "standard",
    "trigger": "user_message",
    "message_id": "m-1",
    "actor": "ann",
}


def act(base_url: str) -> clew.Run:
    """Run an agent: two rounds, two tools, decisions of both kinds."""
    with httpx.Client() as client, clew.run("desk", **FACTS) as run:
        client.post(f"{base_url}/v1/chat/completions", json=BODY)
        with clew.tool("search", call_id="call-1", effect="read_only"):
            clew.decide("tool", "allow", subject="search", policy="tools", policy_version="3")
        with clew.tool("refund", effect="non_idempotent_write") as call:
            clew.decide(
                "tool", "deny", reason="not_permitted", policy="tools", policy_version="3",
                subject="refund", data_class="editor_content", trust_zone="local",
            )  # fmt: skip
            call.outcome = "denied"
        client.post(f"{base_url}/v1/chat/completions", json=BODY)
    return run


Exported = Callable[..., dict[str, Any]]


def read_back(document: dict[str, Any], folder: Path) -> RunRecord:
    """Return the one run of an OTLP JSON document, as a source gives it."""
    path = folder / "run.otlp.json"
    path.write_text(json.dumps(document))
    with OtlpJsonSource(path) as source:
        (trace_id,) = source.find("", 2)
        return source.run(trace_id)


def spans_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the spans of a document, to be changed in place."""
    return [
        span
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def attribute(span: dict[str, Any], key: str) -> Any:
    """Return the value of an attribute as JSON has it; None if it is not there."""
    for pair in span["attributes"]:
        if pair["key"] == key:
            return pair["value"]
    return None


@cache
def whole_run() -> tuple[dict[str, Any], KeyRing]:
    """Return one exported run and its key."""
    exporter = CaptureExporter()
    settings = Settings.from_environment(
        integrity_key="k", seal_grace_s=0.0, export_delay_ms=20, digest_key="d"
    )
    clew.configure("tests", settings=settings, span_exporters=[exporter])
    with clew.run("desk", tenant="acme"), clew.tool("search", effect="read_only"):
        clew.decide("tool", "deny", reason="no", policy="p", policy_version="1", subject="search")
    clew.shutdown()
    return exporter.otlp_json(), KeyRing([Key(b"k")])
