"""What the dashboards show: panels and their queries, as data.

Metrics are Clew's own (`clew.pipeline.instruments`), under the names that Prometheus has for them.
Where a convention has two names for a metric both are read; a process emits one of them, so nothing
is counted twice.

Counters of short-lived processes are born with their final value, which `rate` and `increase` do
not see. What a counter has grown by is here its last value in the range less its last value before
it; a counter that was not there before, or that has begun anew, counts from zero. It is taken for
new when nothing was heard of it for an hour: a shorter gap between two scrapes is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["timeseries", "stat", "table", "bargauge"]

SELECTOR = 'job=~"$service",gen_ai_agent_name=~"$agent"'
PROCESS = 'job=~"$service"'
DURATION = (
    "gen_ai_client_operation_duration_seconds",
    "gen_ai_client_inference_duration_seconds",
)
_SECONDS = "($__rate_interval_ms / 1000)"
FIRST_CHUNK = (
    "gen_ai_client_operation_time_to_first_chunk_seconds",
    "gen_ai_client_inference_time_to_first_chunk_seconds",
)


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query; `legend` may name labels as Grafana does."""

    expr: str
    legend: str = ""
    traces: bool = False
    """TraceQL for Tempo, instead of PromQL."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link from a value of a panel."""

    title: str
    url: str


VIEWER_LIST = Link(
    title="Runs in the Clew viewer", url="${viewer}/?agent=${__field.labels.gen_ai_agent_name}"
)
VIEWER_DENIED = Link(title="Denied runs in the Clew viewer", url="${viewer}/?denied=1")
VIEWER_FAILED = Link(title="Failed runs in the Clew viewer", url="${viewer}/?failed=1")
RUN_LINKS = (
    Link(title="In the Clew viewer", url="${viewer}/runs/${__data.fields.traceID}"),
    Link(title="In Jaeger", url="${jaeger}/trace/${__data.fields.traceID}"),
    Link(
        title="In Tempo",
        url=(
            "/explore?left=%7B%22datasource%22:%22${tempo}%22,%22queries%22:%5B%7B%22query%22:"
            "%22${__data.fields.traceID}%22,%22queryType%22:%22traceql%22%7D%5D%7D"
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. `width` is of Grafana's 24 columns."""

    title: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    unit: str = "short"
    description: str = ""
    links: tuple[Link, ...] = ()
    width: int = 8
    stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    variables: tuple[str, ...] = field(default=("service", "agent"))


def rate(metric: str, by: str = "", *, where: str = SELECTOR) -> str:
    """Return the growth of a counter per second, summed, births included."""
    return f"sum{_by(by)} ({_growth(metric, where, '$__rate_interval')}) / {_SECONDS}"


def grown(metric: str, by: str = "", *, where: str = SELECTOR) -> str:
    """Return by how much a counter has grown over the dashboard's range, births included."""
    return f"sum{_by(by)} ({_growth(metric, where, '$__range')})"


def quantile(share: float, metrics: tuple[str, ...], by: str = "", *, where: str = PROCESS) -> str:
    """Return a quantile of a histogram, under any of its names; of new processes, too."""
    buckets = " or ".join(
        f"({_growth(f'{each}_bucket', where, '$__rate_interval')})" for each in metrics
    )
    return f"histogram_quantile({share}, sum by (le{', ' + by if by else ''}) ({buckets}))"


def ratio(part: str, whole: str) -> str:
    """Return a share; nothing where there is nothing to share."""
    return f"({part}) / ({whole} > 0)"


def _growth(metric: str, where: str, window: str) -> str:
    """Return the growth of each series in a window."""
    one = f"{metric}{{{where}}}"
    last = f"last_over_time({one}[{window}])"
    return f"{last} - (last_over_time({one}[1h] offset {window}) <= {last} or {last} * 0)"


def _by(labels: str) -> str:
    return f" by ({labels})" if labels else ""
