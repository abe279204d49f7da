"""Signed tokens of a provider."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from starlette.datastructures import Headers

from clew.web.oidc import Oidc, OidcError, OidcTokens, read

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
ISSUER, AUDIENCE = "https://login.example.com", "clew"


def pem(key: Any) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def jwks(*keys: dict[str, Any]) -> str:
    return json.dumps({"keys": keys})


def as_jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    maker = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    algorithm = next((to for of, to in maker.items() if isinstance(key, of)), OKPAlgorithm)
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


def claims(**more: Any) -> dict[str, Any]:
    now = int(time.time())
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": now + 300, "iat": now, **more}
    return {name: value for name, value in given.items() if value is not None}


def signed(
    key: Any = RSA, algorithm: str = "RS256", header: dict[str, Any] | None = None, **more: Any
) -> str:
    return jwt.encode(claims(**more), key, algorithm, headers=header)


@pytest.fixture
def tokens(tmp_path: Path) -> Callable[..., OidcTokens]:
    file = tmp_path / "jwks.json"
    file.write_text(jwks(as_jwk(RSA, "r"), as_jwk(EC, "e"), as_jwk(ED, "d")))

    def made(**more: Any) -> OidcTokens:
        return OidcTokens(Oidc(issuer=ISSUER, audience=AUDIENCE, keys=str(file), **more))

    return made


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "r"), (EC, "ES256", "e"), (ED, "EdDSA", "d"), (RSA, "RS256", None)],
)
def test_a_signed_token_is_taken(
    tokens: Callable[..., OidcTokens], key: Any, algorithm: str, kid: str | None
) -> None:
    """By any allowed algorithm, with a key's name or without; the subject is a person."""
    token = signed(key, algorithm, {"kid": kid} if kid else None, tenant="acme")
    found = tokens().of_headers(Headers({"authorization": f"Bearer {token}"}))
    assert found is not None
    assert ("ann", "human", False, "acme") == (
        found.actor.id,
        found.actor.kind,
        found.actor.admin,
        found.tenant,
    )


def test_scopes_become_rights(tokens: Callable[..., OidcTokens]) -> None:
    """As text or list; unknown ones are dropped; an administrator only by the named scope."""
    person = tokens(admin_scope="clew:admin").of_token(signed(scope="capture:read openid root"))
    assert person is not None
    assert (frozenset({"capture_read"}), False) == (person.actor.grants, person.actor.admin)
    listed = tokens(scopes_claim="roles", service_claim="client_id").of_token(
        signed(roles=["agent:read", 7, "ingest"], client_id="x")
    )
    assert listed is not None
    assert ("service", frozenset({"agent:read", "ingest"})) == (
        listed.actor.kind,
        listed.actor.scopes,
    )
    admin = tokens(admin_scope="clew:admin").of_token(signed(scope="clew:admin"))
    assert admin is not None
    assert admin.actor.admin
    nobody = tokens().of_token(signed(scope="clew:admin", admin=True))
    assert nobody is not None
    assert not nobody.actor.admin


def unsigned(header: dict[str, Any], **more: Any) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part(header)}.{part(claims(**more))}."


def confused() -> str:
    """A token whose shared secret is the public key."""
    import hashlib
    import hmac

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    head = part(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = f"{head}.{part(json.dumps(claims()).encode())}"
    return f"{body}.{part(hmac.new(pem(RSA), body.encode(), hashlib.sha256).digest())}"


NOW = int(time.time())


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        unsigned({"alg": "none"}),
        unsigned({"alg": "None", "typ": "JWT"}),
        unsigned({"alg": "RS256"}),
        confused(),
        signed(OTHER),
        signed(OTHER, header={"kid": "r"}),
        signed(RSA, "RS512"),
        signed(RSA, header={"kid": "unknown"}),
        signed(RSA, header={"kid": "e"}),
        signed(RSA, header={"crit": ["exp"]}),
        signed(header={"jwk": as_jwk(OTHER, "r")}, key=OTHER),
        signed(iss="https://evil.example"),
        signed(iss=None),
        signed(aud="other"),
        signed(aud=None),
        signed(exp=NOW - 3600),
        signed(exp=None),
        signed(nbf=NOW + 3600),
        signed(sub=None),
        signed(sub=""),
        signed(sub="0"),
        signed(tenant="*"),
        signed(tenant=""),
        signed(tenant=["acme"]),
    ],
)
def test_anything_wrong_proves_nothing(tokens: Callable[..., OidcTokens], token: str) -> None:
    """Unsigned, by another key or algorithm, for somebody else, over, or not yet: nobody."""
    assert None is tokens().of_token(token)


def test_noise_proves_nothing(tokens: Callable[..., OidcTokens]) -> None:
    """Whatever is sent, nothing is raised."""
    known = tokens()

    @given(st.text(max_size=300) | st.binary(max_size=200).map(lambda each: f"{each.hex()}.e30.x"))
    def sent(text: str) -> None:
        assert None is known.of_token(text)

    sent()


def test_the_audience_may_be_one_of_several(tokens: Callable[..., OidcTokens]) -> None:
    """A list of audiences has to have ours."""
    assert tokens().of_token(signed(aud=["other", AUDIENCE]))


def test_a_header_of_a_proxy_is_taken_where_it_is_named(
    tokens: Callable[..., OidcTokens],
) -> None:
    """With a header configured the token stands in it alone; no other header counts."""
    known = tokens(header="X-Forwarded-Access-Token")
    token = signed()
    assert known.of_headers(Headers({"x-forwarded-access-token": token}))
    assert known.of_headers(Headers({"x-forwarded-access-token": f"Bearer {token}"}))
    assert None is known.of_headers(Headers({"authorization": f"Bearer {token}"}))
    assert None is tokens().of_headers(Headers({"authorization": token}))


def test_a_key_in_pem(tmp_path: Path) -> None:
    """One public key alone will do; it fits its own kind of algorithm only."""
    file = tmp_path / "key.pem"
    file.write_bytes(pem(EC))
    known = OidcTokens(Oidc(issuer=ISSUER, audience=AUDIENCE, keys=str(file)))
    assert known.of_token(signed(EC, "ES256"))
    assert None is known.of_token(signed(RSA))


def test_new_keys_are_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keys are read again when the file changes; a broken file lets nobody in."""
    file = tmp_path / "jwks.json"
    file.write_text(jwks(as_jwk(RSA, "r")))
    known = OidcTokens(Oidc(issuer=ISSUER, audience=AUDIENCE, keys=str(file)))
    assert known.of_token(signed())
    file.write_text(jwks(as_jwk(OTHER, "o")) + " ")
    assert None is known.of_token(signed())
    assert known.of_token(signed(OTHER))
    file.write_text("{")
    assert None is known.of_token(signed(OTHER))
    assert "Nobody can sign in" in caplog.text


PRIVATE = RSA.private_bytes(
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
).decode()


@pytest.mark.parametrize(
    ("content", "more", "said"),
    [
        ("{}", {}, "neither a JWKS document nor a key"),
        (jwks(), {}, "no key for RS256"),
        (jwks({"kty": "oct", "k": "c2VjcmV0"}), {}, "no key for RS256"),
        (jwks(as_jwk(RSA, "r", use="enc")), {}, "no key for RS256"),
        (jwks(as_jwk(RSA, "r", d="x")), {}, "has a private key"),
        (PRIVATE, {}, "has a private key"),
        ("-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----", {}, "no public key"),
        (jwks(as_jwk(RSA, "r")), {"algorithms": ("HS256",)}, "cannot be allowed"),
        (jwks(as_jwk(RSA, "r")), {"algorithms": ("none",)}, "cannot be allowed"),
        (jwks(as_jwk(RSA, "r")), {"algorithms": ()}, "cannot be allowed"),
        (jwks(as_jwk(RSA, "r")), {"audience": ""}, "`audience` must not be empty"),
        (jwks(as_jwk(RSA, "r")), {"leeway_s": 1e9}, "between 0 and 600"),
    ],
)
def test_wrong_settings_are_told_at_the_start(
    tmp_path: Path, content: str, more: dict[str, Any], said: str
) -> None:
    """Keys and algorithms that prove nothing are refused before anything is served."""
    file = tmp_path / "keys"
    file.write_text(content)
    given = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(file), **more}
    with pytest.raises(OidcError, match=said):
        OidcTokens(Oidc(**given))


def test_settings_come_from_a_file(tmp_path: Path) -> None:
    """JSON, with the keys beside it; an unknown field is an error."""
    (tmp_path / "jwks.json").write_text(jwks(as_jwk(RSA, "r")))
    file = tmp_path / "oidc.json"
    file.write_text(json.dumps({"issuer": ISSUER, "audience": AUDIENCE, "keys": "jwks.json"}))
    assert OidcTokens(read(file)).of_token(signed())
    file.write_text(json.dumps({"issuer": ISSUER, "audience": AUDIENCE, "keys": "x", "verify": 0}))
    with pytest.raises(OidcError, match="unknown field"):
        read(file)
    with pytest.raises(OidcError, match="cannot be read"):
        read(tmp_path / "none.json")
