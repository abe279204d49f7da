"""Runs as a service sends them, in as many copies as a bench of the reading side needs.

Each run has 14 spans of 5 rounds, 5 tools and a decision. Two kinds take turns that have nothing in
common: agent, model, tool, gate, outcome, status and cost. So half of a store has any of these, and
two of different kinds never meet. What a copy has of its own is put into the finished bytes.
"""

from __future__ import annotations

import contextlib
import json
import struct
import uuid
from typing import Any, NamedTuple

import httpx2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import clew

SPANS = 14
ROUNDS = 5
URL = "https://api.openai.com/v1/chat/completions"
SHADES = 20
"""Tenants, each with a tool of its own, that the runs are spread over."""
MODELS = ("gpt-4o-2024-08-06", "gpt-4.1-2025-04-14")
AGENTS = ("support-bot", "billing-bot")
TOOLS = ("find_order", "find_money")
GATES = ("budget", "ledger")
OUTCOMES = ("allow", "deny")
STATUSES = ("completed", "failed")
COSTS = (0.01, 1.0)
_TENANT, _TOOL = "tenant-00", "special-00"


class Template(NamedTuple):
    """The bytes of one run, and what is replaced in them."""

    data: bytes
    trace_id: bytes
    run_id: bytes
    times: tuple[int, ...]


def templates() -> tuple[Template, ...]:
    """Run both kinds once and keep what is exported."""
    return tuple(_template(kind) for kind in range(2))


def _template(kind: int) -> Template:
    from clew.testing import CaptureExporter

    exporter = CaptureExporter()
    settings = clew.Settings(service_name="bench", seal_grace_s=0.0)
    clew.configure(settings=settings, span_exporters=[exporter])
    clew.instrument()
    with contextlib.suppress(ValueError), clew.run(AGENTS[kind], tenant=_TENANT):
        _work(kind)
    clew.uninstrument()
    clew.shutdown()
    message = ExportTraceServiceRequest.FromString(exporter.otlp_bytes())
    spans = [span for r in message.resource_spans for s in r.scope_spans for span in s.spans]
    assert len(spans) == SPANS, f"a run has {len(spans)} spans, not {SPANS}"
    times: set[int] = set()
    for span in spans:
        times |= {span.start_time_unix_nano, span.end_time_unix_nano}
        for attribute in span.attributes:
            if attribute.key == "clew.run.cost.usd":
                attribute.value.double_value = COSTS[kind]
    trace_id = spans[0].trace_id
    run_id = str(uuid.UUID(bytes=trace_id)).encode()
    return Template(message.SerializeToString(), trace_id, run_id, tuple(sorted(times)))


def _work(kind: int) -> None:
    """Go through the rounds of a run, each with a tool call, and decide once."""
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: _answer(kind))) as client:
        for number in range(ROUNDS):
            client.post(URL, json={**_REQUEST, "model": MODELS[kind]})
            tool = TOOLS[kind] if number else _TOOL
            with clew.tool(tool, call_id=f"call_{number}"):
                pass
    clew.decide(GATES[kind], OUTCOMES[kind], reason="by_rule")
    if kind:
        raise ValueError


_REQUEST = {
    "messages": [{"role": "user", "content": "Where is my order? " * 20}],
    "tools": [{"type": "function", "function": {"name": name}} for name in (*TOOLS, _TOOL)],
}


def _answer(kind: int) -> httpx2.Response:
    call = {"name": TOOLS[kind], "arguments": "{}"}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
    }
    body = {
        "id": "chatcmpl-9nB1xT7fVh3oPq2",
        "object": "chat.completion",
        "model": MODELS[kind],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1210, "completion_tokens": 64, "total_tokens": 1274},
    }
    return httpx2.Response(
        200, content=json.dumps(body), headers={"content-type": "application/json"}
    )


def copy_of(template: Template, number: int, start_ns: int) -> bytes:
    """Return the message of a run of its own that begins at `start_ns`."""
    run_id = uuid.uuid4()
    shade = number % SHADES
    data = template.data.replace(template.trace_id, run_id.bytes)
    data = data.replace(template.run_id, str(run_id).encode())
    data = data.replace(_TENANT.encode(), f"tenant-{shade:02d}".encode())
    data = data.replace(_TOOL.encode(), f"special-{shade:02d}".encode())
    shift = start_ns - template.times[0]
    for time_ns in template.times:
        data = data.replace(struct.pack("<Q", time_ns), struct.pack("<Q", time_ns + shift))
    return data


def never_met() -> dict[str, dict[str, Any]]:
    """Return pairs of conditions that half of the runs meet each, and none both."""
    first: dict[str, dict[str, Any]] = {
        "agent": {"agent": AGENTS[0]},
        "status": {"status": STATUSES[0]},
        "model": {"model": MODELS[0]},
        "tool": {"tool": TOOLS[0]},
        "gate": {"gate": GATES[0]},
        "outcome": {"outcome": OUTCOMES[0]},
        "cost": {"cost_to": COSTS[0]},
    }
    second: dict[str, dict[str, Any]] = {
        "agent": {"agent": AGENTS[1]},
        "status": {"status": STATUSES[1]},
        "model": {"model": MODELS[1]},
        "tool": {"tool": TOOLS[1]},
        "gate": {"gate": GATES[1]},
        "outcome": {"outcome": OUTCOMES[1]},
        "cost": {"cost_from": COSTS[1]},
        "denied": {"denied": True},
        "failed": {"failed": True},
    }
    return {
        f"{one}, {other}": {**asked, **more}
        for one, asked in first.items()
        for other, more in second.items()
        if one != other
    }
