"""Files of snippets and skills, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from clew.prompts.files import scan


def write(name: str, text: str) -> Path:
    """Write a file, with the folders around it."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text).lstrip("\n"), "utf-8")
    return path


def problems(name: str, text: str) -> list[str]:
    """Return what is wrong with a file of this text."""
    return list(scan(write(name, text)).problems)
