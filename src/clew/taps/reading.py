"""Read httpx's URLs, headers and streams in few steps.

The public properties of `httpx` decode and copy whatever they are asked for, on every question,
and a model call asks several. Here the attributes behind them are read. They are private: where
they do not look as expected, the public way is taken.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, cast

from clew import exchange
from clew.exchange import Target
from clew.pipeline.runtime import Runtime
from clew.streams import StreamTap

_LOWER_NAME = itemgetter(1)
_TYPES_KEPT = 256
_media_types: dict[bytes, str] = {}
_listing: set[type[Any]] = set()
"""Classes of headers that are known to keep the list that is read here."""


def target_of(runtime: Runtime, request: Any) -> Target | None:
    """Recognise a model call by a request's method and URL."""
    url = request.url
    key: Any = None
    try:
        parts = url._uri_reference
        # Neither credentials nor the query, which may hold an API key, are kept in memory.
        key = (request.method, parts.scheme, parts.host, parts.port, parts.path)
        return exchange.targets[key]
    except (AttributeError, KeyError, TypeError):
        pass
    path = url.raw_path.decode("ascii", "replace").partition("?")[0]
    found = exchange.target_of(runtime, request.method, url.scheme, url.host, url.port, path)
    if key is not None:
        exchange.remember(key, found)
    return found


def names_of(headers: Any) -> list[bytes]:
    """Return the names of headers, in lower case."""
    if type(headers) in _listing or _keeps_list(headers):
        return list(map(_LOWER_NAME, headers._list))
    return [name.lower() for name, _ in headers.raw]


def content_type_of(headers: Any, names: list[bytes]) -> str:
    """Return the media type of a response, lower-case, without its parameters.

    Args:
        headers: its headers.
        names: what `names_of` says of them.
    """
    if b"content-type" not in names:
        return ""
    if type(headers) not in _listing:
        return exchange.content_type_of(headers)
    value = headers._list[names.index(b"content-type")][2]
    try:
        return _media_types[value]
    except KeyError:
        found = exchange.content_type_of(headers)
        if len(_media_types) < _TYPES_KEPT:
            _media_types[value] = found
        return found


def from_cache(response: Any, names: list[bytes]) -> bool:
    """Tell whether a response comes from a cache of responses, as the cache itself says.

    Caches in the client (hishel) say so in the response's extensions, gateways in a header:
    https://developers.cloudflare.com/ai-gateway/features/caching/,
    https://portkey.ai/docs/aigw/api-reference/inference-api/response-schema,
    https://docs.helicone.ai/features/advanced-usage/caching.
    """
    extensions: dict[str, Any] = response.extensions
    if extensions and (
        extensions.get("hishel_from_cache") is True or extensions.get("from_cache") is True
    ):
        return True
    if _SAY_CACHED.isdisjoint(names):
        return False
    headers = response.headers
    said = _SAY_CACHED.intersection(names)
    return any("HIT" in headers[name.decode("ascii")].upper().split() for name in said)


_SAY_CACHED = frozenset({b"cf-aig-cache-status", b"x-portkey-cache-status", b"helicone-cache"})


def _keeps_list(headers: Any) -> bool:
    """Tell whether headers keep a list of (name, lower-case name, value), by trying."""
    kind = cast("Any", type(headers))
    try:
        known = kind({"Some-Name": "a"})._list == [(b"Some-Name", b"some-name", b"a")]
    except Exception:
        known = False
    if known:
        _listing.add(kind)
    return known


def listen(response: Any, body_type: type[Any], tap: StreamTap) -> None:
    """Put a listener in front of a response's body.

    It stands behind the stream object that the client made, so that `response.stream` stays what it
    is: what asks a proxy for an attribute that is not there pays for several exceptions, and an SDK
    may ask for each event (Anthropic's does).
    """
    stream = response.stream
    if _is_bound(stream):
        stream._stream = body_type(stream._stream, tap)
    else:
        response.stream = body_type(stream, tap)


def tap_on(stream: Any) -> StreamTap:
    """Return the tap of a response's stream that is listened to."""
    return (stream._stream if _is_bound(stream) else stream)._self_tap


def _is_bound(stream: Any) -> bool:
    return type(stream).__name__ in _BOUND and hasattr(stream, "_stream")


_BOUND = frozenset({"BoundSyncStream", "BoundAsyncStream"})
"""Private classes of httpx: where it has others, the stream itself is wrapped."""
