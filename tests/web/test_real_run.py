"""A run that Clew itself recorded, exported over OTLP/HTTP and read back."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
import subprocess
import sys
import uuid

import httpx

from clew.web.server import Running

PROGRAM = """
import sys, clew

clew.configure(service_name="parcel-desk")
with clew.run("triage", run_id=sys.argv[1], tenant="acme"):
    with clew.decide("tool", "allow", reason="read_only", subject="find_order"):
        pass
    with clew.tool("find_order", effect="read_only"):
        pass
    with clew.decide("tool", "deny", reason="trust_zone", subject="refund_order"):
        pass
    with clew.run("helper"):
        with clew.tool("scan"):
            pass
clew.shutdown()
"""


def test_a_recorded_run_arrives_whole_and_in_order(server: Running, http: httpx.Client) -> None:
    """The trace id is the run id; every sequence number is there; the seal says it is complete."""
    run_id = str(uuid.uuid4())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.address,
        "CLEW_SEAL_GRACE_SECONDS": "0",
        "CLEW_DIGEST_KEY": "a key of this test",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, run_id],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ("", 0) == (done.stderr, done.returncode)
    twin = http.get(f"/api/runs/{run_id}").json()
    assert (run_id, run_id.replace("-", "")) == (twin["run"]["run_id"], twin["run"]["trace_id"])
    assert ("triage", "parcel-desk", "completed", "acme") == (
        twin["run"]["agent"],
        twin["run"]["service"],
        twin["run"]["status"],
        twin["run"]["tenant"],
    )
    assert (2, 1, 2, 1, 1) == (
        twin["run"]["decisions"],
        twin["run"]["denials"],
        twin["run"]["tool_calls"],
        twin["run"]["segments"],
        twin["run"]["sealed_segments"],
    )
    spans = twin["spans"]
    assert list(range(1, len(spans) + 1)) == [each["seq"] for each in spans]
    types = ["run", "event", "decision", "tool", "decision", "agent", "tool", "event"]
    assert types == [each["type"] for each in spans]
    page = http.get(f"/runs/{run_id}").text
    places = [page.index(f'id="s-{each["span_id"]}"') for each in spans]
    assert sorted(places) == places
