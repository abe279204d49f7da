"""Files whose lines are chained: each names the digest of the line before, and has its own.

One JSON object a line. A line's digest is the SHA-256 of its other members, as JSON without spaces
and sorted by key. So a line that was changed, taken out or put in breaks the chain there, and the
last digest vouches for the whole file. Tombstones and checkpoints are such files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from clew.errors import StoreError

_START: Final = "0" * 64
"""What the first line names."""
_encoder: Final = msgspec.json.Encoder(order="sorted")


class Chained(Struct, frozen=True, kw_only=True):
    """One line."""

    previous: str
    """Digest of the line before."""
    digest: str = ""

    def computed(self) -> str:
        """Return the digest that the line should have."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        body.pop("digest", None)
        return hashlib.sha256(_encoder.encode(body)).hexdigest()


Line = TypeVar("Line", bound=Chained)


def parsed(
    lines: Iterable[bytes], kind: type[Line], broken: Callable[[int, str], Exception]
) -> tuple[Line, ...]:
    """Read lines and prove their chain.

    Args:
        lines: as they are in the file.
        kind: what each of them is.
        broken: makes the error to raise, of a line's number and what is wrong with it.
    """
    found: list[Line] = []
    previous = _START
    for number, data in enumerate(lines, 1):
        try:
            line = msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise broken(number, str(error)) from None
        if line.previous != previous or line.computed() != line.digest:
            raise broken(number, "the chain is broken here")
        previous = line.digest
        found.append(line)
    return tuple(found)


def chained(known: Sequence[Line], more: Iterable[Line]) -> list[Line]:
    """Return lines as they are chained to those that are known."""
    previous = known[-1].digest if known else _START
    added: list[Line] = []
    for line in more:
        bare = msgspec.structs.replace(line, previous=previous)
        added.append(msgspec.structs.replace(bare, digest=bare.computed()))
        previous = added[-1].digest
    return added


def append(path: Path, lines: Sequence[Struct]) -> None:
    """Add lines to a file and wait until they are on the disk; a new file has mode 0600.

    Raises:
        StoreError: the file cannot be written.
    """
    if not lines:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "ab") as file:
            file.write(b"".join(_encoder.encode(each) + b"\n" for each in lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None
