"""Writing for people and for programs: data on stdout, talk on stderr.

On a terminal tables and trees are drawn by rich; through a pipe they are plain text, one line for
each row. Whatever a sender put into a name or an attribute is shown without its control
characters: it could drive the terminal otherwise.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    r"""Replace control characters and those that turn the direction of writing by `\x..`."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(message: str) -> None:
    """Tell the user something that is not data."""
    print(clean(message), file=sys.stderr)


def print_json(content: Any) -> None:
    """Print one JSON document."""
    print_encoded(msgspec.json.format(msgspec.json.encode(content), indent=2))


def print_encoded(document: bytes) -> None:
    """Print a JSON document that is already encoded, with control characters as JSON escapes.

    JSON itself demands that only below U+0020; they can only stand inside its strings.
    """
    lines = document.decode().split("\n")
    escaped = (_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in lines)
    sys.stdout.write("\n".join(escaped) + "\n")


def is_terminal() -> bool:
    """Tell whether stdout is a terminal, which decides on the form."""
    return sys.stdout.isatty()


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()
) -> None:
    """Print a table; the columns at the places `right` are numbers."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    numeric = frozenset(right)
    if is_terminal():
        _rich_table(columns, cleaned, numeric)
        return
    lines = [[each.upper() for each in columns], *cleaned]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = (
            cell.rjust(width) if place in numeric else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def _rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, header_style="dim", pad_edge=False)
    widest = [max(len(line[place]) for line in (columns, *rows)) for place in range(len(columns))]
    # Only names, in the second column, are cut where the terminal is narrow.
    room = console.width - sum(widest) + widest[1] - 2 * (len(columns) - 1)
    for place, column in enumerate(columns):
        table.add_column(
            column,
            justify="right" if place in right else "left",
            no_wrap=True,
            max_width=max(6, room) if place == 1 else None,
        )
    for row in rows:
        table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
    console.print(table)


_STYLES: Final = {
    "completed": "green",
    "failed": "bold red",
    "running": "blue",
    "cancelled": "dim",
    "waiting for approval": "yellow",
    "waiting for input": "yellow",
}


def _style(cell: str) -> str:
    return _STYLES.get(cell, "")
