"""Evidence packs and checkpoints: whatever is changed in them is found elsewhere."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tampering import Exported, read_back, spans_of

from clew import semconv
from clew.audit import checkpoints
from clew.audit.checkpoints import BrokenCheckpointError, append
from clew.audit.evidence import BrokenPackError, check, pack
from clew.audit.keys import FOLDER, KeyRing
from clew.audit.verify import verify
from clew.errors import ClewError, ConfigurationError
from clew.integrity import Key, SignatureKey
from clew.store.records import RunRecord

HOUR = 3_600_000_000_000


@pytest.fixture
def record(recorded: Exported, tmp_path: Path) -> RunRecord:
    """One run with keyed digests."""
    return read_back(recorded(), tmp_path)


def test_a_pack_proves_on_another_machine_what_it_proved_here(
    record: RunRecord, keys: KeyRing
) -> None:
    """With the key the runs are signed again; without it they are consistent."""
    data = pack([record], keys, clew_version="1")
    found = check(data, keys)
    assert found.problems == ()
    assert [(each.status, each.integrity) for each in found.reports] == [("COMPLETE", "SIGNED")]
    found = check(data, KeyRing())
    assert [(each.status, each.integrity) for each in found.reports] == [("COMPLETE", "CONSISTENT")]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read("manifest.json"))
        page = archive.read(f"runs/{record.summary.run_id}.html").decode()
    run_id = record.summary.run_id
    assert names == {
        *("manifest.json", "policies.json"),
        *(f"runs/{run_id}.{each}" for each in ("html", "otlp.json", "verify.json")),
    }
    assert (manifest["runs"], manifest["version"]) == ([run_id], 1)
    assert "execute_tool refund" in page
    assert "<script" not in page


def changed(data: bytes, name: str, content: bytes | None) -> bytes:
    """Return a pack with one file changed, or taken out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for each in old.namelist():
            if each != name:
                new.writestr(each, old.read(each))
        if content is not None:
            new.writestr(name, content)
    return buffer.getvalue()


def test_every_file_of_a_pack_is_watched(record: RunRecord, keys: KeyRing) -> None:
    """Changed, taken out, added."""
    data = pack([record], keys, clew_version="1")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [each for each in archive.namelist() if each != "manifest.json"]
    for name in names:
        content = b"[]" if name.endswith(".json") else b"<html>"
        assert (
            f"{name} is not what the manifest says"
            in check(changed(data, name, content), keys).problems
        )
        assert f"{name} is missing" in check(changed(data, name, None), keys).problems
    assert check(changed(data, "more.txt", b"x"), keys).problems == (
        "more.txt is not in the manifest",
    )


def test_a_pack_that_was_made_anew_around_other_spans_is_found_by_the_key(
    recorded: Exported, keys: KeyRing, tmp_path: Path
) -> None:
    """Whoever rewrites the manifest too is caught by the digests."""
    document = recorded()
    span = spans_of(document)[2]
    span["endTimeUnixNano"] = str(int(span["endTimeUnixNano"]) + 1_000)
    forged = pack([read_back(document, tmp_path)], KeyRing(), clew_version="1")
    found = check(forged, keys)
    assert found.problems == ()
    assert [each.integrity for each in found.reports] == ["ALTERED"]


@pytest.mark.parametrize("data", [b"", b"PK", b"x" * 100])
def test_what_is_no_pack_is_said_to_be_none(data: bytes) -> None:
    """A clear error, whatever the file is."""
    with pytest.raises(BrokenPackError):
        check(data, KeyRing())
    with pytest.raises(BrokenPackError, match="no manifest"):
        check(changed(pack([], KeyRing(), clew_version="1"), "manifest.json", None), KeyRing())


def seals(record: RunRecord) -> list[tuple[int, str, str]]:
    """Return the seals of a run."""
    return [
        (span.start_ns, span.segment_id or "", span.attributes[semconv.SEGMENT_DIGEST])
        for span in record.spans
        if semconv.SEGMENT_DIGEST in span.attributes
    ]


def test_a_checkpoint_anchors_segments_without_any_key(recorded: Exported, tmp_path: Path) -> None:
    """Against a file kept elsewhere even a record rewritten with all its digests is altered."""
    record = read_back(recorded(integrity_key=None), tmp_path)
    file = tmp_path / "checkpoints.jsonl"
    (when, segment, digest) = seals(record)[0]
    assert append(file, seals(record), until_ns=when) == ()
    (line,) = append(file, seals(record), until_ns=when + HOUR)
    assert line.segments == ((segment, digest),)
    assert append(file, seals(record), until_ns=when + 9 * HOUR) == ()
    anchors = checkpoints.anchored(file)
    report = verify(record, anchors=anchors)
    assert (report.status, report.integrity) == ("COMPLETE", "SIGNED")
    assert [each.checked_by for each in report.segments] == ["anchor"]
    forged = {segment: "p1-" + "0" * 32}
    assert verify(record, anchors=forged).integrity == "ALTERED"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_checkpoint_file_proves_itself(tmp_path: Path) -> None:
    """A line that was changed, taken out, swapped or put in breaks the chain, and is named."""
    file = tmp_path / "checkpoints.jsonl"
    found = [(hour * HOUR + 5, f"{hour:016x}", f"p1-{hour:032x}") for hour in range(1, 6)]
    assert len(append(file, found[:3], until_ns=9 * HOUR)) == 3
    assert len(append(file, found, until_ns=9 * HOUR)) == 2
    lines = file.read_bytes().splitlines()
    assert len(checkpoints.read(file)) == 5
    for broken in (
        [*lines[:1], *lines[2:]],
        [lines[1], lines[0], *lines[2:]],
        [*lines, lines[0]],
        [lines[0].replace(b"p1-0", b"p1-1"), *lines[1:]],
        [*lines, b"{}"],
    ):
        file.write_bytes(b"\n".join(broken) + b"\n")
        with pytest.raises(BrokenCheckpointError, match="line"):
            checkpoints.read(file)


def test_signatures(recorded: Exported, tmp_path: Path) -> None:
    """The seal is signed; the public key is enough to check it, another one is not."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    def write(name: str) -> tuple[Path, Path]:
        key = Ed25519PrivateKey.generate()
        private, public = tmp_path / f"{name}.pem", tmp_path / f"{name}.pub.pem"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        return private, public

    private, public = write("mine")
    _, other = write("other")
    document = recorded(integrity_key=None, signing_key_file=private)
    record = read_back(document, tmp_path)
    ring = KeyRing.gather(files=[public])
    report = verify(record, ring)
    assert (report.status, report.integrity) == ("COMPLETE", "SIGNED")
    assert report.segments[0].checked_by == f"signature {SignatureKey(public).id}"
    assert verify(record, KeyRing.gather(files=[private])).integrity == "SIGNED"
    report = verify(record, KeyRing.gather(files=[other]))
    assert report.integrity == "CONSISTENT"
    assert report.notes == (
        f"the seal is signed with key {SignatureKey(public).id}, which is not at hand",
    )
    forged: dict[str, Any] = json.loads(json.dumps(document))
    for span in spans_of(forged):
        for pair in span["attributes"]:
            if pair["key"] == semconv.SEAL_SIGNATURE:
                pair["value"] = {"stringValue": "00" * 64}
    report = verify(read_back(forged, tmp_path), ring)
    assert [each.problem for each in report.findings] == ["bad_signature"]


def test_old_keys_stay_good(recorded: Exported, tmp_path: Path) -> None:
    """After a rotation the runs of before are checked with the key that made them."""
    folder = tmp_path / "data" / FOLDER
    folder.mkdir(parents=True)
    (folder / "2025.key").write_text("the old one\n")
    record = read_back(recorded(integrity_key="the old one"), tmp_path)
    ring = KeyRing.gather(secret="the new one", data_dir=tmp_path / "data")
    assert verify(record, ring).integrity == "SIGNED"
    assert set(ring.keys) == {Key(b"the old one").id, Key(b"the new one").id}
    (folder / "empty.key").write_text("")
    with pytest.raises(ConfigurationError, match="is empty"):
        KeyRing.gather(data_dir=tmp_path / "data")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        KeyRing.gather(files=[tmp_path / "missing"])
    (tmp_path / "bad.pem").write_text("-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n")
    with pytest.raises(ConfigurationError, match="cannot be read as a key"):
        KeyRing.gather(files=[tmp_path / "bad.pem"])


def test_the_commands(recorded: Exported, tmp_path: Path) -> None:
    """Export, check, checkpoint, as their user runs them."""
    source = tmp_path / "run.json"
    document = recorded()
    source.write_text(json.dumps(document))
    run_id = spans_of(document)[0]["traceId"]
    key = tmp_path / "k.key"
    key.write_text("a secret of the tests")
    target = tmp_path / "pack.zip"

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("clew"), "audit", *more],
            capture_output=True,
            text=True,
            check=False,
        )

    export = ("export", run_id[:8], "-o", str(target), "--source", str(source), "--key", str(key))
    assert call(*export).returncode == 0
    assert "is there already" in call(*export).stderr
    done = call("check", str(target), "--key", str(key), "--json")
    assert done.returncode == 0, done.stderr
    assert [each["integrity"] for each in json.loads(done.stdout)["reports"]] == ["SIGNED"]
    target.write_bytes(changed(target.read_bytes(), "policies.json", b"[]"))
    done = call("check", str(target))
    assert done.returncode == 1
    assert "policies.json is not what the manifest says" in done.stdout
    anchors = tmp_path / "anchors.jsonl"
    done = call("checkpoint", str(anchors), "--source", str(source), "--json")
    assert (done.returncode, json.loads(done.stdout)["segments"]) == (0, 0)
    with pytest.raises(ClewError, match="cannot be read"):
        checkpoints.read(anchors)
