"""The dashboard *Pipeline health*."""

from __future__ import annotations

from panels import PROCESS, Board, Panel, Query, grown, rate

BOARD = Board(
    uid="clew-pipeline",
    title="Clew / Pipeline health",
    description="Whether what is shown on the other pages is all there is.",
    variables=("service",),
    rows=(
        (
            "In the services",
            (
                Panel(
                    title="Lost to a full queue",
                    kind="stat",
                    width=6,
                    queries=(Query(expr=grown("clew_pipeline_dropped_total", where=PROCESS)),),
                ),
                Panel(
                    title="Export not confirmed",
                    kind="stat",
                    width=6,
                    queries=(Query(expr=grown("clew_pipeline_failed_total", where=PROCESS)),),
                ),
                Panel(
                    title="Values kept out",
                    kind="stat",
                    width=6,
                    description="What the allow-list kept out of spans. The values are known to "
                    "nobody, which is the point.",
                    queries=(Query(expr=grown("clew_privacy_dropped_total", where=PROCESS)),),
                ),
                Panel(
                    title="Waiting for the export",
                    kind="stat",
                    width=6,
                    queries=(Query(expr=f"sum (clew_pipeline_queued{{{PROCESS}}})"),),
                ),
                Panel(
                    title="Lost and not confirmed",
                    unit="cps",
                    queries=(
                        Query(
                            expr=rate(
                                "clew_pipeline_dropped_total", "clew_pipeline_signal", where=PROCESS
                            ),
                            legend="lost {{clew_pipeline_signal}}",
                        ),
                        Query(
                            expr=rate(
                                "clew_pipeline_failed_total", "clew_pipeline_signal", where=PROCESS
                            ),
                            legend="not confirmed {{clew_pipeline_signal}}",
                        ),
                    ),
                ),
                Panel(
                    title="Queue",
                    queries=(
                        Query(
                            expr=(
                                f"sum by (clew_pipeline_signal) (clew_pipeline_queued{{{PROCESS}}})"
                            ),
                            legend="{{clew_pipeline_signal}}",
                        ),
                    ),
                ),
                Panel(
                    title="Values kept out, by rule",
                    unit="cps",
                    stacked=True,
                    queries=(
                        Query(
                            expr=rate(
                                "clew_privacy_dropped_total", "clew_privacy_rule", where=PROCESS
                            ),
                            legend="{{clew_privacy_rule}}",
                        ),
                    ),
                ),
            ),
        ),
        (
            "In the Collector",
            (
                Panel(
                    title="Queue on disk",
                    unit="percentunit",
                    queries=(
                        Query(
                            expr=(
                                "max by (exporter) (otelcol_exporter_queue_size "
                                "/ otelcol_exporter_queue_capacity)"
                            ),
                            legend="{{exporter}}",
                        ),
                    ),
                ),
                Panel(
                    title="Spans sent",
                    unit="cps",
                    queries=(
                        Query(
                            expr=(
                                "sum by (exporter) (rate({__name__=~"
                                '"otelcol_exporter_sent_spans(_total)?"}[$__rate_interval]))'
                            ),
                            legend="{{exporter}}",
                        ),
                    ),
                ),
                Panel(
                    title="Spans taken",
                    unit="cps",
                    queries=(
                        Query(
                            expr=(
                                "sum by (receiver) (rate({__name__=~"
                                '"otelcol_receiver_accepted_spans(_total)?"}[$__rate_interval]))'
                            ),
                            legend="{{receiver}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)
