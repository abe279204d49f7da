"""An evidence pack: runs with their proof in one ZIP file, to be checked on another machine.

runs/<run>.otlp.json   the spans, as OTLP JSON
runs/<run>.html        the timeline, readable without anything else
runs/<run>.verify.json what `clew verify` said
policies.json          which policies decided, in which versions
checkpoints.jsonl      the checkpoint file, where one was given
manifest.json          what is in the pack, each file with its SHA-256
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from clew import semconv
from clew.audit import checkpoints, timeline
from clew.audit.keys import KeyRing
from clew.audit.report import RunReport
from clew.audit.verify import verify
from clew.errors import ClewError
from clew.sources.otlp_json import record_of
from clew.store import otlp_export, otlp_json
from clew.store.records import RunRecord, text

_VERSION: Final = 1
_MANIFEST: Final = "manifest.json"
_CHECKPOINTS: Final = "checkpoints.jsonl"
_MOST_BYTES: Final = 1 << 30
"""A pack unpacks to no more than this."""
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


class Manifest(Struct, frozen=True, kw_only=True):
    """What is in a pack."""

    version: int = _VERSION
    made: str
    """When (UTC)."""
    clew: str
    """The version of Clew that made it."""
    runs: tuple[str, ...]
    key_ids: tuple[str, ...] = ()
    """Ids of the keys that the runs were checked with."""
    files: dict[str, str]
    """SHA-256 of each file, as hex."""


class Checked(Struct, frozen=True, kw_only=True):
    """What the check of a pack found."""

    reports: tuple[RunReport, ...] = ()
    problems: tuple[str, ...] = ()


class BrokenPackError(ClewError):
    """A file is no evidence pack, or cannot be read as one."""


def pack(
    found: Sequence[RunRecord],
    keys: KeyRing,
    *,
    clew_version: str,
    checkpoint_file: Path | None = None,
) -> bytes:
    """Return the ZIP file.

    Args:
        found: the runs.
        keys: keys to verify them with.
        clew_version: the version of Clew.
        checkpoint_file: a checkpoint file that goes with them.

    Raises:
        ClewError: the checkpoint file cannot be read, or is not whole.
    """
    anchors: dict[str, str] = {}
    files: dict[str, bytes] = {}
    if checkpoint_file is not None:
        anchors = checkpoints.anchored(checkpoint_file)
        files[_CHECKPOINTS] = checkpoint_file.read_bytes()
    key_ids: list[str] = []
    for record in found:
        name = f"runs/{record.summary.run_id}"
        report = verify(record, keys, anchors=anchors)
        key_ids.extend(each.checked_by for each in report.segments if each.checked_by)
        # Other versions of a span are evidence too: they are what an auditor asks about.
        files[f"{name}.otlp.json"] = otlp_export.encode((*record.spans, *record.conflicts))
        files[f"{name}.html"] = timeline.page(record, report).encode()
        files[f"{name}.verify.json"] = _json(report)
    files["policies.json"] = _json(_policies(found))
    manifest = Manifest(
        made=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        clew=clew_version,
        runs=tuple(each.summary.run_id for each in found),
        key_ids=tuple(dict.fromkeys(key_ids)),
        files={name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (*sorted(files.items()), (_MANIFEST, _json(manifest))):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _policies(found: Sequence[RunRecord]) -> list[dict[str, Any]]:
    counted: Counter[tuple[str, str | None]] = Counter()
    for record in found:
        for span in record.spans:
            policy = text(span.attributes, semconv.DECISION_POLICY)
            if policy is not None:
                version = text(span.attributes, semconv.DECISION_POLICY_VERSION)
                counted[policy, version] += 1
    return [
        {"policy": policy, "version": version, "decisions": times}
        for (policy, version), times in sorted(counted.items(), key=lambda each: str(each[0]))
    ]


def check(data: bytes, keys: KeyRing) -> Checked:
    """Check a pack: every file is as the manifest says, and every run is verified anew.

    Args:
        data: the ZIP file.
        keys: keys to verify with; the pack holds none.

    Raises:
        BrokenPackError: it is no evidence pack.
    """
    files = _unpacked(data)
    if _MANIFEST not in files:
        raise BrokenPackError("there is no manifest in it: this is no evidence pack")
    try:
        manifest = msgspec.json.decode(files.pop(_MANIFEST), type=Manifest)
    except msgspec.MsgspecError as error:
        raise BrokenPackError(f"its manifest cannot be read: {error}") from None
    if manifest.version != _VERSION:
        raise BrokenPackError(
            f"it is of version {manifest.version}, this Clew knows {_VERSION}: update Clew"
        )
    problems = [f"{name} is missing" for name in manifest.files if name not in files]
    problems += [f"{name} is not in the manifest" for name in files if name not in manifest.files]
    for name, digest in manifest.files.items():
        if name in files and hashlib.sha256(files[name]).hexdigest() != digest:
            problems.append(f"{name} is not what the manifest says")
    anchors: dict[str, str] = {}
    if _CHECKPOINTS in files:
        try:
            anchors = checkpoints.anchored_in(files[_CHECKPOINTS], _CHECKPOINTS)
        except ClewError as error:
            problems.append(str(error))
    reports: list[RunReport] = []
    for run_id in manifest.runs:
        spans = files.get(f"runs/{run_id}.otlp.json")
        if spans is None:
            continue
        try:
            report = _verified(run_id, spans, keys, anchors)
        except ClewError as error:
            problems.append(f"runs/{run_id}.otlp.json: {error}")
            continue
        reports.append(report)
        before = files.get(f"runs/{run_id}.verify.json", b"{}")
        problems.extend(_differences(run_id, report, before))
    return Checked(reports=tuple(reports), problems=tuple(problems))


def _verified(run_id: str, data: bytes, keys: KeyRing, anchors: dict[str, str]) -> RunReport:
    spans = list(otlp_json.decode(data).spans)
    return verify(record_of(run_id.replace("-", ""), spans), keys, anchors=anchors)


def _differences(run_id: str, report: RunReport, before: bytes) -> list[str]:
    """Tell where the verdict is another one than when the pack was made."""
    try:
        said = msgspec.json.decode(before, type=RunReport)
    except msgspec.MsgspecError as error:
        return [f"runs/{run_id}.verify.json cannot be read: {error}"]
    if report.status != said.status:
        return [f"run {run_id} is {report.status}, and was {said.status} when the pack was made"]
    return []


def _unpacked(data: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(each.file_size for each in archive.infolist())
            if size > _MOST_BYTES:
                raise BrokenPackError(f"it would unpack to {size} bytes, which no pack does")
            names = archive.namelist()
            if len(set(names)) != len(names):
                raise BrokenPackError("it has two files of one name")
            return {name: archive.read(name) for name in names}
    except (zipfile.BadZipFile, zipfile.LargeZipFile, RuntimeError, EOFError, OSError) as error:
        raise BrokenPackError(f"it is no ZIP file that can be read: {error}") from None
