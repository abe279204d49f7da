"""A call that is recorded, and what recording leaves: bytes on the disk, threads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from wires import QUESTION

URL = "https://api.openai.com/v1/chat/completions"
MARK = "zebra-7f3a"
BODY = {
    "model": "gpt-4o-mini",
    "messages": [
        {"role": "system", "content": f"You are {MARK}."},
        {"role": "user", "content": f"Ask {MARK} at a@example.org"},
    ],
    "tools": [
        {"type": "function", "function": {"name": "lookup", "description": MARK, "parameters": {}}}
    ],
}


def chat(client: Any, **more: Any) -> Any:
    """Ask through a client of OpenAI's."""
    return client.chat.completions.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": QUESTION}], **more
    )


def own_threads() -> set[threading.Thread]:
    """Return the threads of recording that there are."""
    names = {"clew-record", "clew-sweep"}
    return {each for each in threading.enumerate() if each.name in names}


def bytes_of(folder: Path) -> bytes:
    """Return everything in a folder."""
    return b"".join(each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file())
