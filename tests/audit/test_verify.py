"""Is anything missing or altered: what is said of whole runs, of open ones and of none."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tampering import Exported, act, attribute, read_back, spans_of, whole_run

import clew
from clew import semconv
from clew.audit.keys import KeyRing
from clew.audit.report import RunReport
from clew.audit.verify import absent, verify
from clew.integrity import Key
from clew.pipeline import runtime
from clew.pipeline.sampling import kept_at
from clew.settings import Settings
from clew.testing import CaptureExporter


def test_a_whole_run_is_complete_and_signed(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Every span that the seal counts is there, and every digest is the key's."""
    record = read_back(recorded(), tmp_path)
    report = verify(record, keys)
    (segment,) = report.segments
    assert (report.status, report.integrity, report.findings) == ("COMPLETE", "SIGNED", ())
    assert (segment.counted, segment.spans, segment.checked_by) == (
        8,
        8,
        f"key {next(iter(keys.keys))}",
    )
    assert (report.decisions, report.decisions_incomplete, report.copies) == (2, 0, 0)


def test_without_a_key_nothing_is_called_signed(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Plain digests are consistent, whoever made them; keyed ones need the key that made them."""
    plain = verify(read_back(recorded(integrity_key=None), tmp_path), keys)
    assert (plain.status, plain.integrity) == ("COMPLETE", "CONSISTENT")
    assert plain.notes == ("keys are at hand, and the digests were made without one",)
    record = read_back(recorded(), tmp_path)
    (key_id,) = keys.keys
    for others in (KeyRing(), KeyRing([Key(b"another")])):
        report = verify(record, others)
        assert (report.status, report.integrity) == ("COMPLETE", "CONSISTENT")
        assert report.notes == (
            f"digests were made with key {key_id}: they cannot be compared without it",
        )
    without = verify(read_back(recorded(integrity=False), tmp_path), keys)
    assert (without.status, without.integrity) == ("COMPLETE", "CONSISTENT")
    assert without.notes == ("spans carry no digests",)


def test_a_whole_run_is_what_act_says(recorded: Exported) -> None:
    """The run of these tests has a round, a tool, a decision of each kind."""
    names = {span["name"].split(" ")[0] for span in spans_of(recorded(act))}
    assert names == {
        *("run_started", "chat", "execute_tool", "decide", "invoke_agent", "run_sealed")
    }


def test_many_runs_are_verified_quickly(keys: KeyRing, tmp_path: Path) -> None:
    """A run takes well under the six milliseconds that ten thousand in a minute allow."""
    import time

    original, ring = whole_run()
    record = read_back(original, tmp_path)
    before = time.process_time()
    reports: list[RunReport] = [verify(record, ring) for _ in range(200)]
    assert (time.process_time() - before) / 200 < 0.006
    assert {(each.status, each.integrity) for each in reports} == {("COMPLETE", "SIGNED")}


# --- what backends do to a run --------------------------------------------------------------------


def as_text(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document whose attributes are all text, as a column store keeps them."""
    changed_document = copy.deepcopy(document)
    for span in spans_of(changed_document):
        for pair in span["attributes"]:
            ((kind, held),) = pair["value"].items()
            if kind == "arrayValue":
                entries = [next(iter(e.values())) for e in held.get("values", [])]
                held = json.dumps([int(e) if str(e).isdecimal() else e for e in entries])
            elif kind == "boolValue":
                held = "true" if held else "false"
            pair["value"] = {"stringValue": str(held)}
    return changed_document


def coarse(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with times in whole microseconds and other order, names, links, events."""
    changed_document = copy.deepcopy(document)
    for span in spans_of(changed_document):
        start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
        span["startTimeUnixNano"] = str(start // 1000 * 1000)
        span["endTimeUnixNano"] = str(start // 1000 * 1000 + (end - start) // 1000 * 1000)
        span["attributes"].reverse()
        span["name"], span["kind"] = "renamed", 1
        span.pop("links", None)
        span.pop("events", None)
    for resource in changed_document["resourceSpans"]:
        resource["resource"] = {}
        for scope in resource["scopeSpans"]:
            scope["spans"].reverse()
    return changed_document


def test_digests_survive_what_backends_do(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Types as text, times in microseconds, other order, no links: the facts are the same."""
    original = recorded()
    report = verify(read_back(coarse(original), tmp_path), keys)
    assert (report.status, report.integrity, report.findings) == ("COMPLETE", "SIGNED", ())


def test_facts_are_the_same_as_text(recorded: Exported, tmp_path: Path) -> None:
    """A span whose attributes came back as text has the digest that it left with."""
    from clew.audit.digests import facts_of

    original = recorded()
    first = {span.span_id: facts_of(span) for span in read_back(original, tmp_path).spans}
    second = {span.span_id: facts_of(span) for span in read_back(as_text(original), tmp_path).spans}
    assert second == first


# --- runs of every kind ---------------------------------------------------------------------------


def test_suspended_and_resumed_runs(recorded: Exported, keys: KeyRing, tmp_path: Path) -> None:
    """Each segment is proven by itself; one that is missing as a whole is named by its number."""

    def suspended(_: str) -> None:
        with clew.run("desk") as run:
            reference = run.suspend()
        with clew.resume(reference), clew.tool("search"):
            pass

    document = recorded(suspended)
    report = verify(read_back(document, tmp_path), keys)
    assert (report.status, report.integrity) == ("COMPLETE", "SIGNED")
    assert [(each.segment, each.counted) for each in report.segments] == [(1, 2), (2, 3)]
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            scope["spans"] = [
                s for s in scope["spans"] if attribute(s, semconv.SEGMENT) != {"intValue": "1"}
            ]
    report = verify(read_back(document, tmp_path), keys)
    assert (report.status, report.missing_segments) == ("INCOMPLETE", (1,))


def test_two_resumes_of_one_reference_are_forked(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """The run went two ways; a run that was begun anew has not."""

    def forked(_: str) -> None:
        with clew.run("desk") as run:
            reference = run.suspend()
        for _ in range(2):
            with clew.resume(reference):
                pass

    assert verify(read_back(recorded(forked), tmp_path), keys).status == "FORKED"

    def restarted(_: str) -> None:
        run_id = uuid.uuid4()
        for _ in range(2):
            with clew.run("desk", run_id=run_id):
                pass

    assert verify(read_back(recorded(restarted), tmp_path), keys).status == "COMPLETE"


def test_foreign_spans_of_the_run_are_counted_and_watched(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Another library's span in the trace has its number and its digest."""
    from opentelemetry import trace

    def work(_: str) -> None:
        with clew.run("desk"), trace.get_tracer("other.library").start_as_current_span("step"):
            pass

    document = recorded(work)
    report = verify(read_back(document, tmp_path), keys)
    assert (report.status, report.integrity) == ("COMPLETE", "SIGNED")
    assert report.segments[0].counted == 3
    (foreign,) = [s for s in spans_of(document) if s["name"] == "step"]
    foreign["endTimeUnixNano"] = str(int(foreign["endTimeUnixNano"]) + 1_000)
    report = verify(read_back(document, tmp_path), keys)
    assert [each.span_id for each in report.findings] == [foreign["spanId"]]


def test_spans_that_leave_by_another_providers_exporters(keys: KeyRing, tmp_path: Path) -> None:
    """Joined to a provider, our spans get their digests as they end; foreign ones get none."""
    provider, exporter = TracerProvider(), CaptureExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = Settings.from_environment(integrity_key="a secret of the tests", seal_grace_s=0.0)
    clew.configure("tests", settings=settings, tracer_provider=provider)
    other = provider.get_tracer("other")
    with clew.run("desk"), other.start_as_current_span("step"), clew.tool("search"):
        clew.decide("tool", "deny", reason="no", subject="search")
    clew.shutdown()
    document = exporter.otlp_json()
    report = verify(read_back(document, tmp_path), keys)
    assert (report.status, report.integrity, report.findings) == ("COMPLETE", "SIGNED", ())
    for span in spans_of(document):
        if span["name"] == "execute_tool search":
            span["endTimeUnixNano"] = str(int(span["endTimeUnixNano"]) + 1_000)
    report = verify(read_back(document, tmp_path), keys)
    assert [each.problem for each in report.findings] == ["digest_mismatch"]


def test_a_run_that_is_still_going_is_open(exported: CaptureExporter, tmp_path: Path) -> None:
    """It says since when, and what has arrived is whole as far as it goes."""
    with clew.run("desk"), clew.tool("search"):
        pass
    current = runtime.get()
    assert current is not None
    current.worker.flush(5)
    document = exported.otlp_json()
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            scope["spans"] = [s for s in scope["spans"] if s["name"].startswith("run_started")]
    (started,) = spans_of(document)
    report = verify(read_back(document, tmp_path))
    assert (report.status, report.open_since_ns) == ("OPEN", int(started["startTimeUnixNano"]))


def test_a_trace_without_clew_is_unknown(keys: KeyRing, tmp_path: Path) -> None:
    """Nothing in it tells how many spans there were."""
    exporter = CaptureExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("other").start_as_current_span("GET"):
        pass
    report = verify(read_back(exporter.otlp_json(), tmp_path), keys)
    assert (report.status, report.integrity) == ("UNKNOWN", "CONSISTENT")


def test_sampled_out_is_told_from_lost() -> None:
    """With the ratio known, the run's id says whether its spans should be there."""
    kept = next(u for u in iter(uuid.uuid4, None) if kept_at(u.int, 0.5))
    dropped = next(u for u in iter(uuid.uuid4, None) if not kept_at(u.int, 0.5))
    words = {each: absent(each.hex, 0.5).reason for each in (kept, dropped)}
    assert words[dropped] == "no span of it is there: it was sampled out"
    assert words[kept].endswith("if it ran, it was lost")
    assert absent(kept.hex).status == "UNKNOWN"


# --- the command ----------------------------------------------------------------------------------


def test_the_command(recorded: Exported, tmp_path: Path) -> None:
    """Exit codes that a scheduler can use; one object a run, with one status and one integrity."""
    path = tmp_path / "run.otlp.json"
    original = recorded()
    path.write_text(json.dumps(original))
    key = tmp_path / "secret.key"
    key.write_text("a secret of the tests\n")

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("clew"), "verify", *more, "--source", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )

    run_id = spans_of(original)[0]["traceId"]
    done = call(run_id, "--key", str(key), "--json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["status"], found["integrity"]) == ("COMPLETE", "SIGNED")
    assert line.count('"status"') == line.count('"integrity"') == 1
    done = call("--since", "1d", "--json")
    assert (done.returncode, json.loads(done.stdout)["integrity"]) == (0, "CONSISTENT")
    edited = copy.deepcopy(original)
    spans_of(edited)[2]["endTimeUnixNano"] = str(int(spans_of(edited)[2]["endTimeUnixNano"]) + 9999)
    path.write_text(json.dumps(edited))
    done = call(run_id[:8], "--key", str(key))
    assert done.returncode == 1
    assert f"span {spans_of(edited)[2]['spanId']} (seq " in done.stdout
    assert call(uuid.uuid4().hex, "--json").returncode == 3
    assert call().returncode == 1
    assert call("--since", "yesterday").returncode == 1
