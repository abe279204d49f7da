"""Is anything missing or altered: every change to a run is seen, and named."""

from __future__ import annotations

import copy
import itertools
import json
import subprocess
import sys
import tempfile
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tampering import Exported, act, attribute, read_back, spans_of

import clew
from clew import integrity, semconv
from clew.audit.keys import KeyRing
from clew.audit.report import RunReport
from clew.audit.verify import absent, verify
from clew.integrity import Key
from clew.pipeline import runtime
from clew.pipeline.sampling import kept_at
from clew.settings import Settings
from clew.store.paths import store_path
from clew.store.reader import Reader
from clew.store.writer import Writer
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


def changed(value: dict[str, Any]) -> dict[str, Any]:
    """Return another value of the same type."""
    ((kind, held),) = value.items()
    if kind == "stringValue":
        return {kind: held[:-1] + ("0" if held[-1:] != "0" else "1")}
    if kind == "intValue":
        return {kind: str(int(held) + 1)}
    if kind == "doubleValue":
        return {kind: held + 0.5}
    if kind == "boolValue":
        return {kind: not held}
    entries = held.get("values", [])
    return {kind: {"values": [*entries, *(entries[:1] or [{"stringValue": "x"}])]}}


def covered_facts(found: dict[str, Any]) -> list[tuple[int, str]]:
    """Return each covered fact of each span but the seal: place of the span, key."""
    return [
        (place, pair["key"])
        for place, span in enumerate(spans_of(found))
        if not span["name"].startswith("run_sealed")
        for pair in span["attributes"]
        if pair["key"] in integrity.COVERED
    ]


def test_every_covered_fact_of_every_span_is_watched(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Whichever single fact is edited or taken out, the span that had it is named."""
    original = recorded()
    identity = {semconv.SEGMENT_ID, semconv.SEQ, semconv.SEGMENT, semconv.RUN_EVENT}
    seen = set()
    for place, key in covered_facts(original):
        for drop in (False, True):
            edited = copy.deepcopy(original)
            span = spans_of(edited)[place]
            if drop:
                span["attributes"] = [p for p in span["attributes"] if p["key"] != key]
            else:
                for pair in span["attributes"]:
                    if pair["key"] == key:
                        pair["value"] = changed(pair["value"])
            report = verify(read_back(edited, tmp_path), keys)
            verdict = (report.status, report.integrity)
            named = {each.span_id for each in report.findings}
            if key in identity:
                assert verdict != ("COMPLETE", "SIGNED"), (key, drop)
            else:
                assert report.integrity == "ALTERED", (key, drop)
                assert span["spanId"] in named, (key, drop)
        seen.add(key)
    assert len(seen) >= 60


@pytest.mark.parametrize("what", ["startTimeUnixNano", "endTimeUnixNano", "parentSpanId", "status"])
def test_times_parent_and_status_are_watched(
    recorded: Exported, keys: KeyRing, tmp_path: Path, what: str
) -> None:
    """What a span says outside its attributes is covered too, to the microsecond."""
    original = recorded()
    for place, each in enumerate(spans_of(original)):
        if each["name"].startswith("run_sealed") or (what == "parentSpanId" and what not in each):
            continue
        edited = copy.deepcopy(original)
        span = spans_of(edited)[place]
        if what == "status":
            span["status"] = {} if each.get("status") else {"code": 2}
        elif what == "parentSpanId":
            span[what] = "00000000000000aa"
        else:
            span[what] = str(int(each[what]) + 1000)
        report = verify(read_back(edited, tmp_path), keys)
        assert report.integrity == "ALTERED"
        assert [found.span_id for found in report.findings] == [span["spanId"]]


@pytest.mark.parametrize("store", [False, True])
def test_a_span_that_is_taken_out_is_named_by_its_number(
    recorded: Exported, keys: KeyRing, tmp_path: Path, store: bool
) -> None:
    """Any one of them; without its seal the segment is open, never complete."""
    original = recorded()
    for place, span in enumerate(spans_of(original)):
        edited = copy.deepcopy(original)
        for resource in edited["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                scope["spans"] = [s for s in scope["spans"] if s["spanId"] != span["spanId"]]
        record = read_back(edited, tmp_path)
        if store:
            folder = tmp_path / f"store{place}"
            writer = Writer(store_path(folder))
            writer.write(record.spans)
            writer.close()
            reader = Reader(store_path(folder))
            found = reader.run(record.summary.trace_id)
            reader.close()
            assert found is not None
            record = found
        report = verify(record, keys)
        if span["name"].startswith("run_sealed"):
            assert report.status == "OPEN"
        else:
            seq = int(attribute(span, semconv.SEQ)["intValue"])
            assert (report.status, report.segments[0].missing_seqs) == ("INCOMPLETE", (seq,))
        assert report.integrity != "ALTERED"


def test_two_spans_that_change_places_are_both_named(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Swapping sequence numbers, or all attributes, breaks the digests of both."""
    original = recorded()
    wanted = [s["spanId"] for s in spans_of(original) if not s["name"].startswith("run_sealed")]
    for one, other in itertools.pairwise(wanted):
        edited = copy.deepcopy(original)
        by_id = {span["spanId"]: span for span in spans_of(edited)}
        a, b = by_id[one], by_id[other]
        a["attributes"], b["attributes"] = b["attributes"], a["attributes"]
        report = verify(read_back(edited, tmp_path), keys)
        assert report.integrity == "ALTERED"
        assert {each.span_id for each in report.findings} == {one, other}


def test_copies_count_once_and_changed_copies_are_named(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """A retried export changes nothing; a second version of a span is altered, with its fields."""
    original = recorded()
    for place, span in enumerate(spans_of(original)):
        twice = copy.deepcopy(original)
        twice["resourceSpans"][0]["scopeSpans"][0]["spans"].append(copy.deepcopy(span))
        report = verify(read_back(twice, tmp_path), keys)
        assert (report.status, report.integrity, report.copies) == ("COMPLETE", "SIGNED", 1)
        changed_copy = spans_of(twice)[-1]
        changed_copy["endTimeUnixNano"] = str(int(changed_copy["endTimeUnixNano"]) + 5_000)
        report = verify(read_back(twice, tmp_path), keys)
        assert report.status == "COMPLETE", place
        assert report.integrity == "ALTERED"
        assert [(each.span_id, each.fields) for each in report.findings] == [
            (span["spanId"], ("duration",))
        ]


def test_a_copy_under_another_id_is_named(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """A sequence number belongs to one span."""
    original = recorded()
    forged = copy.deepcopy(spans_of(original)[0])
    forged["spanId"] = "00000000000000aa"
    original["resourceSpans"][0]["scopeSpans"][0]["spans"].append(forged)
    report = verify(read_back(original, tmp_path), keys)
    assert report.integrity == "ALTERED"
    assert "same_seq" in {each.problem for each in report.findings}


def test_a_seal_that_is_edited_is_named(recorded: Exported, keys: KeyRing, tmp_path: Path) -> None:
    """Its counts, its totals, its digest: the chain covers them all."""
    original = recorded()
    place, seal = next(
        (place, span)
        for place, span in enumerate(spans_of(original))
        if span["name"].startswith("run_sealed")
    )
    for index, pair in enumerate(seal["attributes"]):
        if pair["key"] in (semconv.SEGMENT_ID, semconv.RUN_EVENT, semconv.SEQ):
            continue
        edited = copy.deepcopy(original)
        target = spans_of(edited)[place]["attributes"][index]
        target["value"] = changed(target["value"])
        report = verify(read_back(edited, tmp_path), keys)
        assert (report.status, report.integrity) != ("COMPLETE", "SIGNED"), pair["key"]


def test_a_forged_count_costs_nothing(recorded: Exported, keys: KeyRing, tmp_path: Path) -> None:
    """A seal may say any number: the answer is as quick, and says how many are missing."""
    original = recorded()
    for span in spans_of(original):
        for pair in span["attributes"]:
            if pair["key"] == semconv.SEAL_LAST_SEQ:
                pair["value"] = {"intValue": str(2**62)}
    report = verify(read_back(original, tmp_path), keys)
    assert report.status == "INCOMPLETE"
    assert report.segments[0].missing == 2**62 - 8
    assert report.segments[0].missing_seqs[:2] == (9, 10)


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=60, deadline=None)
def test_no_combination_of_edits_is_called_whole(data: st.DataObject) -> None:
    """However many facts are edited, added or taken out: never complete and signed."""
    original, keys = whole_run()
    edited = copy.deepcopy(original)
    facts = covered_facts(original)
    chosen = data.draw(st.lists(st.sampled_from(facts), min_size=1, max_size=4, unique=True))
    for place, key in chosen:
        for pair in spans_of(edited)[place]["attributes"]:
            if pair["key"] == key:
                pair["value"] = data.draw(values_like(pair["value"]))
    hypothesis.assume(edited != original)
    with tempfile.TemporaryDirectory() as folder:
        report = verify(read_back(edited, Path(folder)), keys)
    assert (report.status, report.integrity) != ("COMPLETE", "SIGNED")


def values_like(value: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return other values of the same type, from the same alphabet."""
    ((kind, held),) = value.items()
    if kind == "stringValue":
        others: st.SearchStrategy[Any] = st.text("abcdef0123456789-_", min_size=1, max_size=40)
    elif kind == "intValue":
        others = st.integers(0, 2**40).map(str)
    elif kind == "doubleValue":
        others = st.floats(0, 1e6)
    elif kind == "boolValue":
        others = st.booleans()
    else:
        return st.just(changed(value))
    return others.filter(lambda other: other != held).map(lambda other: {kind: other})


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


def test_many_runs_are_verified_quickly(keys: KeyRing, tmp_path: Path) -> None:
    """A run takes well under the six milliseconds that ten thousand in a minute allow."""
    import time

    original, ring = whole_run()
    record = read_back(original, tmp_path)
    before = time.process_time()
    reports: list[RunReport] = [verify(record, ring) for _ in range(200)]
    assert (time.process_time() - before) / 200 < 0.006
    assert {(each.status, each.integrity) for each in reports} == {("COMPLETE", "SIGNED")}


def test_a_whole_run_is_what_act_says(recorded: Exported) -> None:
    """The run of these tests has a round, a tool, a decision of each kind."""
    names = {span["name"].split(" ")[0] for span in spans_of(recorded(act))}
    assert names == {
        *("run_started", "chat", "execute_tool", "decide", "invoke_agent", "run_sealed")
    }
