"""Putting a run's messages together, once, before its first round.

    system prompt (the configuration's own, or the run's; snippets chosen by tag stand in it)
    one system message for each forced snippet
    the caller's messages, the block of skills in front of the first one of the user

Later rounds send the same list, grown. A preview is made by the same function, so it is the list of
round 1. A system message of the caller's suppresses the configuration's prompt with its snippets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from clew.loop.window import Parts
from clew.prompts.composer import (
    EffectivePrompt,
    effective_system_prompt,
    select_skills,
    snippet_id,
)
from clew.prompts.configuration import Configuration
from clew.prompts.repository import Repository
from clew.prompts.sections import Kind
from clew.prompts.segments import Prompt, Section
from clew.prompts.skills import SkillBlock
from clew.prompts.snippets import Snippet
from clew.providers.base import Message, Text

_SKILL_WORDS = {"disabled": "deactivated", "orphaned": "gone"}


class Augmentation(Struct, frozen=True, kw_only=True):
    """What one run adds to its configuration."""

    prompt: str | None = None
    """A system prompt instead of the configuration's own; empty text means none of its own."""
    snippets: tuple[str, ...] = ()
    """Identifiers of forced snippets."""
    skills: tuple[str, ...] = ()
    """References of forced skills."""


class Assembly(Struct, frozen=True, kw_only=True):
    """The messages of round 1, before the window fit, and what went into them."""

    messages: tuple[Message, ...]
    parts: Parts
    dropped: tuple[str, ...] = ()
    """Sources that were left out, such as `snippet#tone gone` or `prompt#desk suppressed`."""
    sources: tuple[tuple[str, str], ...] = ()
    """Id and data class of every source that declares one, for the context gate."""


def messages_of(question: str | Message | Sequence[Message]) -> tuple[Message, ...]:
    """Return a question as messages."""
    if isinstance(question, str):
        return (Message.user(question),)
    return (question,) if isinstance(question, Message) else tuple(question)


def assemble(
    configuration: Configuration,
    repository: Repository | None,
    question: str | Message | Sequence[Message],
    augmentation: Augmentation,
    *,
    data_class: str | None = None,
) -> Assembly:
    """Put the messages of a run together; what was given is not changed.

    Args:
        configuration: says the prompt, the tags and the skills.
        repository: has the snippets and skills; None where there are none.
        question: the caller's messages, or the text of one.
        augmentation: what this run adds.
        data_class: that of the configuration's own prompt.

    Raises:
        ClewError: the repository cannot be read.
    """
    given = messages_of(question)
    prompt = effective_system_prompt(configuration, repository, augmentation.prompt)
    own_system = any(message.role == "system" for message in given)
    used = bool(prompt.text) and not own_system
    dropped = _suppressed(configuration, prompt, augmentation) if own_system else []
    chosen: set[str] = set() if own_system else {snippet.key for snippet in prompt.snippets}
    forced, missing = _forced(repository, augmentation.snippets, chosen)
    if used:
        _registered(prompt, forced, repository)
    skills = select_skills(configuration, repository, augmentation.skills)
    placed, body, unused = _with_skills(given, skills)
    front = (Message.system(prompt.text.text),) if used else ()
    head = _leading(body)
    at = len(front) + head
    return Assembly(
        messages=(
            *front,
            *body[:head],
            *(Message.system(each.text.strip()) for each in forced),
            *body[head:],
        ),
        parts=Parts(
            system=0 if used else None,
            snippets=tuple(range(at, at + len(forced))),
            snippet_bytes=prompt.snippet_bytes if used else 0,
            skill_bytes=len(skills.text.encode("utf-8", "surrogatepass")) + 2 if placed else 0,
            own_system=own_system,
        ),
        dropped=tuple(dict.fromkeys([*dropped, *missing, *unused])),
        sources=(
            *((("prompt", data_class),) if used and data_class else ()),
            *(prompt.data_classes if used else ()),
            *((snippet_id(each), each.data_class) for each in forced if each.data_class),
            *(_classes_of(skills) if placed else ()),
        ),
    )


def _classes_of(skills: SkillBlock) -> list[tuple[str, str]]:
    return [
        (f"skill:{each.reference}", each.data_class) for each in skills.included if each.data_class
    ]


def _leading(messages: Sequence[Message]) -> int:
    """Return how many system messages stand in front."""
    count = 0
    while count < len(messages) and messages[count].role == "system":
        count += 1
    return count


def _suppressed(
    configuration: Configuration, prompt: EffectivePrompt, augmentation: Augmentation
) -> list[str]:
    if augmentation.prompt is not None:
        own = ["prompt#override suppressed"] if augmentation.prompt else []
    else:
        own = [f"prompt#{configuration.identifier} suppressed"] if configuration.prompt else []
    return own + [f"snippet#{each.identifier} suppressed" for each in prompt.snippets]


def _registered(
    prompt: EffectivePrompt, forced: Sequence[Snippet], repository: Repository | None
) -> None:
    """Let the tap know what the system prompt and the forced snippets are together."""
    if forced:
        source = "config" if repository is None else repository.block_source
        kind = Kind(layer="contract", stability="volatile", source=source)
        Prompt.concat(
            prompt.text,
            *(
                Prompt.of([(snippet_id(each), Section(text=each.text.strip(), kind=kind))])
                for each in forced
            ),
        )


def _forced(
    repository: Repository | None, identifiers: Iterable[str], chosen: set[str]
) -> tuple[list[Snippet], list[str]]:
    """Return forced snippets that are not in the prompt already, and what is wrong with others."""
    found: dict[str, Snippet] = {}
    dropped: list[str] = []
    for identifier in dict.fromkeys(identifiers):
        snippet = None if repository is None else repository.find(identifier)
        if snippet is None:
            dropped.append(f"snippet#{identifier} gone")
        elif not snippet.active or snippet.hidden:
            dropped.append(f"snippet#{identifier} deactivated")
        elif snippet.text.strip() and snippet.key not in chosen:
            found.setdefault(snippet.key, snippet)
    return list(found.values()), dropped


def _with_skills(
    messages: tuple[Message, ...], skills: SkillBlock
) -> tuple[bool, tuple[Message, ...], list[str]]:
    """Return whether the block was placed, the messages with it, and the skills left out."""
    dropped = [
        f"skill#{each.subject} gone" for each in skills.warnings if each.code == "unknown_skill"
    ]
    dropped += [
        f"skill#{each.reference} {_SKILL_WORDS.get(each.reason, each.reason)}"
        for each in skills.dropped
    ]
    if not skills.text:
        return False, messages, dropped
    for at, message in enumerate(messages):
        if message.role == "user":
            changed = replace(message, content=_in_front(skills.text, message.content))
            return True, (*messages[:at], changed, *messages[at + 1 :]), dropped
    dropped += [f"skill#{each.reference} no_user_message" for each in skills.included]
    return False, messages, dropped


def _in_front(block: str, content: object) -> object:
    if isinstance(content, str):
        return f"{block}\n\n{content}" if content else block
    return (Text(text=block), *content)  # type: ignore[misc]
