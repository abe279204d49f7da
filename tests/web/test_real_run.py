"""A run that Clew itself recorded, exported over OTLP/HTTP and read back."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import httpx
import pytest

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


PROMPTED = """
import sys, clew, httpx
from clew.prompts import Prompt
from clew.testing import Reply, ScriptedProvider

clew.configure(service_name="parcel-desk")
clew.instrument()
provider = ScriptedProvider([Reply(text="One."), Reply(text="Two.")])
with provider, clew.run("triage", run_id=sys.argv[1], message_id="msg-1"):
    for memory in ("Grüße aus Zürich 🚲.", "Grüße aus Bern 🚲."):
        prompt = Prompt.of(identity_context="You are Nova.", working_memory=memory)
        httpx.post(
            provider.openai_base_url + "/chat/completions",
            json={
                "model": "gpt-5-mini",
                "messages": [
                    {"role": "system", "content": prompt}, {"role": "user", "content": "Hello?"},
                ],
            },
        ).raise_for_status()
clew.shutdown()
"""


@pytest.mark.parametrize("level", ["full", "metadata"])
def test_prompts_of_a_real_run_are_inspected(
    server: Running, http: httpx.Client, store_file: Path, level: str
) -> None:
    """From `Prompt.of` through the wire and two files to blocks, shares and what broke the cache."""
    run_id = str(uuid.uuid4())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.address,
        "CLEW_SEAL_GRACE_SECONDS": "0",
        "CLEW_DIGEST_KEY": "a key of this test",
        "CLEW_DATA_DIR": str(store_file.parent),
        "CLEW_PROMPT_CAPTURE": "on",
        "CLEW_CAPTURE": level,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROMPTED, run_id],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ("", 0) == (done.stderr, done.returncode)
    newest, oldest = http.get("/api/prompts", params={"message": "msg-1"}).json()["requests"]
    assert [2, 1] == [newest["round"], oldest["round"]]
    page = http.get(f"/prompts/{newest['request_id']}").text
    for expected in ("identity_context", "working_memory", "1 message", "2 blocks"):
        assert expected in page
    assert (level == "full") == ("Grüße aus Bern 🚲." in page)
    assert (level == "full") == ("Hello?" in page)
    compared = http.get(f"/prompts/{oldest['request_id']}/diff/{newest['request_id']}").text
    assert "1 changed" in compared
    assert (level == "full") == ("Grüße aus Zürich 🚲." in compared)
    (agent,) = http.get(f"/api/runs/{run_id}/prompts").json()["agents"]
    (broken,) = agent["breaks"]
    assert ("block", "working_memory") == (broken["cause"], broken["block"]["id"])
    # The timeline never has a word of it, at any level.
    rounds = [each for each in http.get(f"/api/runs/{run_id}").json()["spans"]
              if each["type"] == "round"]  # fmt: skip
    for span in rounds:
        details = http.get(f"/runs/{run_id}/spans/{span['span_id']}").text
        assert "Grüße" not in details
        assert "Inspect the prompt" in details


UNHAPPY = """
import contextlib, sys, clew, httpx
from clew.errors import PolicyDenied
from clew.gates.guardrail import InputGuardrail
from clew.settings import Settings
from clew.testing import Reply, ScriptedProvider
from clew.typing import Verdict

path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[sys.argv[2]]


def guard(text):
    if "forbidden" in text:
        return Verdict(outcome="deny", reason="rule_7")


gate = InputGuardrail(guard, policy="house")
clew.configure(settings=Settings.from_environment(gates=(gate,)))
clew.instrument()
replies = [Reply.failure(500), Reply(text=["one "] * 40), Reply(text="Fine.")]
with ScriptedProvider(replies) as provider, httpx.Client() as client:
    with clew.run("triage", run_id=sys.argv[1], message_id="msg-1"):

        def ask(text, **more):
            body = {"model": "m-1", "max_tokens": 9, **more}
            body["messages"] = [{"role": "user", "content": text}]
            return client.build_request("POST", provider.base_url + path, json=body)

        client.send(ask("fails"))
        with contextlib.suppress(PolicyDenied):
            client.send(ask("forbidden"))
        stream = client.send(ask("stopped", stream=True), stream=True)
        next(stream.iter_bytes())
        stream.close()
        client.send(ask("fine"))
clew.shutdown()
"""


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_calls_that_went_wrong_are_shown_with_what_is_known(
    server: Running, http: httpx.Client, store_file: Path, provider: str
) -> None:
    """A failed call, a stream that was stopped and a denial: in the lists, and on the pages."""
    run_id = str(uuid.uuid4())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OTEL_")},
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.address,
        "CLEW_SEAL_GRACE_SECONDS": "0",
        "CLEW_DIGEST_KEY": "a key of this test",
        "CLEW_DATA_DIR": str(store_file.parent),
        "CLEW_PROMPT_CAPTURE": "on",
        "CLEW_CAPTURE": "full",
    }
    done = subprocess.run(
        [sys.executable, "-c", UNHAPPY, run_id, provider],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ("", 0) == (done.stderr, done.returncode)
    fine, stopped, failed = http.get("/api/prompts", params={"run": run_id}).json()["requests"]
    assert [("ok", False, None), ("ok", True, "closed"), ("error", False, None)] == [
        (each["status"], each["partial"], each["outcome"]) for each in (fine, stopped, failed)
    ]
    assert failed["error_type"] in ("server_error", "api_error")
    for each, words in ((failed, ("fails", failed["error_type"], "500")), (stopped, ("stopped",))):
        page = http.get(f"/prompts/{each['request_id']}").text
        for word in words:
            assert word in page
    spans = http.get(f"/api/runs/{run_id}").json()["spans"]
    shown = [each for each in spans if each["type"] in ("round", "decision")]
    said = [
        each["attributes"].get(key)
        for each in shown
        for key in ("error.type", "clew.stream.outcome", "clew.decision.outcome")
        if each["attributes"].get(key) not in (None, "allow")
    ]
    assert [failed["error_type"], "deny", "closed"] == said
    # The call that was denied was never made: it is the decision, and no failed round.
    assert 3 == sum(each["type"] == "round" for each in shown)
    twin = http.get(f"/api/runs/{run_id}").json()["run"]
    assert (3, 1) == (twin["rounds"], twin["denials"])
