"""Errors that Clew raises on purpose.

    ClewError
    ├── ConfigurationError   a setting or an argument to `configure` is wrong
    ├── RunIdError           a run id is nil or malformed
    ├── RunReferenceError    a run reference cannot be read
    ├── MissingExtraError    an optional part is not installed
    └── StoreError           the local store cannot be used

Telemetry itself never raises: these appear only where the caller asked for something
that cannot be done, before anything has started.
"""

from __future__ import annotations


class ClewError(Exception):
    """Base of every error that Clew raises on purpose."""


class ConfigurationError(ClewError, ValueError):
    """A setting, an environment variable or an argument is wrong."""


class RunIdError(ClewError, ValueError):
    """A run id is nil or is not a uuid."""


class RunReferenceError(ClewError, ValueError):
    """A run reference cannot be read."""


class MissingExtraError(ClewError, ImportError):
    """An optional part of Clew is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional part: install it with `pip install 'clew[{extra}]'`"
        )
        self.extra = extra


class StoreError(ClewError):
    """The local store is full, locked, corrupt, or newer than this program."""
