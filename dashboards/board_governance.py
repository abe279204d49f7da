"""The dashboard *Governance*."""

from __future__ import annotations

from panels import RUN_LINKS, SELECTOR, VIEWER_DENIED, Board, Panel, Query, grown, rate, ratio

_GATE = "clew_decision_gate"
_OUTCOME = "clew_decision_outcome"
_ENFORCED = "clew_decision_enforced"
_DENIED = f'{SELECTOR},{_OUTCOME}="deny"'
_REFUSED = 'clew_tool_outcome=~"denied|not_offered|awaiting_approval"'

BOARD = Board(
    uid="clew-governance",
    title="Clew / Governance",
    description="What gates decide, and whether it is enforced.",
    rows=(
        (
            "Decisions",
            (
                Panel(
                    title="Decisions",
                    kind="stat",
                    width=6,
                    queries=(Query(expr=grown("clew_decisions_total")),),
                ),
                Panel(
                    title="Denials",
                    kind="stat",
                    width=6,
                    links=(VIEWER_DENIED,),
                    queries=(Query(expr=grown("clew_decisions_total", where=_DENIED)),),
                ),
                Panel(
                    title="Denied share",
                    kind="stat",
                    unit="percentunit",
                    width=6,
                    queries=(
                        Query(
                            expr=ratio(
                                grown("clew_decisions_total", where=_DENIED),
                                grown("clew_decisions_total"),
                            )
                        ),
                    ),
                ),
                Panel(
                    title="Approvals asked for",
                    kind="stat",
                    width=6,
                    queries=(
                        Query(
                            expr=grown(
                                "clew_decisions_total",
                                where=f'{SELECTOR},{_OUTCOME}="require_approval"',
                            )
                        ),
                    ),
                ),
                Panel(
                    title="By gate",
                    unit="reqps",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate("clew_decisions_total", _GATE),
                            legend="{{clew_decision_gate}}",
                        ),
                    ),
                ),
                Panel(
                    title="By outcome",
                    unit="reqps",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate("clew_decisions_total", _OUTCOME),
                            legend="{{clew_decision_outcome}}",
                        ),
                    ),
                ),
                Panel(
                    title="Denials by gate and reason",
                    kind="table",
                    width=8,
                    links=(VIEWER_DENIED,),
                    description="Reasons are labels only where CLEW_METRIC_REASONS lists them.",
                    queries=(
                        Query(
                            expr=grown(
                                "clew_decisions_total",
                                f"{_GATE}, clew_decision_reason",
                                where=_DENIED,
                            )
                        ),
                    ),
                ),
                Panel(
                    title="Observed and enforced",
                    unit="reqps",
                    stacked=True,
                    width=12,
                    description="What would have been denied (observed) beside what was.",
                    queries=(
                        Query(
                            expr=rate("clew_decisions_total", f"{_ENFORCED}, {_OUTCOME}"),
                            legend="enforced {{clew_decision_enforced}}: {{clew_decision_outcome}}",
                        ),
                    ),
                ),
                Panel(
                    title="Refused tool calls",
                    unit="reqps",
                    stacked=True,
                    width=12,
                    queries=(
                        Query(
                            expr=rate(
                                "clew_tool_duration_seconds_count",
                                "clew_tool_outcome",
                                where=f"{SELECTOR},{_REFUSED}",
                            ),
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
                    title="Latest denials",
                    kind="table",
                    width=12,
                    links=RUN_LINKS,
                    queries=(
                        Query(
                            traces=True,
                            expr=(
                                '{ span.clew.decision.outcome = "deny" } '
                                "| select(span.clew.decision.gate, span.clew.decision.subject, "
                                "span.clew.decision.reason, span.clew.decision.policy)"
                            ),
                        ),
                    ),
                ),
                Panel(
                    title="Observed only",
                    kind="table",
                    width=12,
                    links=RUN_LINKS,
                    queries=(
                        Query(
                            traces=True,
                            expr=(
                                '{ span.clew.decision.outcome != "allow" && '
                                "span.clew.decision.enforced = false } "
                                "| select(span.clew.decision.gate, span.clew.decision.reason)"
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
