"""Write the Grafana dashboards that the `board_*.py` beside it describe.

    python dashboards/generate.py [FOLDER]

The data source, Tempo, Jaeger and the Clew viewer are variables of each dashboard: it works with
data sources of any name. Needs `grafana-foundation-sdk`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import board_cost
import board_governance
import board_latency
import board_pipeline
import board_runs
import panels
from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as d
from grafana_foundation_sdk.builders import tempo as t
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as words
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

HERE = Path(__file__).parent
BOARDS = (
    board_runs.BOARD,
    board_cost.BOARD,
    board_latency.BOARD,
    board_governance.BOARD,
    board_pipeline.BOARD,
)
SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TEMPO = models.DataSourceRef(type_val="tempo", uid="${tempo}")
_LABELS = {
    "service": ("clew_pipeline_queued", "job", "Service"),
    "agent": ("clew_runs_started_total", "gen_ai_agent_name", "Agent"),
    "model": ("clew_tokens_total", "gen_ai_request_model", "Model"),
    "tenant": ("clew_runs_started_total", "clew_tenant", "Tenant"),
}
_HEIGHTS = {"stat": 4, "bargauge": 7, "table": 9, "timeseries": 8}


def documents() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {f"{each.uid}.json": text_of(each) for each in BOARDS}


def text_of(board: panels.Board) -> str:
    """Return one dashboard as JSON."""
    built = (
        d.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["clew"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            d.DashboardLink("Clew")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags(["clew"])
            .keep_time(True)
            .include_vars(True)
        )
    )
    for variable in _variables(board):
        built = built.with_variable(variable)
    for title, row in board.rows:
        built = built.with_row(d.Row(title))
        for panel in row:
            built = built.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=1).encode(built.build()) + "\n"


def _variables(board: panels.Board) -> Iterator[Any]:
    yield d.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    yield d.DatasourceVariable("tempo").label("Tempo").type("tempo")
    for name in board.variables:
        metric, label, shown = _LABELS[name]
        yield (
            d.QueryVariable(name)
            .label(shown)
            .datasource(SOURCE)
            .query(f"label_values({metric}, {label})")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".*")
        )
    for name, shown, usual in (
        ("viewer", "Clew viewer", "http://localhost:4318"),
        ("jaeger", "Jaeger", "http://localhost:16686"),
    ):
        yield d.TextBoxVariable(name).label(shown).default_value(usual)


def _panel(panel: panels.Panel) -> Any:
    makers: dict[str, Any] = {
        "stat": _stat,
        "bargauge": _bargauge,
        "table": _table,
        "timeseries": _timeseries,
    }
    made = makers[panel.kind](panel)
    traces = any(each.traces for each in panel.queries)
    made = (
        made.title(panel.title)
        .description(panel.description)
        .datasource(TEMPO if traces else SOURCE)
        .span(panel.width)
        .height(_HEIGHTS[panel.kind])
    )
    if panel.links:
        made = made.data_links(
            [d.DashboardLink(each.title).url(each.url).target_blank(True) for each in panel.links]
        )
    for place, query in enumerate(panel.queries):
        made = made.with_target(_target(query, chr(ord("A") + place), panel.kind))
    return made


def _target(query: panels.Query, ref: str, kind: panels.Kind) -> Any:
    if query.traces:
        return (
            t.TempoQuery().query(query.expr).query_type("traceql").limit(20)
            .ref_id(ref).datasource(TEMPO)
        )  # fmt: skip
    made = prometheus.Dataquery().expr(query.expr).ref_id(ref).datasource(SOURCE)
    if query.legend:
        made = made.legend_format(query.legend)
    if kind == "timeseries":
        return made.range()
    made = made.instant()
    return made.format(PromQueryFormat.TABLE) if kind == "table" else made


def _stat(panel: panels.Panel) -> Any:
    calc = common.ReduceDataOptions().calcs(["lastNotNull"])
    return stat.Panel().unit(panel.unit).reduce_options(calc)


def _bargauge(panel: panels.Panel) -> Any:
    calc = common.ReduceDataOptions().calcs(["lastNotNull"])
    return bargauge.Panel().unit(panel.unit).min(0).max(1).reduce_options(calc)


def _table(panel: panels.Panel) -> Any:
    return table.Panel().unit(panel.unit)


def _timeseries(panel: panels.Panel) -> Any:
    made = timeseries.Panel().unit(panel.unit).min(0).fill_opacity(20 if panel.stacked else 0)
    if panel.stacked:
        made = made.stacking(common.StackingConfig().mode(words.StackingMode.NORMAL))
    return made


def main(folder: Path) -> None:
    """Write every dashboard."""
    for name, text in documents().items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
