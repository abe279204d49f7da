"""Where snippets and skills come from: one protocol, and the implementation given in code.

The others are `clew.prompts.files.FileRepository` (YAML and Markdown under version control) and
`clew.store.snippets.SqliteRepository` (the local store). An implementation says what there is;
choosing is done here, in code, the same way for all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

from clew.errors import ClewError
from clew.prompts.blocks import BlockSource
from clew.prompts.skills import Skill, skill_named, skills_in_order
from clew.prompts.snippets import Snippet, in_order, known_tags, parse_tags


class Repository(Protocol):
    """Keeps snippets and skills.

    Subclass it, and write `snippets` and `skills`. Both may be called from several threads.

    Raises:
        ClewError: what it keeps cannot be read; from each method.
    """

    block_source: BlockSource
    """Where its texts come from, as a prompt's block map says it."""

    @abstractmethod
    def snippets(self) -> Sequence[Snippet]:
        """Return all snippets, those that are not active or hidden too: by sorting, then name."""
        ...

    @abstractmethod
    def skills(self) -> Sequence[Skill]:
        """Return all skills, by source, then identifier."""
        ...

    def find(self, identifier: str) -> Snippet | None:
        """Return the snippet with this identifier, whatever its state."""
        return next(iter(self.find_existing_by_ids([identifier])), None)

    def find_active_by_tag(self, tag: str) -> list[Snippet]:
        """Return the active snippets that carry a tag, hidden ones too; none for an empty tag."""
        return [each for each in self.snippets() if each.active and each.has_tag(tag)]

    def find_by_ids(self, identifiers: Iterable[str]) -> list[Snippet]:
        """Return active snippets in the order asked for; unknown and inactive ones are left out."""
        return [each for each in self.find_existing_by_ids(identifiers) if each.active]

    def find_existing_by_ids(self, identifiers: Iterable[str]) -> list[Snippet]:
        """Return snippets in the order asked for, inactive and hidden ones too, deleted never.

        It is for a run that is resumed: what it began with stays, whatever was switched off since.
        """
        known = {each.key: each for each in self.snippets()}
        wanted = dict.fromkeys(identifier.strip().lower() for identifier in identifiers)
        return [known[key] for key in wanted if key in known]

    def tags(self) -> tuple[str, ...]:
        """Return the tags that snippets of any state carry, in alphabetical order."""
        return known_tags(self.snippets())

    def find_skill(self, reference: str) -> Skill | None:
        """Return the skill that a reference names, see `clew.prompts.skills.skill_named`."""
        return skill_named(reference, self.skills())


class MemoryRepository(Repository):
    """Snippets and skills given in code.

    Args:
        snippets: in any order; of two with one identifier the first is kept.
        skills: likewise, by source and identifier.
    """

    block_source: BlockSource = "config"

    def __init__(self, snippets: Iterable[Snippet] = (), skills: Iterable[Skill] = ()) -> None:
        self._snippets = in_order(snippets)
        self._skills = skills_in_order(skills)

    def snippets(self) -> Sequence[Snippet]:
        """Return all snippets."""
        return self._snippets

    def skills(self) -> Sequence[Skill]:
        """Return all skills."""
        return self._skills


def tag_choices(repository: Repository, chosen: str | Iterable[str] = ()) -> tuple[str, ...]:
    """Return the tags to offer in a form: those that snippets carry, then stored ones beside them.

    A tag that is chosen stays on the list when no snippet carries it any more. A repository that
    cannot be read offers none of its own; the form stays usable.
    """
    try:
        known = repository.tags()
    except ClewError:
        known = ()
    return parse_tags([*known, *parse_tags(chosen)])
