"""Prompts that know their parts: blocks, segmented prompts, snippets, skills.

Each name is loaded when it is first used: the tap looks into `clew.prompts.registry`, and should
not load what makes prompts in a process that makes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from clew.prompts.blocks import Block
    from clew.prompts.composer import effective_system_prompt
    from clew.prompts.configuration import Configuration
    from clew.prompts.files import FileRepository
    from clew.prompts.repository import MemoryRepository, Repository
    from clew.prompts.sections import Kind, classify
    from clew.prompts.segments import Prompt, Section
    from clew.prompts.skills import Skill
    from clew.prompts.snippets import Snippet

__all__ = [
    "Block",
    "Configuration",
    "FileRepository",
    "Kind",
    "MemoryRepository",
    "Prompt",
    "Repository",
    "Section",
    "Skill",
    "Snippet",
    "classify",
    "effective_system_prompt",
]

_HOMES = {
    "Block": "clew.prompts.blocks",
    "Configuration": "clew.prompts.configuration",
    "FileRepository": "clew.prompts.files",
    "Kind": "clew.prompts.sections",
    "MemoryRepository": "clew.prompts.repository",
    "Prompt": "clew.prompts.segments",
    "Repository": "clew.prompts.repository",
    "Section": "clew.prompts.segments",
    "Skill": "clew.prompts.skills",
    "Snippet": "clew.prompts.snippets",
    "classify": "clew.prompts.sections",
    "effective_system_prompt": "clew.prompts.composer",
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
