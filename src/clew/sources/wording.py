"""Figures and times in words, the same on the web and on the command line."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final, cast

from clew import semconv
from clew.store.records import SpanRecord, integer, number, text, texts

UNKNOWN: Final = "\u2013"
"""Stands for what is not known; zero is always written as 0."""
NO_COST: Final = {"unpriced": "no price", "unknown": "no usage"}
"""What is shown in place of a cost that there is none of."""

STATUS_WORDS: Final = {
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "waiting_for_approval": "waiting for approval",
    "waiting_for_input": "waiting for input",
}
APPROVERS: Final = {
    "self": "approved by the initiator",
    "second_person": "approved by a second person",
    "initiator_unknown": "approved, initiator unknown",
    "unresolved": "approver unresolved",
}
"""Who granted an approval."""


def duration(length_ns: int) -> str:
    """Write a length of time with about three digits: `412 µs`, `1.38 s`, `2 h 04 min`."""
    if length_ns <= 0:
        return "0"
    micro = length_ns / 1e3
    if micro < 999.5:
        return f"{micro:.0f} µs" if micro >= 1 else f"{length_ns} ns"
    milli = micro / 1e3
    if milli < 9.995:
        return f"{milli:.2f} ms"
    if milli < 99.95:
        return f"{milli:.1f} ms"
    if milli < 999.5:
        return f"{milli:.0f} ms"
    seconds = milli / 1e3
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = whole // 60
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def count(value: int | None) -> str:
    """Write a count with thin separators, and what is unknown as a dash."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", "\u202f")


def tokens(value: int | None) -> str:
    """Write a number of tokens in little space: `812`, `12.4k`, `3.02M`."""
    if value is None:
        return UNKNOWN
    if value < 1000:
        return str(value)
    if value < 999_950:
        return f"{value / 1e3:.1f}k"
    return f"{value / 1e6:.2f}M"


def cost(usd: float | None, status: str | None) -> str:
    """Write a cost in dollars; a lower bound gets a `≥`, no cost its reason."""
    if usd is None:
        return NO_COST.get(status or "", UNKNOWN)
    bound = "≥ " if status == "partial" else ""
    if usd == 0:
        return f"{bound}$0"
    digits = 2 if usd >= 10 else 4 if usd >= 0.01 else 2 - math.floor(math.log10(usd))
    return f"{bound}${usd:,.{digits}f}"


def moment(time_ns: int) -> str:
    """Write a time as `2026-12-01 10:00:00` (UTC)."""
    return f"{datetime.fromtimestamp(time_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S}"


def offset(length_ns: int) -> str:
    """Write how long after the start something began."""
    return f"+{duration(length_ns)}" if length_ns >= 0 else f"\u2212{duration(-length_ns)}"


def facts(span: SpanRecord) -> list[str]:
    """Return the few things worth knowing about a span at a glance, beside its name."""
    found = span.attributes
    match span.type:
        case "decision":
            said = [text(found, semconv.DECISION_SUBJECT), text(found, semconv.DECISION_REASON)]
            if found.get(semconv.DECISION_ENFORCED) is False:
                said.append("observed only")
        case "tool":
            effect = text(found, semconv.TOOL_EFFECT)
            said = [effect.replace("_", " ") if effect and effect != "read_only" else None]
        case "round" | "call":
            said = _model_facts(span)
        case "run" | "agent":
            status = text(found, semconv.RUN_STATUS)
            reason = text(found, semconv.RUN_TERMINATION_REASON)
            said = [STATUS_WORDS.get(status or ""), reason if reason != status else None]
        case "event":
            said = []
        case "foreign":
            said = [span.scope.name.removeprefix("opentelemetry.instrumentation.") or None]
    return [each for each in said if each]


def _model_facts(span: SpanRecord) -> list[str | None]:
    found = span.attributes
    attempts = integer(found, semconv.ATTEMPTS)
    outcome = text(found, semconv.STREAM_OUTCOME)
    served = text(found, semconv.RESPONSE_MODEL)
    asked = text(found, semconv.REQUEST_MODEL)
    provider = text(found, semconv.SERVED_PROVIDER)
    hop = integer(found, semconv.PROVIDER_HOP)
    first_chunk = number(found, semconv.RESPONSE_TIME_TO_FIRST_CHUNK)
    cached = integer(found, semconv.USAGE_CACHE_READ)
    return [
        f"round {found[semconv.ROUND]}" if span.type == "round" else None,
        f"served by {served}" if served and asked and not served.startswith(asked) else None,
        f"by {provider}" if provider and provider != text(found, semconv.PROVIDER) else None,
        f"fallback {hop}" if hop else None,
        ", ".join(texts(found, semconv.RESPONSE_FINISH_REASONS)),
        f"{attempts} attempts" if attempts and attempts > 1 else None,
        f"stream {outcome}" if outcome and outcome != "complete" else None,
        f"first chunk {duration(round(first_chunk * 1e9))}" if first_chunk is not None else None,
        f"{tokens(cached)} cached" if cached else None,
    ]


def outcome(span: SpanRecord) -> str | None:
    """Return the verdict of a decision, the outcome of a tool call, or the status of a run."""
    found = span.attributes
    match span.type:
        case "decision":
            return text(found, semconv.DECISION_OUTCOME)
        case "tool":
            return text(found, semconv.TOOL_OUTCOME)
        case "run":
            return text(found, semconv.RUN_STATUS)
        case _:
            return None


def span_cost(span: SpanRecord) -> str:
    """Return what a model call cost, empty for other spans."""
    status = text(span.attributes, semconv.COST_STATUS)
    if span.type not in {"round", "call", "foreign"} or status is None:
        return ""
    return cost(number(span.attributes, semconv.COST_USD), status)


def _number(value: float) -> str:
    """Write a double without the noise of its last digits, and small ones without an exponent."""
    short = f"{value:.12g}"
    if "e-" in short and abs(value) >= 1e-12:
        return f"{value:.15f}".rstrip("0")
    return short if "." in short or "e" in short else f"{short}.0"


def value_text(value: Any) -> str:
    """Write an attribute value for reading."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return _number(value)
        case list():
            return ", ".join(map(value_text, cast("list[Any]", value)))
        case dict():
            kind, inner = next(iter(cast("dict[str, Any]", value).items()))
            if kind == "kvlistValue":
                return ", ".join(f"{key}={value_text(each)}" for key, each in inner.items())
            return f"base64:{inner}" if kind == "bytesValue" else str(inner)
        case _:
            return str(value)
