"""Labels of metrics: closed or bounded sets, whatever users, models and providers say."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

import clew
from clew import semconv
from clew.pipeline import instruments, labels
from clew.settings import Settings

MARK = "zqmark"


def answer(request: httpx.Request) -> httpx.Response:
    """Answer like a provider, with ids and texts of this request alone."""
    asked = json.loads(request.content)
    own = uuid.uuid4().hex
    if asked["messages"][0]["content"].endswith("7"):
        error = {"message": f"{MARK} {own}", "type": f"error_{own}", "code": own}
        return httpx.Response(400, json={"error": error})
    message = {"role": "assistant", "content": f"{MARK} {own}"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    return httpx.Response(
        200,
        json={"id": own, "model": "gpt-5-mini", "choices": [choice], "usage": usage},
    )


def work_of_many_users(runs: int) -> None:
    """Do `runs` runs, in which every id, user, text and error is another."""
    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        for number in range(runs):
            own = f"{MARK}-{uuid.uuid4().hex}"
            with clew.run(
                "triage",
                run_id=uuid.uuid4(),
                conversation_id=own,
                actor=own,
                tenant=own,
                configuration=own,
                kind=own,
                trigger=own,
                message_id=own,
            ) as run:
                client.post(
                    "https://api.openai.com/v1/chat/completions",
                    json={
                        "model": "gpt-5-mini",
                        "user": own,
                        "messages": [{"role": "user", "content": f"{own} {number % 10}"}],
                    },
                )
                with clew.tool(f"tool-{own}", call_id=own) as call:
                    call.outcome = "error" if number % 10 == 3 else None
                with clew.decide(f"gate-{own}") as decision:
                    decision.outcome = "deny" if number % 10 == 5 else "allow"
                    decision.reason = own
                    decision.subject = own
                if number % 10 == 9:
                    run.terminate("max_rounds")


def test_the_number_of_series_does_not_depend_on_the_number_of_runs(
    measure: Callable[..., Any],
) -> None:
    """A thousand runs with ids, users, texts and errors of their own make no more than ten do."""
    measured = measure(metric_tenants=frozenset({"acme"}), queue_size=100_000)
    work_of_many_users(10)
    few = {name: len(row) for name, row in measured.points().items()}
    work_of_many_users(990)
    found = measured.points()
    assert {name: len(row) for name, row in found.items()} == few
    assert measured.total("clew.runs.ended") == 1000
    assert measured.total("gen_ai.client.operation.duration") == 1000
    assert {one["clew.tenant"] for one, _ in found["clew.runs.started"]} == {"_OTHER"}
    assert {one["gen_ai.tool.name"] for one, _ in found["clew.tool.duration"]} == {"_OTHER"}
    assert {one["clew.decision.gate"] for one, _ in found["clew.decisions"]} == {"_OTHER"}
    errors = {one.get("error.type") for one, _ in found["gen_ai.client.operation.duration"]}
    assert errors == {None, "_OTHER"}


def test_every_label_is_one_that_its_instrument_lists(measure: Callable[..., Any]) -> None:
    """No instrument has a label beyond its row, and none is ever made for content."""
    measured = measure(metric_tenants=frozenset({"acme"}), metric_reasons=frozenset({"over_limit"}))
    work_of_many_users(20)
    for name, row in measured.points().items():
        listed = set(instruments.INSTRUMENTS[name].labels)
        assert {key for one, _ in row for key in one} <= listed
    assert MARK.encode() not in encode_metrics(measured.data()).SerializeToString()


def test_models_agents_and_tools_fold_into_one_beyond_a_bound(
    measure: Callable[..., Any],
) -> None:
    """The first names are labels; a name too many, or one that is no identifier, is `_OTHER`."""
    measured = measure()
    for number in range(labels.MAX_VALUES + 50):
        with clew.run(f"agent-{number}"):
            pass
    started = measured.points()["clew.runs.started"]
    assert len(started) == labels.MAX_VALUES + 1
    assert {one["gen_ai.agent.name"]: value for one, value in started}["_OTHER"] == 50
    bounded = labels.Bounded(semconv.RULES["gen_ai.request.model"], 2)
    values = [bounded(one) for one in ("a", "b c", "b", "c", "a", None, 7)]
    assert values == ["a", "_OTHER", "b", "_OTHER", "a", None, "_OTHER"]


def test_tenants_and_reasons_are_labels_only_where_they_are_listed(
    measure: Callable[..., Any],
) -> None:
    """A listed value is a label, another is `_OTHER`; without a list there is no label."""
    measured = measure(metric_tenants=frozenset({"acme"}), metric_reasons=frozenset({"over_limit"}))
    for tenant in ("acme", "other", None):
        with clew.run("triage", tenant=tenant):
            pass
    for reason in ("over_limit", "another", None):
        clew.decide("budget", "deny", reason=reason)
    found = measured.points()
    tenants = [one.get("clew.tenant") for one, _ in found["clew.runs.started"]]
    assert sorted(map(str, tenants)) == ["None", "_OTHER", "acme"]
    reasons = [one.get("clew.decision.reason") for one, _ in found["clew.decisions"]]
    assert sorted(map(str, reasons)) == ["None", "_OTHER", "over_limit"]
    clew.shutdown()
    measured = measure()
    with clew.run("triage", tenant="acme"):
        clew.decide("budget", "deny", reason="over_limit")
    found = measured.points()
    assert [one for one, _ in found["clew.runs.started"]] == [{"gen_ai.agent.name": "triage"}]
    assert "clew.decision.reason" not in found["clew.decisions"][0][0]


def test_only_tools_given_in_code_are_named(measure: Callable[..., Any]) -> None:
    """`@clew.tool` gives a name; the name in a `with` block may be the model's word."""
    measured = measure()

    @clew.tool("metrics.lookup")
    async def lookup() -> None:
        """Find nothing."""

    asyncio.run(lookup())
    with clew.tool("metrics.lookup"):
        pass
    with pytest.raises(TimeoutError), clew.tool(f"{MARK}_made_up"):
        raise TimeoutError
    found = {
        (one["gen_ai.tool.name"], one["clew.tool.outcome"]): point.count
        for one, point in measured.points()["clew.tool.duration"]
    }
    assert found == {("metrics.lookup", "ok"): 2, ("_OTHER", "timeout"): 1}


ERRORS = [
    ("rate_limit_error", "rate_limit_error"),
    ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"),
    ("503", "503"),
    ("200", "_OTHER"),
    ("TimeoutError", "TimeoutError"),
    ("httpx2.ReadTimeout", "httpx2.ReadTimeout"),
    ("asyncio.exceptions.CancelledError", "asyncio.exceptions.CancelledError"),
    ("req_0123456789", "_OTHER"),
    ("my_app.Oops", "_OTHER"),
    ("print", "_OTHER"),
    (None, None),
]


@pytest.mark.parametrize(("given", "label"), ERRORS)
def test_error_types_are_a_closed_set(given: str | None, label: str | None) -> None:
    """Statuses, known words of providers and classes of known libraries; the rest folds."""
    assert labels.Words(Settings()).error(given) == label


def test_the_page_lists_every_instrument() -> None:
    """Name, kind, unit and labels in `docs/metrics.md` are those of the code, in its order."""
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith(("| `gen_ai.cl", "| `clew."))]
    expected = [
        f"| `{one.name}` | {one.kind.replace('_', ' ')} | `{one.unit}` | "
        f"{', '.join(f'`{label}`' for label in one.labels)} |"
        for one in instruments.INSTRUMENTS.values()
    ]
    assert [row for row in rows if row.count("|") == 5] == expected
