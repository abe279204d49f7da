"""Spans made of records: for runs whose spans are gone, marked, and honest about the rest."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path

import openai
import pytest
from recorded import Start
from typer.testing import CliRunner

import clew
from clew import semconv
from clew.cli import build
from clew.sources import open_source
from clew.store import otlp_export
from clew.store.paths import store_path
from clew.store.records import Page, RunFilter
from clew.testing import Reply, ScriptedProvider


def run_clew(*arguments: str) -> tuple[int, str, str]:
    """Run the command line; return exit code and what it wrote."""
    result = CliRunner().invoke(build(arguments), arguments)
    return result.exit_code, result.stdout, result.stderr


def recorded_run(start: Start, *, outside: bool = False) -> tuple[str, list[object], Path]:
    """Record a run of a call, a stream and a failure; return trace id, spans, and the folder."""
    session = start()
    replies = [Reply(text="one"), Reply(text="two"), Reply.failure(400), Reply(text="loose")]
    with (
        ScriptedProvider(replies) as provider,
        openai.OpenAI(
            base_url=provider.openai_base_url,
            api_key="scripted",
            http_client=openai.DefaultHttpxClient(trust_env=False),
        ) as client,
    ):

        def ask(**more: object) -> object:
            return client.chat.completions.create(
                model="gpt-4o-mini",
                messages=[{"role": "user", "content": "Hello"}],
                **more,  # type: ignore[call-overload]
            )

        with clew.run("desk", tenant="acme", conversation_id="c-1") as run:
            ask()
            for _ in ask(stream=True, stream_options={"include_usage": True}):  # type: ignore[attr-defined]
                pass
            with pytest.raises(openai.BadRequestError):
                ask()
        if outside:
            ask()
        clew.shutdown()
    return run.trace_id, list(session.exporter.spans), session.folder


def test_a_run_whose_spans_are_gone_is_there_again(start: Start) -> None:
    """Each recorded call is a round again, with its span's id, times, tokens, cost and error."""
    trace_id, exported, folder = recorded_run(start)
    code, out, err = run_clew("import", "--records", "--data-dir", str(folder))
    assert (0, [str(folder)]) == (code, [str(store_path(folder).parent)]), err
    assert "made 3 spans of records, in 1 runs, marked clew.backfilled" in err
    with open_source(f"store://{store_path(folder)}") as source:
        record = source.run(trace_id)
    assert out.strip() == record.summary.run_id
    rounds = {
        f"{each.context.span_id:016x}": each
        for each in exported
        if semconv.ROUND in (each.attributes or {})
    }
    assert rounds.keys() == {each.span_id for each in record.spans}
    for span in record.spans:
        real = rounds[span.span_id]
        assert (real.name, "round", 3) == (span.name, span.type, span.kind)
        assert abs(real.start_time - span.start_ns) < 5_000_000
        assert span.attributes.pop(semconv.BACKFILLED) is True
        known = dict(real.attributes)
        same = {k: v for k, v in span.attributes.items() if k in known and k != semconv.ATTEMPTS}
        expected = {
            k: list(v) if isinstance(v, tuple) else v for k, v in known.items() if k in same
        }
        assert expected == same
        assert {semconv.RUN_ID, semconv.ROUND, semconv.USAGE_SOURCE} <= same.keys()


def test_what_records_do_not_know_is_not_made_up(start: Start) -> None:
    """No ending, no tools, no decisions, no order: the run's status is unknown, not running."""
    trace_id, _, folder = recorded_run(start)
    run_clew("import", "--records", "--data-dir", str(folder))
    with open_source(f"store://{store_path(folder)}") as source:
        (run,) = source.runs(RunFilter(), Page()).runs
        spans = source.run(trace_id).spans
    assert (None, None, 3) == (run.status, run.termination_reason, run.rounds)
    assert {None} == {each.seq for each in spans}
    assert {"round"} == {each.type for each in spans}
    code, out, _ = run_clew(
        "verify", trace_id, "--source", f"store://{store_path(folder)}", "--json"
    )
    assert 3 == code
    assert "UNKNOWN" == json.loads(out)["status"]


def test_calls_outside_a_run_and_again(start: Start) -> None:
    """A call that belongs to no run stays a record; a second import changes nothing."""
    _, _, folder = recorded_run(start, outside=True)
    arguments = ("import", "--records", "--data-dir", str(folder), "--json")
    first = json.loads(run_clew(*arguments)[1])
    second = json.loads(run_clew(*arguments)[1])
    assert (3, 0, 1) == (first["stored"], first["there_already"], first["without_a_run"])
    assert (0, 3, 1) == (second["stored"], second["there_already"], second["without_a_run"])


def test_spans_that_are_there_are_left_alone(start: Start, tmp_path: Path) -> None:
    """Where the run's own spans are in the store, nothing is made and nothing conflicts."""
    trace_id, _, folder = recorded_run(start)
    run_clew("import", "--records", "--data-dir", str(folder))
    with open_source(f"store://{store_path(folder)}") as source:
        record = source.run(trace_id)
    file = tmp_path / "run.json"
    file.write_bytes(otlp_export.encode(record.spans[:1]))
    assert 0 == run_clew("import", str(file), "--data-dir", str(folder))[0]
    report = json.loads(run_clew("import", "--records", "--data-dir", str(folder), "--json")[1])
    assert (0, 3) == (report["stored"], report["there_already"])


def test_file_or_records() -> None:
    """One of the two has to be given."""
    assert 2 == run_clew("import")[0]
    assert 2 == run_clew("import", "a.json", "--records")[0]
