"""Put the taps on HTTP client libraries and SDKs, and take them off again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import wrapt

from clew._guard import guard, warn_once
from clew.errors import ClewError
from clew.taps import httpx, stainless

_MISSING = object()
_lock = threading.RLock()


class Patch(NamedTuple):
    """One attribute that was replaced: on what, by what, and what was there."""

    owner: Any
    name: str
    before: Any
    wrapper: Any


_patches: list[Patch] = []
_hooked: set[str] = set()
_active = False

_MODULES: dict[str, Sequence[tuple[str, str, Any]]] = {
    **dict.fromkeys(cast("tuple[str, ...]", httpx.LIBRARIES), httpx.PATCHES),
    **dict.fromkeys(cast("tuple[str, ...]", stainless.MODULES), stainless.PATCHES),
}
"""Modules with something to tap, and what: class, method, wrapper."""


def instrument(client: Any = None) -> Any:
    """Listen to every known HTTP client library, or to one client object.

    Libraries that are imported later are listened to when they are imported. Instrumenting again
    changes nothing.

    Args:
        client: an SDK client or an HTTP client; None for all.

    Returns:
        The client that was given.

    Raises:
        ClewError: the client is of no kind that Clew knows.
    """
    global _active  # noqa: PLW0603 - one per process is what it is
    with _lock:
        if client is not None:
            _instrument_client(client)
            return client
        _active = True
        for name in _MODULES:
            if name in sys.modules:
                _patch_module(sys.modules[name])
            elif name not in _hooked:
                _hooked.add(name)
                wrapt.register_post_import_hook(_imported, name)
        return None


def uninstrument(client: Any = None) -> None:
    """Undo `instrument`, for all libraries and clients, or for one client object."""
    global _active  # noqa: PLW0603
    with _lock:
        only = None if client is None else _http_client(client)
        if client is None:
            _active = False
        for patch in [one for one in _patches if client is None or one.owner is only]:
            _patches.remove(patch)
            if _own(patch.owner, patch.name) is not patch.wrapper:
                continue  # somebody has wrapped it again: ours stays below it
            if patch.before is _MISSING:
                delattr(patch.owner, patch.name)
            else:
                setattr(patch.owner, patch.name, patch.before)


def _imported(module: Any) -> None:
    if _active:
        with guard("instrument a library that was imported"):
            _patch_module(module)


def _patch_module(module: Any) -> None:
    for class_name, method, wrapper in _MODULES[module.__name__]:
        owner = getattr(module, class_name, None)
        if owner is None or not hasattr(owner, method):
            warn_once(
                f"find {module.__name__}.{class_name}.{method}",
                "%s has no %s.%s: its calls are recorded with less detail.",
                *(module.__name__, class_name, method),
            )
            continue
        _patch(owner, method, wrapper)


def _patch(owner: Any, name: str, function: Any) -> None:
    before = _own(owner, name)
    if getattr(before, "_self_wrapper", None) is function:
        return
    original: Any = getattr(owner, name) if before is _MISSING else before
    wrapper: Any = cast("Any", wrapt.FunctionWrapper)(original, function)
    setattr(owner, name, wrapper)
    _patches.append(Patch(owner, name, before, wrapper))


def _own(owner: Any, name: str) -> Any:
    """Return what an object itself has under a name, not what it inherits."""
    return cast("dict[str, Any]", vars(owner)).get(name, _MISSING)


def _http_client(client: Any) -> Any:
    return client if httpx.sender(client) else getattr(client, "_client", None)


def _instrument_client(client: Any) -> None:
    inner = _http_client(client)
    function = httpx.sender(inner)
    if function is None:
        raise ClewError(
            f"cannot instrument a {type(client).__module__}.{type(client).__qualname__}: "
            "give an httpx or httpx2 client, or an SDK client that has one"
        )
    # The grouping of attempts sits on the SDK's base class: alone it changes nothing.
    for base in type(client).__mro__:
        if base.__module__ in stainless.MODULES:
            _patch_module(sys.modules[base.__module__])
    _patch(inner, "send", function)
