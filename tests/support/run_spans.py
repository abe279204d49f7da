"""Attributes of exported spans of a run."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from clew.testing import CaptureExporter


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def root(exported: CaptureExporter) -> dict[str, Any]:
    """Return the attributes of the one run's own span."""
    (span,) = exported.by_name("invoke_agent")
    return attributes(span)
