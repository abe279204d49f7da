"""Requests over HTTP clients, and the rounds that they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import httpx2

from clew.testing import CaptureExporter, ScriptedProvider

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "SECRET"}]}
LIBRARIES = [httpx, httpx2]
Keep = Callable[[Any], Any]


def rounds(exported: CaptureExporter) -> list[dict[str, Any]]:
    """Return the attributes of each round."""
    return [dict(span.attributes or {}) for span in exported.by_name("chat")]


def url(server: ScriptedProvider) -> str:
    """Return where chat is completed."""
    return f"{server.openai_base_url}/chat/completions"
