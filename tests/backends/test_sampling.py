"""The optional profile of tail sampling, and the agents that make it see whole runs."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import agent_runs
import pytest
import real_peers
import requests
import sample_messages
import sample_runs

from clew import semconv as s
from clew.sources import RunNotFoundError, open_source


@pytest.fixture(scope="module")
def sampling(
    jaeger: real_peers.Jaeger, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[real_peers.Collector]:
    """The gateway with the sampling profile: it keeps nothing of what is like all the others."""
    settings = {
        "CLEW_JAEGER": jaeger.otlp,
        "CLEW_DECISION_WAIT": "9s",
        "CLEW_DECISION_AFTER_ROOT": "1s",
        "CLEW_KEEP_PERCENT": "0",
    }
    folder = tmp_path_factory.mktemp("sampling")
    with real_peers.Collector(folder, "gateway", "sampling", **settings) as running:
        yield running


def run(**root: object) -> sample_runs.Sample:
    """Return a run of one round and a run span that ends after it."""
    made = sample_runs.Sample(str(uuid.uuid4()), base_ns=time.time_ns() - 10**9)
    common = {s.RUN_ID: made.run_id, s.SEGMENT: 1, s.SEGMENT_ID: "aa" * 8, s.AGENT_NAME: "bulk"}
    ending = {s.RUN_ROOT: True, s.RUN_STATUS: "completed", s.RUN_TERMINATION_REASON: "completed"}
    for seq, parent, name, more in (
        (2, "01", "chat m", {s.ROUND: 1, s.OPERATION: "chat", s.REQUEST_MODEL: "m"}),
        (1, "", "invoke_agent bulk", {s.OPERATION: "invoke_agent", **ending, **root}),
    ):
        made.spans.append(
            sample_runs.Sent(
                run=made,
                span_id=f"{seq:02d}" * 8,
                parent_id=parent * 8,
                name=name,
                start_ms=seq,
                end_ms=10,
                attributes={**common, s.SEQ: seq, **more},
            )
        )
    return made


def decision(made: sample_runs.Sample, outcome: str) -> sample_runs.Sent:
    """Return one more span of the run: a decision."""
    return sample_runs.Sent(
        run=made, span_id="33" * 8, parent_id="01" * 8, name="decide tool", start_ms=5, end_ms=6,
        attributes={
            s.RUN_ID: made.run_id, s.SEGMENT: 1, s.SEGMENT_ID: "aa" * 8, s.SEQ: 3,
            s.DECISION_GATE: "tool", s.DECISION_OUTCOME: outcome,
        },
    )  # fmt: skip


def send(gateway: real_peers.Collector, made: sample_runs.Sample, *spans: sample_runs.Sent) -> None:
    """Send a run, or some of its spans."""
    part = made
    if spans:
        part = sample_runs.Sample(made.run_id, base_ns=made.base_ns)
        part.spans = list(spans)
    answer = requests.post(
        f"{gateway.otlp}/v1/traces",
        data=sample_messages.protobuf(part),
        headers={"content-type": "application/x-protobuf"},
        timeout=10,
    )
    assert 200 == answer.status_code


def types(jaeger: real_peers.Jaeger, made: sample_runs.Sample) -> list[str]:
    """Return the types of a run's spans that are in Jaeger."""
    with open_source(f"jaeger://{jaeger.address}") as source:
        try:
            return sorted(each.type for each in source.run(made.trace_id).spans)
        except RunNotFoundError:
            return []


def test_which_runs_are_kept_whole(
    sampling: real_peers.Collector, jaeger: real_peers.Jaeger
) -> None:
    """Denials, approvals, waits, failures, writes, cost: whole; of others the audit's spans."""
    ordinary = run()
    kept = {
        "denied": run(),
        "waiting": run(**{s.RUN_STATUS: "waiting_for_approval"}),
        "failed": run(**{s.RUN_STATUS: "failed", s.RUN_TERMINATION_REASON: "error"}),
        "out of rounds": run(**{s.RUN_TERMINATION_REASON: "max_rounds"}),
        "costly": run(**{"clew.run.cost.usd": 0.75}),
        "wrote": run(),
    }
    kept["denied"].spans.append(decision(kept["denied"], "deny"))
    kept["wrote"].spans[0].attributes[s.TOOL_EFFECT] = "non_idempotent_write"
    for each in (ordinary, *kept.values()):
        send(sampling, each)
    for name, each in kept.items():
        wanted = sorted(["round", "run", *(["decision"] if name == "denied" else [])])
        found = agent_runs.eventually(lambda each=each: types(jaeger, each), wanted)
        assert (name, wanted) == (name, found)
    assert ["run"] == types(jaeger, ordinary)


def test_a_denial_after_the_decision_is_kept_and_its_run_with_it(
    sampling: real_peers.Collector, jaeger: real_peers.Jaeger
) -> None:
    """A run that lasts longer than the wait: its late denial and its run span never wait."""
    made = run()
    round_, root = made.spans
    send(sampling, made, round_)
    time.sleep(11)  # decided on the round alone: it is like all the others
    send(sampling, made, decision(made, "deny"))
    send(sampling, made, root)
    wanted = ["decision", "run"]
    assert wanted == agent_runs.eventually(lambda: types(jaeger, made), wanted)


def test_a_denial_at_the_end_of_a_run_that_the_wait_covers_keeps_all_of_it(
    sampling: real_peers.Collector, jaeger: real_peers.Jaeger
) -> None:
    """The decision comes after the run's end, so the last span counts as much as the first."""
    made = run()
    round_, root = made.spans
    send(sampling, made, round_)
    time.sleep(3)
    send(sampling, made, decision(made, "deny"))
    send(sampling, made, root)
    wanted = ["decision", "round", "run"]
    assert wanted == agent_runs.eventually(lambda: types(jaeger, made), wanted)


def test_the_shipped_waits_cover_a_run_of_five_minutes() -> None:
    """What the profile says without variables: ten minutes, and 15 s after the outermost span."""
    text = (real_peers.CONFIGS / "sampling.yaml").read_text()
    assert "decision_wait: ${env:CLEW_DECISION_WAIT:-10m}" in text
    assert "decision_wait_after_root_received: ${env:CLEW_DECISION_AFTER_ROOT:-15s}" in text


def test_an_agent_sends_all_spans_of_a_run_to_one_gateway(programs: None, tmp_path: Path) -> None:
    """Two gateways, forty runs sent span by span: each run is whole at one, both have some."""
    with ExitStack() as stack:
        backends = [stack.enter_context(real_peers.Jaeger(tmp_path / f"j{n}")) for n in (1, 2)]
        gateways = [
            stack.enter_context(
                real_peers.Collector(tmp_path / f"g{n}", "gateway", CLEW_JAEGER=each.otlp)
            )
            for n, each in enumerate(backends)
        ]
        listed = f"[{', '.join(each.otlp_grpc for each in gateways)}]"
        agent = stack.enter_context(
            real_peers.Collector(tmp_path / "agent", "agent", CLEW_GATEWAYS=listed)
        )
        made = [run() for _ in range(40)]
        for each in made:
            for span in each.spans:
                send(agent, each, span)

        def counts() -> list[list[int]]:
            return [[len(types(backend, each)) for each in made] for backend in backends]

        def arrived() -> bool:
            return sum(map(sum, counts())) == 80

        assert agent_runs.eventually(arrived, seconds=40)
        one, two = counts()
        assert {(2, 0), (0, 2)} == set(zip(one, two, strict=True))
