"""Composing snippets into prompts: labelled blocks, and the one place where they are put in.

`effective_system_prompt` is that place. Chat, completion, streams, the loop and every preview of
them call it, so what was previewed is what is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from clew._guard import warn_once
from clew.prompts.blocks import Block
from clew.prompts.repository import Repository
from clew.prompts.sections import Kind
from clew.prompts.segments import BETWEEN, Prompt, Section
from clew.prompts.skills import Skill, SkillBlock, build_block, skill_named
from clew.prompts.snippets import PromptWarning, Snippet, parse_tags, unmatched

PROMPT_ID: Final = "prompt"
"""Id of the block that is the configuration's own prompt."""
OVERRIDE_ID: Final = "prompt_override"
"""Id of the block that a call gave instead of it."""

_CONFIGURED: Final = Kind(layer="contract", stability="epoch", source="config")
_GIVEN: Final = Kind(layer="contract", stability="volatile", source="config")


class Selecting(Protocol):
    """What selects a prompt and snippets: `clew.prompts.configuration.Configuration`, or alike."""

    @property
    def prompt(self) -> str:
        """The prompt of its own."""
        ...

    @property
    def snippet_tags(self) -> Sequence[str]:
        """Tags whose snippets belong to the prompt."""
        ...


class SelectingSkills(Protocol):
    """What selects skills."""

    @property
    def skills(self) -> Sequence[str]:
        """References of skills, see `Repository.find_skill`."""
        ...

    @property
    def minimum_trust(self) -> str:
        """One of `clew.prompts.skills.TRUST_LEVELS`."""
        ...

    @property
    def skill_bytes(self) -> int:
        """Bytes that all skills together may have."""
        ...


class EffectivePrompt(Struct, frozen=True, kw_only=True):
    """A system prompt with its snippets, and what is known of its parts."""

    text: Prompt
    """The prompt; its blocks are the own prompt and each snippet with the blank line before it."""
    snippets: tuple[Snippet, ...] = ()
    """The snippets in it, in order."""
    snippet_bytes: int = 0
    """UTF-8 bytes of the text that the snippets take, the blank lines before them included."""
    warnings: tuple[PromptWarning, ...] = ()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The block map of the text; empty where it has none."""
        return self.text.blocks

    @property
    def data_classes(self) -> tuple[tuple[str, str], ...]:
        """Block id and declared data class of each snippet that declares one, for `run.uses`."""
        return tuple(
            (snippet_id(each), each.data_class) for each in self.snippets if each.data_class
        )


def snippet_id(snippet: Snippet) -> str:
    """Return the id of the block that a snippet is."""
    return f"snippet:{snippet.identifier}"


def compose(
    labelled: Mapping[str, Snippet | None] | Iterable[tuple[str, Snippet | None]],
) -> str:
    """Return snippets as labelled blocks: the label, a colon, a line break, the trimmed text.

    Blocks are joined by one blank line; None and blank texts are skipped, and without any the
    result is empty. A label is put on one line.

    Args:
        labelled: snippets by label, in order; pairs where a label occurs twice.
    """
    pairs = (
        cast("Mapping[str, Snippet | None]", labelled).items()
        if isinstance(labelled, Mapping)
        else labelled
    )
    return BETWEEN.join(
        f"{' '.join(label.split())}:\n{text}"
        for label, snippet in pairs
        if snippet is not None and (text := snippet.text.strip())
    )


def select_snippets(
    tags: str | Iterable[str], repository: Repository
) -> tuple[list[Snippet], list[PromptWarning]]:
    """Return the snippets that tags choose, and a warning for each tag that chooses nothing.

    The order is that of the tags, then that of the repository. Each identifier is there once;
    two snippets that only share their name are both there. Inactive, hidden and blank ones are
    not.
    """
    wanted = parse_tags(tags)
    chosen: dict[str, Snippet] = {}
    warnings: list[PromptWarning] = []
    known = repository.snippets() if wanted else ()
    for tag in wanted:
        usable = [
            each
            for each in known
            if each.active and not each.hidden and each.text.strip() and each.has_tag(tag)
        ]
        for each in usable:
            chosen.setdefault(each.key, each)
        if not usable:
            warnings.append(unmatched(tag, known))
    return list(chosen.values()), warnings


def effective_system_prompt(
    configuration: Selecting, repository: Repository | None, override: str | None = None
) -> EffectivePrompt:
    """Return the system prompt that a call with this configuration has.

    The configuration's own prompt, or what the call gives instead of it, comes first and is not
    changed; the snippets that the tags choose stand behind it, each after one blank line. Where
    the own prompt is a `Prompt` its blocks stay. Warnings are logged, too, once for each tag.

    Args:
        configuration: says the prompt and the tags.
        repository: has the snippets; None where there are none.
        override: a prompt for this call alone; empty text means no prompt of its own.

    Raises:
        ClewError: the repository cannot be read. A prompt without its snippets would be another.
    """
    own = configuration.prompt if override is None else override
    snippets: list[Snippet] = []
    warnings: list[PromptWarning] = []
    kind = _CONFIGURED
    if repository is not None:
        kind = replace(_CONFIGURED, source=repository.block_source)
        snippets, warnings = select_snippets(configuration.snippet_tags, repository)
    for warning in warnings:
        warn_once(f"prompt {warning.code} {warning.subject}", "%s", warning.message)
    added = [
        (snippet_id(each), Section(text=compose([(each.label, each)]), kind=kind))
        for each in snippets
    ]
    text = _put_together(own, PROMPT_ID if override is None else OVERRIDE_ID, added)
    return EffectivePrompt(
        text=text,
        snippets=tuple(snippets),
        snippet_bytes=len(text[len(own) :].encode("utf-8", "surrogatepass")),
        warnings=tuple(warnings),
    )


def _put_together(own: str, own_id: str, added: list[tuple[str, Section]]) -> Prompt:
    if isinstance(own, Prompt):
        for name, section in added:
            own = own.append_section(name, section)
        return own
    kind = _CONFIGURED if own_id == PROMPT_ID else _GIVEN
    return Prompt.of([(own_id, Section(text=own, kind=kind)), *added])


def select_skills(
    configuration: SelectingSkills,
    repository: Repository | None,
    forced: Iterable[str] = (),
) -> SkillBlock:
    """Return the block of the skills that a configuration and a run choose.

    Args:
        configuration: says which skills, and the bounds.
        repository: has the skills; None where there are none.
        forced: references of skills of this run alone.

    Raises:
        ClewError: the repository cannot be read.
    """
    configured, unknown = find_skills(configuration.skills, repository)
    others, unknown_too = find_skills(forced, repository)
    block = build_block(
        configured,
        others,
        minimum_trust=configuration.minimum_trust,
        budget=configuration.skill_bytes,
    )
    warnings = (*unknown, *unknown_too, *block.warnings)
    for warning in warnings:
        warn_once(f"skill {warning.code} {warning.subject}", "%s", warning.message)
    return replace(block, warnings=warnings)


def find_skills(
    references: Iterable[str], repository: Repository | None
) -> tuple[list[Skill], list[PromptWarning]]:
    """Return the skills that references name, and a warning for each that names none."""
    wanted = list(references)
    known = repository.skills() if wanted and repository is not None else ()
    skills: list[Skill] = []
    warnings: list[PromptWarning] = []
    for reference in wanted:
        skill = skill_named(reference, known)
        if skill is not None:
            skills.append(skill)
            continue
        warnings.append(
            PromptWarning(
                code="unknown_skill", subject=reference, message=_unknown(reference, known)
            )
        )
    return skills, warnings


def _unknown(reference: str, skills: Sequence[Skill]) -> str:
    wanted = reference.strip().lower()
    several = [each.reference for each in skills if each.identifier.lower() == wanted]
    if several:
        return f"several sources have a skill {reference!r}; give one of: {', '.join(several)}"
    names = {name.lower(): name for each in skills for name in (each.reference, each.identifier)}
    near = get_close_matches(wanted, names, n=1)
    return f"there is no skill {reference!r}" + (
        f"; the nearest one is {names[near[0]]!r}" if near else ""
    )
