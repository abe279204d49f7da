"""Write the table of `docs/dashboards.md`: panel, query, and what a real run makes of it.

python tests/backends/panel_table.py docs/dashboards.md
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from pathlib import Path

import agent_runs
import real_peers
import test_dashboards
import workload

MARK = "<!-- panels -->\n"
SECONDS = 45


def sample(prometheus: real_peers.Prometheus, expression: str, unit: str) -> str:
    """Return a few values of a query's result, with the labels that tell them apart."""
    shown: list[str] = []
    answer = prometheus.query(test_dashboards.filled_in(expression), prometheus.filled_at)
    for each in sorted(answer, key=lambda one: str(one["metric"])):
        number = float(each["value"][1])
        if math.isnan(number):
            continue
        named = ", ".join(value for key, value in sorted(each["metric"].items()) if value)
        shown.append(f"{named + ': ' if named else ''}{number:.4g}")
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return "; ".join(shown[:3]) + more + (f" ({unit})" if unit not in ("short", "none") else "")


def cell(text: str) -> str:
    """Return a text as a table can hold it."""
    return text.replace("|", "\\|").replace("\n", " ")


def table(prometheus: real_peers.Prometheus) -> str:
    """Return the table."""
    lines = ["| panel | query | sample result |", "| --- | --- | --- |"]
    for where, panel, target in test_dashboards.PANELS:
        board, title = where.split(": ", 1)
        traces = target["datasource"]["type"] == "tempo"
        query = target["query"] if traces else target["expr"]
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        result = "a list of runs" if traces else sample(prometheus, query, unit)
        name = f"*{board.removeprefix('clew-')}* {title[:-2]}"
        lines.append(f"| {cell(name)} | `{cell(query)}` | {cell(result)} |")
    return "\n".join([*lines, ""])


def main(page: Path) -> None:
    """Run everything, and replace what stands behind the mark."""
    with tempfile.TemporaryDirectory(prefix="clew-panels-") as name:
        folder = Path(name)
        with (
            real_peers.Jaeger(folder / "jaeger") as jaeger,
            real_peers.Collector(folder / "gateway", "gateway", CLEW_JAEGER=jaeger.otlp) as gateway,
            real_peers.Prometheus(
                folder / "prometheus",
                {"gateway": gateway.prometheus, "collector": gateway.own_metrics},
            ) as prometheus,
        ):
            agent_runs.run_demo(gateway.otlp, metric_readers=(agent_runs.reader(gateway.otlp),))
            workload.everything(gateway.otlp, SECONDS)
            suspended = (
                'traces_span_metrics_calls_total{clew_run_status="waiting_for_approval"} > 0'
            )
            agent_runs.eventually(lambda: prometheus.query(suspended))
            time.sleep(3)  # until the last figures are scraped
            prometheus.filled_at = time.time()
            text = table(prometheus)
    before = page.read_text().partition(MARK)[0]
    page.write_text(f"{before}{MARK}{text}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
