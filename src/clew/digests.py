"""Keyed digests: HMAC-SHA-256 of a text, so that equal texts can be told equal and nothing more.

A plain hash of a short text is the text (it can be guessed), hence the key. Digests made with
different keys are not comparable: `key_id` says which key it was.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from clew._guard import logger, warn_once

KEY_FILE = "digest.key"


class Digests:
    """Makes keyed digests with one key."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.key_id = hashlib.sha256(b"clew digest key id\0" + key).hexdigest()[:16]

    def of(self, text: str | bytes) -> str:
        """Return the digest of a text (its UTF-8 bytes) as 64 hexadecimal digits."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return hmac.digest(self._key, data, "sha256").hex()


class LazyDigests:
    """Finds the key when the first digest is asked for.

    The key is the configured one, else the install key (`digest.key` in the data folder, readable
    by its owner only), else one of this process alone, with a warning.
    """

    __slots__ = ("_configured", "_data_dir", "_found")

    def __init__(self, configured: str | None, data_dir: Path) -> None:
        self._configured = configured
        self._data_dir = data_dir
        self._found: Digests | None = None

    def get(self) -> Digests:
        """Return the digests of this process."""
        if self._found is None:
            self._found = Digests(self._key())
        return self._found

    def _key(self) -> bytes:
        if self._configured:
            return self._configured.encode()
        path = self._data_dir / KEY_FILE
        try:
            if path.stat().st_mode & 0o077:
                logger.warning(
                    "%s is readable by others and is not used; set its mode to 0600", path
                )
            else:
                return path.read_bytes()
        except OSError:
            pass
        warn_once(
            "find a digest key",
            "No digest key is set: digests of this process cannot be compared with those of "
            "others. Set CLEW_DIGEST_KEY to a secret of your own.",
        )
        return os.urandom(32)
