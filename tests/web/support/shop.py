"""A server with a folder of recorded calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from page_text import words

from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import PromptRecord, PromptRow
from clew.web.server import Running

Call = tuple[PromptRow, PromptRecord | None]


class Shop:
    """A server with a folder of records."""

    def __init__(self, running: Running, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self.http = httpx.Client(base_url=running.address, timeout=20, trust_env=False)

    def save(self, *records: Call) -> None:
        store = RecordStore(self.folder)
        store.save(records)
        store.close()

    def page(self, path: str, status: int = 200, **asked: Any) -> str:
        answer = self.http.get(path, params=asked, follow_redirects=True)
        assert status == answer.status_code
        return words(answer.text)
