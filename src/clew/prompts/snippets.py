"""Snippets: named pieces of prompt text, chosen by tag.

A snippet is a fragment, not a prompt: it has no model parameters, versions or counters. Its tags
are free words that editors and programs agree on (`audience`, `tone_of_voice`, `persona`,
`layout`, `style`). A tag is matched as a whole word, without regard to case and to blanks around
it, in code and never by the database: `style` does not match `lifestyle`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

from msgspec import Struct

from clew.errors import ConfigurationError
from clew.rules import Identifier
from clew.typing import DATA_CLASSES

MAX_IDENTIFIER: Final = 100
"""Characters of an identifier; the ids of blocks, which contain it, may have 128."""
_fits = Identifier(MAX_IDENTIFIER).fits
_NEAR: Final = 0.6
_NAMED_TAGS: Final = 8


class PromptWarning(Struct, frozen=True, kw_only=True):
    """Something about a prompt's sources that its author should know; the prompt is made anyway."""

    code: str
    """`unknown_tag`, `unused_tag`, `unknown_skill`, or a reason of `DroppedSkill`, or
    `no_user_message`."""
    subject: str
    """The tag or identifier that it is about; empty where it is about none."""
    message: str
    """One sentence, without any text of a snippet or skill."""

    def __str__(self) -> str:
        return self.message


class Snippet(Struct, frozen=True, kw_only=True):
    """One piece of prompt text.

    Raises:
        ConfigurationError: the identifier is none, or there is no such data class.
    """

    identifier: str
    """ASCII letters, digits and `_ . : / @ + = ~ # -`; two that differ by case are the same."""
    name: str = ""
    """What people call it, and the label in front of its text; the identifier if empty."""
    description: str = ""
    text: str = ""
    tags: str = ""
    """Comma-separated."""
    metadata: str = ""
    """JSON for programs, see `metadata_dict`."""
    active: bool = True
    """Whether it may be used; the switch of those who run the service."""
    hidden: bool = False
    """Whether its editors took it out of every prompt."""
    sorting: int = 0
    data_class: str = ""
    """One of `clew.typing.DATA_CLASSES`; empty where none was declared."""

    def __post_init__(self) -> None:
        check_identifier("snippet", self.identifier)
        check_data_class(self.data_class)

    @property
    def key(self) -> str:
        """What makes it the same snippet: the identifier in lower case."""
        return self.identifier.lower()

    @property
    def label(self) -> str:
        """What stands in front of its text: the name on one line, else the identifier."""
        return " ".join(self.name.split()) or self.identifier

    @property
    def tag_list(self) -> tuple[str, ...]:
        """Its tags, see `parse_tags`."""
        return parse_tags(self.tags)

    def has_tag(self, tag: str) -> bool:
        """Tell whether it carries exactly this tag; an empty one nobody carries."""
        wanted = tag.strip().casefold()
        return any(wanted == each.casefold() for each in self.tag_list)

    def metadata_dict(self) -> dict[str, Any]:
        """Return the metadata, a new object each time; empty where it is no JSON object."""
        try:
            read: Any = json.loads(self.metadata)
        except (ValueError, RecursionError):
            return {}
        return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def is_identifier(text: str) -> bool:
    """Tell whether a text may identify a snippet or skill."""
    return _fits(text) is not None


def check_identifier(what: str, identifier: str) -> None:
    """Refuse what is no identifier.

    Raises:
        ConfigurationError: it is none.
    """
    if not is_identifier(identifier):
        raise ConfigurationError(
            f"{what} identifier {identifier!r} is no identifier: give at most {MAX_IDENTIFIER} "
            "ASCII letters, digits and _ . : / @ + = ~ # -, without blanks"
        )


def check_data_class(data_class: str) -> None:
    """Refuse an unknown data class; empty text means that none was declared.

    Raises:
        ConfigurationError: there is no such class.
    """
    if data_class and data_class not in DATA_CLASSES:
        known = ", ".join(DATA_CLASSES)
        raise ConfigurationError(f"data class {data_class!r} is unknown; give one of: {known}")


def parse_tags(csv: str | Iterable[str]) -> tuple[str, ...]:
    """Return tags in lower case, trimmed, each once and in order; empty ones are left out.

    Args:
        csv: comma-separated tags, or several such texts.
    """
    parts = csv.split(",") if isinstance(csv, str) else [p for each in csv for p in each.split(",")]
    found: dict[str, str] = {}
    for part in parts:
        tag = part.strip()
        if tag:
            found.setdefault(tag.casefold(), tag.lower())
    return tuple(found.values())


def in_order(snippets: Iterable[Snippet]) -> tuple[Snippet, ...]:
    """Return snippets by sorting, then name, then identifier; each identifier once, the first."""
    kept: dict[str, Snippet] = {}
    for snippet in snippets:
        kept.setdefault(snippet.key, snippet)
    return tuple(
        sorted(kept.values(), key=lambda each: (each.sorting, each.name.casefold(), each.key))
    )


def known_tags(snippets: Iterable[Snippet]) -> tuple[str, ...]:
    """Return the tags that snippets carry, each once, in alphabetical order."""
    return tuple(sorted(parse_tags(each.tags for each in snippets)))


def unmatched(tag: str, snippets: Sequence[Snippet]) -> PromptWarning:
    """Say why a tag chose nothing: nobody carries it, or only snippets that are off.

    Args:
        tag: the tag.
        snippets: all snippets, those that are not active or hidden too.
    """
    if any(each.has_tag(tag) for each in snippets):
        return PromptWarning(
            code="unused_tag",
            subject=tag,
            message=f"every snippet tagged {tag!r} is inactive, hidden or empty",
        )
    known = known_tags(snippets)
    near = get_close_matches(tag.casefold(), known, n=1, cutoff=_NEAR)
    if near:
        hint = f"the nearest known tag is {near[0]!r}"
    elif known:
        more = ", ..." if len(known) > _NAMED_TAGS else ""
        hint = f"known tags are {', '.join(map(repr, known[:_NAMED_TAGS]))}{more}"
    else:
        hint = "no snippet has a tag"
    return PromptWarning(
        code="unknown_tag", subject=tag, message=f"no snippet is tagged {tag!r}; {hint}"
    )
