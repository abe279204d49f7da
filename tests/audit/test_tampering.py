"""Every change to a run is seen, and the span that was changed is named."""

from __future__ import annotations

import copy
import itertools
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from tampering import Exported, attribute, read_back, spans_of, whole_run

from clew import integrity, semconv
from clew.audit.keys import KeyRing
from clew.audit.verify import verify
from clew.store.paths import store_path
from clew.store.reader import Reader
from clew.store.writer import Writer


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
