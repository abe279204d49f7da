"""What two runs did differently, from every source."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sample_messages
import sample_runs

from clew import semconv
from clew.sources.otlp_json import record_of
from clew.sources.run_diff import Fact, compare
from clew.store import otlp_json
from clew.store.records import RunRecord

FIRST = "1c1c1c1c-0000-4000-8000-000000000001"
SECOND = "1c1c1c1c-0000-4000-8000-000000000002"


def record(sample: sample_runs.Sample) -> RunRecord:
    """Return a sample run as a source gives it."""
    spans = list(otlp_json.decode(sample_messages.otlp_json(sample)).spans)
    return record_of(sample.trace_id, spans)


def test_two_runs_that_did_the_same_are_identical() -> None:
    """Ids and times always differ, and count for nothing."""
    one = record(sample_runs.triage(FIRST))
    other = record(sample_runs.triage(SECOND, base_ns=sample_runs.START_NS + 10**12))
    found = compare(one, other)
    assert found.identical
    assert found.totals == ()
    assert {each.change for each in found.pairs} == {"same"}
    assert len(found.pairs) == sum(span.type != "event" for span in one.spans)


def changed(run: RunRecord, place: int, **attributes: Any) -> RunRecord:
    """Return a run with other attributes on one of its spans."""
    spans = list(run.spans)
    span = spans[place]
    spans[place] = msgspec.structs.replace(
        span, attributes={**copy.deepcopy(span.attributes), **attributes}
    )
    return msgspec.structs.replace(run, spans=tuple(spans))


def test_what_changed_in_a_span_is_named() -> None:
    """Its facts, before and after; the spans around it stay the same."""
    one = record(sample_runs.triage(FIRST))
    place = next(i for i, span in enumerate(one.spans) if span.type == "round")
    other = changed(one, place, **{semconv.USAGE_INPUT: 7})
    found = compare(one, other)
    (pair,) = [each for each in found.pairs if each.change != "same"]
    before = one.spans[place].attributes[semconv.USAGE_INPUT]
    assert (pair.change, pair.facts) == ("changed", (Fact(semconv.USAGE_INPUT, before, 7),))


def test_spans_that_came_and_went() -> None:
    """One left out in the middle makes no others look changed, from either side."""
    one = record(sample_runs.triage(FIRST))
    place = next(i for i, span in enumerate(one.spans) if span.type == "tool")
    shorter = msgspec.structs.replace(
        one, spans=tuple(span for i, span in enumerate(one.spans) if i != place)
    )
    (gone,) = [each for each in compare(one, shorter).pairs if each.change != "same"]
    (come,) = [each for each in compare(shorter, one).pairs if each.change != "same"]
    assert (gone.change, gone.before, gone.after) == ("removed", one.spans[place], None)
    assert (come.change, come.before, come.after) == ("added", None, one.spans[place])


@pytest.mark.parametrize("second", ["triage", "failed"])
def test_the_command(second: str, tmp_path: Path) -> None:
    """As JSON and in words; identical runs say so."""
    runs = sample_runs.triage(FIRST), getattr(sample_runs, second)(SECOND)
    file = tmp_path / "runs.json"
    file.write_bytes(sample_messages.otlp_json(*runs))

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("clew"), "diff", FIRST, SECOND, "--source", str(file),
             *more],
            capture_output=True, text=True, check=True,
        )  # fmt: skip

    form = json.loads(call("--json").stdout)
    assert (form["before"], form["after"]) == (FIRST, SECOND)
    assert form["identical"] == (second == "triage")
    done = call()
    assert done.stdout.splitlines()[0].startswith(f"- {FIRST}")
    assert ("did the same" in done.stderr) == (second == "triage")
    if second == "failed":
        assert "~ status completed → failed" in done.stdout
