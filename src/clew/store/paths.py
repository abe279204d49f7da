"""Where the store lies: one folder, closed to others, one file in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from clew.errors import StoreError
from clew.folders import default_data_dir

FILE_NAME: Final = "clew.db"


def data_dir() -> Path:
    """Return `$CLEW_DATA_DIR`, else the default: what `Settings.data_dir` is, without pydantic."""
    chosen = os.environ.get("CLEW_DATA_DIR")
    return Path(chosen).expanduser() if chosen else default_data_dir()


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
