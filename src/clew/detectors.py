"""Detectors of secrets that others maintain, each by its name; asked on top of Clew's own.

A finder returns the secrets that stand in a text. None of them asks anybody: secrets are looked
for, never tried out.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, cast

from clew.errors import ConfigurationError, MissingExtraError

Finder = Callable[[str], Iterable[str]]

_LEFT_OUT: Final = frozenset(
    {
        "BasicAuthDetector",  # finds the password alone: Clew masks all of the credentials
        "JwtTokenDetector",  # quadratic in the length of the text; Clew has a rule of its own
        "PrivateKeyDetector",  # finds the first line alone: Clew masks the whole key
        "IPPublicDetector",  # an address is no secret
    }
)


def _detect_secrets() -> Finder:
    """Return the detectors of known shapes of detect-secrets, such as keys of Slack or Twilio.

    Those by keyword and by entropy are for source code, not for prose, and are not asked.
    https://github.com/bridgecrewio/detect-secrets, https://github.com/Yelp/detect-secrets: both
    have the same modules.
    """
    try:
        from detect_secrets import plugins
        from detect_secrets.plugins.base import RegexBasedDetector
    except ImportError as error:
        raise MissingExtraError("The detector 'detect_secrets'", "secrets") from error
    package = cast("ModuleType", plugins)
    asked: list[Any] = []
    for found in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        for name, kind in vars(module).items():
            own = inspect.isclass(kind) and kind.__module__ == module.__name__
            if not own or inspect.isabstract(kind) or name in _LEFT_OUT:
                continue
            if issubclass(kind, RegexBasedDetector):
                asked.append(kind())

    def find(text: str) -> Iterator[str]:
        for detector in asked:
            for secret in detector.analyze_string(text):
                # Some take what stands around a secret for a part of it.
                yield secret.lstrip(" \t\r\n\"'=:").rstrip(" \t\r\n\"'")

    return find


_FINDERS: Final[Mapping[str, Callable[[], Finder]]] = {"detect_secrets": _detect_secrets}


@cache
def finder(name: str) -> Finder:
    """Return what finds secrets in a text.

    Raises:
        ConfigurationError: there is no such detector.
        MissingExtraError: it is not installed.
    """
    load = _FINDERS.get(name)
    if load is None:
        known = ", ".join(_FINDERS)
        raise ConfigurationError(f"there is no detector {name!r} of secrets; there are: {known}")
    return load()
