"""The report of a run that really ran: what broke the cache, in tokens and in money."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from typing import Any

import httpx
import pytest
from recorded import Session, Start

import clew
from clew.prompts import Prompt
from clew.sources.prompt_report import AgentReport, report
from clew.store import otlp_protobuf
from clew.store.prompt_index import PromptReader
from clew.store.prompt_records import EVERYTHING, PromptRow
from clew.store.records import RunRecord, RunSummary

URL = "https://api.anthropic.com/v1/messages"
MODEL = "claude-sonnet-4-5"
INPUT, READ, WRITE = 3e-6, 3e-7, 3.75e-6
"""US dollars for a token of claude-sonnet-4-5, by the price library."""
USAGE = (
    {"cache_creation_input_tokens": 1000, "cache_read_input_tokens": 0, "input_tokens": 10},
    {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 1000, "input_tokens": 60},
    {"cache_creation_input_tokens": 700, "cache_read_input_tokens": 300, "input_tokens": 90},
)
MEMORIES = ("Nothing yet.", "Nothing yet.", "Order 7 was late.")


def converse() -> str:
    """Let an agent have three rounds; return its run id."""
    usage = iter(USAGE)

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url == URL
        return httpx.Response(
            200,
            json={
                "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL,
                "stop_reason": "end_turn", "content": [{"type": "text", "text": "Yes."}],
                "usage": {**next(usage), "output_tokens": 5},
            },
        )  # fmt: skip

    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as client,
        clew.run("triage", tenant="acme") as run,
    ):
        for memory in MEMORIES:
            prompt = Prompt.of(identity="You are a clerk.", memory=memory)
            client.post(
                URL,
                json={
                    "model": MODEL, "max_tokens": 9, "system": prompt,
                    "messages": [{"role": "user", "content": "hi"}],
                },
            )  # fmt: skip
    return str(run.run_id)


def reported(session: Session, run_id: str, rows: tuple[PromptRow, ...]) -> AgentReport:
    spans = otlp_protobuf.decode(session.exporter.otlp_bytes()).spans
    trace_id = run_id.replace("-", "")
    summary = RunSummary(trace_id=trace_id, is_run=True, start_ns=0, end_ns=1)
    (agent,) = report(RunRecord(summary=summary, spans=spans), rows)
    return agent


@pytest.mark.parametrize("options", [{}, {"capture": "metadata", "prompt_capture": False}])
def test_what_broke_the_cache_and_what_it_cost(start: Start, options: dict[str, Any]) -> None:
    """With recording and with capture off alike: the block, the tokens, the money."""
    session = start(**options)
    run_id = converse()
    rows: tuple[PromptRow, ...] = ()
    if not options:
        assert 3 == len(session.rows())
        reader = PromptReader(session.folder)
        rows = reader.of_run(run_id, EVERYTHING)
        reader.close()
    agent = reported(session, run_id, rows)
    (found,) = agent.breaks
    assert ("block", 3, 2, 700) == (
        *(found.cause, found.round, found.after_round, found.lost_tokens),
    )
    assert found.block is not None
    assert ("memory", "changed", 16) == (
        *(found.block.id, found.block.what, found.block.kept_bytes),
    )
    assert pytest.approx(700 * (WRITE - READ)) == found.lost_usd
    assert pytest.approx(700 * (WRITE - READ)) == agent.lost_usd
    grown = {each.id: each.grown for each in agent.growth}
    assert {"identity": 0, "memory": 5} == grown
    assert [each.request_id for each in rows] == [
        each.request_id for each in agent.rounds if each.request_id is not None
    ]
    assert [0.0, 0.0, 0.0] == [each.tool_share for each in agent.rounds]


def test_at_none_nothing_is_said_of_the_prompt(start: Start) -> None:
    """Tokens remain: a loss is known, and no block is blamed."""
    session = start(capture="none")
    agent = reported(session, converse(), ())
    (found,) = agent.breaks
    assert ("elsewhere", None, 700) == (found.cause, found.block, found.lost_tokens)
    assert () == agent.growth
