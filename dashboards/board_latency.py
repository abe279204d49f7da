"""The dashboard *Latency*."""

from __future__ import annotations

from panels import (
    DURATION,
    FIRST_CHUNK,
    RUN_LINKS,
    SELECTOR,
    Board,
    Panel,
    Query,
    quantile,
    rate,
    ratio,
)

_AGENT = "gen_ai_agent_name"
_MODEL = "gen_ai_request_model"
_ATTEMPT = "clew_attempt_outcome"

BOARD = Board(
    uid="clew-latency",
    title="Clew / Latency",
    description="How long model calls and tools take, and what makes them take longer.",
    rows=(
        (
            "Model calls",
            (
                Panel(
                    title="Duration of a call",
                    unit="s",
                    queries=tuple(
                        Query(expr=quantile(share, DURATION), legend=f"p{share * 100:g}")
                        for share in (0.5, 0.95, 0.99)
                    ),
                ),
                Panel(
                    title="Duration by model (p95)",
                    unit="s",
                    queries=(
                        Query(
                            expr=quantile(0.95, DURATION, _MODEL), legend="{{gen_ai_request_model}}"
                        ),
                    ),
                ),
                Panel(
                    title="Time to the first chunk",
                    unit="s",
                    queries=tuple(
                        Query(expr=quantile(share, FIRST_CHUNK), legend=f"p{share * 100:g}")
                        for share in (0.5, 0.95)
                    ),
                ),
                Panel(
                    title="First chunk by model (p95)",
                    unit="s",
                    queries=(
                        Query(
                            expr=quantile(0.95, FIRST_CHUNK, _MODEL),
                            legend="{{gen_ai_request_model}}",
                        ),
                    ),
                ),
                Panel(
                    title="Attempts per round",
                    unit="none",
                    description="Above 1 something is tried again.",
                    queries=(
                        Query(
                            expr=ratio(
                                rate("clew_attempts_total", _AGENT),
                                rate("clew_rounds_total", _AGENT),
                            ),
                            legend="{{gen_ai_agent_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Failed attempts",
                    unit="reqps",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate(
                                "clew_attempts_total",
                                "gen_ai_provider_name",
                                where=f'{SELECTOR},{_ATTEMPT}="failed"',
                            ),
                            legend="{{gen_ai_provider_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Fallbacks",
                    unit="reqps",
                    stacked=True,
                    description="Moves to the next provider, by the one that was left.",
                    queries=(
                        Query(
                            expr=rate("clew_fallbacks_total", "gen_ai_provider_name"),
                            legend="{{gen_ai_provider_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Rounds by error",
                    unit="reqps",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate(
                                "clew_rounds_total",
                                "error_type",
                                where=f'{SELECTOR},error_type!=""',
                            ),
                            legend="{{error_type}}",
                        ),
                    ),
                ),
                Panel(
                    title="Streams by outcome",
                    unit="reqps",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate(
                                "clew_rounds_total",
                                "clew_stream_outcome",
                                where=f'{SELECTOR},clew_stream_outcome!=""',
                            ),
                            legend="{{clew_stream_outcome}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Tools",
            (
                Panel(
                    title="Duration by tool (p95)",
                    unit="s",
                    width=12,
                    queries=(
                        Query(
                            expr=quantile(
                                0.95,
                                ("clew_tool_duration_seconds",),
                                "gen_ai_tool_name",
                                where=SELECTOR,
                            ),
                            legend="{{gen_ai_tool_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Calls by tool",
                    unit="reqps",
                    width=12,
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate("clew_tool_duration_seconds_count", "gen_ai_tool_name"),
                            legend="{{gen_ai_tool_name}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "One by one",
            (
                Panel(
                    title="Slow model calls",
                    kind="table",
                    width=24,
                    links=RUN_LINKS,
                    queries=(
                        Query(
                            traces=True,
                            expr=(
                                "{ span.clew.round > 0 && duration > 30s } "
                                "| select(span.gen_ai.request.model, span.clew.attempts, "
                                "span.clew.stream.outcome)"
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
