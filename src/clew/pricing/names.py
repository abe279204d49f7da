"""Which row of a price table a model name stands for.

Names arrive dated (`gpt-4o-2024-08-06`), prefixed (`models/gemini-2.5-pro`,
`us.anthropic.claude-opus-4-1-20250805-v1:0`) and as resource names. A row's match clauses are
often plain prefixes, which would give a dearer or cheaper sibling the wrong price; so whatever
a clause leaves over of a name must be a date, a version or a place, never another word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

PROVIDERS: Final = {
    "aws.bedrock": "aws",
    "bedrock": "aws",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure_openai": "azure",
    "fireworks_ai": "fireworks",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "vertex_ai": "google",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "moonshot_ai": "moonshotai",
    "together_ai": "together",
    "voyage_ai": "voyageai",
    "x_ai": "x-ai",
    "xai": "x-ai",
}
"""The conventions' `gen_ai.provider.name` (and older spellings) to the price table's ids; a name
that is not here is its own id."""

_DATE = r"20\d\d-?(?:0[1-9]|1[0-2])-?(?:0[1-9]|[12]\d|3[01])"
_DATED = re.compile(rf"(.+?)(?:[-@]{_DATE}|[-@]latest|@default)")
_COMPACT_DATE = re.compile(r"(.+[-@])(20\d\d)(\d\d)(\d\d)")
_VERSION = {
    "aws": re.compile(r"(.+?)-v\d+(?::\d+k?)*"),
    "google": re.compile(r"(.+?)-0\d\d"),
}
_BEDROCK_REGION = re.compile(r"(?:us|eu|apac|au|jp|in|ca|sa|me|af|us-gov|global)\.(.+)")
_LEFT_OVER = re.compile(
    rf"(?:[-@]{_DATE}"  # -2024-08-06, @20250514
    r"|-\d\d-\d\d(?:\d\d)?"  # -05-06, -09-2025
    r"|-\d{3,6}"  # -001, -0613, -2506
    r"|[-@](?:latest|default|preview)"
    r"|-v\d+|:\d+k?"  # -v1:0, :0:300k
    r")*"
)
_IN_FRONT = re.compile(r"(?:.*[/:])?(?:[a-z][a-z-]*\.){0,2}")


def provider_id(name: str) -> str:
    """Return the price table's id for a provider name of the conventions."""
    lowered = name.strip().lower()
    return PROVIDERS.get(lowered, lowered)


def candidates(provider: str, model: str) -> Iterator[str]:
    """Yield the names to look up for `model` at `provider`, the most exact first."""
    seen: set[str] = set()
    forms = list(_forms(provider, model.strip().lower()))
    bare = [name for form in forms for name in _undated(provider, form)]
    for form in (*forms, *bare):
        if form and form not in seen:
            seen.add(form)
            yield form


def _forms(provider: str, name: str) -> Iterator[str]:
    """Yield `name` with and without the prefixes that say where it is, not what it is."""
    yield name
    if name.startswith("arn:") or "models/" in name:
        name = name.rsplit("/", 1)[-1]
        yield name
    head, slash, tail = name.partition("/")
    if slash and provider_id(head) == provider:
        name = tail
        yield name
    if provider == "aws" and (region := _BEDROCK_REGION.fullmatch(name)):
        yield region.group(1)


def _undated(provider: str, name: str) -> Iterator[str]:
    """Yield `name` without the parts that say which snapshot it is, then as a moving name."""
    if compact := _COMPACT_DATE.fullmatch(name):
        yield "".join((compact.group(1), "-".join(compact.group(2, 3, 4))))
    bare = name
    version = _VERSION[provider].fullmatch(bare) if provider in _VERSION else None
    if version is not None:
        bare = version.group(1)
        yield bare
    if dated := _DATED.fullmatch(bare):
        bare = dated.group(1)
        yield bare
    yield f"{bare}-latest"


class RowMatcher:
    """The match clauses of one row of genai-prices, guarded against names that start alike."""

    __slots__ = ("clauses", "names")

    def __init__(self, row_id: str, clause: Any) -> None:
        names = {row_id.lower()} if clause.is_match(row_id) else set[str]()
        self.clauses: list[Any] = []
        self._flatten(clause, names)
        self.names = frozenset(names)

    def _flatten(self, clause: Any, names: set[str]) -> None:
        if (alternatives := getattr(clause, "or_", None)) is not None:
            for alternative in alternatives:
                self._flatten(alternative, names)
        elif (text := getattr(clause, "equals", None)) is not None:
            names.add(text.lower())
        else:
            self.clauses.append(clause)

    def matches(self, name: str) -> bool:
        """Tell whether the lower-case `name` is this row's, and not merely begins like it."""
        if name in self.names:
            return True
        return any(clause.is_match(name) and _covers(clause, name) for clause in self.clauses)


def _covers(clause: Any, name: str) -> bool:
    """Tell whether what `clause` leaves over of the matching `name` is no other model's name."""
    if (text := getattr(clause, "starts_with", None)) is not None:
        return _left_over(name, len(text), text)
    if (text := getattr(clause, "contains", None)) is not None:
        start = name.find(text.lower())
        in_front = _IN_FRONT.fullmatch(name, 0, start)
        return in_front is not None and _left_over(name, start + len(text), text)
    if (text := getattr(clause, "ends_with", None)) is not None:
        return _IN_FRONT.fullmatch(name, 0, len(name) - len(text)) is not None
    if (pattern := getattr(clause, "regex", None)) is not None:
        found = re.search(pattern, name)
        if found is None or found.start() or not found.group():
            return False
        return _left_over(name, found.end(), "")
    if getattr(clause, "equals", None) is not None:
        return True
    if (parts := getattr(clause, "and_", None)) is not None:
        return any(_covers(part, name) for part in parts)
    if (parts := getattr(clause, "or_", None)) is not None:
        return any(part.is_match(name) and _covers(part, name) for part in parts)
    return False


def _left_over(name: str, end: int, text: str) -> bool:
    if text.endswith(".ft-"):
        return True
    rest = name[end:]
    if rest and rest[0] not in "-@:":
        # The clause ends inside a date or a version (`claude-sonnet-4-2025`): look at all of it.
        start = end
        while start > 0 and name[start - 1].isdigit():
            start -= 1
        start -= 1
        if start < 0 or name[start] not in "-@":
            return False
        rest = name[start:]
    if name.startswith("ft:"):
        # A fine-tune is `ft:base-model:organisation::id`; its row is the base model's.
        rest = rest.split(":", 1)[0]
    return _LEFT_OVER.fullmatch(rest) is not None
