"""Dashboards: every panel has data from a real run, through the real Collector and Prometheus."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import agent_runs
import pytest
import real_peers
import traceql
import workload

from clew import semconv
from clew.facts import Usage
from clew.pipeline.instruments import EVERY
from clew.testing import Reply, ScriptedProvider

FOLDER = Path(__file__).parents[2] / "dashboards"
FILES = sorted(FOLDER.glob("clew-*.json"))
SETTINGS = {
    "$__rate_interval_ms": "60000",
    "$__rate_interval": "1m",
    "$__range": "5m",
    "$service": ".*",
    "$agent": ".*",
    "$model": ".*",
    "$tenant": ".*",
}
SCRIPTS = 50
ONE_CALL_EACH = {
    "Started": SCRIPTS,
    "Ended": SCRIPTS,
    "Model calls": SCRIPTS,
    "Tokens": SCRIPTS * 1e6,
    "Known cost": SCRIPTS * 0.15,
    "Cost per run": 0.15,
    "Cost per hour": SCRIPTS * 0.15 * 2,
    "Cost per hour by model": SCRIPTS * 0.15 * 2,
    "Cost per hour by agent": SCRIPTS * 0.15 * 2,
    "Calls without a rate": 0,
    "Rounds per run": 1,
    "Attempts per round": 1,
}
"""What panels say of so many scripts of one call each, of an hour, and per hour of half of one."""
SPAN_METRICS = {
    "traces_span_metrics_calls_total",
    "traces_span_metrics_duration_seconds_bucket",
    "traces_span_metrics_duration_seconds_count",
}


def panels() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return each query with its panel and where it stands."""
    found = []
    for file in FILES:
        for panel in json.loads(file.read_text())["panels"]:
            found += [
                (f"{file.stem}: {panel['title']} {target['refId']}", panel, target)
                for target in panel.get("targets", ())
            ]
    return found


PANELS = panels()
PROMQL = [each for each in PANELS if each[2]["datasource"]["type"] == "prometheus"]
TRACEQL = [each for each in PANELS if each[2]["datasource"]["type"] == "tempo"]


def filled_in(expression: str) -> str:
    """Return a query as Grafana would send it."""
    for name, value in SETTINGS.items():
        expression = expression.replace(name, value)
    return expression


@pytest.fixture(scope="module")
def prometheus(
    gateway: real_peers.Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[real_peers.Prometheus]:
    """Prometheus, scraping the gateway while a service is busy behind it."""
    targets = {"gateway": gateway.prometheus, "collector": gateway.own_metrics}
    folder = tmp_path_factory.mktemp("prometheus")
    with real_peers.Prometheus(folder, targets, rules=[FOLDER / "clew.rules.yaml"]) as running:
        agent_runs.run_demo(gateway.otlp, metric_readers=(agent_runs.reader(gateway.otlp),))
        # The counts of spans are flushed each 15 s; two of them make a rate.
        workload.everything(gateway.otlp, 20)
        suspended = 'traces_span_metrics_calls_total{clew_run_status="waiting_for_approval"} > 0'
        agent_runs.eventually(lambda: running.query(suspended))
        running.filled_at = time.time()
        yield running


def test_the_files_are_what_the_generator_writes() -> None:
    """Whoever changes a panel generates the files again: `python dashboards/generate.py`."""
    sys.path.insert(0, str(FOLDER))
    try:
        import generate
    finally:
        sys.path.remove(str(FOLDER))
    assert generate.documents() == {each.name: each.read_text() for each in FILES}
    assert 5 == len(FILES)


@pytest.mark.parametrize("where", [each[0] for each in PROMQL])
def test_each_panel_has_data(prometheus: real_peers.Prometheus, where: str) -> None:
    """The panel's query runs in Prometheus and returns numbers."""
    _, _, target = next(each for each in PROMQL if each[0] == where)
    expression = filled_in(target["expr"])

    answer = prometheus.query(expression, prometheus.filled_at)
    assert [each for each in answer if each["value"][1] != "NaN"], expression


def test_figures_are_those_of_the_runs(
    gateway: real_peers.Collector, jaeger: real_peers.Jaeger, prometheus: real_peers.Prometheus
) -> None:
    """What a dashboard says in sum is what the runs say of themselves one by one."""
    from clew.sources import open_source
    from clew.store.records import Page, RunFilter

    with open_source(f"jaeger://{jaeger.address}?service=busy") as source:
        runs = agent_runs.eventually(lambda: source.runs(RunFilter(), Page(limit=1000)).runs)
    ours = [each for each in runs if each.service == "busy"]
    by_title = {
        panel["title"]: filled_in(target["expr"].replace("$service", "busy"))
        for _, panel, target in PROMQL
    }

    def figure(title: str) -> float:
        return float(prometheus.query(by_title[title])[0]["value"][1])

    assert len(ours) == figure("Started") == figure("Ended")
    assert sum(each.denials or 0 for each in ours) == figure("Denials")
    assert sum(each.decisions or 0 for each in ours) == figure("Decisions")
    cost = sum(each.cost_usd or 0 for each in ours)
    assert cost == pytest.approx(figure("Known cost"))
    failed = sum(each.status == "failed" for each in ours)
    assert failed / len(ours) == pytest.approx(figure("Failed share"))


def test_processes_of_one_call_each_are_all_counted(
    gateway: real_peers.Collector, prometheus: real_peers.Prometheus
) -> None:
    """A counter that is born with its last value counts: fifty scripts of one call are fifty."""
    usage = Usage(input_tokens=1_000_000, output_tokens=0)
    script = str(Path(__file__).with_name("short.py"))
    with ScriptedProvider(lambda _: Reply(text="Hello", usage=usage)) as provider:
        command = [sys.executable, script, provider.openai_base_url]
        environment = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": gateway.otlp,
            "CLEW_PROVIDER_HOSTS": "{}:{}=openai".format(*provider.address),
            "NO_PROXY": "*",
        }

        def once(_: int) -> None:
            subprocess.run(command, env=environment, check=True, timeout=120)

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(once, range(SCRIPTS)))

    def figures() -> dict[str, float]:
        found: dict[str, float] = {}
        for _, panel, target in PROMQL:
            if panel["title"] in ONE_CALL_EACH:
                expression = target["expr"].replace("$service", "short")
                for name, window in (("range", "1h"), ("rate_interval", "30m")):
                    expression = expression.replace(f"$__{name}_ms", "1800000")
                    expression = expression.replace(f"$__{name}", window)
                answer = prometheus.query(filled_in(expression))
                found[panel["title"]] = sum(round(float(each["value"][1]), 6) for each in answer)
        return found

    expected = {each: pytest.approx(value) for each, value in ONE_CALL_EACH.items()}
    assert expected == agent_runs.eventually(figures, expected)
    durations = [target for _, panel, target in PROMQL if panel["title"] == "Duration of a call"]
    for target in durations:
        expression = target["expr"].replace("$__rate_interval", "30m").replace("$service", "short")
        assert 0 < float(prometheus.query(expression)[0]["value"][1]) < 100


def test_latency_panels_read_a_service_under_either_profile(
    gateway: real_peers.Collector, prometheus: real_peers.Prometheus
) -> None:
    """A service with the new names beside one with today's: the panels show both, each once."""
    workload.everything(gateway.otlp, 4, name="newer", metric_profile="v0.1.0")

    def counted(name: str, service: str) -> float:
        found = prometheus.query(f'sum({name}{{job="{service}"}})')
        return float(found[0]["value"][1]) if found else 0

    old, new = (
        f"gen_ai_client_{word}_duration_seconds_count" for word in ("operation", "inference")
    )
    assert agent_runs.eventually(lambda: counted(new, "newer"))
    assert 0 == counted(old, "newer") == counted(new, "busy")
    assert counted(old, "busy") > 0
    for title in ("Duration of a call", "Time to the first chunk"):
        panel = next(t["expr"] for w, p, t in PROMQL if p["title"] == title)
        for service in ("newer", "busy"):
            at = None if service == "newer" else prometheus.filled_at
            expression = filled_in(panel.replace("$service", service))
            answer = agent_runs.eventually(
                lambda expression=expression, at=at: [
                    each for each in prometheus.query(expression, at) if each["value"][1] != "NaN"
                ]
            )
            assert answer, (title, service)


def test_metrics_and_labels_are_those_that_are_emitted() -> None:
    """Each name in a query is that of an instrument, each label one of that instrument's."""
    known: dict[str, set[str]] = {name: set() for name in SPAN_METRICS}
    for one in EVERY.values():
        labels = {re.sub(r"\W", "_", each) for each in one.labels} | {"job", "instance", "le"}
        base = re.sub(r"\W", "_", one.name)
        unit = {"s": "_seconds", "USD": "_USD"}.get(one.unit, "")
        for suffix in ("", "_total", "_bucket", "_count", "_sum"):
            known[f"{base}{unit}{suffix}"] = labels
    for where, _, target in PROMQL:
        names = re.findall(r"\b((?:clew|gen_ai_client|traces)_\w+)\{([^}]*)\}", target["expr"])
        assert names or "otelcol" in target["expr"], where
        for name, selector in names:
            assert name in known, (where, name)
            if known[name]:
                used = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selector))
                assert used <= known[name], (where, name, used - known[name])


_WHOLES = {"", "input", "output"}


def test_no_query_adds_a_part_to_its_whole() -> None:
    """Cached and reasoning tokens are parts of input and output: no sum has both.

    A query of tokens names their type, or keeps the types apart; metrics are named, never matched.
    """
    rules = (FOLDER / "clew.rules.yaml").read_text()
    queries = [(where, target["expr"]) for where, _, target in PROMQL]
    queries += [("rules", each) for each in re.findall(r"clew_tokens_total\{[^}]*\}", rules)]
    looked_at = 0
    for where, query in queries:
        for pattern in re.findall(r'__name__\s*=~\s*"([^"]*)"', query):
            assert pattern.startswith("otelcol_"), where
        for selector in re.findall(
            r"(?:clew_tokens|gen_ai_client_token_usage)\w*(?:\{([^}]*)\})?", query
        ):
            looked_at += 1
            types = re.findall(r'\w*token_type\s*(?:=~|=)\s*"([^"]*)"', selector)
            named = set("|".join(types).split("|"))
            apart = re.search(r"by\s*\([^)]*token_type[^)]*\)", query) is not None
            assert types or apart, (where, query)
            assert apart or len(named) == 1 or named <= _WHOLES, (where, query)
    assert looked_at > 5


@pytest.mark.parametrize("where", [each[0] for each in TRACEQL])
def test_each_traceql_query_parses_and_names_known_attributes(where: str) -> None:
    """By the grammar of TraceQL; attributes are those of the contract."""
    _, _, target = next(each for each in TRACEQL if each[0] == where)
    parsed = traceql.parse(target["query"])
    assert parsed.attributes
    for scope, name in parsed.attributes:
        keys = semconv.RULES if scope == "span" else {"service.name": None}
        assert name in keys, name


def test_the_parser_of_traceql_refuses_what_is_none() -> None:
    """A misspelt query does not pass by accident."""
    for wrong in (
        "{ span.a = }",
        "{ span.a == 1 }",
        "span.a = 1",
        "{ span.a = 1 ",
        "{ span.a = 1 && }",
        "{ span.a = 'x' }",
        "{ a = 1 }",
        "{ span.a = 1 } | choose(span.b)",
        "{ span.a = 1 } | select()",
        '{ span.a =~ "(" }',
    ):
        with pytest.raises(traceql.TraceQLError):
            traceql.parse(wrong)


def resolved(value: Any, chosen: dict[str, str]) -> Any:
    """Return a dashboard with its variables for data sources filled in, as Grafana does it."""
    if isinstance(value, dict):
        return {key: resolved(each, chosen) for key, each in value.items()}
    if isinstance(value, list):
        return [resolved(each, chosen) for each in value]
    if isinstance(value, str):
        for name, uid in chosen.items():
            value = value.replace(f"${{{name}}}", uid)
    return value


def references(value: Any) -> Iterator[dict[str, Any]]:
    """Give each reference to a data source, wherever in a dashboard it stands."""
    if isinstance(value, dict):
        if "datasource" in value:
            yield value["datasource"]
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.stem)
def test_any_data_source_will_do(file: Path) -> None:
    """With sources of other names and uids every panel, query and variable asks one of them."""
    board = json.loads(file.read_text())
    offered = {"prometheus": "mimir-eu-7f", "tempo": "traces-of-team-x"}
    chosen: dict[str, str] = {}
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            # Grafana offers all sources of the type; nothing is chosen beforehand, nothing filtered.
            assert not variable.get("regex")
            assert not variable.get("current")
            chosen[variable["name"]] = offered[variable["query"]]
    assert {"datasource": "mimir-eu-7f", "tempo": "traces-of-team-x"} == chosen
    assert not {"id", "__inputs", "__requires"} & board.keys()
    asked = [each for each in board["panels"] if each["type"] != "row"]
    asked += [target for panel in asked for target in panel["targets"]]
    asked += [each for each in board["templating"]["list"] if each["type"] == "query"]
    assert all("datasource" in each for each in asked)
    found = [(each["type"], each["uid"]) for each in references(resolved(board, chosen))]
    assert len(found) >= len(asked)
    assert set(offered.items()) >= set(found)
    # What else a query may be filled in with are variables of the same dashboard.
    known = {each["name"] for each in board["templating"]["list"]}
    for target in (target for panel in board["panels"] for target in panel.get("targets", ())):
        text = target.get("expr") or target["query"]
        assert set(re.findall(r"\$\{?(?!__)(\w+)", text)) <= known


def test_each_table_of_runs_leads_to_the_run() -> None:
    """From a row to the run in the viewer, in Jaeger and in Tempo."""
    for where, panel, _ in TRACEQL:
        urls = [each["url"] for each in panel["fieldConfig"]["defaults"]["links"]]
        assert 3 == len(urls), where
        assert "${viewer}/runs/${__data.fields.traceID}" in urls
        assert "${jaeger}/trace/${__data.fields.traceID}" in urls


def test_rules_load_and_none_is_broken(prometheus: real_peers.Prometheus) -> None:
    """Prometheus evaluates every recording and alert rule on real metrics without an error."""

    def health() -> set[str]:
        rules = prometheus.get("/api/v1/rules")["data"]["groups"]
        return {rule["health"] for group in rules for rule in group["rules"]}

    assert {"ok"} == agent_runs.eventually(health, {"ok"})


def test_every_alert_is_tested_by_promtool(programs: None) -> None:
    """`promtool test rules` passes, and sees each alert fire and not fire where it should."""
    command = ["promtool", "test", "rules", str(FOLDER / "clew.rules.test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    alerts = set(re.findall(r"- alert: (\w+)", (FOLDER / "clew.rules.yaml").read_text()))
    tests = (FOLDER / "clew.rules.test.yaml").read_text()
    assert 8 == len(alerts)
    assert alerts == set(re.findall(r"alertname: (\w+)\n\s+exp_alerts", tests))
