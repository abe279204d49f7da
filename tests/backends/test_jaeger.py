"""From an agent through the Collector into Jaeger, and back."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path

import agent_runs
import msgspec
import pytest
import real_peers
import requests
import sample_messages
import sample_runs
from typer.testing import CliRunner

from clew.cli import build
from clew.sources import RunNotFoundError, open_source
from clew.sources.forms import record_form
from clew.store import otlp_json
from clew.store.records import Page, RunFilter, RunRecord
from clew.store.writer import Writer


def send(base_url: str, *runs: sample_runs.Sample) -> None:
    """Send runs as a service would."""
    answer = requests.post(
        f"{base_url}/v1/traces",
        data=sample_messages.protobuf(*runs),
        headers={"content-type": "application/x-protobuf"},
        timeout=10,
    )
    assert (200, b"\n\x00") == (answer.status_code, answer.content)


def in_jaeger(jaeger: real_peers.Jaeger, trace_id: str, spans: int) -> RunRecord:
    """Return a run once all its spans are there."""
    with open_source(f"jaeger://{jaeger.address}") as source:
        agent_runs.eventually(lambda: len(source.run(trace_id).spans), spans)
        return source.run(trace_id)


def test_a_run_is_found_under_its_uuid_complete_and_in_order(
    gateway: real_peers.Collector, jaeger: real_peers.Jaeger
) -> None:
    """What the agent exported is in Jaeger, under the run's id, every span once and in order."""
    run_id, exported = agent_runs.run_demo(gateway.otlp)
    record = in_jaeger(jaeger, run_id.hex, len(exported))
    assert str(run_id) == record.summary.run_id
    sent = {
        f"{each.context.span_id:016x}": (
            each.name,
            each.start_time,
            each.end_time,
            each.status.status_code.value,
            {key: list(v) if isinstance(v, tuple) else v for key, v in each.attributes.items()},
        )
        for each in exported
    }
    assert sent == {
        each.span_id: (each.name, each.start_ns, each.end_ns, each.status, each.attributes)
        for each in record.spans
    }
    places = [(each.segment, each.seq) for each in record.spans]
    assert places == sorted(places)
    for segment in (1, 2):
        seqs = [seq for number, seq in places if number == segment]
        assert list(range(1, len(seqs) + 1)) == seqs
    assert (2, 2) == (record.summary.segments, record.summary.sealed)


def test_clew_verify_proves_from_jaeger_that_nothing_is_missing(
    gateway: real_peers.Collector, jaeger: real_peers.Jaeger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that went through the Collector and was stored by Jaeger verifies as complete."""
    monkeypatch.setenv("CLEW_INTEGRITY_KEY", "a secret of thirty-two bytes, or more")
    run_id, exported = agent_runs.run_demo(gateway.otlp)
    in_jaeger(jaeger, run_id.hex, len(exported))
    arguments = ["verify", str(run_id), "--source", f"jaeger://{jaeger.address}", "--json"]
    result = CliRunner().invoke(build(arguments), arguments)
    assert 0 == result.exit_code, result.output
    report = json.loads(result.stdout)
    assert ("COMPLETE", "SIGNED") == (report["status"], report["integrity"])


def test_the_same_run_from_every_source(
    gateway: real_peers.Collector, jaeger: real_peers.Jaeger, tmp_path: Path
) -> None:
    """Store, file and Jaeger show the same run; only links do not pass the Collector."""
    run = sample_runs.suspended("5a5a5a5a-0000-4000-8000-000000000001")
    send(gateway.otlp, run)
    file = tmp_path / "run.json"
    file.write_bytes(sample_messages.otlp_json(run))
    writer = Writer(tmp_path / "clew.db")
    writer.write(otlp_json.decode(file.read_bytes()).spans)
    writer.close()
    forms = []
    for address in (str(file), f"store://{tmp_path / 'clew.db'}"):
        with open_source(address) as source:
            forms.append(record_form(source.run(run.trace_id)))
    linked = [each["span_id"] for each in forms[0]["spans"] if each["links"]]
    assert 1 == len(linked)
    assert forms[0] == forms[1]
    read = record_form(in_jaeger(jaeger, run.trace_id, len(run.spans)))
    for form in (forms[0], read):
        for span in form["spans"]:
            span["links"] = []
            span["flags"] = 0  # set by whoever exports OTLP
    assert forms[0] == read


def test_lists_filters_and_pages(gateway: real_peers.Collector, jaeger: real_peers.Jaeger) -> None:
    """Jaeger's runs are listed newest first, filtered and paged like those of any source."""
    base = sample_runs.START_NS + 86_400 * 10**9
    made = [
        make(f"6b6b6b6b-0000-4000-8000-{number:012x}", base_ns=base + number * 10**9)
        for number, make in enumerate(
            [sample_runs.triage, sample_runs.failed, sample_runs.foreign] * 4
        )
    ]
    send(gateway.otlp, *made)
    span = RunFilter(since_ns=base - 1, until_ns=base + 10**11)
    everything = msgspec.structs.replace(span, everything=True)
    with open_source(f"jaeger://{jaeger.address}") as source:
        listed = agent_runs.eventually(
            lambda: [each.trace_id for each in source.runs(everything, Page()).runs],
            [each.trace_id for each in reversed(made)],
        )
        assert [each.trace_id for each in reversed(made)] == listed
        runs = source.runs(span, Page()).runs
        assert 8 == len(runs)
        seen: list[str] = []
        after = None
        for _ in range(10):
            page = source.runs(span, Page(limit=3, after=after))
            seen += [each.trace_id for each in page.runs]
            after = page.next
            if after is None:
                break
        assert [each.trace_id for each in runs] == seen
        failed = source.runs(msgspec.structs.replace(span, status="failed"), Page()).runs
        assert ["nightly-report"] * 4 == [each.agent for each in failed]
        one = made[4].trace_id
        assert (one,) == source.find(one, 5)
        with pytest.raises(RunNotFoundError):
            source.run("0" * 31 + "1")
