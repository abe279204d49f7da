"""Which kits a test is made with, told by its marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kits import SDKS, STAINLESS

PER_KIT: dict[str, Callable[[Any], Iterable[Any]]] = {
    "plain_variant": lambda kit: kit.plain_variants,
    "stream_variant": lambda kit: kit.stream_variants,
    "error_status": lambda kit: kit.errors,
    "kit_word": lambda kit: kit.words.items(),
}
"""Parameters of which each kit has its own."""


def chosen(marks: Iterable[pytest.Mark]) -> list[Any]:
    """Return the kits that a test's marks leave, openai's and anthropic's if no group is named."""
    marks = list(marks)
    groups = [mark.args[0] for mark in marks if mark.args]
    group = groups[0] if groups else "stainless"
    kits: list[Any] = {"stainless": STAINLESS, "sdks": SDKS, "all": [*STAINLESS, *SDKS]}[group]
    for mark in marks:
        wanted = mark.kwargs
        needs = set(wanted.get("having", "").split(", ")) - {""}
        kits = [
            kit
            for kit in kits
            if wanted.get("asynchronous") in (None, kit.asynchronous)
            and ("provider" not in wanted or kit.provider in wanted["provider"].split(", "))
            and (not needs or needs <= kit.can)
        ]
    return kits
