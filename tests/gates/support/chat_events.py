"""Events of a streamed chat completion."""

from __future__ import annotations

import json


def event(text: str) -> bytes:
    return (
        b"data: %s\n\n"
        % json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode()
    )


def texts(body: bytes) -> str:
    """Return the text in a body of server-sent events."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"]["content"] for line in lines)
