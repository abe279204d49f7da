"""Pages without their markup, and their markup alone."""

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


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the tags of a page in order, each with its attributes."""
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Collector(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, dict(attrs)))

    Collector().feed(page)
    return seen
