"""Checkpoints: the digests of sealed segments, hour by hour, each line chained to the one before.

Kept elsewhere (printed, mailed, put into another system), such a file proves later that no sealed
segment was taken out or rewritten since, also by somebody who has the keys. One JSON object a line:

    {"version": 1, "hour": "2026-11-30T09Z", "segments": [["<segment id>", "<digest>"], ...],
     "previous": "<digest of the line before>", "digest": "<digest of this line>"}

The digest is the SHA-256 of the line's other members, as JSON without spaces and sorted by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from clew.errors import ClewError
from clew.store import chain
from clew.store.chain import Chained

_HOUR_NS: Final = 3_600_000_000_000
_FORM: Final = "%Y-%m-%dT%HZ"


class Checkpoint(Chained, frozen=True, kw_only=True):
    """One hour."""

    version: int = 1
    hour: str
    segments: tuple[tuple[str, str], ...]

    def start_ns(self) -> int:
        """Return when the hour begins (ns since 1970)."""
        moment = datetime.strptime(self.hour, _FORM).replace(tzinfo=UTC)
        return int(moment.timestamp()) * 1_000_000_000


class BrokenCheckpointError(ClewError):
    """A checkpoint file is not whole: a line was changed, taken out or put in."""


def read(path: Path) -> tuple[Checkpoint, ...]:
    """Read a checkpoint file and prove its own chain.

    Raises:
        BrokenCheckpointError: the chain is broken, with the line where.
        ClewError: the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ClewError(f"{path} cannot be read: {error.strerror}") from None
    return parse(data, str(path))


def parse(data: bytes, path: str) -> tuple[Checkpoint, ...]:
    """Read the content of a checkpoint file, as `read` does; `path` stands in messages."""

    def broken(number: int, problem: str) -> BrokenCheckpointError:
        return BrokenCheckpointError(f"{path}, line {number}: {problem}")

    return chain.parsed(data.splitlines(), Checkpoint, broken)


def anchored(path: Path) -> dict[str, str]:
    """Return the digest of each segment in a checkpoint file.

    Raises:
        ClewError: as `read`.
    """
    return _digests(read(path))


def since(path: Path, since_ns: int) -> dict[str, str]:
    """Return the hour of each segment of a checkpoint file that was sealed from then on.

    Raises:
        ClewError: as `read`.
    """
    hours = [each for each in read(path) if each.start_ns() + _HOUR_NS > since_ns]
    return {segment: each.hour for each in hours for segment, _ in each.segments}


def anchored_in(data: bytes, path: str) -> dict[str, str]:
    """Return the digest of each segment in the content of a checkpoint file, as `anchored`."""
    return _digests(parse(data, path))


def _digests(found: Sequence[Checkpoint]) -> dict[str, str]:
    return {segment: digest for each in found for segment, digest in each.segments}


def append(
    path: Path, seals: Sequence[tuple[int, str, str]], *, until_ns: int
) -> tuple[Checkpoint, ...]:
    """Add the hours that are over and not in the file yet; return them.

    Args:
        path: the file; it is made if it is not there (mode 0600).
        seals: time (ns since 1970), segment id and digest of sealed segments, in any order.
        until_ns: hours that end later are left for the next time.

    Raises:
        ClewError: as `read`.
    """
    known = read(path) if path.exists() else ()
    seen = {segment for each in known for segment, _ in each.segments}
    last = known[-1].start_ns() if known else -1
    hours: dict[int, list[tuple[str, str]]] = {}
    for when, segment, digest in sorted(seals):
        # What is sealed late belongs to an hour that is closed: it comes into the next one.
        start = max(when - when % _HOUR_NS, last + _HOUR_NS if known else 0)
        if segment not in seen and start + _HOUR_NS <= until_ns:
            hours.setdefault(start, []).append((segment, digest))
    bare = [
        Checkpoint(
            hour=datetime.fromtimestamp(start // 1_000_000_000, UTC).strftime(_FORM),
            segments=tuple(segments),
            previous="",
        )
        for start, segments in sorted(hours.items())
    ]
    added = chain.chained(known, bare)
    chain.append(path, added)
    return tuple(added)
