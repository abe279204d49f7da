"""Messages for the receiver, and what it has stored."""

from __future__ import annotations

from typing import Any

import httpx

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def post(
    client: httpx.Client,
    content: Any,
    kind: str = PROTOBUF,
    path: str = "/v1/traces",
    **headers: str,
) -> httpx.Response:
    """Send a message of a kind."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(path, content=content, headers={"content-type": kind, **named})


def traces(client: httpx.Client) -> list[str]:
    """Return the ids of all traces that are stored."""
    listed = client.get("/api/runs", params={"everything": "1", "limit": 1000})
    return [each["trace_id"] for each in listed.json()["runs"]]
