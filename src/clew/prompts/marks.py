"""How a renderer is made to tell where each section went: sentinels around the values.

Each section's value is rendered between private-use characters, `open token separate value close`,
and a second time without them. The blocks count only if taking the sentinels out of the one text
gives the other to the byte, and no value and no template had any of its own. So neither a
filter on a marked value nor a hostile value can move or forge a block. The token holds a number
drawn for each rendering, so that no value can guess it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from msgspec import Struct

from clew._guard import logger, warn_once
from clew.prompts.blocks import Block
from clew.prompts.sections import TEMPLATE, Kind

OPEN: Final = "\ue000"
SEPARATOR: Final = "\ue001"
CLOSE: Final = "\ue002"
_SENTINEL: Final = re.compile("[\ue000-\ue002]")


class Piece(Struct, frozen=True, kw_only=True):
    """A stretch of text that is to be one block."""

    id: str
    kind: Kind
    text: str


class Rendered(Struct, frozen=True, kw_only=True):
    """A text, and its blocks where they are certain."""

    text: str
    blocks: tuple[Block, ...] = ()
    dropped: bool = False
    """True where there should be blocks and are none."""


def tile(pieces: Sequence[Piece]) -> tuple[Block, ...]:
    """Return the blocks of a text that is put together from pieces; empty ones have none.

    Raises:
        UnicodeEncodeError: the text has no UTF-8 (it holds half of a surrogate pair).
    """
    blocks: list[Block] = []
    at = 0
    for piece in pieces:
        size = len(piece.text.encode())
        if size:
            blocks.append(
                Block(
                    id=piece.id,
                    layer=piece.kind.layer,
                    stability=piece.kind.stability,
                    source=piece.kind.source,
                    start=at,
                    end=at + size,
                    chars=len(piece.text),
                )
            )
            at += size
    return tuple(blocks)


def render(
    name: str,
    renderer: Callable[[Mapping[str, Any]], str],
    sections: Mapping[str, tuple[str, Kind]],
    inline: Mapping[str, Any],
) -> Rendered:
    """Render a template and find out where its sections went.

    Args:
        name: what the template is called.
        renderer: takes values by name, returns text; what it raises the first time is raised here.
        sections: text and kind by name; empty text is absent.
        inline: further values by name.
    """
    plain_values = {**inline, **{key: text for key, (text, _) in sections.items()}}
    # The plain text first: an iterator among the values is used up by then, and it counts.
    plain = str(renderer(plain_values))
    if _SENTINEL.search(plain) or any(map(holds_sentinel, plain_values.values())):
        logger.warning(
            "The prompt %r has no block map: a value holds one of the characters that mark blocks "
            "(U+E000 to U+E002)",
            name,
        )
        return Rendered(text=plain, dropped=True)
    if any(text for text, _ in sections.values()):
        pieces = _marked(name, renderer, sections, inline)
    else:
        pieces = [_prose(name, plain)]
    try:
        if "".join([piece.text for piece in pieces]) == plain:
            return Rendered(text=plain, blocks=tile(pieces))
    except UnicodeEncodeError:
        pass
    warn_once(
        f"map the prompt {name[:64]}",
        "The prompt %r has no block map: with its sections marked it comes out differently (a "
        "filter or a comparison on a section does that, or text that has no UTF-8)",
        name,
    )
    return Rendered(text=plain, dropped=True)


def _marked(
    name: str,
    renderer: Callable[[Mapping[str, Any]], str],
    sections: Mapping[str, tuple[str, Kind]],
    inline: Mapping[str, Any],
) -> list[Piece]:
    """Render with marks, and return what lies between them; nothing where that fails."""
    drawn = secrets.randbelow(10**9)
    tokens: dict[str, tuple[str, Kind]] = {}
    values = dict(inline)
    for index, (key, (text, kind)) in enumerate(sections.items()):
        values[key] = text
        if text:
            token = f"{drawn}.{index}"
            tokens[token] = (key, kind)
            values[key] = f"{OPEN}{token}{SEPARATOR}{text}{CLOSE}"
    try:
        marked = str(renderer(values))
    except Exception:  # a filter that does not take a marked value: no fault of ours
        return []
    return [
        _prose(name, text)
        if token is None
        else Piece(id=tokens[token][0], kind=tokens[token][1], text=text)
        for token, text in split(marked, tokens)
    ]


def _prose(name: str, text: str) -> Piece:
    return Piece(id=f"template:{name}", kind=TEMPLATE, text=text)


def split(text: str, tokens: Mapping[str, Any]) -> list[tuple[str | None, str]]:
    """Cut a marked text into stretches: (token, value), and (None, prose) between them.

    From a mark on that is not whole (no separator, no close, an unknown token, a mark inside of
    another) the rest is prose, as it stands.
    """
    found: list[tuple[str | None, str]] = []
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        separator = text.find(SEPARATOR, start)
        close = text.find(CLOSE, start)
        value = text[separator + 1 : close]
        token = text[start + 1 : separator]
        whole = start < separator < close and token in tokens
        if not whole or _SENTINEL.search(value):
            break
        if start > at:
            found.append((None, text[at:start]))
        found.append((token, value))
        at = close + 1
    if at < len(text):
        found.append((None, text[at:]))
    return found


def holds_sentinel(value: Any) -> bool:
    """Tell whether a sentinel stands in a value, in its entries or in theirs, keys included.

    What cannot be looked into counts as if one stood there.
    """
    waiting: list[Any] = [value]
    seen: dict[int, Any] = {}  # with the objects, so that no id is given away meanwhile
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if _SENTINEL.search(each):
                return True
            continue
        try:
            entries = _entries(each)
        except Exception:  # a container of the host's that cannot be looked into
            return True
        if entries and id(each) not in seen:
            seen[id(each)] = each
            waiting.extend(entries)
    return False


def _entries(value: Any) -> list[Any]:
    """Return the entries of a container, keys included; of what is none, nothing."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return [*mapping.keys(), *mapping.values()]
    if isinstance(value, (bytes, bytearray, memoryview, range)):
        return []
    if isinstance(value, (Sequence, AbstractSet)):
        return list(cast("Sequence[Any]", value))
    return []
