"""A request whose messages are read one by one, and most of them only once.

A conversation grows at its end: nearly all messages of a request were in the one before. What an
entry was written as is remembered by the entry's bytes, as they were sent: an equal entry need not
be decoded, masked and encoded again. What is remembered is bounded, and what the level lets
through: at `redacted`, and of long entries, the bytes are kept as a keyed hash only.

What cannot be read entry by entry (JSON that is not quite JSON, more values than an attribute
takes) is read as a whole: what is written is the same.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, cast

import msgspec
from msgspec import Struct

from clew._forks import new_in_each_child
from clew.content.shapes import Content, Field, loads, objects
from clew.content.writing import MOST, Digest, Plain, dumped, fitted, shortened, write
from clew.redaction import MOST as MOST_MASKED
from clew.redaction import Redactor
from clew.rules import CapturedText
from clew.typing import Beginning

_EMPTY: Final = msgspec.Raw()
_SHORT: Final = 4096
"""Bytes of an entry up to which it is remembered by the bytes themselves."""
_HALF: Final = 4 * 1024 * 1024
"""Bytes of half of what is remembered."""
_LARGEST: Final = 1024 * 1024
_EACH: Final = 300
"""Bytes that one remembered entry takes beside its texts, about."""
_salt = os.urandom(32)
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Group(NamedTuple):
    """Undecoded values of one member."""

    field: Field
    raws: list[msgspec.Raw]
    listed: bool = True
    """Whether they are entries of its list; else it is one value, the member itself."""
    beginning: Beginning | None = None
    """What stands before them in the list, and is known."""


class Listing:
    """One of the lists that a request's content is made of, as it was sent.

    Args:
        groups: where its entries stand.
        whole: reads the request as a whole and returns this list.
    """

    __slots__ = ("groups", "whole")

    def __init__(self, groups: list[Group], whole: Callable[[], list[Any] | None]) -> None:
        self.groups = groups
        self.whole = whole


class Listings(NamedTuple):
    """The content of a request, not decoded; see `clew.content.Content`."""

    system_instructions: Listing | list[Any] | None = None
    input_messages: Listing | list[Any] | None = None
    tool_definitions: Listing | list[Any] | None = None


class _Piece(Struct, gc=False):
    """What an entry is written as."""

    texts: tuple[str, ...]
    values: int
    """How many values that took, which are limited in all."""
    masked: int
    """How many of them were looked at by the masks."""
    exponents: bool
    """Whether a number in it is written with an exponent."""
    cut: dict[int, tuple[str, ...]]
    """The same with long texts shortened, by how many characters were left."""

    def shortened(self, cap: int) -> tuple[str, ...]:
        """Return the texts with what is long in them shortened to so many characters."""
        if max(map(len, self.texts), default=0) <= cap:
            return self.texts
        found = self.cut.get(cap)
        if found is None:
            values = [shortened(loads(text), cap) for text in self.texts]
            found = tuple([dumped(value, exponents=self.exponents) for value in values])
            self.cut[cap] = found
            _kept.grew(_bytes_of(found))
        return found


class _Pieces(NamedTuple):
    """What several entries are written as, and the sums of their counts."""

    pieces: list[_Piece]
    values: int
    masked: int


def _bytes_of(texts: tuple[str, ...]) -> int:
    # A character takes up to four bytes.
    return sum([len(text) if text.isascii() else 4 * len(text) for text in texts]) + _EACH


class _Kept:
    """What entries were written as: two generations, the older of which goes when one is full."""

    def __init__(self) -> None:
        self.young: dict[Any, dict[bytes, _Piece]] = {}
        self.old: dict[Any, dict[bytes, _Piece]] = {}
        self.size = 0
        self._lock = threading.Lock()

    def find(self, shelf: Any, key: bytes) -> _Piece | None:
        """Return what was put on a shelf before the younger generation began."""
        piece = self.old.get(shelf, {}).get(key)
        if piece is not None:
            self.put(shelf, key, piece)
        return piece

    def put(self, shelf: Any, key: bytes, piece: _Piece) -> None:
        """Remember a piece, unless it is very large."""
        size = len(key) + _bytes_of(piece.texts) + sum(map(_bytes_of, piece.cut.values()))
        if size > _LARGEST:
            return
        self.grew(size)
        with self._lock:
            self.young.setdefault(shelf, {})[key] = piece

    def grew(self, size: int) -> None:
        """Take note that so many bytes more are remembered."""
        with self._lock:
            if self.size + size > _HALF:
                self.old, self.young, self.size = self.young, {}, 0
            self.size += size

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self.young, self.old, self.size = {}, {}, 0


_kept = _Kept()


def forget() -> None:
    """Forget what entries were written as."""
    _kept.clear()


def size() -> int:
    """Return how many bytes the younger half of what is remembered takes, about."""
    return _kept.size


new_in_each_child(globals(), "_kept", _Kept)


def decoder(fields: tuple[Field, ...]) -> msgspec.json.Decoder[Any]:
    """Return what finds the members of a request without decoding them."""
    listed = list[msgspec.Raw] | str | None
    members = [
        (
            f"field_{place}",
            listed if field.often_listed else msgspec.Raw,
            msgspec.field(name=field.name, default=_EMPTY),
        )
        for place, field in enumerate(fields)
    ]
    return msgspec.json.Decoder(msgspec.defstruct("Members", members))


def listings(
    fields: tuple[Field, ...],
    found: msgspec.json.Decoder[Any],
    body: bytes,
    whole: Callable[[], Content],
    beginning: Beginning | None = None,
) -> Listings:
    """Return the content of a request, not decoded.

    Args:
        fields: the members that hold content.
        found: finds them (`decoder`).
        body: the request.
        whole: reads it as a whole.
        beginning: what it may begin with, where that is known.

    Raises:
        ValueError: it has to be read as a whole.
        RecursionError: likewise.
    """
    rest = None if beginning is None else beginning.rest_of(body)
    listed = None if beginning is None or rest is None else beginning.dialect.conversation
    values = msgspec.structs.astuple(found.decode(body if rest is None else rest))
    present = {f.name for f, value in zip(fields, values, strict=True) if value is not _EMPTY}
    lists: dict[str, list[Group]] = {}
    for field, value in zip(fields, values, strict=True):
        if value is not _EMPTY and field.unless not in present:
            group = _group(field, value)
            if field.name == listed:
                group = group._replace(beginning=beginning)
            lists.setdefault(field.to, []).append(group)
    kept: list[Content] = []

    def once(name: str) -> Callable[[], list[Any] | None]:
        def read() -> list[Any] | None:
            if not kept:
                kept.append(whole())
            return getattr(kept[0], name)

        return read

    return Listings(**{name: Listing(groups, once(name)) for name, groups in lists.items()})


def _group(field: Field, value: Any) -> Group:
    if isinstance(value, list):
        return Group(field, raws=cast("list[msgspec.Raw]", value))
    if not isinstance(value, msgspec.Raw):
        value = msgspec.Raw(msgspec.json.encode(value))
    elif bytes(memoryview(value)[:1]) == b"[":  # pyright: ignore[reportArgumentType]
        return Group(field, raws=_RAWS.decode(value))
    return Group(field, raws=[value], listed=False)


def written(
    listing: Listing,
    *,
    limit: int,
    digest: Digest,
    redactor: Redactor | None,
    messages: bool,
    key: object,
) -> CapturedText | None:
    """Return a list as JSON, as `writing.write` does; None for one without entries.

    Args:
        listing: the list.
        limit: characters, 100 or more.
        digest: makes the keyed digest of media.
        redactor: masks secrets; None at the level `full`.
        messages: whether the entries are messages.
        key: stands for the key of the digests.
    """
    try:
        if redactor is not None and not redactor.repeats:
            raise _WholeError
        texts = _Texts(listing, digest, key, redactor)
        text = fitted(texts, limit, messages=messages)
        return None if text == "[]" else CapturedText(text)
    except Exception:
        # Whatever it is, it comes out, or is masked, where the list is read as a whole.
        value = listing.whole()
    if value is None:
        return None
    return write(value, limit=limit, digest=digest, redactor=redactor, messages=messages)


class _WholeError(Exception):
    """A list is to be read as a whole."""


class _Texts:
    """Returns the entries of a list as JSON: what `writing.fitted` asks for.

    Args:
        listing: the list.
        digest: makes the keyed digest of media.
        key: stands for the key of these digests.
        redactor: masks secrets; None at the level `full`.

    Raises:
        _WholeError: the list has more values than an attribute takes.
    """

    def __init__(
        self, listing: Listing, digest: Digest, key: object, redactor: Redactor | None
    ) -> None:
        self._digest = digest
        self._redactor = redactor
        level = (key, None if redactor is None else redactor.identity)
        values = masked = 1
        self._pieces: list[_Piece] = []
        for group in listing.groups:
            for found in self._of(group, level):
                self._pieces += found.pieces
                values += found.values
                masked += found.masked
        if values > MOST or masked > MOST_MASKED:
            raise _WholeError

    def __call__(self, cap: int | None) -> list[str]:
        """Return them with their long texts shortened to so many characters."""
        if cap is None:
            return [text for piece in self._pieces for text in piece.texts]
        return [text for piece in self._pieces for text in piece.shortened(cap)]

    def _of(self, group: Group, level: object) -> Iterator[_Pieces]:
        shelf = (group.field, group.listed, level)
        beginning = group.beginning
        if beginning is not None:
            known = beginning.written.get(shelf)
            if known is None:
                known = self._taken(shelf, group.field, _RAWS.decode(beginning.listed()))
                beginning.written[shelf] = known
            yield known
        yield self._taken(shelf, group.field, group.raws, listed=group.listed)

    def _taken(
        self, shelf: Any, field: Field, raws: list[msgspec.Raw], *, listed: bool = True
    ) -> _Pieces:
        as_sent = self._redactor is None
        young = _kept.young.get(shelf, {})
        values = masked = 0
        pieces: list[_Piece] = []
        for raw in raws:
            data = bytes(raw)  # pyright: ignore[reportArgumentType]
            name = data if as_sent and len(data) <= _SHORT else _hashed(data)
            piece = young.get(name)
            if piece is None:
                piece = _kept.find(shelf, name)
                if piece is None:
                    piece = self._read(field, data, listed=listed)
                    _kept.put(shelf, name, piece)
            values += piece.values
            masked += piece.masked
            pieces.append(piece)
        return _Pieces(pieces, values, masked)

    def _read(self, field: Field, data: bytes, *, listed: bool) -> _Piece:
        value = msgspec.json.decode(data)
        if not listed:
            entries = field.other(value)
        else:
            entries = [each for item in objects([value]) for each in field.entry(item)]
        plain, masked = Plain(self._digest), 0
        texts: list[str] = []
        for entry in entries:
            kept = plain.walk(entry, 1)
            if self._redactor is not None:
                kept, looked_at = self._redactor.entry(kept)
                masked += looked_at
            texts.append(dumped(kept, exponents=plain.exponents))
        return _Piece(tuple(texts), MOST - plain.left, masked, plain.exponents, {})


def _hashed(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16, key=_salt).digest()
