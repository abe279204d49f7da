"""Masking secrets in captured content: a heuristic, and no promise.

It masks what looks like a credential or a number that identifies a person, in values and in keys,
and caps every text. It cannot know names, addresses or what else a text says: content that must
not leave is not captured. A rule that fails masks everything it was given; nothing is let through
because something went wrong.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from clew._guard import record_failure
from clew.detectors import finder

MASK: Final = "***"
FAILED: Final = "[redacted: a rule failed]"
"""Stands for content that a rule could not look at."""
TOO_DEEP: Final = "[redacted: nested too deep]"
TOO_MANY: Final = "[redacted: too many values]"
TEXT_LIMIT: Final = 2000
"""Characters of one text that are kept."""

_READ: Final = 40_000
_DEEPEST: Final = 24
MOST: Final = 20_000
"""Values of one attribute that are looked at."""

Detector = Callable[[str], str]
"""Returns a text with what it finds masked."""


class _Pattern:
    """Puts a replacement where a pattern fits.

    Args:
        may_be: tells, quickly, whether the pattern can fit in a text at all.
        pattern: the pattern.
        replacement: what is put there.
        flags: the pattern's flags.
    """

    __slots__ = ("_replacement", "may_be", "pattern")

    def __init__(
        self, may_be: Callable[[str], object], pattern: str, replacement: str, flags: int = 0
    ) -> None:
        self.may_be = may_be
        self.pattern = re.compile(pattern, flags)
        self._replacement = replacement

    def __call__(self, text: str) -> str:
        return self.pattern.sub(self._replacement, text) if self.may_be(text) else text


# Searching a text for a few characters is far quicker than for a pattern.

_ALIKE: Final = str.maketrans({"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"})
"""Letters that patterns take for others where the case does not matter."""
_WITH_UNDERSCORE: Final = ("sk_", "rk_", "pk_", "hf_", "r8_", "npm_", "dop_v1_", "github_pat_")
_WITH_HYPHEN: Final = ("sk-", "xai-", "pplx-", "glpat-", "xox", "pypi-", "AGE-SECRET-KEY-1")
_WITH_NEITHER: Final = ("AIza", "ya29.", "AKIA", "ASIA", "ABIA", "ACCA", "SG.")
_PARTS_OF_NAMES: Final = ("key", "passw", "pwd", "passphrase", "secret", "credential", "token")


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_ALIKE).lower()


def _with_credentials(text: str) -> bool:
    return "@" in text and "://" in text


def _with_query(text: str) -> bool:
    return "=" in text and ("?" in text or "&" in text or ";" in text)


def _with_vendor(text: str) -> bool:
    if "_" in text and ("gh" in text or any(mark in text for mark in _WITH_UNDERSCORE)):
        return True
    if "-" in text and any(mark in text for mark in _WITH_HYPHEN):
        return True
    return any(mark in text for mark in _WITH_NEITHER)


def _with_scheme(text: str) -> bool:
    folded = _folded(text)
    return "bearer" in folded or "basic" in folded


def _with_name(text: str) -> bool:
    if ":" not in text and "=" not in text:
        return False
    folded = _folded(text)
    return any(part in folded for part in _PARTS_OF_NAMES)


_VENDORS: Final = "|".join(  # noqa: FLY002 - one shape for each line
    (
        r"sk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
        r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}",
        r"gsk_[A-Za-z0-9]{16,}",
        r"xai-[A-Za-z0-9]{16,}",
        r"pplx-[A-Za-z0-9]{16,}",
        r"hf_[A-Za-z0-9]{16,}",
        r"r8_[A-Za-z0-9]{16,}",
        r"AIza[A-Za-z0-9_-]{30,}",
        r"ya29\.[A-Za-z0-9_.-]{16,}",
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
        r"gh[pousr]_[A-Za-z0-9]{16,}",
        r"github_pat_[A-Za-z0-9_]{16,}",
        r"glpat-[A-Za-z0-9_-]{16,}",
        r"xox[abeoprs]-[A-Za-z0-9-]{8,}",
        r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        r"npm_[A-Za-z0-9]{16,}",
        r"pypi-[A-Za-z0-9_-]{16,}",
        r"dop_v1_[a-f0-9]{16,}",
        r"AGE-SECRET-KEY-1[A-Z0-9]{16,}",
    )
)
_NAMES: Final = (
    r"(?:api|access|secret|private|signing|encryption)[_-]?keys?|passwords?|passwd|pwd|passphrase|"
    r"secrets?|credentials?|(?:access|refresh|auth|session|id|bearer|api)[_-]?token|client[_-]?secret"
)
_QUERY: Final = (
    r"(?:[A-Za-z0-9_.-]{0,32}"
    r"(?:key|token|secret|signature|sig|password|passwd|pwd|auth|credential))"
)


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit)
        if place % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


_CARD: Final = re.compile(r"(?<![0-9A-Za-z])[0-9](?:[ -]?[0-9]){11,18}(?![0-9A-Za-z])", re.ASCII)

_TWELVE_DIGITS: Final = re.compile(r"[0-9](?:[ -]?[0-9]){11}").search


def _cards(text: str) -> str:
    def masked(found: re.Match[str]) -> str:
        digits = re.sub(r"[ -]", "", found[0])
        return MASK if _luhn(digits) and len(set(digits)) > 1 else found[0]

    return _CARD.sub(masked, text) if _TWELVE_DIGITS(text) else text


_IBAN: Final = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){11,30}")

_TWO_DIGITS: Final = re.compile(r"[0-9]{2}").search


def _is_iban(compact: str) -> bool:
    if not 15 <= len(compact) <= 34:
        return False
    moved = compact[4:] + compact[:4]
    return int("".join(str(int(character, 36)) for character in moved)) % 97 == 1


def _ibans(text: str) -> str:
    def masked(found: re.Match[str]) -> str:
        # What follows an account number may look like more of it: try shorter and shorter.
        candidate = found[0]
        for end in range(len(candidate), 14, -1):
            after = candidate[end : end + 1]
            if after and after not in " -":
                continue
            compact = re.sub(r"[ -]", "", candidate[:end])
            if _is_iban(compact.upper()):
                return MASK + candidate[end:]
        return candidate

    return _IBAN.sub(masked, text) if _TWO_DIGITS(text) else text


DETECTORS: Final[tuple[tuple[str, Detector], ...]] = (
    (
        "private_key",
        _Pattern(
            lambda text: "PRIVATE KEY" in text,
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            r".*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)",
            MASK,
            re.DOTALL,
        ),
    ),
    (
        "url_credentials",
        _Pattern(
            _with_credentials,
            r"(\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)[^\s/?#\"'<>]{1,1024}@",
            rf"\1{MASK}@",
        ),
    ),
    (
        "url_query",
        _Pattern(_with_query, rf"([?&;]{_QUERY}=)[^&\s#\"'<>]+", rf"\1{MASK}", re.IGNORECASE),
    ),
    (
        "jwt",
        _Pattern(
            lambda text: "eyJ" in text,
            r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?",
            MASK,
        ),
    ),
    ("vendor_key", _Pattern(_with_vendor, rf"(?<![A-Za-z0-9])(?:{_VENDORS})", MASK)),
    (
        "authorization",
        _Pattern(
            _with_scheme,
            r"\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=:-]{8,}",
            rf"\1\2{MASK}",
            re.IGNORECASE,
        ),
    ),
    (
        "named_secret",
        _Pattern(
            _with_name,
            rf"\b({_NAMES})([\"']?\s{{0,4}}[:=]\s{{0,4}})(\"[^\"]*\"|'[^']*'|[^\s\"',;&]+)",
            rf"\1\2{MASK}",
            re.IGNORECASE,
        ),
    ),
    (
        "e-mail",
        _Pattern(
            lambda text: "@" in text,
            r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+",
            MASK,
        ),
    ),
    ("iban", _ibans),
    ("card", _cards),
)
"""What is looked for, in this order: the name of the rule, and the rule."""

_SHORT: Final = 16


def _own(text: str) -> str:
    # A short word without digits is nothing that any of them looks for.
    if len(text) < _SHORT and text.replace("_", "").isalpha():
        return text
    for _, detect in DETECTORS:
        text = detect(text)
    return text


_SECRET_WORDS: Final = frozenset(
    {
        *("password", "passwords", "passwd", "pwd", "passphrase", "secret", "secrets", "token"),
        *("apikey", "authorization", "credential", "credentials", "cookie", "cookies", "signature"),
        *("accesskey", "privatekey", "secretkey", "accesstoken", "clientsecret", "otp", "pin"),
        *("cvv", "cvc", "ssn", "iban"),
    }
)
_SECRET_PAIRS: Final = frozenset({"api", "access", "private", "secret", "signing", "encryption"})
_NO_SECRETS: Final = frozenset(
    {"type", "role", "content", "name", "id", "arguments", "response", "finish_reason"}
)
"""Keys of nearly all messages, which need no second look."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def names_a_secret(key: str) -> bool:
    """Tell whether a key says that its value is a secret: by its last word, not by a part of one.

    So `session_token` and `apiKey` do, `max_tokens`, `author` and `token_type` do not.
    """
    if key in _NO_SECRETS:
        return False
    words = [word.lower() for word in _WORDS.findall(key[:256])]
    if not words:
        return False
    return words[-1] in _SECRET_WORDS or (
        words[-1] in ("key", "keys") and len(words) > 1 and words[-2] in _SECRET_PAIRS
    )


_also: tuple[Detector, ...] = ()
_functions = False
"""Whether some of them are functions of one's own, which may answer otherwise each time."""
_changes = 0
"""How often they were set."""


def ask_also(further: Sequence[str | Detector]) -> None:
    """Say which detectors every redactor of this process asks on top of those of this module.

    Args:
        further: names of `clew.detectors`, or functions of one's own; they replace earlier ones.

    Raises:
        ConfigurationError: there is no detector of a name.
        MissingExtraError: one is not installed.
    """
    global _also, _functions, _changes  # noqa: PLW0603 - as the settings are: of the process
    _changes += 1
    _functions = not all(isinstance(one, str) for one in further)
    _also = tuple(_masking(finder(one)) if isinstance(one, str) else one for one in further)


def _masking(find: Callable[[str], Iterable[str]]) -> Detector:
    def detect(text: str) -> str:
        # The longest first: one may be a part of another.
        for secret in sorted(set(find(text)), key=len, reverse=True):
            if secret:
                text = text.replace(secret, MASK)
        return text

    return detect


class Redactor:
    """Masks content by the detectors of this module, by those of the settings, and by others.

    Args:
        extra: further detectors.
        text_limit: characters of one text that are kept.
        detectors: the detectors; by default those of this module and of `ask_also`.
    """

    def __init__(
        self,
        extra: Sequence[Detector] = (),
        *,
        text_limit: int = TEXT_LIMIT,
        detectors: Sequence[Detector] | None = None,
    ) -> None:
        own = (_own, *_also) if detectors is None else detectors
        self._detectors = (*own, *extra)
        self._limit = text_limit
        self.repeats = detectors is None and not extra and not _functions
        """Whether it answers alike each time, as other redactors with its `identity` do."""
        self.identity = (_changes, text_limit)

    def redact(self, value: Any) -> Any:
        """Return a copy of a JSON value with secrets masked and texts capped. Never raises."""
        try:
            return self._walk(value, 0, [MOST])
        except Exception:
            record_failure("mask content", "It is left out")
            return FAILED

    def entry(self, value: Any) -> tuple[Any, int]:
        """Do what `redact` does to one value of a list; tell how many of `MOST` values it has.

        May raise what a detector raises: then the list as a whole is to be redacted.
        """
        left = [MOST]
        kept = self._walk(value, 1, left)
        return kept, MOST - left[0]

    def text(self, text: str) -> str:
        """Return a text with secrets masked, capped with a mark. Never raises."""
        try:
            return self._text(text)
        except Exception:
            record_failure("mask content", "It is left out")
            return FAILED

    def _text(self, text: str) -> str:
        length = len(text)
        if length > _READ:
            # What is cut in half would no longer be recognised: the last word goes as a whole.
            text = text[:_READ]
            text = text[: max(text.rfind(" "), text.rfind("\n"), 0)]
        for detect in self._detectors:
            text = detect(text)
            if type(text) is not str:
                return FAILED
        if length > _READ or len(text) > self._limit:
            return f"{text[: self._limit]}…[cut: {length} characters]"
        return text

    def _walk(self, value: Any, depth: int, left: list[int]) -> Any:
        left[0] -= 1
        if left[0] < 0:
            return TOO_MANY
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if abs(value) < 10**11 else self._number(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth >= _DEEPEST:
            return TOO_DEEP
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value), depth, left)
        if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
            kept: list[Any] = []
            for item in cast("Sequence[Any]", value):
                kept.append(self._walk(item, depth + 1, left))
                if left[0] < 0:
                    break
            return kept
        return FAILED

    def _number(self, value: int) -> Any:
        text = str(value)
        return value if self._text(text) == text else MASK

    def _mapping(self, value: Mapping[Any, Any], depth: int, left: list[int]) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            name = self._text(str(key))
            while name in kept:  # two keys may be masked alike
                name += "+"
            secret = isinstance(item, str) and names_a_secret(str(key))
            kept[name] = MASK if secret else self._walk(item, depth + 1, left)
            if left[0] < 0:
                break
        return kept
