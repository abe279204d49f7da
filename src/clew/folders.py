"""Where Clew keeps its files. Apart from the settings, which need pydantic to be read."""

from __future__ import annotations

import os
from pathlib import Path


def default_data_dir() -> Path:
    """Return `$XDG_DATA_HOME/clew`, by default `~/.local/share/clew`."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "clew"
