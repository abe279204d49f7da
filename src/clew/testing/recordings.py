"""Recorded HTTP exchanges between a client library and a provider, as files.

A file is a JSON object with an `id` and `exchanges`, a list of `{"request", "response"}`. A request
has `method`, `url`, `headers` and `body`: JSON, or for a multipart upload the list of its parts. A
response has `status`, `headers` and one of `body` (parsed JSON), `text` (a streamed answer as it
was) and `base64` (a binary one). Other members are not looked at.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from clew.errors import ClewError

WRITES: Final = 7
"""Into how many writes a streamed answer is cut, at places that mean nothing."""
BOUNDARY: Final = "clew-recorded-part"

_FRAMING: Final = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"}
)


class RecordingError(ClewError, ValueError):
    """A file is not a recording that can be replayed."""


@dataclass(frozen=True, kw_only=True)
class RecordedExchange:
    """One request and the answer it got, ready to be sent again."""

    id: str
    """The `id` of its file, or the file's name without one."""
    exchange: int
    """Its place in the file, from 0."""
    method: str
    url: str
    request_headers: tuple[tuple[str, str], ...]
    request_body: bytes
    status: int
    response_headers: tuple[tuple[str, str], ...]
    pieces: tuple[bytes, ...]
    """The body of the answer, cut into what is written one by one."""
    streamed: bool
    """True when the answer is a stream, or the request asked for one."""


def find_recordings(path: Path) -> list[Path]:
    """Return the files that a path names: itself, or every JSON file in a folder.

    A folder's `index.json` lists its recordings and is none itself.

    Raises:
        RecordingError: if there is no such file or folder.
    """
    if path.is_dir():
        return sorted(found for found in path.rglob("*.json") if found.name != "index.json")
    if not path.exists():
        raise RecordingError("no such file or folder")
    return [path]


def read_recording(path: Path) -> list[RecordedExchange]:
    """Read every exchange of one file.

    Raises:
        RecordingError: if the file cannot be read or is no recording; says what is wrong with it.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise RecordingError(f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordingError("is not JSON") from error
    recording = _object(content, "the file")
    exchanges = recording.get("exchanges")
    if not isinstance(exchanges, list):
        raise RecordingError("is no recording: it has no list `exchanges`")
    name = recording.get("id")
    return [
        _exchange(name if isinstance(name, str) else path.stem, index, entry)
        for index, entry in enumerate(cast("list[Any]", exchanges))
    ]


def _exchange(name: str, index: int, entry: object) -> RecordedExchange:
    where = f"exchange {index}"
    pair = _object(entry, where)
    request = _object(pair.get("request"), f"the request of {where}")
    response = _object(pair.get("response"), f"the response of {where}")
    method, url, status = request.get("method"), request.get("url"), response.get("status")
    if not isinstance(method, str) or not method.isalpha():
        raise RecordingError(f"the request of {where} has no method")
    if not isinstance(url, str) or not _is_http(url):
        raise RecordingError(f"the request of {where} has no http or https `url`")
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise RecordingError(f"the response of {where} has no final HTTP `status`")
    sent_headers = _headers(request.get("headers"), f"the request of {where}")
    headers, body = _request_body(sent_headers, request.get("body"))
    pieces, streamed = _response_body(response, where)
    return RecordedExchange(
        id=name,
        exchange=index,
        method=method,
        url=url,
        request_headers=headers,
        request_body=body,
        status=status,
        response_headers=_headers(response.get("headers"), f"the response of {where}"),
        pieces=pieces,
        streamed=streamed or _asks_for_stream(request.get("body")),
    )


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RecordingError(f"is no recording: {what} is not a JSON object")
    return cast("dict[str, Any]", value)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _headers(value: object, what: str) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    pairs = tuple(
        (name, str(text)) for name, text in _object(value, f"`headers` of {what}").items()
    )
    return tuple(pair for pair in pairs if pair[0].lower() not in _FRAMING)


def _asks_for_stream(body: object) -> bool:
    return isinstance(body, dict) and cast("dict[str, Any]", body).get("stream") is True


def _request_body(
    headers: tuple[tuple[str, str], ...], body: object
) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """Return the headers and the bytes of a request; a multipart upload gets its parts back."""
    kind = next((text for name, text in headers if name.lower() == "content-type"), "")
    if kind.startswith("multipart/"):
        parts = cast("list[Any]", body) if isinstance(body, list) else []
        others = tuple(pair for pair in headers if pair[0].lower() != "content-type")
        return (*others, ("content-type", f"{kind}; boundary={BOUNDARY}")), _multipart(parts)
    if body is None:
        return headers, b""
    if isinstance(body, str):
        return headers, body.encode()
    return headers, json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _multipart(parts: list[Any]) -> bytes:
    """Rebuild an upload: a file of which only the size is known comes back as zeros.

    https://www.rfc-editor.org/rfc/rfc7578
    """
    lines: list[bytes] = []
    for part in parts:
        fields = _object(part, "a part of the upload")
        head = f'Content-Disposition: form-data; name="{fields.get("name", "")}"'
        if "filename" in fields:
            head += f'; filename="{fields["filename"]}"'
        size = fields.get("bytes")
        value = bytes(size) if isinstance(size, int) else str(fields.get("value", "")).encode()
        lines += [f"--{BOUNDARY}".encode(), head.encode(), b"", value]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--".encode(), b""])


def _response_body(response: Mapping[str, Any], where: str) -> tuple[tuple[bytes, ...], bool]:
    if "text" in response:
        return _cut(str(response["text"]).encode()), True
    if "base64" in response:
        try:
            return _cut(base64.b64decode(str(response["base64"]), validate=True)), True
        except binascii.Error as error:
            raise RecordingError(f"the response of {where} has a broken `base64`") from error
    if "body" not in response:
        raise RecordingError(f"the response of {where} has none of `body`, `text`, `base64`")
    body = response["body"]
    return (json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),), False


def _cut(data: bytes) -> tuple[bytes, ...]:
    size = len(data) // WRITES + 1
    return tuple(data[at : at + size] for at in range(0, len(data), size))
