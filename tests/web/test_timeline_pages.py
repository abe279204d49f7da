"""The timeline's pages: what they may show, filters, the rows' twin, and runs that go on."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_messages
import sample_runs
from sample_messages import send

from clew import semconv
from clew.allow_list import AllowList
from clew.rules import Identifier
from clew.web.run_pages import MOST_ROWS
from clew.web.server import Running, start
from clew.web.shown import Filter, Recent
from clew.web.timeline import OUTCOMES

START = sample_runs.START_NS
SECRET = "my account number is 12345"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with start(port=0, store_path=tmp_path_factory.mktemp("timeline") / "clew.db") as running:
        yield running


def ids(page: httpx.Response) -> list[str]:
    return re.findall(r'<tr id="s-([0-9a-f]{16})"', page.text)


def everything_of(viewer: httpx.Client, run: sample_runs.Sample) -> list[str]:
    """Every answer that is about a run, as text."""
    paths = [f"/runs/{run.run_id}", f"/api/runs/{run.run_id}", f"/runs/{run.run_id}/head",
             f"/api/runs/{run.run_id}/timeline"]  # fmt: skip
    for span in run.spans:
        paths += [
            f"/runs/{run.run_id}?span={span.span_id}",
            f"/runs/{run.run_id}/spans/{span.span_id}",
            f"/api/runs/{run.run_id}/spans/{span.span_id}",
        ]
    answers = [viewer.get(each) for each in paths]
    assert {200} == {each.status_code for each in answers}
    return [each.text for each in answers]


CONTENT_KEYS = (
    *semconv.CONTENT, "gen_ai.prompt", "gen_ai.completion", "llm.prompts.0.content",
    "traceloop.entity.input", "input.value", "exception.message", "exception.stacktrace",
    "suspended_state", "queued_request", "messagesSent", "toolArguments", "toolResult",
)  # fmt: skip


@pytest.mark.parametrize("level", semconv.CAPTURE_LEVELS)
@pytest.mark.parametrize("scope", [semconv.SCOPE, "opentelemetry.instrumentation.openai"])
def test_content_is_never_on_a_timeline(
    served: Running, viewer: httpx.Client, level: str, scope: str
) -> None:
    """Keys of content do not appear at any capture level, whoever sent them; they are counted."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 100, **{semconv.CAPTURE_LEVEL: level})
    span = run.add("chat m", 1, 50, root, dict.fromkeys(CONTENT_KEYS, SECRET), scope=scope)
    span.events.append(("exception", 10, {"exception.message": SECRET}))
    span.links.append(("ab" * 16, "cd" * 8))
    send(served.address, run)
    for text in everything_of(viewer, run):
        assert SECRET not in text
    page = viewer.get(f"/runs/{run.run_id}", params={"span": span.span_id}).text
    assert f"{len(CONTENT_KEYS) + 1} values not shown" in page
    twin = viewer.get(f"/api/runs/{run.run_id}/spans/{span.span_id}").json()
    assert len(CONTENT_KEYS) + 1 == twin["hidden"]
    assert not set(CONTENT_KEYS) & set(twin["span"]["attributes"])


def test_values_obey_the_rules_of_their_keys(served: Running, viewer: httpx.Client) -> None:
    """Prose under an allowed key is dropped, so are nested structures; lists are joined."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 100)
    span = run.model(
        1, 1, 50, root,
        **{
            semconv.ERROR_TYPE: SECRET, semconv.RESPONSE_ID: {"nested": SECRET},
            semconv.COST_MISSING: ["cache_read", "tools"], semconv.REQUEST_STREAM: True,
        },
    )  # fmt: skip
    span.events.append((SECRET, 5, {}))
    send(served.address, run)
    for text in everything_of(viewer, run):
        assert SECRET not in text
    page = viewer.get(f"/runs/{run.run_id}", params={"span": span.span_id}).text
    assert "cache_read, tools" in page


def test_a_list_of_ones_own_shows_more() -> None:
    """Keys that the operator allowed are shown; keys of content are not, even if allowed."""
    run = sample_runs.Sample()
    run.root("a", 0, 1, **{"shop.order": "A-17", semconv.INPUT_MESSAGES: "hello"})
    from clew.store.records import RunRecord
    from clew.store.summary import fold

    spans = sample_messages.spans_of(run)
    allowed = AllowList.default().extended(
        {"shop.order": Identifier(), semconv.INPUT_MESSAGES: Identifier()}
    )
    record = RunRecord(summary=fold(spans, run.trace_id), spans=tuple(spans))
    (span,) = Filter(allowed).apply(record).record.spans
    assert "A-17" == span.attributes["shop.order"]
    assert semconv.INPUT_MESSAGES not in span.attributes


def test_nothing_can_be_done_from_a_timeline(served: Running, viewer: httpx.Client) -> None:
    """No approval, retry or cancel: the page has no form that changes something."""
    run = sample_runs.suspended()
    send(served.address, run)
    page = viewer.get(f"/runs/{run.run_id}").text
    assert {"get", "dialog"} == set(re.findall(r'<form[^>]* method="(\w+)"', page))
    for path in (f"/runs/{run.run_id}", f"/api/runs/{run.run_id}"):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert 405 == viewer.request(method, path).status_code


def test_a_model_call_says_what_differs_from_what_was_asked(
    served: Running, viewer: httpx.Client
) -> None:
    """Another model, another provider, a fallback, the first chunk, cached tokens: only if so."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 100)
    run.model(1, 1, 9, root, tokens=(10, 1, 0, 0, 0))
    run.model(
        2, 10, 50, root, tokens=(1200, 10, 800, 0, 0),
        **{
            semconv.RESPONSE_MODEL: "claude-haiku", semconv.SERVED_PROVIDER: "anthropic",
            semconv.PROVIDER_HOP: 1, semconv.RESPONSE_TIME_TO_FIRST_CHUNK: 0.012,
        },
    )  # fmt: skip
    send(served.address, run)
    rows = viewer.get(f"/api/runs/{run.run_id}/timeline").json()["rows"]
    assert ["round 1", "tool_call"] == rows[1]["facts"]
    assert [
        "round 2", "served by claude-haiku", "by anthropic", "fallback 1", "tool_call",
        "first chunk 12.0 ms", "800 cached",
    ] == rows[2]["facts"]  # fmt: skip


@pytest.mark.parametrize(
    ("deciders", "said"),
    [
        (["second_person"], "approved by a second person"),
        (["second_person", "initiator_unknown"], "approved, initiator unknown"),
        (["initiator_unknown", "nonsense"], "approver unresolved"),
        (["unresolved", "self", "second_person"], "approved by the initiator"),
        (["policy"], None),
        ([], None),
    ],
)
def test_granted_approvals_say_by_whom(
    served: Running, viewer: httpx.Client, deciders: list[str], said: str | None
) -> None:
    """The run shows the most doubtful of its approvals; denials have nobody to show."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 100)
    for place, by in enumerate(deciders):
        run.decide("approval", "allow", place, root, "refund", "approved").attributes[
            semconv.DECISION_BY
        ] = by
    run.decide("approval", "deny", 50, root, "refund", "refused").attributes[
        semconv.DECISION_BY
    ] = "self"
    send(served.address, run)
    head = viewer.get(f"/runs/{run.run_id}/head").text
    assert (said is not None) == ("Approval</dt>" in head)
    assert said is None or said in head
    last = viewer.get(f"/api/runs/{run.run_id}/timeline").json()["rows"][-1]
    assert ["refund", "refused"] == last["facts"]


# --- filter and pages of rows ------------------------------------------------------------------


def found(viewer: httpx.Client, run: sample_runs.Sample, **asked: Any) -> list[tuple[str, bool]]:
    """Names of accepted rows, each with whether it is there for what is below it only."""
    page = viewer.get(f"/runs/{run.run_id}", params=asked)
    rows = viewer.get(f"/api/runs/{run.run_id}/timeline", params=asked).json()["rows"]
    assert [each["span_id"] for each in rows] == ids(page)
    return [(each["name"], each["aside"]) for each in rows]


def test_rows_are_found_with_what_they_stand_below(served: Running, viewer: httpx.Client) -> None:
    """A filter keeps the way down to each row that it accepts, page and twin alike."""
    run = sample_runs.triage()
    send(served.address, run)
    assert [
        ("invoke_agent triage", True), ("execute_tool delegate", True),
        ("invoke_agent researcher", True), ("execute_tool fetch_page", False),
    ] == found(viewer, run, q="FETCH_page")  # fmt: skip
    assert [("decide tool", False), ("execute_tool refund_payment", False)] == found(
        viewer, run, q="refund", kind=["decision", "tool"]
    )
    assert [] == found(viewer, run, q="no such thing")
    assert "No span matches." in viewer.get(f"/runs/{run.run_id}?q=nothing").text
    denied = [name for name, aside in found(viewer, run, outcome="denied") if not aside]
    assert ["decide tool", "execute_tool refund_payment"] == denied
    failed = [name for name, aside in found(viewer, run, outcome="failed") if not aside]
    assert ["POST", "execute_tool fetch_page"] == failed
    both = [name for name, aside in found(viewer, run, outcome="problem") if not aside]
    assert 4 == len(both)
    fine = [name for name, aside in found(viewer, run, outcome="ok") if not aside]
    assert len(run.spans) == len(both) + len(fine)
    waiting = sample_runs.suspended()
    send(served.address, waiting)
    assert ["decide approval", "execute_tool refund_payment"] == [
        name for name, aside in found(viewer, waiting, outcome="waiting") if not aside
    ]


@pytest.mark.parametrize(
    "asked",
    [
        {"outcome": "great"},
        {"kind": "spoon"},
        {"q": "x" * 201},
        {"after": "-2"},
        {"limit": "0"},
        {"limit": str(MOST_ROWS + 1)},
        {"after": "1.5"},
        {"limit": "10000000000"},
    ],
)
def test_a_filter_that_cannot_be_is_refused(
    served: Running, viewer: httpx.Client, asked: dict[str, str]
) -> None:
    """Unknown words and sizes are 400."""
    run = sample_runs.failed()
    send(served.address, run)
    assert 400 == viewer.get(f"/api/runs/{run.run_id}/timeline", params=asked).status_code


def test_rows_are_paged_after_a_place(served: Running, viewer: httpx.Client) -> None:
    """`after` is -1 unless given; pages follow each other without gap and end with null."""
    run = sample_runs.triage()
    send(served.address, run)
    path = f"/api/runs/{run.run_id}/timeline"
    whole = viewer.get(path).json()
    assert whole == viewer.get(path, params={"after": "-1"}).json()
    assert [each.span_id for each in run.spans] == [each["span_id"] for each in whole["rows"]]
    assert list(range(len(run.spans))) == [each["place"] for each in whole["rows"]]
    seen: list[Any] = []
    after: int | None = -1
    while after is not None:
        part = viewer.get(path, params={"after": after, "limit": 7}).json()
        seen += part["rows"]
        after = part["next"]
    assert whole["rows"] == seen
    assert None is whole["next"]


def test_order_is_by_sequence_to_the_nanosecond(served: Running, viewer: httpx.Client) -> None:
    """Spans without a sequence number come behind those that have one, in order of their start."""
    run = sample_runs.Sample()
    root = run.root("a", 0, 100)
    for name, at in (("second", 1.000002), ("first", 1.000001)):
        run.tool(name, at, 2, root).attributes.pop(semconv.SEQ)
    run.tool("numbered", 50, 60, root)
    send(served.address, run)
    names = [each["name"] for each in viewer.get(f"/api/runs/{run.run_id}/timeline").json()["rows"]]
    assert [
        "invoke_agent a", "execute_tool numbered", "execute_tool first", "execute_tool second",
    ] == names  # fmt: skip


# --- while a run goes on -------------------------------------------------------------------------


def test_a_run_that_goes_on_has_a_row(served: Running, viewer: httpx.Client) -> None:
    """Its span comes last; until then its start mark says that it is open, and holds the others."""
    run = sample_runs.running()
    inner = run.tool("slow", 910, 950, sample_runs.Sent(run, "8" * 16, "", "", 0, 0, {}))
    send(served.address, run)
    answer = viewer.get(f"/api/runs/{run.run_id}/timeline").json()
    assert True is answer["live"]
    shown = [(each["name"], each["depth"], each["open"], each["orphan"]) for each in answer["rows"]]
    assert [
        ("invoke_agent triage", 0, True, False), ("run_started triage", 1, False, False),
        ("chat gpt-5-mini", 1, False, False), ("execute_tool slow", 1, False, False),
    ] == shown  # fmt: skip
    assert "inside something still going on" in answer["rows"][3]["facts"]
    page = viewer.get(f"/runs/{run.run_id}", params={"span": "9" * 16}).text
    assert "going on" in page
    assert "still going on" in page
    # The record itself has only what arrived.
    assert 3 == len(viewer.get(f"/api/runs/{run.run_id}").json()["spans"])
    assert 404 == viewer.get(f"/api/runs/{run.run_id}/spans/{'9' * 16}").status_code
    assert inner.span_id in ids(viewer.get(f"/runs/{run.run_id}"))


def test_news_come_only_when_there_are_any(served: Running, viewer: httpx.Client) -> None:
    """An entity tag that is still true is answered with 304; a seal ends the news."""
    run = sample_runs.running()
    send(served.address, run)
    page = viewer.get(f"/runs/{run.run_id}")
    (tag,) = re.findall(r'data-live data-tag="([^"]+)"', page.text)
    tag = tag.replace("&#34;", '"')
    head = f"/runs/{run.run_id}/head"
    same = viewer.get(head, headers={"if-none-match": tag})
    assert (304, b"", tag) == (same.status_code, same.content, same.headers["etag"])
    rows = viewer.get(f"/api/runs/{run.run_id}/timeline")
    assert (
        304
        == viewer.get(
            f"/api/runs/{run.run_id}/timeline", headers={"if-none-match": rows.headers["etag"]}
        ).status_code
    )
    root = run.root("triage", 0, 1000, **{semconv.RUN_STATUS: "completed"})
    root.span_id = "9" * 16
    run.mark("sealed", "triage", 6000, root)
    send(served.address, run)
    news = viewer.get(head, headers={"if-none-match": tag})
    assert 200 == news.status_code
    assert 'id="live"' not in news.text
    assert "completed" in news.text
    assert False is viewer.get(f"/api/runs/{run.run_id}/timeline").json()["live"]
    assert "data-live" not in viewer.get(f"/runs/{run.run_id}").text
    assert 404 == viewer.get(f"/runs/{'0' * 31}1/head").status_code


def test_what_was_read_lately_is_bounded() -> None:
    """Few long runs are kept, the one that was asked for last the longest; changed ones never."""
    from clew.store.records import RunRecord
    from clew.store.summary import fold

    def of(run: sample_runs.Sample, version: str) -> Any:
        from msgspec.structs import replace

        spans = tuple(sample_messages.spans_of(run))
        record = RunRecord(summary=fold(spans, run.trace_id), spans=spans)
        return replace(Filter(AllowList.default()).apply(record), version=version)

    one, two = sample_runs.triage(), sample_runs.triage()
    recent = Recent(most=len(one.spans) + 1)
    recent.put(one.trace_id, of(one, "1"))
    assert None is recent.get(one.trace_id, "2")
    assert None is recent.get(one.trace_id, None)
    assert None is not recent.get(one.trace_id, "1")
    recent.put(two.trace_id, of(two, "1"))
    assert None is recent.get(one.trace_id, "1")
    assert None is not recent.get(two.trace_id, "1")


def test_every_outcome_can_be_chosen(served: Running, viewer: httpx.Client, tmp_path: Path) -> None:
    """The choice on the page has exactly the outcomes that the filter knows."""
    run = sample_runs.failed()
    send(served.address, run)
    page = viewer.get(f"/runs/{run.run_id}").text
    chosen = re.findall(r'<option value="(\w*)"', page.split('id="outcome"')[1].split("</sel")[0])
    assert ["", *OUTCOMES] == chosen
