"""Skills, and what a block says of them."""

from __future__ import annotations

from typing import Any

from clew.prompts.skills import Skill, SkillBlock, checksum


def made(identifier: str = "pdf", body: str = "Read PDFs.", **members: Any) -> Skill:
    """Return a skill that is what was reviewed."""
    return Skill(**{"identifier": identifier, "body": body, "checksum": checksum(body), **members})


def included(block: SkillBlock) -> list[str]:
    """Return the references of the skills in a block."""
    return [each.reference for each in block.included]


def dropped(block: SkillBlock) -> list[tuple[str, str]]:
    """Return the reference of each skill that was left out, and why."""
    return [(each.reference, each.reason) for each in block.dropped]
