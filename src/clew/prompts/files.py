"""Snippets and skills in files under version control: YAML, and Markdown with front matter.

A YAML file has a list `snippets`, a list `skills`, or both. A Markdown file is one snippet: its
front matter says what it is, the rest is its text; `kind: skill` makes it a skill, and so does the
name `SKILL.md`. A folder is read with all folders in it; Markdown without front matter is passed
over there. `docs/snippets.md` has examples.

A `SKILL.md` comes from others and cannot say how far it is trusted: an entry under `skills` whose
member is `file` says it, with the checksum of what was reviewed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from clew.errors import ConfigurationError
from clew.prompts.blocks import BlockSource
from clew.prompts.documents import Document, parse, read_text
from clew.prompts.repository import Repository
from clew.prompts.skills import TRUST_LEVELS, Skill, skills_in_order
from clew.prompts.snippets import Snippet, in_order, is_identifier

T = TypeVar("T")

_TEXT: Final = "text"
_FLAG: Final = "true or false"
_NUMBER: Final = "a whole number"
_LIST: Final = "text, or a list of texts"
_OBJECT: Final = "an object, or JSON text"
_SNIPPET: Final = {
    "identifier": _TEXT,
    "name": _TEXT,
    "description": _TEXT,
    "text": _TEXT,
    "tags": _LIST,
    "metadata": _OBJECT,
    "active": _FLAG,
    "hidden": _FLAG,
    "sorting": _NUMBER,
    "data_class": _TEXT,
}
_SKILL: Final = {
    "identifier": _TEXT,
    "source": _TEXT,
    "name": _TEXT,
    "description": _TEXT,
    "body": _TEXT,
    "trust": _TEXT,
    "checksum": _TEXT,
    "enabled": _FLAG,
    "orphaned": _FLAG,
    "data_class": _TEXT,
}
_FOREIGN: Final = frozenset({"license", "compatibility", "metadata", "allowed-tools", "version"})
"""Members of a SKILL.md that mean something to others (https://agentskills.io/specification)."""
_OWNERS: Final = frozenset({"source", "trust", "checksum", "enabled", "orphaned", "data_class"})
"""What a SKILL.md may not say of itself."""
_SKILL_FILE: Final = "SKILL.md"
_ENDINGS: Final = (".yaml", ".yml", ".md")
_FENCE: Final = "---"


class Found(Struct, Generic[T], frozen=True, kw_only=True):
    """A snippet or skill, and where it stands."""

    value: T
    where: str
    """`file:line`."""


class Scan(Struct, frozen=True, kw_only=True):
    """What files hold, and what is wrong with them."""

    files: int = 0
    snippets: tuple[Found[Snippet], ...] = ()
    """In the order of the files; an identifier may be there twice."""
    skills: tuple[Found[Skill], ...] = ()
    problems: tuple[str, ...] = ()
    """Each `file:line: what is wrong`."""


class FileRepository(Repository):
    """Snippets and skills of a file, or of a folder and the folders in it; read once.

    Raises:
        ConfigurationError: a file cannot be read or is wrong, or an identifier is there twice.
        MissingExtraError: PyYAML is not installed.
    """

    block_source: BlockSource = "file"

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.reload()

    def reload(self) -> None:
        """Read the files again; what was read before stays where they are wrong.

        Raises:
            ConfigurationError: as the constructor has it.
        """
        found = scan(self.path)
        if found.problems:
            more = len(found.problems) - 1
            raise ConfigurationError(
                found.problems[0]
                + (f" ({more} more: `clew snippets check --from`)" if more else "")
            )
        self._snippets = in_order(each.value for each in found.snippets)
        self._skills = skills_in_order(each.value for each in found.skills)

    def snippets(self) -> Sequence[Snippet]:
        """Return all snippets."""
        return self._snippets

    def skills(self) -> Sequence[Skill]:
        """Return all skills."""
        return self._skills


def scan(path: Path) -> Scan:
    """Read a file or folder and find all problems, identifiers that are there twice among them.

    Raises:
        MissingExtraError: PyYAML is not installed.
    """
    reading = _Reading()
    try:
        paths = list(_files(path))
    except ConfigurationError as error:
        return Scan(problems=(str(error),))
    for each in paths:
        reading.read(each, alone=each == path)
    skills = reading.skills + [
        found for file, found in reading.bare.items() if file not in reading.pinned
    ]
    problems = [
        *reading.problems,
        *_twice("snippet", [(each.value.key, each.where) for each in reading.snippets]),
        *_twice("skill", [(each.value.key, each.where) for each in skills]),
    ]
    return Scan(
        files=len(paths),
        snippets=tuple(reading.snippets),
        skills=tuple(skills),
        problems=tuple(problems),
    )


class _Reading:
    """What one scan has found so far."""

    def __init__(self) -> None:
        self.snippets: list[Found[Snippet]] = []
        self.skills: list[Found[Skill]] = []
        self.bare: dict[Path, Found[Skill]] = {}
        self.pinned: set[Path] = set()
        self.problems: list[str] = []

    def read(self, path: Path, *, alone: bool) -> None:
        try:
            text = read_text(path)
            if path.suffix.lower() == ".md":
                self._markdown(path, text, alone=alone)
            else:
                self._yaml(parse(text, path))
        except ConfigurationError as error:
            self.problems.append(str(error))

    def _yaml(self, document: Document) -> None:
        given: Any = document.data
        names = set(cast("dict[Any, Any]", given)) if isinstance(given, dict) else set[Any]()
        if not names or names - {"snippets", "skills"}:
            raise ConfigurationError(
                f"{document.where()}: no snippet file: give a list `snippets`, a list `skills`, "
                "or both, and nothing else"
            )
        data = cast("dict[str, Any]", given)
        for kind, entries in data.items():
            if not isinstance(entries, list):
                raise ConfigurationError(f"{document.where((kind,))}: {kind}: give a list")
            for at in range(len(cast("list[Any]", entries))):
                try:
                    if kind == "snippets":
                        self._snippet(document, (kind, at), None)
                    else:
                        self._skill(document, (kind, at))
                except ConfigurationError as error:
                    self.problems.append(str(error))

    def _markdown(self, path: Path, text: str, *, alone: bool) -> None:
        lines = text.split("\n")
        if lines[0].rstrip() != _FENCE:
            if alone:
                raise ConfigurationError(f"{path}:1: no front matter: begin with a line `---`")
            return
        end = next((at for at, line in enumerate(lines) if at and line.rstrip() == _FENCE), None)
        if end is None:
            raise ConfigurationError(f"{path}:1: the front matter has no end: a line `---`")
        document = parse("\n".join((*lines[1:end], "")), path, offset=1)
        body = "\n".join(lines[end + 1 :]).strip("\n")
        if path.name == _SKILL_FILE:
            self.bare[path.resolve()] = _foreign_skill(document, body)
            return
        kind = _mapping(document, ()).get("kind", "snippet")
        if kind == "skill":
            members = _members(document, (), {**_SKILL, "kind": _TEXT})
            self._add_skill(document, (), {"identifier": path.stem, **members, "body": body})
        elif kind == "snippet":
            self._snippet(document, (), body)
        else:
            raise ConfigurationError(f"{document.where(('kind',))}: kind: give snippet or skill")

    def _snippet(self, document: Document, place: _Place, body: str | None) -> None:
        members = _members(document, place, _SNIPPET if body is None else {**_SNIPPET, "kind": ""})
        if body is not None:
            if "text" in members:
                raise ConfigurationError(
                    f"{document.where((*place, 'text'))}: text: it stands below the front matter"
                )
            members = {"identifier": document.path.stem, **members, "text": body}
        members.pop("kind", None)
        members["text"] = str(members.get("text", "")).strip("\n")
        if "metadata" in members and not isinstance(members["metadata"], str):
            where = document.where((*place, "metadata"))
            members["metadata"] = _json(members["metadata"], where)
        if isinstance(members.get("tags"), list):
            members["tags"] = ", ".join(members["tags"])
        self.snippets.append(_made(Snippet, document, place, members))

    def _skill(self, document: Document, place: _Place) -> None:
        members = _members(document, place, {**_SKILL, "file": _TEXT})
        file = members.pop("file", None)
        if file is not None:
            if "body" in members:
                raise ConfigurationError(
                    f"{document.where((*place, 'body'))}: give body or file, not both"
                )
            path = (document.path.parent / file).resolve()
            foreign = _read_foreign(path, document.where((*place, "file")))
            self.pinned.add(path)
            members = {
                "identifier": foreign.identifier,
                "name": foreign.name,
                "description": foreign.description,
                **members,
                "body": foreign.body,
            }
        self._add_skill(document, place, members)

    def _add_skill(self, document: Document, place: _Place, members: dict[str, Any]) -> None:
        members.pop("kind", None)
        members["body"] = str(members.get("body", "")).strip("\n")
        trust = members.get("trust", TRUST_LEVELS[0])
        if trust not in TRUST_LEVELS:
            known = ", ".join(TRUST_LEVELS)
            raise ConfigurationError(
                f"{document.where((*place, 'trust'))}: trust: {trust!r} is unknown; give {known}"
            )
        self.skills.append(_made(Skill, document, place, members))


_Place = tuple[str | int, ...]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        if path.suffix.lower() not in _ENDINGS:
            raise ConfigurationError(
                f"{path}: it is neither YAML nor Markdown: {', '.join(_ENDINGS)}"
            )
        yield path
        return
    if not path.is_dir():
        raise ConfigurationError(f"{path}: cannot be read: there is no such file or folder")
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith(_ENDINGS) and not name.startswith("."):
                yield Path(folder) / name


def _mapping(document: Document, place: _Place) -> dict[str, Any]:
    value: Any = document.data
    for step in place:
        value = value[step]
    if not isinstance(value, dict):
        raise ConfigurationError(
            f"{document.where(place)}: give members, such as `identifier: ...`"
        )
    return cast("dict[str, Any]", value)


def _members(document: Document, place: _Place, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the members of an entry, each of the kind that it has to be."""
    members = dict(_mapping(document, place))
    for name, value in members.items():
        where = document.where((*place, name))
        if name not in kinds:
            near = get_close_matches(str(name), kinds, n=1)
            hint = f"is it {near[0]!r}?" if near else f"known are {', '.join(_SNIPPET)}"
            raise ConfigurationError(f"{where}: {name!r} is unknown; {hint}")
        if not _is(value, kinds[name]):
            raise ConfigurationError(f"{where}: {name}: give {kinds[name]}")
    return members


def _is(value: Any, kind: str) -> bool:
    match kind:
        case "text":
            return isinstance(value, str)
        case "true or false":
            return isinstance(value, bool)
        case "a whole number":
            return type(value) is int
        case "text, or a list of texts":
            many = cast("list[Any]", value) if isinstance(value, list) else [value]
            return all(isinstance(each, str) for each in many)
        case _:
            return True


def _made(kind: type[T], document: Document, place: _Place, members: dict[str, Any]) -> Found[T]:
    if "identifier" not in members:
        raise ConfigurationError(f"{document.where(place)}: identifier is missing")
    try:
        return Found(value=kind(**members), where=document.where(place))
    except ConfigurationError as error:
        starts = {"data class": "data_class", "source": "source"}
        named = next((name for start, name in starts.items() if str(error).startswith(start)), "")
        spot = (*place, named or "identifier")
        raise ConfigurationError(f"{document.where(spot)}: {error}") from None


def _json(value: Any, where: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise ConfigurationError(f"{where}: metadata: it has no JSON") from None


def _foreign_skill(document: Document, body: str) -> Found[Skill]:
    members = _mapping(document, ())
    said = sorted(_OWNERS & set(members))
    if said:
        raise ConfigurationError(
            f"{document.where((said[0],))}: a {_SKILL_FILE} cannot say its {said[0]}: "
            "write an entry with `file` into a list `skills`"
        )
    known = {key: value for key, value in members.items() if key not in _FOREIGN and key != "kind"}
    checked = _members(document._replace(data=known), (), _SKILL)
    name = checked.get("name", "")
    folder = document.path.resolve().parent.name
    checked.setdefault("identifier", name if is_identifier(name) else folder)
    return _made(Skill, document, (), {**checked, "body": body})


def _read_foreign(path: Path, where: str) -> Skill:
    reading = _Reading()
    reading.read(path, alone=True)
    if reading.problems:
        raise ConfigurationError(f"{where}: {reading.problems[0]}")
    found = [*reading.bare.values(), *reading.skills]
    if len(found) != 1:
        raise ConfigurationError(f"{where}: {path.name} is no skill in Markdown")
    return replace(found[0].value)


def _twice(what: str, found: Sequence[tuple[Any, str]]) -> Iterator[str]:
    first: dict[Any, str] = {}
    for key, where in found:
        if key in first:
            name = key if isinstance(key, str) else "#".join(filter(None, key))
            yield f"{where}: the {what} {name!r} is there twice, first at {first[key]}"
        first.setdefault(key, where)
