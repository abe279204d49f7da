"""Put the taps on HTTP client libraries, SDKs and frameworks, and take them off again.

A tap is a module with `PATCHES`: for each module that it listens for, which methods of which
classes it wraps; or with `patches(module)`, which returns them. A tap that listens through a public
hook has `install(module)` instead, which returns what undoes it. Other packages bring taps by the
entry point group `clew.taps`: the name is the module to wait for, the value the tap.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

import wrapt

from clew._guard import guard, warn_once
from clew.errors import ClewError
from clew.pipeline import runtime
from clew.taps import aiohttp, botocore, callables, entries, httpx, inside
from clew.taps.places import Places

_MISSING = object()
_lock = threading.RLock()
_SENDING = (httpx, aiohttp, botocore)
"""Taps on HTTP client libraries: each also has `sender(client)`."""

_MODULES: Mapping[str, Sequence[tuple[str, str, Any]]] = {
    **httpx.PATCHES,
    **aiohttp.PATCHES,
    **botocore.PATCHES,
    **entries.PATCHES,
}
"""Modules with something to tap, and what: class (none for a function), name, wrapper."""

_TAPS: Mapping[str, str] = {
    "agents.result": "clew.taps.openai_agents",
    "agents.run": "clew.taps.openai_agents",
    "agents.run_internal.tool_actions": "clew.taps.openai_agents",
    "agents.run_internal.tool_execution": "clew.taps.openai_agents",
    "agents.tool": "clew.taps.openai_agents",
    "agents.tracing": "clew.taps.openai_agents",
    "langchain_core.tools.base": "clew.taps.langchain",
    "langgraph.pregel": "clew.taps.langchain",
    "mcp.client.session": "clew.taps.mcp",
    "mcp.client.sse": "clew.taps.mcp",
    "mcp.client.streamable_http": "clew.taps.mcp",
    "mcp.shared.jsonrpc_dispatcher": "clew.taps.mcp",
    "pydantic_ai.agent": "clew.taps.pydantic_ai",
    "smolagents.agents": "clew.taps.smolagents",
    "smolagents.tools": "clew.taps.smolagents",
}
"""Modules with something to tap, and the tap, which is loaded when the module is there."""


class Patch(NamedTuple):
    """One attribute that was replaced: on what, by what, and what was there."""

    owner: Callable[[], Any]
    """Gives the object, or None when it was collected."""
    name: str
    before: Any
    wrapper: Callable[[], Any]
    """Gives the wrapper; it holds the object, so that of one object is not kept either."""
    client: Callable[[], Any]
    """Gives the client object for which it was done; None where it was done for all."""


_HOT = frozenset(
    wrapper
    for patches in (*httpx.PATCHES.values(), *entries.PATCHES.values())
    for _, _, wrapper in patches
)
"""Wrappers that have nothing to do while Clew is not configured, and are called often."""

_patches: list[Patch] = []
_recorders: weakref.WeakSet[callables.Recorder] = weakref.WeakSet()
_installed: dict[str, Callable[[], None]] = {}
_hooked: set[str] = set()
_active = False
_found: dict[str, str] | None = None


def instrument(client: Any = None, *, facts: Mapping[str, Any] | None = None) -> Any:
    """Listen to every known HTTP client library, to one client object, or to a callable of yours.

    Libraries that are imported later are listened to when they are imported. Instrumenting again
    changes nothing.

    Args:
        client: an SDK client or an HTTP client; with `facts`, a callable that calls a model; None
            for all libraries.
        facts: where the facts of a call of `client` stand: fact name to a path or a function.
            What is said about the request (`model`, `max_tokens`, `messages`, `tools`, ...) is
            looked up among the arguments by name, the rest (`finish_reason`, `input_tokens`,
            `output_tokens`, `tool_calls`, ...) in the result or in the items of a stream.
            `provider`, `operation` and `stream` are said as they are. For methods of an object
            or a class: a mapping of method names to such mappings.

    Returns:
        The client that was given; for a callable, the callable to use instead.

    Raises:
        ClewError: the client is of no kind that Clew knows, or `facts` is not understood.
    """
    global _active  # noqa: PLW0603 - one per process is what it is
    if facts is not None:
        return _instrument_callable(client, facts)
    if client is not None:
        _instrument_client(client)
        return client
    _active = True
    for name in (*_MODULES, *_taps()):
        if name in sys.modules:
            with guard(f"instrument {name}"):
                # Another thread may be importing it right now: this waits until it is whole.
                # (So no lock is held here: that thread may come to want it.)
                _listen_to(importlib.import_module(name))
        elif name not in _hooked:
            _hooked.add(name)
            wrapt.register_post_import_hook(_imported, name)
    return None


def uninstrument(client: Any = None) -> None:
    """Undo `instrument`, for all libraries and clients, or for one client object."""
    global _active  # noqa: PLW0603
    with _lock:
        if client is None:
            _active = False
            while _installed:
                with guard("take a tap off"):
                    _installed.popitem()[1]()
            chosen = list(_patches)
            for recorder in list(_recorders):
                recorder.active = False
        else:
            recorder = callables.recorder_of(client)
            if recorder is not None:
                recorder.active = False
            chosen = [one for one in _patches if one.client() is client]
        for patch in chosen:
            _patches.remove(patch)
            _restore(patch)


def _restore(patch: Patch) -> None:
    owner = patch.owner()
    if owner is None or _own(owner, patch.name) is not patch.wrapper():
        return  # it is gone, or somebody has wrapped it again: ours stays below it
    if patch.before is _MISSING:
        delattr(owner, patch.name)
    else:
        setattr(owner, patch.name, patch.before)


def is_active() -> bool:
    """Tell whether every known library is listened to."""
    return _active


def patched() -> list[str]:
    """Return the names of the places that are listened to: `Class.method`."""
    found: list[str] = []
    for patch in _patches:
        owner = patch.owner()
        if owner is not None:
            place = owner if isinstance(owner, (type, ModuleType)) else type(owner)
            found.append(f"{place.__name__}.{patch.name}")
    return found


def foreign_taps() -> set[str]:
    """Return the modules for which other packages bring taps."""
    return set(_taps()) - set(_TAPS)


def missing_places(module: ModuleType) -> list[str]:
    """Return the places in a module that a tap wants and that are not there."""
    name = module.__name__
    patches = _MODULES.get(name)
    if patches is None:
        tap = importlib.import_module(_taps()[name])
        chosen = getattr(tap, "patches", None)
        patches = chosen(module) if chosen else getattr(tap, "PATCHES", {}).get(name, ())
    missing: list[str] = []
    for class_name, method, _ in patches:
        owner = getattr(module, class_name, None) if class_name else module
        if owner is None or not hasattr(owner, method):
            missing.append(f"{name}.{class_name}.{method}" if class_name else f"{name}.{method}")
    return missing


def _taps() -> Mapping[str, str]:
    """Return the taps that are loaded when they are needed, other packages' too."""
    global _found  # noqa: PLW0603 - looking for them takes its time
    if _found is None:
        _found = dict(_TAPS)
        with guard("look for taps of other packages"):
            for entry in metadata.entry_points(group="clew.taps"):
                _found[entry.name] = entry.module
    return _found


def _imported(module: Any) -> None:
    if _active:
        with guard("instrument a library that was imported"):
            _listen_to(module)


def _listen_to(module: ModuleType) -> None:
    name = module.__name__
    patches = _MODULES.get(name)
    if patches is None:
        tap = importlib.import_module(_taps()[name])
        chosen = getattr(tap, "patches", None)
        patches = chosen(module) if chosen else getattr(tap, "PATCHES", {}).get(name, ())
        install = getattr(tap, "install", None)
        if install is not None and _installed.setdefault(name, _nothing) is _nothing:
            _installed[name] = install(module)
    _patch_module(module, patches)


def _patch_module(
    module: ModuleType, patches: Sequence[tuple[str, str, Any]], but: str | None = None
) -> None:
    for class_name, method, wrapper in patches:
        if method == but:
            continue
        owner = getattr(module, class_name, None) if class_name else module
        if owner is None or not hasattr(owner, method):
            warn_once(
                f"find {module.__name__}.{class_name}.{method}",
                "%s has no %s.%s: its calls are recorded with less detail.",
                *(module.__name__, class_name, method),
            )
            continue
        _patch(owner, method, wrapper)


def _instrument_callable(target: Any, facts: Mapping[str, Any]) -> Any:
    if not callables.methods(facts):
        if not isinstance(target, type):
            wrapped = callables.wrap(target, facts)
            recorder = callables.recorder_of(wrapped)
            if recorder is not None:
                recorder.active = True
                _recorders.add(recorder)
            return wrapped
        facts = {"__call__": facts}
    for name, places in facts.items():
        found = getattr(target, name, None)
        if found is None or (isinstance(target, type) and not _has(target, name)):
            kind = target if isinstance(target, type) else type(target)
            raise ClewError(
                f"{kind.__qualname__} has no method {name!r} to record: give facts as a mapping "
                "of the names of the methods that call a model to facts"
            )
        if callables.recorder_of(found) is None:
            _patch(target, name, callables.Recorder(found, Places(places)), target)
    return target


def _has(kind: type, name: str) -> bool:
    return any(name in vars(base) for base in kind.__mro__ if base is not object)


def _patch(owner: Any, name: str, function: Any, client: Any = None) -> None:
    with _lock:
        before = _own(owner, name)
        if getattr(before, "_self_wrapper", None) is function:
            return
        original: Any = getattr(owner, name) if before is _MISSING else before
        wrapper: Any = None
        if function in _HOT and isinstance(owner, type):
            wrapper = _plain(original, function)
        if wrapper is None:
            wrapper = cast("Any", wrapt.FunctionWrapper)(original, function)
        if isinstance(owner, type):
            setattr(owner, name, wrapper)
            whose = _nothing if client is None else _weak(client)
            _patches.append(Patch(lambda: owner, name, before, lambda: wrapper, whose))
            return
        object.__setattr__(owner, name, wrapper)
        _patches[:] = [patch for patch in _patches if patch.owner() is not None]
        _patches.append(Patch(_weak(owner), name, before, _weak(wrapper), _weak(client)))


def _plain(original: Any, function: Any) -> Any:
    """Return a plain method that does what wrapt's wrapper would, for less; None where it can't.

    It stands in every request's way, of hosts that have not configured Clew too.
    """
    if type(original) is not FunctionType:  # another library's wrapper says it is one
        return None

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if runtime.active is None:
            return original(self, *args, **kwargs)
        return function(MethodType(original, self), self, args, kwargs)

    async def amethod(self: Any, *args: Any, **kwargs: Any) -> Any:
        if runtime.active is None:
            return await original(self, *args, **kwargs)
        return await function(MethodType(original, self), self, args, kwargs)

    chosen: Any = amethod if inspect.iscoroutinefunction(original) else method
    wrapper: Any = functools.wraps(original)(chosen)
    wrapper._self_wrapper = function  # wrapt's wrapper has it under this name
    return wrapper


def _nothing() -> None:
    return None


def _weak(thing: Any) -> Callable[[], Any]:
    """Return what gives an object for as long as others keep it."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def _own(owner: Any, name: str) -> Any:
    """Return what an object itself has under a name, not what it inherits."""
    return cast("dict[str, Any]", vars(owner)).get(name, _MISSING)


def _instrument_client(client: Any) -> None:
    found = [_patch_sender(inner, client) for inner in inside.http_clients(client)]

    async def later(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        made = await wrapped(*args, **kwargs)
        with guard("instrument an HTTP client that was made later"):
            _patch_sender(made, client)
        return made

    for maker, method in inside.makers(client):
        known = (one for one in _patches if one.client() is client and one.owner() is maker)
        if next(known, None) is None:
            _patch(maker, method, later, client)
        found.append(True)
    if not any(found):
        raise ClewError(
            f"cannot instrument a {type(client).__module__}.{type(client).__qualname__}: "
            "give an SDK client, or an HTTP client of httpx, httpx2, aiohttp or botocore"
        )
    # The grouping of attempts sits on the SDK's own classes: alone it changes nothing.
    package = type(client).__module__.partition(".")[0]
    for name, patches in entries.PATCHES.items():
        if name.partition(".")[0] == package and name in sys.modules:
            _patch_module(sys.modules[name], patches)


def _patch_sender(inner: Any, client: Any) -> bool:
    """Wrap what sends on one HTTP client; return False when it is of no kind that is known."""
    for tap in _SENDING:
        found = tap.sender(inner)
        if found is not None:
            _patch(inner, found[0], found[1], client)
            for name, patches in tap.PATCHES.items():
                if name in sys.modules:
                    _patch_module(sys.modules[name], patches, but=found[0])
            return True
    return False
