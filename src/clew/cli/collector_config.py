"""`clew collector-config`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clew.cli.collector import documents
from clew.cli.output import print_json, say
from clew.errors import ClewError
from clew.semconv import CONTENT

_TABLE = "table"
_NAMES = (*documents.NAMES, _TABLE)


def collector_config(
    name: Annotated[
        str,
        typer.Argument(
            help=f"Which file: {', '.join(documents.NAMES)}; or {_TABLE}, the page that says how "
            "exact the Collector's rules are.",
            metavar="NAME",
        ),
    ] = "gateway",
    content: Annotated[
        bool,
        typer.Option(
            "--content",
            help="Let captured content pass, too. The Collector cannot tell it from any other "
            "text under the same keys.",
        ),
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write every file into this folder instead."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the table's rows as JSON (with `table`).")
    ] = False,
) -> None:
    """Print a configuration for the OpenTelemetry Collector, with the allow-list in force.

    The list is the one of this environment: CLEW_ALLOW_LIST adds to it here as in a service.
    """
    from clew.cli.collector import statements
    from clew.rules import Captured
    from clew.settings import Settings

    if name not in _NAMES:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(_NAMES)}")
    allow_list = Settings.from_environment().effective_allow_list()
    if content:
        allow_list = allow_list.extended(dict.fromkeys(CONTENT, Captured()))
    if write is not None:
        _write(write, {each: documents.document(each, allow_list) for each in documents.NAMES})
        _write(write, {"RULES.md": documents.table(allow_list)})
    elif name == _TABLE and json:
        print_json(
            [
                {"on": e.part, "key": e.key, "rule": e.rule, "grade": e.grade, "note": e.note}
                for e in statements.rows(allow_list)
            ]
        )
    elif name == _TABLE:
        print(documents.table(allow_list), end="")
    else:
        print(documents.document(name, allow_list), end="")


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / (name if "." in name else f"{name}.yaml")
            path.write_text(text, encoding="utf-8")
            say(f"wrote {path}")
    except OSError as error:
        raise ClewError(f"{folder} cannot be written: {error.strerror}") from None
