"""`clew token`: who may read and send, where `clew serve` asks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clew.cli.output import print_json, print_table, say
from clew.store.paths import data_dir
from clew.web import tokens as file

token = typer.Typer(no_args_is_help=True)

_File = Annotated[
    Path | None,
    typer.Option("--file", help="The file of tokens. [default: tokens.json in the data folder]"),
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Id = Annotated[str, typer.Argument(help="Whom the token stands for.")]


@token.command()
def add(
    identity: _Id,
    scope: Annotated[
        list[str] | None, typer.Option(help="What it may do, such as agent:read; may be repeated.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Whose runs it may read; * for all of them.")
    ] = None,
    person: Annotated[
        bool, typer.Option("--person", help="It stands for a person, who owns runs.")
    ] = False,
    admin: Annotated[bool, typer.Option("--admin", help="It may do everything.")] = False,
    expires: Annotated[
        str, typer.Option(help="The first day on which it is not taken, such as 2027-01-31.")
    ] = "",
    path: _File = None,
    json: _Json = False,
) -> None:
    """Make a token and print it, once: only its digest is stored."""
    where = _path(path)
    made = file.add(
        where,
        file.Entry(
            id=identity,
            token="",
            kind="human" if person else "service",
            scopes=tuple(scope or ()),
            tenant=tenant,
            admin=admin,
            expires=expires,
        ),
    )
    if json:
        print_json({"id": identity, "token": made, "file": str(where)})
    else:
        print(made)
    say(f"stored in {where}; it cannot be shown again")
    if not (scope or admin or person):
        say("it has no scope and may do nothing: give --scope")


@token.command("list")
def list_(path: _File = None, json: _Json = False) -> None:
    """List whom there are tokens for; the tokens themselves are not known."""
    found = file.load(_path(path))
    if json:
        print_json(
            [
                {
                    "id": each.id,
                    "kind": each.kind,
                    "scopes": list(each.scopes),
                    "tenant": each.tenant,
                    "admin": each.admin,
                    "created": each.created or None,
                    "expires": each.expires or None,
                }
                for each in found
            ]
        )
        return
    if not found:
        say("there are no tokens")
        return
    print_table(
        ("id", "kind", "scopes", "tenant", "created", "expires"),
        [
            (
                each.id,
                each.kind,
                "everything" if each.admin else " ".join(each.scopes),
                each.tenant or "",
                each.created,
                each.expires,
            )
            for each in found
        ],
    )


@token.command()
def remove(identity: _Id, path: _File = None) -> None:
    """Take a token away; a running server notices at once."""
    file.remove(_path(path), identity)
    say(f"{identity} has no token any more")


def _path(given: Path | None) -> Path:
    return given.expanduser() if given is not None else data_dir() / "tokens.json"
