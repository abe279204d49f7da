"""What a span's digest covers, and how it is made: so that a reader can tell what was altered.

A digest is taken over a closed, versioned list of facts (`COVERED`), written as JSON in the form of
RFC 8785 (UTF-8, no spaces):

    ["clew-span-1", trace id, span id, parent id, failed, start, duration, [place*], [value*]]

Ids are hex, the parent's of a root is null, times are whole microseconds, because that is what
every backend keeps. Places are those of the facts in the list, in order; absent facts are left out.
A number that is whole is written without a fraction; any other is a text with the shortest decimal
that reads back as the same IEEE 754 double.

Not covered: the span's name and kind (they follow from covered facts), events and links (a
collector drops them), the resource, the scope, captured content, block maps of prompts.

With a key, the digest of each span and of the segment is an HMAC-SHA-256; without, SHA-256; either
way its first 16 bytes, as hex, behind `k1-` (keyed) or `p1-` (plain). The seal of a segment carries
the digest of its own facts and of all the others' digests in order, which a signing key signs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import msgspec

from clew import semconv
from clew.errors import ConfigurationError, MissingExtraError
from clew.rules import Each, Flag, Number

VERSION: Final = 1
_PLAIN: Final = f"p{VERSION}-"
_KEYED: Final = f"k{VERSION}-"
_BYTES: Final = 16
_WHOLE: Final = 2.0**63
_TEXT: Final = frozenset({str})

COVERED: Final[tuple[str, ...]] = (
    *(semconv.RUN_ID, semconv.SEGMENT_ID, semconv.SEGMENT, semconv.SEQ, semconv.AGENT_ID),
    *(semconv.ROUND, semconv.SEGMENT_PREVIOUS_ID, semconv.SEGMENT_RESTART, semconv.RUN_ROOT),
    *(semconv.RUN_EVENT, semconv.RUN_STATUS, semconv.RUN_TERMINATION_REASON),
    *(semconv.RUN_PARENT_ID, semconv.RUN_KIND, semconv.RUN_OPEN_SEQS, semconv.RUN_ID_GIVEN),
    *(semconv.ACTOR, semconv.TENANT, semconv.CONFIGURATION, semconv.DATA_CLASS, semconv.TRIGGER),
    *(semconv.MESSAGE_ID, semconv.CONVERSATION_ID, semconv.CAPTURE_LEVEL, semconv.DIGEST_KEY_ID),
    *(f"clew.run.{name}" for name in semconv.TOTALS),
    *(f"clew.segment.{name}" for name in semconv.TOTALS),
    *(semconv.SEAL_SPANS, semconv.SEAL_LAST_SEQ, semconv.SEAL_OPEN_SEQS),
    *(semconv.OPERATION, semconv.PROVIDER, semconv.REQUEST_MODEL, semconv.RESPONSE_MODEL),
    *(semconv.RESPONSE_ID, semconv.RESPONSE_FINISH_REASONS, semconv.AGENT_NAME),
    *(semconv.ERROR_TYPE, semconv.SERVER_ADDRESS, semconv.SERVER_PORT, semconv.HTTP_STATUS),
    *(semconv.USAGE_INPUT, semconv.USAGE_OUTPUT, semconv.USAGE_CACHE_READ),
    *(semconv.USAGE_CACHE_WRITE, semconv.USAGE_REASONING, semconv.USAGE_SOURCE),
    *(semconv.USAGE_MISMATCH, semconv.COST_USD, semconv.COST_STATUS, semconv.COST_MISSING),
    *(semconv.COST_LIST_USD, semconv.PRICE_SOURCE, semconv.PRICE_VERSION, semconv.PRICE_MODEL),
    *(semconv.ATTEMPTS, semconv.ATTEMPT_GROUPED, semconv.STREAM_OUTCOME),
    *(semconv.REQUEST_BYTES, semconv.REQUEST_MESSAGES, semconv.REQUEST_TOOLS),
    *(semconv.RESPONSE_BYTES, semconv.SERVED_PROVIDER, semconv.PROVIDER_HOP),
    *(semconv.PROVIDER_FAILURE_CLASS, semconv.AGGREGATE, semconv.DECISIONS, semconv.DENIALS),
    *(semconv.RESPONSE_TOOL_CALL_IDS, semconv.RESPONSE_TOOL_CALL_NAMES),
    *(semconv.TOOL_NAME, semconv.TOOL_NAME_DIGEST, semconv.TOOL_CALL_ID, semconv.TOOL_OUTCOME),
    *(semconv.TOOL_EFFECT, semconv.TOOL_ARGUMENTS_BYTES, semconv.TOOL_RESULT_BYTES),
    *(semconv.TOOL_INFERRED, semconv.DECISION_ID, semconv.DECISION_GATE),
    *(semconv.DECISION_OUTCOME, semconv.DECISION_REASON, semconv.DECISION_POLICY),
    *(semconv.DECISION_POLICY_VERSION, semconv.DECISION_ENFORCED, semconv.DECISION_EXECUTED),
    *(semconv.DECISION_SUBJECT, semconv.DECISION_SUBJECT_DIGEST, semconv.DECISION_BY),
    *(semconv.DECISION_PROPOSED_AT, semconv.DECISION_DECIDED_AT, semconv.DECISION_WAIT_MS),
    *(semconv.DECISION_TRUST_ZONE, semconv.DECISION_DATA_CLASS),
)
"""The facts of version 1, in order. A fact is never taken out or moved: that is a new version."""

_PLACES: Final = {key: place for place, key in enumerate(COVERED)}
_RULES: Final = tuple(semconv.RULES[key] for key in COVERED)
_PLANS_KEPT: Final = 1024
_Mend = tuple[int, Callable[[Any], Any]]
"""The place of a value in the list, and what makes of it what is written."""


class _Plan(NamedTuple):
    """How the covered facts of spans with the same keys are written."""

    places: msgspec.Raw
    pick: Callable[[Mapping[str, Any]], Any]
    """Gives the values as a tuple."""
    makers: tuple[Callable[[Any], Any], ...]
    wanted: tuple[type | None, ...]
    """The type that each value has as it is written; None where each has to be looked at."""
    mends: dict[tuple[type, ...], tuple[_Mend, ...]]
    """What is to be done to values of these types: those of most spans are the same."""


_plans: dict[tuple[str, ...], _Plan] = {}
"""By all the keys of a span: most spans have the same."""
_encode: Final = msgspec.json.Encoder().encode
_HEAD: Final = f"clew-span-{VERSION}"


def encode(
    trace_id: str,
    span_id: str,
    parent_id: str | None,
    times: tuple[int, int],
    failed: bool,
    attributes: Mapping[str, Any],
) -> bytes:
    """Write the covered facts of one span.

    Args:
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: 16 hex digits, None for a root.
        times: start and end (ns since the epoch).
        failed: whether the status is error.
        attributes: the attributes, of the types that a source gives; texts of numbers, flags and
            lists (some backends keep everything as text) are read as what they stand for.
    """
    names = tuple(attributes)
    plan = _plans.get(names) or _plan(names)
    values = plan.pick(attributes)
    types = tuple(map(type, values))
    mended = plan.mends.get(types)
    if mended is None:
        mended = _mends(plan, types)
    if mended:
        values = list(values)
        for place, mend in mended:
            values[place] = mend(values[place])
    start, end = times
    start_us, spent_us, places = start // 1000, (end - start) // 1000, plan.places
    whole = (_HEAD, trace_id, span_id, parent_id, failed, start_us, spent_us, places, values)
    try:
        return _encode(whole)
    except (UnicodeEncodeError, OverflowError):
        return _encode(_sayable(whole))


def _plan(names: tuple[str, ...]) -> _Plan:
    """Return how the covered facts of spans with these keys are written."""
    places = sorted(_PLACES[name] for name in names if name in _PLACES)
    rules = [_RULES[place] for place in places]
    makers: list[Callable[[Any], Any]] = []
    wanted: list[type | None] = []
    for rule in rules:
        if isinstance(rule, Each):
            makers.append(_numbers if isinstance(rule.rule, Number) else _texts)
            wanted.append(None)
        elif isinstance(rule, Number):
            makers.append(_number)
            wanted.append(int)
        elif isinstance(rule, Flag):
            makers.append(_flag)
            wanted.append(bool)
        else:
            makers.append(str)
            wanted.append(str)
    keys = [COVERED[place] for place in places]
    plan = _Plan(msgspec.Raw(_encode(places)), _picker(keys), tuple(makers), tuple(wanted), {})
    if len(_plans) >= _PLANS_KEPT:
        _plans.clear()
    _plans[names] = plan
    return plan


def _picker(keys: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda attributes: tuple(attributes[key] for key in keys)


def _mends(plan: _Plan, types: tuple[type, ...]) -> tuple[_Mend, ...]:
    """Return what is to be done to values of these types."""
    found = tuple(
        (place, maker)
        for place, (maker, wanted, given) in enumerate(
            zip(plan.makers, plan.wanted, types, strict=True)
        )
        if given is not wanted
    )
    if len(plan.mends) < _PLANS_KEPT:
        plan.mends[types] = found
    return found


def _texts(value: Any) -> Any:
    """Return the entries as texts: as a rule they are."""
    if type(value) is tuple and _TEXT.issuperset(map(type, cast("tuple[Any, ...]", value))):
        return cast("Any", value)
    return _entries(value, str)


def _numbers(value: Any) -> Any:
    return _entries(value, _number)


def _entries(value: Any, make: Callable[[Any], Any]) -> Any:
    if isinstance(value, str):
        value = as_list(value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value)
    return [make(each) for each in cast("Sequence[Any]", value)]


def _flag(value: Any) -> bool:
    return value.lower() == "true" if isinstance(value, str) else bool(value)


def _number(value: Any) -> int | str:
    if value.__class__ is float and not value.is_integer():
        return repr(value)
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return value
    if isinstance(value, float):
        if value.is_integer() and -_WHOLE < value < _WHOLE:  # false of what is not finite
            return int(value)
        return repr(value)
    return int(value) if isinstance(value, int) else str(value)


def _sayable(value: Any) -> Any:
    """Return a value without half surrogate pairs and integers that JSON encoders refuse."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, (list, tuple)):
        return [_sayable(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= _WHOLE:
        return str(value)
    return value


def as_list(text: str) -> Any:
    """Return the list that a backend has written as JSON text, or the text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return text


class Key:
    """A secret with which digests are made (HMAC-SHA-256); None makes plain ones."""

    __slots__ = ("_secret", "id", "prefix")

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret
        self.prefix = _PLAIN if secret is None else _KEYED
        self.id = None if secret is None else _key_id(b"clew integrity key\0" + secret)
        """16 hex digits that tell keys apart and say nothing of the secret."""

    def of(self, data: bytes) -> bytes:
        """Return the 16 bytes of a digest."""
        if self._secret is None:
            return hashlib.sha256(data).digest()[:_BYTES]
        return hmac.digest(self._secret, data, "sha256")[:_BYTES]

    def written(self, digest: bytes) -> str:
        """Return a digest as it stands on a span."""
        return self.prefix + digest.hex()


def read(digest: Any) -> tuple[bool, bytes] | None:
    """Return whether a digest on a span is keyed, and its bytes; None when it is none of ours."""
    if not isinstance(digest, str) or digest[:3] not in (_PLAIN, _KEYED):
        return None
    try:
        found = bytes.fromhex(digest[3:])
    except ValueError:
        return None
    return (digest[:3] == _KEYED, found) if len(found) == _BYTES else None


def seal_data(seal: bytes, digests: Iterable[tuple[int, bytes]]) -> bytes:
    """Return what the digest of a segment is taken over.

    Args:
        seal: the encoded facts of the seal's own span.
        digests: the other spans' sequence numbers and digests, in order.
    """
    chain = hashlib.sha256()
    for seq, digest in digests:
        chain.update(f"{seq}:".encode() + digest)
    return b"clew-segment-1|" + chain.digest() + b"|" + seal


class Signer:
    """Signs the digest of a segment with an Ed25519 key (PEM, PKCS #8; RFC 8410).

    Args:
        path: the file with the private key.

    Raises:
        ConfigurationError: the file cannot be read, or holds no such key.
        MissingExtraError: `cryptography` is not installed.
    """

    __slots__ = ("_key", "id")

    def __init__(self, path: Path) -> None:
        self._key: Any = _load(path, private=True)
        self.id = _key_id(self._key.public_key().public_bytes_raw())

    def sign(self, digest: bytes) -> str:
        """Return the signature as 128 hex digits."""
        return cast("bytes", self._key.sign(digest)).hex()


class SignatureKey:
    """Checks signatures with an Ed25519 public key (or the private one), read from a PEM file.

    Raises:
        ConfigurationError: the file cannot be read, or holds no such key.
        MissingExtraError: `cryptography` is not installed.
    """

    __slots__ = ("_key", "id")

    def __init__(self, path: Path) -> None:
        self._key: Any = _load(path, private=False)
        self.id = _key_id(self._key.public_bytes_raw())

    def verifies(self, signature: str, digest: bytes) -> bool:
        """Tell whether a signature is this key's."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(bytes.fromhex(signature), digest)
        except (ValueError, InvalidSignature):
            return False
        return True


def _load(path: Path, *, private: bool) -> Any:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtraError("signing with Ed25519", "audit") from None
    try:
        data = path.read_bytes()
        if b"PRIVATE KEY" in data:
            found: Any = serialization.load_pem_private_key(data, None)
            right = isinstance(found, ed25519.Ed25519PrivateKey)
            found = found if private or not right else found.public_key()
        else:
            found = serialization.load_pem_public_key(data)
            right = isinstance(found, ed25519.Ed25519PublicKey) and not private
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{path} cannot be read as a key: {error}") from None
    if not right:
        kind = "private" if private else "public"
        raise ConfigurationError(f"{path} holds no Ed25519 {kind} key in PEM")
    return found


def _key_id(material: bytes) -> str:
    return hashlib.sha256(b"clew key id\0" + material).hexdigest()[:16]
