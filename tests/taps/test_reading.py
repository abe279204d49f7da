"""What is read through private attributes of httpx is what its public interface says."""

from __future__ import annotations

from types import SimpleNamespace

import httpx
import httpx2
import pytest

from clew import exchange
from clew.pipeline import runtime as runtimes
from clew.taps import reading

URLS = (
    "https://api.openai.com/v1/chat/completions",
    "https://API.OpenAI.com:443/v1/chat/completions?api-version=2024-06-01#part",
    "http://user:secret@localhost:11434/api/chat",
    "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:generateContent?key=K",
    "https://example.org",
    "https://xn--fiqs8s.icom.museum/v1/chat/completions",
)
HEADERS = (
    [],
    [("Content-Type", "Application/JSON; charset=utf-8"), ("X-A", "1"), ("x-a", "2")],
    [("TraceParent", "00-1"), ("content-type", "text/event-stream")],
    [("content-type", ""), ("content-type", "text/html")],
)


class OtherHeaders:
    """Headers of a version of the library that keeps them in another way."""

    def __init__(self, headers):
        self.raw = headers.raw
        self.get = headers.get


class OtherURL:
    """A URL of a version of the library that keeps its parts in another way."""

    def __init__(self, url):
        self.scheme, self.host, self.port, self.raw_path = (
            *(url.scheme, url.host, url.port),
            url.raw_path,
        )


@pytest.fixture
def runtime(exported):
    return runtimes.get()


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("given", HEADERS)
def test_headers_are_read_alike_in_both_ways(library, given):
    """Names in lower case, and the media type without parameters."""
    headers = library.Headers(given)
    assert reading._keeps_list(headers)
    assert [name.lower() for name, _ in headers.raw] == reading.names_of(headers)
    expected = exchange.content_type_of(headers)
    assert expected == reading.content_type_of(headers, reading.names_of(headers))
    assert expected == reading.content_type_of(headers, reading.names_of(headers)), "remembered"
    other = OtherHeaders(headers)
    assert reading.names_of(headers) == reading.names_of(other)
    assert expected == reading.content_type_of(other, reading.names_of(other))
    assert not reading._keeps_list(other)


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("address", URLS)
def test_targets_are_found_alike_in_both_ways(runtime, library, address):
    """The target of a URL, the first time and when it is remembered."""
    url = library.URL(address)
    other = SimpleNamespace(method="POST", url=OtherURL(url))
    expected = reading.target_of(runtime, other)
    exchange.forget_targets()
    request = SimpleNamespace(method="POST", url=url)
    for _ in range(2):
        found = reading.target_of(runtime, request)
        assert (expected is None) == (found is None)
        if expected is not None:
            assert expected.route == found.route
            assert expected.born == found.born
    kept = repr(list(exchange.targets))
    assert "secret" not in kept
    assert "key=K" not in kept
