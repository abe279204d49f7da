"""Keys that an auditor checks with: those in force and those of before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from clew.errors import ConfigurationError
from clew.integrity import Key, SignatureKey
from clew.settings import Settings

FOLDER: Final = "integrity-keys"
"""Folder in the data folder: `*.key` files hold secrets, `*.pem` files Ed25519 keys."""
_PEM: Final = b"-----BEGIN"


class KeyRing:
    """The keys to try, by their ids.

    Args:
        keys: secrets with which digests were made.
        signatures: keys that check signatures.
    """

    def __init__(self, keys: Iterable[Key] = (), signatures: Iterable[SignatureKey] = ()) -> None:
        self.keys: Mapping[str, Key] = {key.id: key for key in keys if key.id is not None}
        self.signatures: Mapping[str, SignatureKey] = {key.id: key for key in signatures}

    @classmethod
    def of(cls, settings: Settings, files: Iterable[Path] = ()) -> KeyRing:
        """Return the keys that settings and the data folder know, and those of files.

        Raises:
            ConfigurationError: as `gather`.
            MissingExtraError: as `gather`.
        """
        secret = settings.integrity_key
        return cls.gather(
            secret=secret.get_secret_value() if secret else None,
            files=files,
            data_dir=settings.data_dir,
        )

    @classmethod
    def gather(
        cls, *, secret: str | None = None, files: Iterable[Path] = (), data_dir: Path | None = None
    ) -> KeyRing:
        """Return the key in force, those of files, and those that the data folder keeps.

        Args:
            secret: the secret in force (`CLEW_INTEGRITY_KEY`).
            files: files with a secret, or with an Ed25519 key in PEM.
            data_dir: the data folder, whose `integrity-keys` are taken too.

        Raises:
            ConfigurationError: a file cannot be read or holds no key.
            MissingExtraError: there is an Ed25519 key and `cryptography` is not installed.
        """
        keys = [Key(secret.encode())] if secret else []
        signatures: list[SignatureKey] = []
        kept: list[Path] = []
        if data_dir is not None and (data_dir / FOLDER).is_dir():
            kept = sorted((data_dir / FOLDER).iterdir())
        for path in (*files, *(each for each in kept if each.suffix in (".key", ".pem"))):
            data = _read(path)
            if data.startswith(_PEM):
                signatures.append(SignatureKey(path))
            elif data:
                keys.append(Key(data))
            else:
                raise ConfigurationError(f"{path} is empty: it should hold a key")
        return cls(keys, signatures)

    def key(self, key_id: str | None) -> Key | None:
        """Return the key with an id."""
        return self.keys.get(key_id) if key_id is not None else None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read as a key: {error.strerror}") from None
