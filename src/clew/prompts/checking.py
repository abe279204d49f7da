"""What is wrong with snippets, skills, and the configurations that choose them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from clew.errors import ConfigurationError
from clew.prompts.composer import find_skills, select_snippets
from clew.prompts.configuration import Configuration
from clew.prompts.documents import parse, read_text
from clew.prompts.files import Found, Scan
from clew.prompts.repository import MemoryRepository, Repository
from clew.prompts.skills import Skill, checksum, intact
from clew.prompts.snippets import Snippet


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was found."""

    code: str
    """`file`, `metadata`, `checksum`, `configuration`, or the code of a `PromptWarning`."""
    where: str
    """`file:line`, or the name of what is wrong in a store."""
    message: str
    problem: bool = True
    """False for a note: it may be meant so."""


def check(library: Repository | Scan, configurations: Sequence[Path] = ()) -> tuple[Finding, ...]:
    """Check everything in a repository or in files, then what configurations choose from it.

    Args:
        library: where snippets and skills are; a scan of files keeps problems that would stop a
            `FileRepository`.
        configurations: YAML files.

    Raises:
        ClewError: the repository cannot be read.
        MissingExtraError: PyYAML is not installed.
    """
    findings: list[Finding] = []
    if isinstance(library, Scan):
        findings += map(_of_file, library.problems)
        snippets, skills = list(library.snippets), list(library.skills)
        repository: Repository = MemoryRepository(
            (each.value for each in snippets), (each.value for each in skills)
        )
    else:
        repository = library
        snippets = [
            Found(value=each, where=f"snippet {each.identifier}") for each in library.snippets()
        ]
        skills = [Found(value=each, where=f"skill {each.reference}") for each in library.skills()]
    for snippet in snippets:
        findings += _of_snippet(snippet)
    for skill in skills:
        findings += _of_skill(skill)
    for path in configurations:
        findings += _of_configuration(path, repository)
    return tuple(findings)


def _of_file(problem: str) -> Finding:
    where, _, message = problem.partition(": ")
    return Finding(code="file", where=where, message=message)


def _of_snippet(found: Found[Snippet]) -> Iterator[Finding]:
    snippet = found.value
    problem = metadata_problem(snippet.metadata)
    if problem:
        yield Finding(
            code="metadata",
            where=found.where,
            message=f"the metadata of {snippet.identifier!r} {problem}; programs see none",
        )
    if snippet.active and not snippet.hidden and not snippet.text.strip():
        yield Finding(
            code="empty",
            where=found.where,
            message=f"the snippet {snippet.identifier!r} has no text",
            problem=False,
        )


def metadata_problem(metadata: str) -> str | None:
    """Say why metadata is not a JSON object; None where it is one, or empty."""
    if not metadata.strip():
        return None
    try:
        read: Any = json.loads(metadata)
    except ValueError as error:
        place = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        return f"is no JSON{place}"
    except RecursionError:
        return "is nested too deeply"
    return None if isinstance(read, dict) else "is no JSON object"


def _of_skill(found: Found[Skill]) -> Iterator[Finding]:
    skill = found.value
    if not intact(skill):
        says = "says another checksum" if skill.checksum else "says no checksum"
        yield Finding(
            code="checksum",
            where=found.where,
            message=f"the skill {skill.reference!r} {says} and is not used; "
            f"that of its text is {checksum(skill.body)}",
        )


def _of_configuration(path: Path, repository: Repository) -> Iterator[Finding]:
    try:
        configuration = Configuration.read(path)
    except ConfigurationError as error:
        where, _, message = str(error).partition(": ")
        yield Finding(code="configuration", where=where, message=message)
        return
    document = parse(read_text(path), path)
    _, unmatched = select_snippets(configuration.snippet_tags, repository)
    _, unknown = find_skills(configuration.skills, repository)
    for member, warnings in (("snippet_tags", unmatched), ("skills", unknown)):
        for warning in warnings:
            yield Finding(
                code=warning.code,
                where=document.where((member,)),
                message=warning.message,
                problem=warning.code != "unused_tag",
            )
