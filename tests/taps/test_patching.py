"""Taps that other packages bring, and clients that nobody keeps."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

import httpx2
import pytest

import clew
from clew import patching


class Wrapper:
    """A wrapper that counts its calls."""

    calls = 0

    def __call__(self, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        Wrapper.calls += 1
        return wrapped(*args, **kwargs)


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Give a library with a class, which is imported only by the test, and a tap for it."""
    library: Any = ModuleType("acme_sdk")

    class Client:
        def send(self) -> str:
            return "sent"

    library.Client = Client
    tap: Any = ModuleType("acme_tap")
    tap.PATCHES = {"acme_sdk": (("Client", "send", Wrapper()),)}
    tap.installed = []

    def install(module: ModuleType) -> Callable[[], None]:
        tap.installed.append(module.__name__)
        return lambda: tap.installed.remove(module.__name__)

    tap.install = install
    monkeypatch.setitem(sys.modules, "acme_tap", tap)
    monkeypatch.setitem(sys.modules, "acme_sdk", library)
    entry = metadata.EntryPoint("acme_sdk", "acme_tap", "clew.taps")
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [entry])
    monkeypatch.setattr(patching, "_found", None)
    Wrapper.calls = 0
    yield library
    clew.uninstrument()


def test_a_tap_of_another_package(acme: Any) -> None:
    """A tap that an entry point names is put on with the others, once, and taken off again."""
    clew.instrument()
    clew.instrument()
    assert acme.Client().send() == "sent"
    assert Wrapper.calls == 1
    assert sys.modules["acme_tap"].installed == ["acme_sdk"]
    clew.uninstrument()
    acme.Client().send()
    assert Wrapper.calls == 1
    assert sys.modules["acme_tap"].installed == []


def test_a_client_that_was_instrumented_is_not_kept() -> None:
    """A client that nobody else keeps is collected."""
    client = httpx2.Client()
    clew.instrument(client)
    client.close()
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None
