"""Recognising a model endpoint by method and path, on any host.

Gateways, proxies, Azure resources and local servers keep their providers' paths, so the path
decides; the host tells only who answers. Cheap enough to run once for each address a process
calls: one look-up of the path's last segment turns nearly all of them away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from clew.dialects._unknown import unknown
from clew.dialects.bedrock_invoke import bedrock_invoke
from clew.dialects.endpoints import ACTIONS, ENDPOINTS, PARTNERS, Action, Endpoint
from clew.dialects.gemini_content import gemini_content
from clew.dialects.hosts import Host, host_of
from clew.typing import Route

_VERSION: Final = re.compile(r"v\d+[a-z0-9]*(-beta)?")
_VECTORS: Final = re.compile(r"embed|e5-|gte-|bge-|multilingual-e5|gecko", re.IGNORECASE)


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
    if method in ("POST", "post"):
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
        if ":" not in last and "%3" not in last:
            return None
        model, _, action = unquote(last).rpartition(":")
        return _action(host, path, model, action)
    segments = [segment for segment in path.split("/") if segment]
    if host.provider == "openrouter" and "presets" in segments:
        return None  # a request's body is kept as a preset there; no model answers
    for endpoint in found:
        if _fits(endpoint, segments, host):
            return _route(endpoint, segments, host)
    return None


def _fits(endpoint: Endpoint, segments: list[str], host: Host) -> bool:
    if endpoint.only and host.provider not in endpoint.only.split():
        return False
    before = segments[-2] if len(segments) > 1 else "/"
    for word in endpoint.after.split():
        if word in (before, "*"):
            return True
        if word == "vN":
            if _VERSION.fullmatch(before):
                return True
        elif word.endswith("/*") and len(segments) > 2 and segments[-3] == word[:-2]:
            return True
    return False


def _route(endpoint: Endpoint, segments: list[str], host: Host) -> Route:
    model = _after(segments, endpoint.model or "deployments")
    operation = endpoint.operation
    if endpoint.dialect is bedrock_invoke and model is not None and _VECTORS.search(model):
        operation = "embeddings"
    if host.provider == "replicate":
        model = "/".join(segments[2:-1]) if segments[1:2] in (["models"], ["deployments"]) else None
    provider = host.provider or endpoint.provider
    if segments[:2] == ["openai", "deployments"]:
        provider = provider or "azure.ai.openai"
    elif provider == "azure.ai.inference" and segments[0] == "openai":
        provider = "azure.ai.openai"
    return Route(endpoint.dialect, operation, provider, model, endpoint.stream)


def _after(segments: list[str], name: str) -> str | None:
    """Return the segment after `name`, decoded, unless it is the last."""
    if name in segments:
        position = segments.index(name) + 1
        if position < len(segments) - 1:
            return unquote(segments[position])
    return None


def _action(host: Host, path: str, model: str, action: str) -> Route | None:
    """Google's `.../models/{model}:{action}`, on the Gemini API and on Vertex AI."""
    segments = [segment for segment in path.split("/") if segment]
    vertex = "publishers" in segments or "projects" in segments
    provider = host.provider or ("gcp.vertex_ai" if vertex else None)
    known = ACTIONS.get(action)
    if known is None and action == "predict" and "models" in segments and _VECTORS.search(model):
        known = Action(gemini_content, "embeddings")
    if known is not None:
        return Route(known.dialect, known.operation, provider, model, known.stream)
    if action in ("rawPredict", "streamRawPredict") and "publishers" in segments:
        partner = PARTNERS.get(_after(segments, "publishers") or "")
        if partner is not None:
            if model == "count-tokens":
                return Route(partner, "count_tokens", provider)
            return Route(partner, "chat", provider, model, action == "streamRawPredict")
    return None
