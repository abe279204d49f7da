"""What recording puts onto the disk, byte for byte: marks planted wherever content can hide."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from recorded import Session, Start
from wires import SHAPES, Shape

import clew
from clew.prompts import Prompt

MARK = "qzebra"
NEVER = ("in-header", "in-query", "in-error", "in-exception")
"""What is recorded at no level: headers, addresses, the text of errors and exceptions."""
CONTENT = (
    *("in-system", "in-question", "in-description", "in-schema", "in-answer", "in-thought"),
    *("in-arguments", "in-user", "in-tool name"),
)


def planted(value: Any) -> Any:
    """Return a body of `wires` with a mark in each of its texts."""
    text = json.dumps(value, ensure_ascii=False)
    for word, place in (
        ("Where is order 7?", "in-question"),
        ("Look an order up.", "in-description"),
        ("Order 7 is on its way. Grüße!", "in-answer"),
        ("The user asks for order 7.", "in-thought"),
        ("required", "in-schema"),
    ):
        text = text.replace(word, f"{MARK} {place}" if place != "in-schema" else word)
    text = text.replace('"id": {"type": "integer"}', f'"{MARK} in-schema": {{"type": "integer"}}')
    text = text.replace('{"id": 7}', f'{{"{MARK}": "in-arguments"}}')
    text = text.replace('{\\"id\\": 7}', f'{{\\"{MARK}\\": \\"in-arguments\\"}}')
    return json.loads(text)


class Ending:
    """A transport that ends a call in one way."""

    def __init__(self, shape: Shape, kind: str) -> None:
        self.shape = shape
        self.kind = kind

    def __call__(self, request: httpx.Request) -> httpx.Response:
        headers = {"x-request-id": f"{MARK} in-header"}
        if self.kind == "raises":
            raise httpx.ConnectError(f"{MARK} in-exception", request=request)
        if self.kind == "refused":
            error = {"error": {"type": f"{MARK} in-error", "message": f"{MARK} in-error"}}
            return httpx.Response(429, json=error, headers=headers)
        if self.kind == "garbage":
            body = f"<html>{MARK} in-error</html>".encode()
            return httpx.Response(200, content=body, headers=headers)
        answer = planted(self.shape.answer)
        if self.kind == "cut":
            pieces = b"data: " + json.dumps(answer).encode() + b"\n\ndata: {"
            return httpx.Response(
                200, content=pieces, headers={**headers, "content-type": "text/event-stream"}
            )
        return httpx.Response(200, json=answer, headers=headers)


def call(shape: Shape, kind: str) -> None:
    body = planted(shape.body([f"{MARK} in-system", " and more"]))
    body["user"] = f"{MARK} in-user"
    for tool in body.get("tools", []):
        if isinstance(tool, dict) and "function" in tool:
            tool["function"]["name"] = f"{MARK} in-tool name"
    with httpx.Client(transport=httpx.MockTransport(Ending(shape, kind))) as client:
        try:
            client.post(
                f"{shape.url}?key={MARK}-in-query",
                json=body,
                headers={"x-api-key": f"{MARK} in-header"},
            )
        except httpx.ConnectError:
            assert "raises" == kind


def on_the_disk(session: Session) -> str:
    """Return every byte that recording has left, names of files included."""
    clew.shutdown()
    found: list[str] = []
    for path in sorted(Path(session.folder).rglob("*")):
        found.append(path.name)
        if path.is_file():
            found.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


ENDINGS = pytest.mark.parametrize("kind", ["answers", "refused", "raises", "cut", "garbage"])


@pytest.mark.parametrize("level", ["none", "metadata"])
@ENDINGS
def test_nothing_of_the_content_is_on_the_disk(start: Start, level: str, kind: str) -> None:
    """At `none` and `metadata`, in every format and on every ending: not a word of it."""
    session = start(capture=level)
    prompt = Prompt.of(identity=f"{MARK} in-system", tone=" and more")
    with clew.run("triage"):
        for shape in SHAPES:
            call(shape, kind)
    assert prompt
    rows = session.rows()
    assert (0 if level == "none" else len(SHAPES)) == len(rows)
    assert MARK not in on_the_disk(session)


@ENDINGS
def test_what_is_recorded_at_no_level(start: Start, kind: str) -> None:
    """At `full`, too, headers, addresses and the text of errors are not on the disk."""
    session = start(capture="full")
    with clew.run("triage"):
        for shape in SHAPES:
            call(shape, kind)
    assert len(SHAPES) == len(session.rows())
    text = on_the_disk(session)
    assert [] == [
        place for place in NEVER if f"{MARK} {place}" in text or f"{MARK}-{place}" in text
    ]


def test_the_marks_are_where_they_are_planted(start: Start) -> None:
    """The same calls at `full`: each mark of content is found, so looking for it means something."""
    session = start(capture="full")
    with clew.run("triage"):
        for shape in SHAPES:
            call(shape, "answers")
    session.rows()
    text = on_the_disk(session)
    missing = [place for place in CONTENT if f"{MARK} {place}" not in text]
    assert ["in-arguments"] == missing
    assert f'"{MARK}": "in-arguments"' in text
