"""Callables of the user's own are recorded without a word of HTTP."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from typing import Any

import pytest
from recorded import Start
from recorder_kit import MARK, bytes_of

import clew
from clew.prompts import Prompt


class Client:
    """What an in-house client may be given: nothing that JSON could say."""


FACTS = {
    "model": "model",
    "input_tokens": "used.in",
    "output_tokens": "used.out",
    "system": "prompt",
}


def complete(model: str, prompt: str, messages: list[Any], client: Any = None) -> dict[str, Any]:
    messages.append("changed later")
    return {"model": model, "used": {"in": 3, "out": 4}, "text": f"{MARK} yes", "client": client}


async def acomplete(**given: Any) -> dict[str, Any]:
    return complete(**given)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_an_adapter_of_ones_own_is_recorded(start: Start, asynchronous: bool) -> None:
    """A callable that speaks no HTTP: what it was given, what it returned, its prompt by block."""
    session = start()
    prompt = Prompt.of(identity="You are kind.", tone="Be brief.")
    given = {"model": "house-1", "prompt": prompt, "messages": ["hello"], "client": Client()}
    with clew.run("a"):
        if asynchronous:
            await clew.instrument(acomplete, facts=FACTS)(**given)
        else:
            clew.instrument(complete, facts=FACTS)(**given)
    row, record = session.only()
    assert ("house-1", 3, 4, "ok", "a") == (
        *(row.model, row.input_tokens, row.output_tokens, row.status, row.agent),
    )
    assert (str(prompt), ["identity", "tone"]) == (
        record.system.text,
        [block.id for block in record.system.blocks],
    )
    assert {
        "model": "house-1",
        "prompt": str(prompt),
        "messages": ["hello"],
        "client": "[Client]",
    } == record.body
    assert f"{MARK} yes" == record.response.body["text"]


def test_an_adapter_of_ones_own_without_content(start: Start) -> None:
    """At `metadata` its prompt is measured, and nothing of it is on the disk."""
    session = start(capture="metadata")
    clew.instrument(complete, facts=FACTS)("house-1", f"You are {MARK}.", [MARK])
    (row,) = session.rows()
    assert (19, 3) == (row.system_bytes, row.input_tokens)
    clew.shutdown()
    assert MARK.encode() not in bytes_of(session.folder)
