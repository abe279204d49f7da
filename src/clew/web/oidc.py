"""Signed tokens (JWT) of an OpenID Connect provider, or of a proxy that signs people in.

Keys come from a file, for nothing is fetched: a JWKS document (RFC 7517) or one key in PEM. Checked
are the signature by an allowed algorithm, issuer, audience, expiry and start (RFC 7519, RFC 8725);
`none` and shared secrets are never taken.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct
from starlette.datastructures import Headers

from clew.actors import SCOPES
from clew.errors import ClewError, MissingExtraError
from clew.web.access import Principal, principal
from clew.web.tokens import bearer

ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""What can be allowed: signatures with a key pair. Who checks a shared secret can also sign."""
_LARGEST_FILE: Final = 1024 * 1024
_MOST_KEYS: Final = 64
_logger: Final = logging.getLogger("clew.web")


class OidcError(ClewError):
    """The settings of the provider, or its keys, cannot be used."""


class Oidc(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose tokens are taken, and what is read from them."""

    issuer: str
    """What `iss` has to be, exactly."""
    audience: str
    """What `aud` has to be, or has to have among its values."""
    keys: str
    """A JWKS file, or a public key in PEM; beside this file where the path is not absolute."""
    algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    header: str = "authorization"
    """Where the token is: `authorization` (after `Bearer`), or the header that a proxy sets."""
    kind: Literal["human", "service"] = "human"
    """What a token stands for, unless `service_claim` says otherwise."""
    service_claim: str = ""
    """A claim whose presence makes it a service, such as `client_id`."""
    tenant_claim: str = "tenant"
    scopes_claim: str = "scope"
    """A claim with scopes: a text with spaces between them, or a list."""
    admin_scope: str = ""
    """A scope that makes an administrator; empty: nobody is one."""
    leeway_s: float = 30.0
    """How much the clocks may differ."""


def read(path: Path) -> Oidc:
    """Read the settings from a JSON file.

    Raises:
        OidcError: they cannot be used.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Oidc)
    except OSError as error:
        raise OidcError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise OidcError(f"{path} cannot be used: {error}") from None
    return msgspec.structs.replace(found, keys=str(path.parent / Path(found.keys).expanduser()))


class OidcTokens:
    """Tells who sends a request by a signed token.

    The keys are read again when their file changes.

    Args:
        settings: whose tokens are taken.

    Raises:
        MissingExtraError: the library for signatures is not there.
        OidcError: the settings or the keys cannot be used.
    """

    def __init__(self, settings: Oidc) -> None:
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise MissingExtraError("signing in with OpenID Connect", "oidc")
        for name in ("issuer", "audience", "header"):
            if not getattr(settings, name).strip():
                raise OidcError(f"`{name}` must not be empty")
        if not 0 <= settings.leeway_s <= 600:
            raise OidcError("`leeway_s` must be between 0 and 600")
        unknown = sorted(set(settings.algorithms) - ALGORITHMS)
        if unknown or not settings.algorithms:
            raise OidcError(
                f"algorithms {unknown} cannot be allowed; take some of {sorted(ALGORITHMS)}"
            )
        self._settings = settings
        self._path = Path(settings.keys)
        self._mark = _mark(self._path)
        self._keys = _keys(self._path, settings.algorithms)

    def of_headers(self, headers: Headers) -> Principal | None:
        """Return whom the token in the header stands for."""
        token = bearer(headers, self._settings.header.lower())
        return None if token is None else self.of_token(token)

    def of_token(self, token: str) -> Principal | None:
        """Return whom a token stands for, None where anything about it is wrong."""
        claims = self._claims(token)
        if claims is None:
            return None
        subject = claims.get("sub")
        if not isinstance(subject, str) or subject.strip() in {"", "0"} or len(subject) > 500:
            return None
        tenant = claims.get(self._settings.tenant_claim)
        if tenant is not None and (not isinstance(tenant, str) or tenant in {"", "*"}):
            return None
        scopes = _scopes(claims.get(self._settings.scopes_claim))
        service = self._settings.kind == "service" or (
            bool(self._settings.service_claim) and self._settings.service_claim in claims
        )
        return principal(
            subject,
            kind="service" if service else "human",
            rights=frozenset(scopes & SCOPES),
            admin=bool(self._settings.admin_scope) and self._settings.admin_scope in scopes,
            tenant=tenant,
            expires=float(claims["exp"]),
        )

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        import jwt

        self._refresh()
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.algorithms or "crit" in header:
                return None
            for known in self._keys:
                if not known.fits(algorithm, key_id):
                    continue
                try:
                    return jwt.decode(
                        token,
                        known.key,
                        algorithms=[algorithm],
                        audience=self._settings.audience,
                        issuer=self._settings.issuer,
                        leeway=self._settings.leeway_s,
                        options={"require": ["exp", "iss", "aud", "sub"]},
                    )
                except jwt.InvalidSignatureError:
                    continue
        # What somebody sends can break a parser in ways of its own; it proves nothing then.
        except Exception:
            return None
        return None

    def _refresh(self) -> None:
        mark = _mark(self._path)
        if mark == self._mark:
            return
        try:
            self._keys = _keys(self._path, self._settings.algorithms)
        except OidcError as error:
            self._keys = ()
            _logger.error("Nobody can sign in: %s", error)  # noqa: TRY400 - the message is all
        self._mark = mark


class _Key(Struct, frozen=True, kw_only=True):
    key: Any
    key_id: str | None
    algorithm: str | None
    """The only one that it is for, where it says so."""
    family: str
    """`RSA`, `EC` or `OKP`."""

    def fits(self, algorithm: str, key_id: Any) -> bool:
        if self.key_id is not None and key_id is not None and key_id != self.key_id:
            return False
        if self.algorithm is not None and algorithm != self.algorithm:
            return False
        return self.family == {"R": "RSA", "P": "RSA", "E": "EC"}.get(algorithm[0], "") or (
            self.family == "OKP" and algorithm == "EdDSA"
        )


def _keys(path: Path, algorithms: tuple[str, ...]) -> tuple[_Key, ...]:
    try:
        with path.open("rb") as file:
            body = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise OidcError(f"the keys in {path} cannot be read: {error.strerror}") from None
    if len(body) > _LARGEST_FILE:
        raise OidcError(f"{path} is larger than {_LARGEST_FILE} bytes")
    if b"PRIVATE KEY" in body:
        raise OidcError(f"{path} has a private key: give the public one")
    found = (_of_pem(body),) if body.lstrip().startswith(b"-----BEGIN") else _of_jwks(body, path)
    usable = tuple(each for each in found if any(each.fits(name, None) for name in algorithms))
    if not usable:
        raise OidcError(f"{path} has no key for {', '.join(algorithms)}")
    return usable


def _of_pem(body: bytes) -> _Key:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    try:
        if b"BEGIN CERTIFICATE" in body:
            key = load_pem_x509_certificate(body).public_key()
        else:
            key = load_pem_public_key(body)
    except ValueError:
        raise OidcError("the key is no public key in PEM") from None
    family = "OKP"
    if isinstance(key, RSAPublicKey):
        family = "RSA"
    elif isinstance(key, EllipticCurvePublicKey):
        family = "EC"
    return _Key(key=key, key_id=None, algorithm=None, family=family)


def _of_jwks(body: bytes, path: Path) -> tuple[_Key, ...]:
    from jwt import PyJWK, PyJWTError

    try:
        listed = msgspec.json.decode(body, type=dict[str, list[dict[str, Any]]])["keys"]
    except (msgspec.MsgspecError, KeyError):
        raise OidcError(f"{path} is neither a JWKS document nor a key in PEM") from None
    found: list[_Key] = []
    for entry in listed[:_MOST_KEYS]:
        family = entry.get("kty")
        if family not in {"RSA", "EC", "OKP"} or entry.get("use", "sig") != "sig":
            continue
        if "d" in entry:
            raise OidcError(f"{path} has a private key: give the public ones")
        try:
            key = PyJWK(entry).key
        except PyJWTError:
            continue
        key_id, algorithm = entry.get("kid"), entry.get("alg")
        found.append(
            _Key(
                key=key,
                key_id=key_id if isinstance(key_id, str) else None,
                algorithm=algorithm if isinstance(algorithm, str) else None,
                family=cast("str", family),
            )
        )
    return tuple(found)


def _scopes(given: Any) -> frozenset[str]:
    if isinstance(given, str):
        return frozenset(given.split())
    if isinstance(given, list):
        listed = cast("list[Any]", given)
        return frozenset(each for each in listed if isinstance(each, str))
    return frozenset()


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
