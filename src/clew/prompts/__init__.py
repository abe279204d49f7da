"""Prompts that know their parts: blocks, segmented prompts, snippets, skills.

Each name is loaded when it is first used: the tap looks into `clew.prompts.registry`, and should
not load what makes prompts in a process that makes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from clew.prompts.blocks import Block
    from clew.prompts.sections import Kind, classify
    from clew.prompts.segments import Prompt, Section

__all__ = ["Block", "Kind", "Prompt", "Section", "classify"]

_HOMES = {
    "Block": "clew.prompts.blocks",
    "Kind": "clew.prompts.sections",
    "Prompt": "clew.prompts.segments",
    "Section": "clew.prompts.segments",
    "classify": "clew.prompts.sections",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
