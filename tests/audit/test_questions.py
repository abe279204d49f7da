"""What auditors ask: exact answers, the same whatever the source, and nothing that can change it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tampering import Exported

import clew
from clew.audit.questions import BY_NAME, FILTERS, QUESTIONS, version_key
from clew.audit.table import Table
from clew.cli.audit import _files
from clew.errors import ClewError
from clew.sources.otlp_json import OtlpJsonSource
from clew.sources.store import StoreSource
from clew.store.access import AccessLog, Reading, read
from clew.store.paths import store_path
from clew.store.records import RunFilter
from clew.store.writer import Writer
from clew.testing import CaptureExporter

EVERYTHING = RunFilter(everything=True)


def work(_: str) -> None:
    """Two runs of two actors, with decisions of every kind."""
    with clew.run("desk", tenant="acme", actor="ann"):
        with clew.tool("search", effect="read_only"):
            pass
        with clew.tool("refund", effect="non_idempotent_write") as call:
            clew.decide("tool", "deny", reason="not_permitted", policy="tools",
                        policy_version="2.9", subject="refund")  # fmt: skip
            call.outcome = "denied"
        clew.decide("context", "deny", reason="zone", policy="zones", policy_version="2.10",
                    subject="gpt-5", enforced=False, data_class="secret_adjacent",
                    trust_zone="external_global")  # fmt: skip
    with clew.run("clerk", tenant="other", actor="bob"):
        with clew.tool("search", effect="read_only"):
            pass
        clew.decide("approval", "allow", reason="not_needed", subject="search")
        clew.decide("approval", "allow", reason="approved", subject="refund", by="second_person")
        # Gates have the names that they are given, and others may want an approval too.
        clew.decide("refunds", "deny", reason="approval_denied", subject="refund", by="self")
        clew.decide("guardrail_input", "require_approval", reason="odd", subject="gpt-5")


@pytest.fixture(params=["file", "store"])
def table(request: pytest.FixtureRequest, recorded: Exported, tmp_path: Path) -> Iterator[Table]:
    """Give the auditor's table of the two runs, from either source."""
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(recorded(work)))
    source: Any = OtlpJsonSource(path)
    if request.param == "store":
        writer = Writer(store_path(tmp_path / "store"))
        for trace_id in source.find("", 9):
            writer.write(source.run(trace_id).spans)
        writer.close()
        source = StoreSource(tmp_path / "store")
    with source:
        found = Table(source, EVERYTHING)
    yield found
    found.close()


def ask(table: Table, name: str, **filters: str) -> list[dict[str, Any]]:
    """Return the answer without what differs from run to run."""
    values = {each: filters.get(each) for each in FILTERS}
    columns, rows = table.ask(BY_NAME[name].sql, values)
    changing = {"time", "run", "approver", "actor", "waited_s", "digest", "last_read"}
    return [{k: v for k, v in zip(columns, row, strict=True) if k not in changing} for row in rows]


def test_denials_and_their_rules(table: Table) -> None:
    """Enforced and observed ones, each with its rule and version; what nobody said is left open."""
    assert ask(table, "denials") == [
        {"agent": "desk", "gate": "tool", "reason": "not_permitted", "policy": "tools",
         "version": "2.9", "subject": "refund", "by": "policy", "mode": "enforced",
         "executed": "no"},
        {"agent": "desk", "gate": "context", "reason": "zone", "policy": "zones",
         "version": "2.10", "subject": "gpt-5", "by": "policy", "mode": "observed",
         "executed": None},
        {"agent": "clerk", "gate": "refunds", "reason": "approval_denied", "policy": None,
         "version": None, "subject": "refund", "by": "self", "mode": "enforced",
         "executed": "no"},
    ]  # fmt: skip
    assert len(ask(table, "denials", gate="tool")) == 1
    assert ask(table, "denials", tenant="nobody") == []


def test_what_only_observing_gates_would_have_stopped(table: Table) -> None:
    """One of them."""
    assert ask(table, "observed") == [
        {"agent": "desk", "gate": "context", "outcome": "deny", "reason": "zone",
         "policy": "zones", "version": "2.10", "subject": "gpt-5"},
    ]  # fmt: skip


def test_who_approved_what(table: Table) -> None:
    """The approver is a keyed digest; how they stand to whoever asked is told."""
    assert ask(table, "approvals") == [
        {"agent": "clerk", "outcome": "allow", "reason": "approved", "subject": "refund",
         "by": "second_person"},
        {"agent": "clerk", "outcome": "deny", "reason": "approval_denied", "subject": "refund",
         "by": "self"},
        {"agent": "clerk", "outcome": "require_approval", "reason": "odd", "subject": "gpt-5",
         "by": "policy"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "agents"),
    [
        ({}, ["desk", "clerk"]),
        ({"tool": "refund"}, ["desk"]),
        ({"tool": "search", "tenant": "acme"}, ["desk"]),
        ({"data_class": "secret_adjacent"}, ["desk"]),
        ({"zone": "external_global"}, ["desk"]),
        ({"model": "gpt-5"}, ["desk"]),
        ({"tool": "nothing"}, []),
    ],
)
def test_which_runs_touched_it(table: Table, filters: dict[str, str], agents: list[str]) -> None:
    """A tool, a model, a class of data, a zone."""
    assert [each["agent"] for each in ask(table, "touched", **filters)] == agents


def test_policies_older_than_a_version(table: Table) -> None:
    """Versions are compared as versions: 2.9 is older than 2.10."""
    assert [each["policy"] for each in ask(table, "policies", older_than="2.10")] == ["tools"]
    assert [each["versions"] for each in ask(table, "policies")] == ["2.9", "2.10"]
    assert ask(table, "policies", older_than="2.9") == []
    assert sorted(["10", "9", "1.10", "1.9", "1.9-rc2", "2026-01"], key=version_key) == [
        *("1.9", "1.9-rc2", "1.10", "9", "10", "2026-01")
    ]


def test_cost_is_a_lower_bound_where_some_is_unknown(table: Table) -> None:
    """Runs without a model call have no cost, which is no zero."""
    found = [
        (each["tenant"], each["cost_usd"], each["without_cost"]) for each in ask(table, "cost")
    ]
    assert sorted(found) == [("acme", None, 1), ("other", None, 1)]


def test_nothing_can_be_changed(table: Table) -> None:
    """The connection may only read."""
    for statement in (
        "DELETE FROM spans",
        "DROP TABLE spans",
        "INSERT INTO readings VALUES (1,2,3,4,5,6)",
    ):
        with pytest.raises(ClewError, match="readonly"):
            table.ask(statement)
    with pytest.raises(ClewError, match="cannot be answered"):
        table.ask("SELECT nothing FROM nowhere")


def test_who_read_captured_content(recorded: Exported, tmp_path: Path) -> None:
    """Runs at a level that captures, with their readers."""

    def captured(_: str) -> None:
        with clew.run("desk"):
            pass

    document = recorded(captured, capture="full")
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(document))
    log = AccessLog(tmp_path / "data")
    with OtlpJsonSource(path) as source:
        (trace_id,) = source.find("", 2)
        run_id = source.run(trace_id).summary.run_id
        log.write("ann", "prompt", run_id=run_id)
        log.write("bob", "response", run_id=run_id)
        log.write("bob", "response", run_id="another")
        found = Table(source, EVERYTHING, readings=tuple(read(tmp_path / "data")))
    (row,) = ask(found, "content")
    found.close()
    assert row == {"agent": "desk", "level": "full", "readings": 2, "readers": "ann,bob"}


def test_the_log_of_accesses_is_only_added_to(tmp_path: Path) -> None:
    """Closed to others; a line that was cut off is left out."""
    log = AccessLog(tmp_path)
    first = log.write("ann", "prompt", run_id="r", record_id="x", tenant="acme")
    (file,) = (tmp_path / "access").iterdir()
    with file.open("ab") as handle:
        handle.write(b'{"time_ns"\n')
    second = log.write("bob", "diff")
    assert list(read(tmp_path)) == [first, second]
    assert first == Reading(
        time_ns=first.time_ns, reader="ann", what="prompt", run_id="r", record_id="x", tenant="acme"
    )
    assert file.stat().st_mode & 0o777 == 0o600


FOREIGN = [
    {"gen_ai.usage.cache_creation.input_tokens": 7},
    {"gen_ai.usage.cache_creation_input_tokens": 7},
    {"llm.token_count.prompt_details.cache_write": 7},
    {"llm.usage.cache_creation_input_tokens": 7},
]


@pytest.mark.parametrize("attributes", FOREIGN, ids=lambda each: next(iter(each)))
def test_other_instrumentations_facts_are_asked_for_alike(
    attributes: dict[str, int], tmp_path: Path
) -> None:
    """Whatever a fact is called, the question finds it, in services without Clew."""
    provider, exporter = TracerProvider(), CaptureExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("other").start_as_current_span("llm") as span:
        span.set_attributes({**attributes, "llm.model_name": "gpt-5", "llm.token_count.prompt": 9})
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(exporter.otlp_json()))
    with OtlpJsonSource(path) as source:
        found = Table(source, EVERYTHING)
    _, rows = found.ask("SELECT model, input_tokens, cache_write_tokens FROM spans")
    assert rows == [("gpt-5", 9, 7)]
    assert [each["models"] for each in ask(found, "touched", model="gpt-5")] == ["gpt-5"]
    found.close()


@pytest.mark.parametrize("form", ["folder", "pattern"])
def test_many_files_are_one_record(
    recorded: Exported, table: Table, tmp_path: Path, form: str
) -> None:
    """A folder or a pattern: read line by line, copies counted once, runs chosen by their start."""
    folder = tmp_path / "many"
    folder.mkdir()
    document = recorded(work)
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for number in range(3):
        part = json.loads(json.dumps(document))
        part["resourceSpans"][0]["scopeSpans"][0]["spans"] = spans[number * 5 :]
        (folder / f"{number}.jsonl").write_text(json.dumps(part) + "\n")
    source = str(folder) if form == "folder" else str(folder / "*.jsonl")
    assert ask(Table.of_files(_files(source), EVERYTHING), "denials") == ask(table, "denials")
    found = Table.of_files(_files(source), EVERYTHING)
    assert found.ask("SELECT count(*) FROM spans")[1] == [(len(spans),)]
    assert found.runs == 2
    late = Table.of_files(_files(source), RunFilter(since_ns=2**62))
    assert (late.runs, ask(late, "denials")) == (0, [])
    with pytest.raises(ClewError, match="no file is called like"):
        _files(str(folder / "*.nothing"))


def test_the_commands(recorded: Exported, tmp_path: Path) -> None:
    """Table, JSON, CSV; the statement that is asked; a filter that a question has not is refused."""
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(recorded(work)))

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("clew"), "audit", *more, "--source", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )

    done = call("denials", "--json")
    assert [each["reason"] for each in json.loads(done.stdout)] == [
        "not_permitted",
        "zone",
        "approval_denied",
    ]
    done = call("denials", "--csv", "--gate", "tool")
    assert [row["reason"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["not_permitted"]
    assert "not_permitted" in call("denials").stdout
    done = call("denials", "--explain", "--gate", "tool")
    assert ":gate = 'tool'" in done.stdout
    assert "SELECT" in done.stdout
    done = call("content", "--gate", "tool")
    assert (done.returncode, done.stderr.strip()) == (
        1,
        "clew: `clew audit content` cannot be narrowed by --gate",
    )
    done = call("denials", "--since", "2000-01-01", "--until", "2000-01-02")
    assert done.stderr.strip() == "nothing in the record answers to this"
    assert {each.name for each in QUESTIONS} == {
        *("denials", "observed", "approvals", "touched", "content", "cost", "policies")
    }
