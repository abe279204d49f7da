"""The dashboard *Runs*."""

from __future__ import annotations

from panels import (
    RUN_LINKS,
    SELECTOR,
    VIEWER_FAILED,
    VIEWER_LIST,
    Board,
    Panel,
    Query,
    grown,
    quantile,
    rate,
    ratio,
)

_STATUS = "clew_run_status"
_REASON = "clew_run_termination_reason"
_AGENT = "gen_ai_agent_name"
_FAILED = f'{SELECTOR},{_STATUS}="failed"'
_SPANS = 'service_name=~"$service"'

BOARD = Board(
    uid="clew-runs",
    title="Clew / Runs",
    description="How many runs there are, how they end, and how long they take.",
    rows=(
        (
            "Now",
            (
                Panel(
                    title="Started",
                    kind="stat",
                    width=4,
                    queries=(Query(expr=grown("clew_runs_started_total")),),
                ),
                Panel(
                    title="Ended",
                    kind="stat",
                    width=4,
                    queries=(Query(expr=grown("clew_runs_ended_total")),),
                ),
                Panel(
                    title="Executing",
                    kind="stat",
                    width=4,
                    queries=(Query(expr=f"sum (clew_runs_active{{{SELECTOR}}})"),),
                ),
                Panel(
                    title="Failed share",
                    kind="stat",
                    unit="percentunit",
                    width=4,
                    links=(VIEWER_FAILED,),
                    queries=(
                        Query(
                            expr=ratio(
                                f"{grown('clew_runs_ended_total', where=_FAILED)} or vector(0)",
                                grown("clew_runs_ended_total"),
                            )
                        ),
                    ),
                ),
                Panel(
                    title="Suspended for approval",
                    kind="stat",
                    width=4,
                    description="Segments that ended waiting for somebody's approval, counted "
                    "from spans.",
                    queries=(
                        Query(
                            expr=grown(
                                "traces_span_metrics_calls_total",
                                where=f'{_SPANS},{_STATUS}="waiting_for_approval"',
                            )
                        ),
                    ),
                ),
                Panel(
                    title="Neither ended nor executing",
                    kind="stat",
                    width=4,
                    description="Runs that wait, or whose process has died.",
                    queries=(
                        Query(
                            expr=(
                                f"{grown('clew_runs_started_total')} - "
                                f"({grown('clew_runs_ended_total')} or vector(0)) - "
                                f"sum (clew_runs_active{{{SELECTOR}}})"
                            )
                        ),
                    ),
                ),
            ),
        ),
        (
            "Runs",
            (
                Panel(
                    title="Rate by agent",
                    unit="reqps",
                    links=(VIEWER_LIST,),
                    queries=(
                        Query(
                            expr=rate("clew_runs_started_total", _AGENT),
                            legend="{{gen_ai_agent_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Endings by outcome",
                    unit="reqps",
                    stacked=True,
                    links=(VIEWER_LIST,),
                    queries=(
                        Query(
                            expr=rate("clew_runs_ended_total", f"{_STATUS}, {_REASON}"),
                            legend="{{clew_run_status}} {{clew_run_termination_reason}}",
                        ),
                    ),
                ),
                Panel(
                    title="Duration",
                    unit="s",
                    description="From spans: of segments, nested agents included.",
                    queries=tuple(
                        Query(
                            expr=quantile(
                                share,
                                ("traces_span_metrics_duration_seconds",),
                                where=f'{_SPANS},gen_ai_operation_name="invoke_agent"',
                            ),
                            legend=f"p{share * 100:g}",
                        )
                        for share in (0.5, 0.95)
                    ),
                ),
                Panel(
                    title="Rounds per run",
                    unit="none",
                    queries=(
                        Query(
                            expr=ratio(
                                rate("clew_rounds_total", _AGENT),
                                rate("clew_runs_started_total", _AGENT),
                            ),
                            legend="{{gen_ai_agent_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Executing",
                    queries=(
                        Query(
                            expr=f"sum by ({_AGENT}) (clew_runs_active{{{SELECTOR}}})",
                            legend="{{gen_ai_agent_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Tool calls by outcome",
                    unit="reqps",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate("clew_tool_duration_seconds_count", "clew_tool_outcome"),
                            legend="{{clew_tool_outcome}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "One by one",
            (
                Panel(
                    title="Latest runs",
                    kind="table",
                    width=12,
                    links=RUN_LINKS,
                    queries=(
                        Query(
                            traces=True,
                            expr=(
                                "{ span.clew.run.root = true "
                                '&& resource.service.name =~ "${service:regex}" } '
                                "| select(span.gen_ai.agent.name, span.clew.run.status, "
                                "span.clew.run.rounds, span.clew.run.cost.usd)"
                            ),
                        ),
                    ),
                ),
                Panel(
                    title="Waiting for approval",
                    kind="table",
                    width=12,
                    links=RUN_LINKS,
                    queries=(
                        Query(
                            traces=True,
                            expr=(
                                "{ span.clew.run.root = true && "
                                'span.clew.run.status = "waiting_for_approval" } '
                                "| select(span.gen_ai.agent.name, span.clew.segment)"
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
