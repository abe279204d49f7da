"""Which versions are installed, and whether Clew finds the places where it listens."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import Final

from clew import patching, semconv
from clew.doctor.findings import Finding, note, ok, problem, warning

_OLDEST: Final = (1, 30)
"""The oldest OpenTelemetry that Clew works with, as in its own requirements."""
_OTEL: Final = (
    "opentelemetry-api",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-http",
)
CLIENTS: Final = {
    "openai": "openai._base_client",
    "anthropic": "anthropic._base_client",
    "google-genai": "google.genai._api_client",
    "mistralai": "mistralai.client.basesdk",
    "groq": "groq._base_client",
    "cohere": "cohere.core.http_client",
    "openrouter": "openrouter.basesdk",
    "ollama": None,
    "boto3": "botocore.client",
    "aiobotocore": "aiobotocore.client",
    "httpx": "httpx",
    "httpx2": "httpx2",
    "aiohttp": "aiohttp.client",
    "mcp": "mcp.client.session",
    "langchain-core": "langchain_core.tools.base",
    "langgraph": "langgraph.pregel",
    "openai-agents": "agents.run",
    "pydantic-ai-slim": "pydantic_ai.agent",
    "smolagents": "smolagents.agents",
}
"""Distributions that Clew listens to, each with a module that it patches; None: by its HTTP client
alone."""


def version_of(distribution: str) -> str | None:
    """Return the installed version, None where there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def versions() -> Iterator[Finding]:
    """Look at Python, Clew and OpenTelemetry."""
    python = ".".join(map(str, sys.version_info[:3]))
    own = version_of("clew") or "unknown"
    yield ok(
        "versions",
        f"Clew {own} (attribute contract {semconv.CONTRACT_VERSION}) on Python {python}",
        clew=own,
        python=python,
        contract=semconv.CONTRACT_VERSION,
    )
    found = {name: version_of(name) for name in _OTEL}
    for name, version in found.items():
        if version is None:
            yield problem("versions", f"{name} is not installed", f"pip install '{name}'")
        elif _numbers(version) < _OLDEST:
            oldest = ".".join(map(str, _OLDEST))
            yield problem(
                "versions", f"{name} is {version}", f"Clew needs at least {oldest}: update it"
            )
    known = {name: version for name, version in found.items() if version is not None}
    if len({_numbers(version) for version in known.values()}) > 1:
        listed = ", ".join(f"{name} {version}" for name, version in known.items())
        yield warning(
            "versions",
            f"The parts of OpenTelemetry are of different releases: {listed}",
            "Install them in the same version: they are released together",
            **known,
        )
    elif known:
        yield ok("versions", f"OpenTelemetry {next(iter(known.values()))}", **known)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def taps() -> Iterator[Finding]:
    """Look for client libraries and frameworks, and whether the places to listen are there.

    Imports what is installed: that is the only way to know.
    """
    found = 0
    for distribution, module in CLIENTS.items():
        version = version_of(distribution)
        if version is None:
            continue
        found += 1
        yield _tap(distribution, version, module)
    for name in sorted(patching.foreign_taps()):
        yield note("taps", f"Another package brings a tap for {name}", tap=name)
    if not found:
        yield note(
            "taps",
            "No client library that Clew listens to is installed",
            "Callables of your own: clew.instrument(call, facts={...})",
        )


def _tap(distribution: str, version: str, module: str | None) -> Finding:
    facts = {"distribution": distribution, "version": version}
    if module is None:
        return ok("taps", f"{distribution} {version}: heard at its HTTP client", **facts)
    try:
        there = find_spec(module) is not None
        loaded = importlib.import_module(module) if there else None
    except Exception as error:  # a library that cannot be imported is worth a line, not a crash
        return warning(
            "taps",
            f"{distribution} {version} cannot be imported ({type(error).__name__})",
            "Its calls are not recorded; mend or remove the installation",
            **facts,
        )
    missing = patching.missing_places(loaded) if loaded is not None else [module]
    if missing:
        return warning(
            "taps",
            f"{distribution} {version} lacks {', '.join(missing)}",
            "Its calls are recorded with less detail (each attempt is a round of its own); "
            "a newer Clew may know this version",
            **facts,
            missing=missing,
        )
    return ok("taps", f"{distribution} {version}: tap found", **facts)
