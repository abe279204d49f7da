"""`clew approvals`: what waits for somebody's approval, and deciding on it."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from clew.actors import Actor
from clew.cli.output import print_json, print_table, say
from clew.gates.approval import approve as approve_call
from clew.gates.approval import deny as deny_call
from clew.gates.approval_store import Approval, SqliteApprovals
from clew.sources import wording

approvals = typer.Typer(no_args_is_help=True)

_File = Annotated[
    Path | None, typer.Option("--file", help="The file of approvals. [default: in the data folder]")
]
_As = Annotated[
    str | None, typer.Option("--as", help="Your id. [default: your name on this machine]")
]
_Digest = Annotated[
    str | None, typer.Option(help="Digest of what you have seen; refused if it is another one now.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Which = Annotated[str, typer.Argument(help="Id of the approval, or how it begins.")]


@approvals.command("list")
def list_(file: _File = None, json: _Json = False) -> None:
    """List what waits for an approval, oldest first."""
    found = SqliteApprovals(file).pending()
    if json:
        print_json([_form(one) for one in found])
        return
    if not found:
        say("nothing waits for an approval")
        return
    print_table(
        ("approval", "run", "agent", "tools", "waits", "digest"),
        [
            (
                one.id,
                one.run_id,
                one.agent or "",
                ", ".join(call.name for call in one.calls),
                wording.duration(time.time_ns() - one.proposed_ns),
                one.digest[:12],
            )
            for one in found
        ],
    )


@approvals.command()
def approve(
    approval: _Which,
    file: _File = None,
    actor: _As = None,
    digest: _Digest = None,
    json: _Json = False,
) -> None:
    """Approve the tool calls of a turn; print what resumes the run."""
    store = SqliteApprovals(file)
    _print(approve_call(store, approval, _me(actor), digest=_seen(store, approval, digest)), json)


@approvals.command()
def deny(
    approval: _Which,
    file: _File = None,
    actor: _As = None,
    digest: _Digest = None,
    json: _Json = False,
) -> None:
    """Deny the tool calls of a turn; print what resumes the run."""
    store = SqliteApprovals(file)
    _print(deny_call(store, approval, _me(actor), digest=_seen(store, approval, digest)), json)


def _me(name: str | None) -> Actor:
    """Return who sits at the keyboard: who may write the file may decide, under their own name."""
    return Actor(id=name or getpass.getuser(), grants=frozenset({"agent_approve"}))


def _seen(store: SqliteApprovals, approval_id: str, digest: str | None) -> str | None:
    """Return the whole digest for what the user gave: all of it, its beginning, or nothing."""
    found = store.get(approval_id)
    if found is None or (digest is not None and not found.digest.startswith(digest)):
        return digest
    return found.digest


def _print(decided: Approval, json: bool) -> None:
    if json:
        print_json(_form(decided))
        return
    say(f"{decided.status}: {', '.join(call.name for call in decided.calls)}")
    print(decided.reference or "")


def _form(one: Approval) -> dict[str, Any]:
    return {
        "id": one.id,
        "run_id": one.run_id,
        "agent": one.agent,
        "status": one.status,
        "reference": one.reference,
        "digest": one.digest,
        "four_eyes": one.four_eyes,
        "initiator": one.initiator,
        "proposed_ns": one.proposed_ns,
        "decided_ns": one.decided_ns,
        "decided_by": one.decided_by,
        "attribution": one.attribution,
        "calls": [
            {
                "name": call.name,
                "id": call.id,
                "effect": call.effect,
                "arguments_bytes": call.arguments_bytes,
            }
            for call in one.calls
        ],
    }
