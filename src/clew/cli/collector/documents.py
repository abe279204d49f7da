"""The files of `collector-config/`: templates, with what the allow-list says filled in."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from clew.allow_list import AllowList
from clew.cli.collector import statements

GENERATED: Final = ("local", "gateway", "agent")
"""Configurations that hold the allow-list."""
PLAIN: Final = (
    "sampling",
    "builder",
    "docker-compose",
    "tempo",
    "prometheus",
    "grafana-datasources",
    "grafana-dashboards",
)
NAMES: Final = (*GENERATED, *PLAIN)
"""What `clew collector-config` prints."""

_TRACES: Final = "{{privacy_of_traces}}\n"
_METRICS: Final = "{{privacy_of_metrics}}\n"


def document(name: str, allow_list: AllowList) -> str:
    """Return one file, complete.

    Args:
        name: one of `NAMES`.
        allow_list: what may pass.

    Raises:
        ConfigurationError: the list has a rule that the Collector cannot be told.
    """
    text = (files("clew.cli.collector") / f"{name}.yaml").read_text("utf-8")
    if _TRACES in text:
        text = text.replace(_TRACES, _privacy_of_traces(allow_list))
    if _METRICS in text:
        text = text.replace(_METRICS, _privacy_of_metrics(allow_list))
    return text


def table(allow_list: AllowList) -> str:
    """Return a page that says of each rule how exact the Collector's copy of it is."""
    lines = [
        "# How exact the Collector's copy of the allow-list is",
        "",
        "Written by `clew collector-config table`. *Exact*: passes and drops the same. *Stricter*:",
        "drops more. *Coarser*: lets more pass, and says what.",
        "",
        "| on | key | rule | here | difference |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.part} | `{row.key}` | {row.rule} | {row.grade} | {row.note} |"
        for row in statements.rows(allow_list)
    ]
    return "\n".join([*lines, ""])


def _privacy_of_traces(allow_list: AllowList) -> str:
    return "".join(
        (
            "  # Keys, on resources, scopes, spans and events. An empty list lets nothing pass.\n",
            "  redaction:\n    allow_all_keys: false\n    summary: silent\n",
            _listed("allowed_keys", statements.allowed_keys(allow_list)),
            "  # Values, names, status, trace state. Attributes are moved aside, and those that\n",
            "  # obey their rules are let back: a statement that fails lets nothing back.\n",
            "  transform/values:\n    error_mode: silent\n    trace_statements:\n",
            _groups(statements.trace_statements(allow_list)),
            "  # A Collector before 0.158 keeps the links that the statement above takes away.\n",
            "  filter/links:\n    error_mode: propagate\n",
            "    trace_conditions:\n      - Len(span.links) > 0\n",
        )
    )


def _privacy_of_metrics(allow_list: AllowList) -> str:
    names = "|".join(each.replace(".", "[.]") for each in statements.metric_names())
    unknown = f'not IsMatch(metric.name, "^(?:{names})$")'
    keys = sorted({*statements.label_rules(), *allow_list.resource})
    return "".join(
        (
            "  # Metrics of Clew's own table, with the labels of that table.\n",
            "  filter/metrics:\n    error_mode: propagate\n    metric_conditions:\n",
            f"      - {_quoted(unknown)}\n",
            "  redaction/labels:\n    allow_all_keys: false\n    summary: silent\n",
            _listed("allowed_keys", keys),
            "  transform/labels:\n    error_mode: silent\n    metric_statements:\n",
            _groups(statements.metric_statements(allow_list)),
        )
    )


def _listed(name: str, keys: Iterable[str]) -> str:
    entries = "".join(f"      - {_quoted(each)}\n" for each in keys)
    return f"    {name}:\n{entries}" if entries else f"    {name}: []\n"


def _groups(groups: Iterable[Iterable[str]]) -> str:
    lines: list[str] = []
    for group in groups:
        lines.append("      - statements:\n")
        lines += [f"          - {_quoted(each)}\n" for each in group]
    return "".join(lines)


def _quoted(text: str) -> str:
    """Quote for YAML; a dollar sign is doubled, for the Collector expands variables."""
    return "'" + text.replace("'", "''").replace("$", "$$") + "'"
