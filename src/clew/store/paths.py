"""Where the store lies: one folder, closed to others, one file in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from clew.errors import StoreError

FILE_NAME: Final = "clew.db"


def data_dir() -> Path:
    """Return `$CLEW_DATA_DIR`, else `$XDG_DATA_HOME/clew`, else `~/.local/share/clew`.

    The same rule as `clew.settings`, which the command line does not load: it needs pydantic.
    """
    chosen = os.environ.get("CLEW_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "clew"


def store_path(folder: Path | None = None) -> Path:
    """Return the file of the store in `folder`, by default in the data folder."""
    return (folder or data_dir()) / FILE_NAME


def prepare(path: Path) -> None:
    """Make the folder (0700) and the file (0600) if they are missing; close an open file.

    Raises:
        StoreError: they cannot be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            path.chmod(0o600)
    except OSError as error:
        raise StoreError(f"the store {path} cannot be written: {error.strerror}") from None
