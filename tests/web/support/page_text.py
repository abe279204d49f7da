"""Pages without their markup."""

from __future__ import annotations

from html.parser import HTMLParser


def words(page: str) -> str:
    """Return the text of a page, without its markup and its places for line breaks."""
    collected: list[str] = []

    class Collector(HTMLParser):
        def handle_data(self, data: str) -> None:
            collected.append(data)

    Collector().feed(page.replace("<wbr>", ""))
    return " ".join(" ".join(collected).split())
