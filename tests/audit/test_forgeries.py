"""What somebody forges who cannot make the digests: it is never called signed."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tampering import SECRET, Exported, attribute, read_back, spans_of

import clew
from clew import semconv
from clew.audit import checkpoints
from clew.audit.digests import facts_of
from clew.audit.keys import KeyRing
from clew.audit.verify import verify
from clew.integrity import Key, SignatureKey


def decision_of(document: dict[str, Any]) -> dict[str, Any]:
    """Return the denial of the run."""
    (found,) = [
        span
        for span in spans_of(document)
        if attribute(span, semconv.DECISION_OUTCOME) == {"stringValue": "deny"}
    ]
    return found


def without(span: dict[str, Any], *keys: str) -> None:
    """Take attributes off a span."""
    span["attributes"] = [pair for pair in span["attributes"] if pair["key"] not in keys]


def put(span: dict[str, Any], key: str, value: dict[str, Any]) -> None:
    """Set an attribute of a span."""
    without(span, key)
    span["attributes"].append({"key": key, "value": value})


def added(document: dict[str, Any], span: dict[str, Any]) -> None:
    """Put a span into a document, beside those of Clew."""
    document["resourceSpans"][0]["scopeSpans"][0]["spans"].append(span)


def forged_decision(document: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the denial, as a span of its own that says allow."""
    span = copy.deepcopy(decision_of(document))
    span["spanId"] = "ab" * 8
    put(span, semconv.DECISION_OUTCOME, {"stringValue": "allow"})
    return span


@pytest.fixture
def signing(tmp_path: Path) -> tuple[Path, KeyRing]:
    """A file with an Ed25519 key, and what checks with it."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path = tmp_path / "signing.pem"
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path, KeyRing(signatures=[SignatureKey(path)])


def test_a_decision_under_another_librarys_name_is_found(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """No digest covers the scope, and without its scope a denial would be nobody's."""
    document = recorded()
    span = decision_of(document)
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        if span in scope["spans"]:
            scope["spans"].remove(span)
    document["resourceSpans"][0]["scopeSpans"].append({"scope": {"name": "other"}, "spans": [span]})
    report = verify(read_back(document, tmp_path), keys)
    assert report.integrity == "ALTERED"
    assert [(each.problem, each.span_id) for each in report.findings] == [
        ("wrong_scope", span["spanId"])
    ]


def test_a_decision_without_a_number_is_not_vouched_for(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """It stands in the timeline, and in no segment: the run is not called signed for it."""
    document = recorded()
    span = forged_decision(document)
    without(span, semconv.SEQ, semconv.SEGMENT_ID)
    added(document, span)
    report = verify(read_back(document, tmp_path), keys)
    assert (report.status, report.integrity) == ("COMPLETE", "CONSISTENT")
    assert report.notes == ("1 spans of Clew's have no number: nothing vouches for them",)


def test_what_comes_behind_a_signed_seal_is_not_vouched_for(
    recorded: Exported, signing: tuple[Path, KeyRing], tmp_path: Path
) -> None:
    """Its plain digest can be made by anybody: by a signature or an anchor it is not covered."""
    path, keys = signing
    document = recorded(integrity_key=None, signing_key_file=path)
    whole = read_back(document, tmp_path)
    assert verify(whole, keys).integrity == "SIGNED"
    span = forged_decision(document)
    put(span, semconv.SEQ, {"intValue": "90"})
    record = read_back({"resourceSpans": [{"scopeSpans": [
        {"scope": {"name": semconv.SCOPE}, "spans": [span]}]}]}, tmp_path)  # fmt: skip
    plain = Key()
    digest = plain.written(plain.of(facts_of(record.spans[0])))
    put(span, semconv.SPAN_DIGEST, {"stringValue": digest})
    added(document, span)
    seal = whole.spans[-1]
    anchors = {str(seal.segment_id): str(seal.attributes[semconv.SEGMENT_DIGEST])}
    for ring, kept in ((keys, {}), (KeyRing(), anchors)):
        assert verify(whole, ring, anchors=kept).integrity == "SIGNED"
        report = verify(read_back(document, tmp_path), ring, anchors=kept)
        assert (report.status, report.integrity, report.findings) == ("COMPLETE", "CONSISTENT", ())
        assert report.segments[0].late == 1
        assert "spans came after the seal, and nothing vouches for them" in report.notes


def test_a_denial_that_has_lost_its_facts_before_the_seal_is_not_vouched_for(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """A span of another library may lack a digest; in a segment without a seal nothing proves it."""
    document = recorded()
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        scope["spans"] = [s for s in scope["spans"] if not s["name"].startswith("run_sealed")]
    assert verify(read_back(document, tmp_path), keys).integrity == "SIGNED"
    span = decision_of(document)
    kept = (semconv.RUN_ID, semconv.SEGMENT_ID, semconv.SEGMENT, semconv.SEQ)
    span["attributes"] = [pair for pair in span["attributes"] if pair["key"] in kept]
    report = verify(read_back(document, tmp_path), keys)
    assert (report.status, report.integrity) == ("OPEN", "CONSISTENT")


def test_a_run_that_is_made_anew_without_the_key_is_said_to_be(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Somebody who has no key can make plain digests only: never signed, and the report says so."""
    report = verify(read_back(recorded(integrity_key=None), tmp_path), keys)
    assert report.integrity == "CONSISTENT"
    assert report.notes == ("keys are at hand, and the digests were made without one",)


def test_a_run_under_another_id_is_altered(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """The ids are covered: a run that was replayed under another one has none of its digests."""
    document = recorded()
    for span in spans_of(document):
        span["traceId"] = "12" * 16
        put(span, semconv.RUN_ID, {"stringValue": "12121212-1212-1212-1212-121212121212"})
    report = verify(read_back(document, tmp_path), keys)
    assert report.integrity == "ALTERED"
    assert len({each.span_id for each in report.findings}) == len(spans_of(document))


def test_the_seal_of_another_run_is_no_seal(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """A seal with fewer spans, taken from elsewhere, does not fit."""

    def less(_: str) -> None:
        with clew.run("desk"):
            pass

    document, other = recorded(), recorded(less)
    mine = next(s for s in spans_of(document) if s["name"].startswith("run_sealed"))
    theirs = next(s for s in spans_of(other) if s["name"].startswith("run_sealed"))
    kept = attribute(mine, semconv.SEGMENT_ID)
    mine["attributes"] = theirs["attributes"]
    put(mine, semconv.SEGMENT_ID, kept)
    assert verify(read_back(document, tmp_path), keys).integrity == "ALTERED"


@pytest.mark.parametrize(
    "value",
    [
        {"arrayValue": {"values": [{"stringValue": "9" * 5000}]}},
        {"stringValue": f"[{'9' * 5000}]"},
        {"stringValue": "[" * 5000},
        {"intValue": str(2**63 - 1)},
        {"doubleValue": 1e308},
    ],
)
def test_huge_values_cost_nothing(
    recorded: Exported, keys: KeyRing, tmp_path: Path, value: dict[str, Any]
) -> None:
    """Wherever a number is expected, any value is read at once, and the change is found."""
    original = recorded()
    for key in (semconv.SEAL_OPEN_SEQS, semconv.SEGMENT, semconv.SEQ, semconv.SEAL_LAST_SEQ):
        document = copy.deepcopy(original)
        seal = next(s for s in spans_of(document) if s["name"].startswith("run_sealed"))
        put(seal, key, value)
        report = verify(read_back(document, tmp_path), keys)
        assert (report.status, report.integrity) != ("COMPLETE", "SIGNED"), key
        assert len(report.missing_segments) <= 10_000


def test_a_fact_that_stands_twice_is_found(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Readers differ on which of the two counts: one that is proven is not one that is shown."""
    document = recorded()
    span = decision_of(document)
    span["attributes"].insert(
        0, {"key": semconv.DECISION_OUTCOME, "value": {"stringValue": "allow"}}
    )
    report = verify(read_back(document, tmp_path), keys)
    assert report.integrity == "ALTERED"


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `clew verify`."""
    return subprocess.run(
        [Path(sys.executable).with_name("clew"), "verify", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_segment_that_a_checkpoint_has_and_nobody_else_is_named(
    recorded: Exported, tmp_path: Path
) -> None:
    """A run taken out as a whole, or its last segment: what was kept elsewhere tells."""
    ids: list[str] = []

    def work(_: str) -> None:
        with clew.run("whole"):
            pass
        with clew.run("waits") as run:
            reference = run.suspend()
        with clew.resume(reference):
            pass
        ids.append(run.trace_id)

    document = recorded(work)
    path, kept = tmp_path / "runs.otlp.json", tmp_path / "checkpoints.jsonl"
    seals = [
        (int(span["startTimeUnixNano"]), attribute(span, semconv.SEGMENT_ID)["stringValue"],
         attribute(span, semconv.SEGMENT_DIGEST)["stringValue"])
        for span in spans_of(document)
        if span["name"].startswith("run_sealed")
    ]  # fmt: skip
    checkpoints.append(kept, seals, until_ns=2**62)
    asked = ("--since", "1h", "--source", path, "--anchor", kept)
    path.write_text(json.dumps(document))
    assert (command(*asked).returncode, command(*asked).stderr) == (0, "")
    second = next(
        attribute(span, semconv.SEGMENT_ID)["stringValue"]
        for span in spans_of(document)
        if span["traceId"] == ids[0] and attribute(span, semconv.SEGMENT) == {"intValue": "2"}
    )
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        scope["spans"] = [
            s for s in scope["spans"] if attribute(s, semconv.SEGMENT_ID) != {"stringValue": second}
        ]
    path.write_text(json.dumps(document))
    done = command(*asked, "--json")
    # What is left of the run is whole: only the file knows of its second segment.
    assert {json.loads(line)["status"] for line in done.stdout.splitlines()} == {"COMPLETE"}
    assert done.returncode == 1
    assert done.stderr.startswith(f"segment {second}, sealed in ")
    assert done.stderr.count("is not there") == 1


def test_a_segment_of_a_run_that_began_before_is_not_gone(
    recorded: Exported, tmp_path: Path
) -> None:
    """`--since` asks when runs began, a checkpoint when segments were sealed."""
    document = recorded()
    seal = next(s for s in spans_of(document) if s["name"].startswith("run_sealed"))
    for span in spans_of(document):
        span["startTimeUnixNano"] = str(int(span["startTimeUnixNano"]) - 7_200_000_000_000)
    path, kept = tmp_path / "run.otlp.json", tmp_path / "checkpoints.jsonl"
    path.write_text(json.dumps(document))
    digest = attribute(seal, semconv.SEGMENT_DIGEST)["stringValue"]
    segment = attribute(seal, semconv.SEGMENT_ID)["stringValue"]
    checkpoints.append(kept, [(int(seal["endTimeUnixNano"]), segment, digest)], until_ns=2**62)
    done = command("--since", "1h", "--source", path, "--anchor", kept)
    assert (done.returncode, done.stderr) == (0, "no run has started since then\n")


def test_runs_that_are_not_signed_can_be_refused(recorded: Exported, tmp_path: Path) -> None:
    """A scheduler that expects a key to have been used is told where none was."""
    path, key = tmp_path / "run.otlp.json", tmp_path / "secret.key"
    key.write_text(SECRET)
    path.write_text(json.dumps(recorded()))
    asked = ("--since", "1h", "--source", path, "--key", key, "--require-signed")
    assert command(*asked).returncode == 0
    path.write_text(json.dumps(recorded(integrity_key=None)))
    assert command(*asked).returncode == 1
    assert command(*asked[:-1]).returncode == 0
