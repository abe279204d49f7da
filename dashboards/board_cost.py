"""The dashboard *Cost and tokens*."""

from __future__ import annotations

from panels import (
    PROCESS,
    RUN_LINKS,
    SELECTOR,
    VIEWER_LIST,
    Board,
    Panel,
    Query,
    grown,
    rate,
    ratio,
)

_AGENT = "gen_ai_agent_name"
_MODEL = "gen_ai_request_model"
_TYPE = "clew_token_type"

BOARD = Board(
    uid="clew-cost",
    title="Clew / Cost and tokens",
    description="What model calls cost, and what makes them cost it.",
    variables=("service", "agent", "model", "tenant"),
    rows=(
        (
            "Cost",
            (
                Panel(
                    title="Known cost",
                    kind="stat",
                    unit="currencyUSD",
                    width=3,
                    description="A lower bound: calls without a rate or without usage are below.",
                    queries=(Query(expr=grown("clew_cost_USD_total")),),
                ),
                Panel(
                    title="Model calls",
                    kind="stat",
                    width=3,
                    description="Rounds: one for each logical call, whatever was tried again.",
                    queries=(Query(expr=grown("clew_rounds_total")),),
                ),
                Panel(
                    title="Tokens",
                    kind="stat",
                    width=3,
                    description="Input, with what caches gave, and output, with reasoning.",
                    queries=(
                        Query(
                            expr=grown(
                                "clew_tokens_total", where=f'{SELECTOR},{_TYPE}=~"input|output"'
                            )
                        ),
                    ),
                ),
                Panel(
                    title="Cost per run",
                    kind="stat",
                    unit="currencyUSD",
                    width=3,
                    queries=(
                        Query(
                            expr=ratio(
                                grown("clew_cost_USD_total"), grown("clew_runs_started_total")
                            )
                        ),
                    ),
                ),
                Panel(
                    title="Cost per hour",
                    kind="stat",
                    unit="currencyUSD",
                    width=3,
                    queries=(Query(expr=f"3600 * {rate('clew_cost_USD_total')}"),),
                ),
                Panel(
                    title="Calls without a rate",
                    kind="stat",
                    width=3,
                    queries=(Query(expr=(f"{grown('clew_cost_unpriced_total')} or vector(0)")),),
                ),
                Panel(
                    title="Calls without usage",
                    kind="stat",
                    width=3,
                    queries=(Query(expr=f"{grown('clew_usage_absent_total')} or vector(0)"),),
                ),
                Panel(
                    title="Cache hits",
                    kind="stat",
                    unit="percentunit",
                    width=3,
                    description="Share of the input tokens that was read from a cache.",
                    queries=(
                        Query(
                            expr=ratio(
                                grown(
                                    "clew_tokens_total", where=f'{SELECTOR},{_TYPE}="cache_read"'
                                ),
                                grown("clew_tokens_total", where=f'{SELECTOR},{_TYPE}="input"'),
                            )
                        ),
                    ),
                ),
                Panel(
                    title="Cost per hour by model",
                    unit="currencyUSD",
                    stacked=True,
                    queries=(
                        Query(
                            expr=f"3600 * {rate('clew_cost_USD_total', _MODEL)}",
                            legend="{{gen_ai_request_model}}",
                        ),
                    ),
                ),
                Panel(
                    title="Cost per hour by agent",
                    unit="currencyUSD",
                    stacked=True,
                    links=(VIEWER_LIST,),
                    queries=(
                        Query(
                            expr=f"3600 * {rate('clew_cost_USD_total', _AGENT)}",
                            legend="{{gen_ai_agent_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Cost per hour by tenant",
                    unit="currencyUSD",
                    stacked=True,
                    description="Tenants are labels only where CLEW_METRIC_TENANTS lists them.",
                    queries=(
                        Query(
                            expr=f"3600 * {rate('clew_cost_USD_total', 'clew_tenant')}",
                            legend="{{clew_tenant}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Tokens",
            (
                Panel(
                    title="Tokens by kind",
                    unit="short",
                    description="Input holds cache reads and writes, output holds reasoning.",
                    queries=(
                        Query(expr=rate("clew_tokens_total", _TYPE), legend="{{clew_token_type}}"),
                    ),
                ),
                Panel(
                    title="Input by model",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate(
                                "clew_tokens_total", _MODEL, where=f'{SELECTOR},{_TYPE}="input"'
                            ),
                            legend="{{gen_ai_request_model}}",
                        ),
                    ),
                ),
                Panel(
                    title="Cache hit share by model",
                    unit="percentunit",
                    queries=(
                        Query(
                            expr=ratio(
                                rate(
                                    "clew_tokens_total",
                                    _MODEL,
                                    where=f'{SELECTOR},{_TYPE}="cache_read"',
                                ),
                                rate(
                                    "clew_tokens_total", _MODEL, where=f'{SELECTOR},{_TYPE}="input"'
                                ),
                            ),
                            legend="{{gen_ai_request_model}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "Budgets",
            (
                Panel(
                    title="Used of the limit",
                    kind="bargauge",
                    unit="percentunit",
                    width=12,
                    queries=(
                        Query(
                            expr=(
                                "max by (clew_budget_name, clew_budget_unit) "
                                f"(clew_budget_used{{{PROCESS}}} "
                                f"/ clew_budget_limit{{{PROCESS}}})"
                            ),
                            legend="{{clew_budget_name}} ({{clew_budget_unit}})",
                        ),
                    ),
                ),
                Panel(
                    title="Burn",
                    unit="percentunit",
                    width=12,
                    description="How a budget fills; 1 is its end.",
                    queries=(
                        Query(
                            expr=(
                                f"max by (clew_budget_name) (clew_budget_used{{{PROCESS}}} "
                                f"/ clew_budget_limit{{{PROCESS}}})"
                            ),
                            legend="{{clew_budget_name}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "One by one",
            (
                Panel(
                    title="Costly runs",
                    kind="table",
                    width=24,
                    links=RUN_LINKS,
                    queries=(
                        Query(
                            traces=True,
                            expr=(
                                "{ span.clew.run.root = true && span.clew.run.cost.usd > 0.5 } "
                                "| select(span.gen_ai.agent.name, span.clew.run.cost.usd, "
                                "span.clew.run.rounds)"
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
