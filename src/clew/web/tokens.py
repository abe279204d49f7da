"""Static tokens: a file of them, readable by its owner alone, in which no token can be read.

    {"tokens": [{"id": "grafana", "sha256": "...", "kind": "service",
                 "scopes": ["agent:read"], "tenant": "acme", "created": "2026-12-01"}]}

A token is 256 random bits, so that its plain SHA-256 can be stored: nobody can guess what it is of.
An entry may have the `token` itself instead, where something else writes the file.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import stat
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers

from clew.actors import SCOPES
from clew.errors import ClewError
from clew.web.access import Principal, principal

PREFIX: Final = "clew_"
"""How tokens begin, so that scanners for secrets find one that was lost."""
_SHORTEST: Final = 32
_LONGEST: Final = 1024
_LARGEST_FILE: Final = 4 * 1024 * 1024
_logger: Final = logging.getLogger("clew.web")


class TokensError(ClewError):
    """The file of tokens cannot be used; the message says why, and never what is in it."""


class Entry(Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, frozen=True):
    """One token: whom it stands for, and what that may do."""

    id: str
    sha256: str = ""
    """Digest of the token, in hex."""
    token: str = ""
    """The token itself, where there is no digest."""
    kind: Literal["service", "human"] = "service"
    scopes: tuple[str, ...] = ()
    tenant: str | None = None
    """Whose runs there are for it: `*` for all; left out, those that name no tenant."""
    admin: bool = False
    created: str = ""
    expires: str = ""
    """The first day (UTC) on which it is not taken any more; empty for never."""

    def __repr__(self) -> str:
        return f"Entry(id={self.id!r}, kind={self.kind!r}, scopes={self.scopes!r})"


class _File(Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    tokens: tuple[Entry, ...] = ()


class _Known(Struct, frozen=True, kw_only=True):
    digest: bytes
    principal: Principal


class StaticTokens:
    """Tells who sends a request by a token in `Authorization: Bearer`.

    The file is read again when it changes. One that then cannot be used lets nobody in.

    Args:
        path: the file.

    Raises:
        TokensError: it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _mark(path)
        self._known = _read(path)

    def __repr__(self) -> str:
        return f"StaticTokens({str(self._path)!r})"

    def of_headers(self, headers: Headers) -> Principal | None:
        """Return whom the bearer token stands for."""
        token = bearer(headers)
        return None if token is None else self.of_token(token)

    def of_token(self, token: str) -> Principal | None:
        """Return whom a token stands for; every known one is compared, in constant time."""
        self._refresh()
        digest = _digest(token)
        found = None
        for known in self._known:
            if hmac.compare_digest(known.digest, digest):
                found = known.principal
        if found is None or (found.expires is not None and found.expires <= time.time()):
            return None
        return found

    def _refresh(self) -> None:
        mark = _mark(self._path)
        if mark == self._seen:
            return
        try:
            self._known = _read(self._path)
        except TokensError as error:
            self._known = ()
            _logger.error("Nobody can sign in: %s", error)  # noqa: TRY400 - the message is all
        self._seen = mark


def bearer(headers: Headers, name: str = "authorization") -> str | None:
    """Return the token of a header, without the word in front of it; None where there is none."""
    value = headers.get(name, "").strip()
    scheme, _, rest = value.partition(" ")
    if scheme.lower() == "bearer":
        value = rest.strip()
    elif name == "authorization":
        return None
    return value if value and len(value) <= 16 * 1024 else None


def load(path: Path) -> tuple[Entry, ...]:
    """Return the entries of a file; empty where there is no file yet.

    Raises:
        TokensError: it cannot be used.
    """
    if not path.exists():
        return ()
    try:
        # The same file is checked and read.
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            if stat.S_IMODE(info.st_mode) & 0o077:
                raise TokensError(f"{path} can be read by others: chmod 600 {path}")
            body = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise TokensError(f"the tokens in {path} cannot be read: {error.strerror}") from None
    if len(body) > _LARGEST_FILE:
        raise TokensError(f"{path} is larger than {_LARGEST_FILE} bytes")
    try:
        found = msgspec.json.decode(body, type=_File).tokens
    except msgspec.MsgspecError as error:
        # A message about a shape has no values in it, one about bytes might.
        shown = str(error) if isinstance(error, msgspec.ValidationError) else "it is no JSON"
        raise TokensError(f"{path} is no file of tokens: {shown}") from None
    for entry in found:
        _check(entry, path)
    names = [entry.id for entry in found]
    if len(set(names)) != len(names):
        raise TokensError(f"an id stands twice in {path}")
    return found


def add(path: Path, entry: Entry) -> str:
    """Make a token, store its digest, and return it: it cannot be shown again.

    Raises:
        TokensError: the id is taken, the entry is wrong, or the file cannot be used.
    """
    token = f"{PREFIX}{secrets.token_urlsafe(32)}"
    known = load(path)
    made = msgspec.structs.replace(
        entry,
        sha256=_digest(token).hex(),
        token="",
        created=datetime.now(UTC).date().isoformat(),
    )
    _check(made, path)
    if any(each.id == entry.id for each in known):
        raise TokensError(f"there is a token {entry.id!r} already: remove it first")
    _write(path, (*known, made))
    return token


def remove(path: Path, identity: str) -> None:
    """Take a token away; a running server notices with the next request.

    Raises:
        TokensError: there is none with this id, or the file cannot be used.
    """
    known = load(path)
    left = tuple(each for each in known if each.id != identity)
    if len(left) == len(known):
        raise TokensError(f"there is no token {identity!r} in {path}")
    _write(path, left)


def _mark(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode


def _read(path: Path) -> tuple[_Known, ...]:
    if not path.exists():
        raise TokensError(f"there is no file of tokens {path}: `clew token add` makes one")
    return tuple(
        _Known(
            digest=bytes.fromhex(entry.sha256) if entry.sha256 else _digest(entry.token),
            principal=principal(
                entry.id,
                kind=entry.kind,
                rights=frozenset(entry.scopes),
                admin=entry.admin,
                tenant=entry.tenant,
                expires=_moment(entry.expires),
            ),
        )
        for entry in load(path)
    )


def _check(entry: Entry, path: Path) -> None:
    """Insist on what makes sense: a token that may do nothing by mistake is told at once."""
    if entry.id.strip() in {"", "0"} or len(entry.id) > 200 or not entry.id.isprintable():
        raise TokensError(f"an entry of {path} has no usable id")
    unknown = sorted(set(entry.scopes) - SCOPES)
    if unknown:
        known = ", ".join(sorted(SCOPES))
        raise TokensError(f"{entry.id!r} has unknown scopes {unknown}; known are {known}")
    if bool(entry.sha256) == bool(entry.token):
        raise TokensError(f"{entry.id!r} needs a token or its sha256, one of both")
    if entry.token and not _SHORTEST <= len(entry.token) <= _LONGEST:
        raise TokensError(f"the token of {entry.id!r} needs {_SHORTEST} to {_LONGEST} characters")
    if entry.sha256 and not _is_digest(entry.sha256):
        raise TokensError(f"the sha256 of {entry.id!r} is none: 64 hexadecimal digits")
    if entry.tenant == "":
        raise TokensError(f"the tenant of {entry.id!r} is empty: name one, or leave it out")
    try:
        _moment(entry.expires)
    except ValueError:
        raise TokensError(f"{entry.id!r} expires on no day: write it as 2027-01-31") from None


def _moment(day: str) -> float | None:
    if not day:
        return None
    return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()


def _is_digest(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _write(path: Path, entries: tuple[Entry, ...]) -> None:
    body = msgspec.json.format(msgspec.json.encode({"tokens": entries}), indent=2) + b"\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Beside the file, so that it can be put in its place in one step; made with 0600.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise TokensError(f"the tokens in {path} cannot be written: {error.strerror}") from None
