"""Snippets, skills and tags as plain data, the same on the command line and in the viewer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew.prompts.skills import Skill, intact
from clew.prompts.snippets import PromptWarning, Snippet, parse_tags


def snippet_state(snippet: Snippet) -> str:
    """Return `active`, `hidden` or `inactive`; only an active one gets into a prompt by its tag."""
    if not snippet.active:
        return "inactive"
    return "hidden" if snippet.hidden else "active"


def skill_state(skill: Skill) -> str:
    """Return `enabled`, `disabled`, `orphaned`, `unpinned` (no checksum) or `changed` (another)."""
    if not skill.enabled:
        return "disabled"
    if skill.orphaned:
        return "orphaned"
    if not skill.checksum:
        return "unpinned"
    return "enabled" if intact(skill) else "changed"


def snippet_form(snippet: Snippet, *, text: bool = True) -> dict[str, Any]:
    """Return a snippet as JSON has it; `metadata` is the object, `metadata_text` what was given."""
    form: dict[str, Any] = {
        "identifier": snippet.identifier,
        "name": snippet.name,
        "description": snippet.description,
        "tags": list(snippet.tag_list),
        "state": snippet_state(snippet),
        "active": snippet.active,
        "hidden": snippet.hidden,
        "sorting": snippet.sorting,
        "data_class": snippet.data_class or None,
        "bytes": len(snippet.text.encode("utf-8", "surrogatepass")),
        "metadata": snippet.metadata_dict(),
    }
    return {**form, "metadata_text": snippet.metadata, "text": snippet.text} if text else form


def skill_form(skill: Skill, *, body: bool = True) -> dict[str, Any]:
    """Return a skill as JSON has it."""
    form: dict[str, Any] = {
        "identifier": skill.identifier,
        "source": skill.source or None,
        "reference": skill.reference,
        "name": skill.name,
        "description": skill.description,
        "trust": skill.trust,
        "state": skill_state(skill),
        "checksum": skill.checksum or None,
        "enabled": skill.enabled,
        "orphaned": skill.orphaned,
        "data_class": skill.data_class or None,
        "bytes": len(skill.body.encode("utf-8", "surrogatepass")),
    }
    return {**form, "body": skill.body} if body else form


def tag_forms(snippets: Iterable[Snippet]) -> list[dict[str, Any]]:
    """Return each tag with the snippets that it gets into a prompt, and how many carry it."""
    known = list(snippets)
    return [
        {
            "tag": tag,
            "snippets": [
                each.identifier
                for each in known
                if each.has_tag(tag) and snippet_state(each) == "active" and each.text.strip()
            ],
            "carried_by": sum(each.has_tag(tag) for each in known),
        }
        for tag in sorted(parse_tags(each.tags for each in known))
    ]


def warning_form(warning: PromptWarning) -> dict[str, Any]:
    """Return a warning as JSON has it."""
    return {"code": warning.code, "subject": warning.subject, "message": warning.message}
