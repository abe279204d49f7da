"""Recognising a model endpoint by method and path, on any host.

Gateways, proxies, Azure resources and local servers keep their providers' paths, so the path
decides; the host tells only who answers. Cheap enough to run once for each address a process
calls: one look-up of the path's last segment turns nearly all of them away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from clew.dialects._unknown import unknown
from clew.dialects.anthropic_messages import anthropic_messages
from clew.dialects.hosts import NOBODY, Host, host_of
from clew.dialects.openai_chat import openai_chat
from clew.typing import Dialect, Route


class Endpoint(NamedTuple):
    """What a path's last segment stands for, if what is before it fits `before`."""

    before: str
    """Words of which one must be the segment before: `v` any version, `*` anything, `host` an
    endpoint of a known host only, `root` nothing; others literally."""
    dialect: Dialect
    operation: str
    stream: bool = False
    provider: str | None = None
    """The provider that only this path belongs to."""
    hosts: str | None = None
    """Only for these providers."""


_LOOSE: Final = "v openai root host deployment"
_VERSION: Final = re.compile(r"v\d+[a-z0-9]*(-beta)?")

ENDPOINTS: Final[dict[str, tuple[Endpoint, ...]]] = {
    "completions": (
        Endpoint("chat agents", openai_chat, "chat"),
        Endpoint("*", openai_chat, "chat", hosts="portkey"),
    ),
    "messages": (Endpoint("v", anthropic_messages, "chat"),),
    "count_tokens": (Endpoint("messages", anthropic_messages, "count_tokens"),),
}
"""Endpoints by the path's last segment; the first that fits counts."""


def recognise(
    method: str, host: str, path: str, *, hosts: Mapping[str, str] | None = None
) -> Route | None:
    """Tell what a request goes to; None when it is no model call.

    Args:
        method: the HTTP method.
        host: the host, with `:port` where it is not the scheme's own.
        path: the raw path of the request target, without the query.
        hosts: the operator's own names, `host` or `host:port` to provider; they win.
    """
    known = _host(host, hosts)
    if method == "POST" or method == "post":  # noqa: PLR1714 - quicker than a set
        route = _endpoint(known, path)
        if route is not None:
            return route
    if known.models_only:
        return Route(unknown, "unknown", known.provider)
    return None


def _host(host: str, hosts: Mapping[str, str] | None) -> Host:
    known = host_of(host)
    if hosts:
        name = host.lower()
        given = hosts.get(host) or hosts.get(name) or hosts.get(name.rpartition(":")[0])
        if given is not None:
            return Host(given, models_only=known.models_only)
    return known


def _endpoint(host: Host, path: str) -> Route | None:
    path = path.rstrip("/")
    last = path[path.rfind("/") + 1 :]
    found = ENDPOINTS.get(last)
    if found is None:
        return None
    segments = [segment for segment in path.split("/") if segment]
    for endpoint in found:
        if _fits(endpoint, segments, host):
            return Route(
                endpoint.dialect,
                endpoint.operation,
                host.provider or endpoint.provider or _provider_of(segments),
                _deployment(segments),
                endpoint.stream,
            )
    return None


def _fits(endpoint: Endpoint, segments: list[str], host: Host) -> bool:
    if endpoint.hosts is not None and host.provider not in endpoint.hosts.split():
        return False
    before = segments[-2] if len(segments) > 1 else ""
    for word in endpoint.before.split():
        if word in ("*", before):
            return True
        if word == "v" and _VERSION.fullmatch(before):
            return True
        if word == "root" and not before:
            return True
        if word == "host" and host is not NOBODY:
            return True
        if word == "deployment" and len(segments) > 2 and segments[-3] == "deployments":
            return True
    return False


def _deployment(segments: list[str]) -> str | None:
    """Azure's `/openai/deployments/{deployment}/...`."""
    if "deployments" in segments:
        position = segments.index("deployments") + 1
        if position < len(segments) - 1:
            return unquote(segments[position])
    return None


def _provider_of(segments: list[str]) -> str | None:
    if segments[:2] == ["openai", "deployments"]:
        return "azure.ai.openai"
    return None
