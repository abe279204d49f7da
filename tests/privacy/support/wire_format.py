"""What a wire format is to these tests, and how its events are written."""

from __future__ import annotations

import binascii
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from marks import mark, odd


def sse(*events: Any, names: bool = False) -> list[bytes]:
    """Return server-sent events; with `names`, each is named by its `type`."""
    lines: list[bytes] = []
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event)
        name = f"event: {event['type']}\n" if names and isinstance(event, dict) else ""
        lines.append(f"{name}data: {text}\n\n".encode())
    return lines


def ndjson(*events: Any) -> list[bytes]:
    """Return one JSON document for each line."""
    return [json.dumps(event).encode() + b"\n" for event in events]


def frames(*events: tuple[str, Any]) -> list[bytes]:
    """Return messages of Amazon's event stream format, each with its event type and payload."""
    made: list[bytes] = []
    for name, payload in events:
        headers = b"".join(
            bytes([len(key)]) + key + b"\x07" + struct.pack(">H", len(value)) + value
            for key, value in (
                (b":message-type", b"event"),
                (b":event-type", name.encode()),
                (b":content-type", b"application/json"),
            )
        )
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        head = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
        head += struct.pack(">I", binascii.crc32(head))
        message = head + headers + body
        made.append(message + struct.pack(">I", binascii.crc32(message)))
    return made


def _error(_: None = None) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"message": mark("error-body"), "type": odd("error-type"), "code": odd("code")},
        "message": mark("error-message"),
    }


@dataclass(frozen=True, kw_only=True)
class Format:
    """One wire format: a request, its plain answer, its streamed answer."""

    name: str
    path: str
    request: Mapping[str, Any]
    answer: Any
    stream_path: str | None = None
    events: list[bytes] = field(default_factory=list)
    stream_type: str = "text/event-stream"
    error: Callable[[], Any] = _error
    provider: str | None = None
    """Whose host it has to be, where the path alone does not tell."""

    @property
    def hosts(self) -> dict[str, str]:
        """The operator's names of hosts."""
        return {} if self.provider is None else {"127.0.0.1": self.provider}
