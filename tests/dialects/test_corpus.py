"""Every recorded exchange through its dialect: each fact as the wire says it, under our rules."""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from typing import Any

import pytest
from corpus import actual_facts, headers_of, is_streamed, recorded, route_of, streamed, wire_bytes
from corpus_folder import CORPUS
from corpus_rules import expected_facts
from wire_reading import random_pieces

from clew import _guard
from clew.facts import NO_RESPONSE

EXCHANGES = list(recorded())
SIZES = (1, 2, 3, 17, 200, 1000, 5000)


@pytest.fixture(autouse=True)
def _corpus() -> None:
    if not EXCHANGES:
        message = f"no recordings under {CORPUS}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


OTHERWISE: dict[str, dict[str, Any]] = {
    # Grok on Azure's model inference path: the convention has a name of its own for that API.
    **{
        exchange.name: {"provider": "azure.ai.inference"}
        for exchange in EXCHANGES
        if "/models/chat/completions" in exchange.request["url"]
    },
}
"""Facts that differ from the recordings on purpose, with the reason."""


def test_every_exchange_reads_as_the_wire_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Models, ids, finish reasons, tool calls, token counts and errors of every exchange."""
    wrong: list[str] = []
    for exchange in EXCHANGES:
        expected = expected_facts(exchange) | OTHERWISE.get(exchange.name, {})
        actual = actual_facts(exchange)
        differences = {
            fact: {"expected": expected[fact], "actual": actual[fact]}
            for fact in expected
            if expected[fact] != actual[fact]
        }
        if differences:
            wrong.append(f"{exchange.name}: {differences}")
    with capsys.disabled():
        print(f"\n{len(EXCHANGES) - len(wrong)} of {len(EXCHANGES)} recorded exchanges exact")
    assert wrong == []
    assert dict(_guard.failures) == {}


def test_a_stream_reads_the_same_however_it_is_cut() -> None:
    """Whole, byte by byte, event by event and cut at random: the same facts and counts."""
    cut = random.Random(7)  # noqa: S311 - not for secrets
    seen = Counter[str]()
    for exchange in EXCHANGES:
        if not is_streamed(exchange):
            continue
        route, body = route_of(exchange), wire_bytes(exchange)
        whole = streamed(route, exchange, [body])
        for pieces in (
            [body[position : position + 1] for position in range(len(body))],
            body.splitlines(keepends=True),
            random_pieces(body, cut, SIZES),
            random_pieces(body, cut, SIZES),
        ):
            assert streamed(route, exchange, pieces) == whole, exchange.name
        seen[route.dialect.name] += 1
    assert seen.total() > 80
    assert len(seen) >= 12


def test_a_stream_cut_off_is_incomplete_and_says_what_it_said() -> None:
    """At any place: nothing raises, and ids, models and tool calls are a beginning of the whole."""
    cut = random.Random(11)  # noqa: S311
    for exchange in EXCHANGES:
        if not is_streamed(exchange) or exchange.expected["error"]:
            continue
        route, body = route_of(exchange), wire_bytes(exchange)
        whole = streamed(route, exchange, [body])[0]
        for _ in range(5):
            facts = streamed(route, exchange, [body[: cut.randrange(len(body) // 2)]])[0]
            assert facts.model in (None, whole.model), exchange.name
            known = [call.name for call in whole.tool_calls]
            assert [call.name for call in facts.tool_calls] == known[: len(facts.tool_calls)]
    assert dict(_guard.failures) == {}


def test_no_body_at_all_is_no_facts() -> None:
    """An answer of which nothing came."""
    for exchange in EXCHANGES:
        route = route_of(exchange)
        if route.operation in ("chat", "generate_content") and is_streamed(exchange):
            facts, chunks, started = streamed(route, exchange, [])
            assert (facts, chunks, started) == (NO_RESPONSE, 0, False), exchange.name


def test_requests_say_what_they_offer_and_answer() -> None:
    """Tools offered and tool results sent, for every request that has them in the known places."""
    offered = answered = 0
    for exchange in EXCHANGES:
        body = exchange.request["body"]
        if not isinstance(body, dict) or exchange.api.endswith("predictions"):
            continue
        route = route_of(exchange)
        facts = route.dialect.request(json.dumps(body).encode(), route)
        names = [name for tool in body.get("tools") or () if (name := tool_name(tool))]
        if names:
            assert list(facts.tools or ()) == names, exchange.name
            offered += 1
        results = tool_results(body)
        assert list(facts.tool_result_ids) == results, exchange.name
        answered += bool(results)
    assert offered > 60
    assert answered > 40


def tool_name(tool: dict[str, Any]) -> str | None:
    """Return a tool's name where it has one of the simple shapes."""
    function = tool.get("function")
    if isinstance(function, dict):
        return function["name"]
    return tool.get("name") or tool.get("type")


def tool_results(value: Any) -> list[str]:
    """Return the ids of all tool results anywhere in a request, in order."""
    if isinstance(value, list):
        return [found for entry in value for found in tool_results(entry)]
    if not isinstance(value, dict):
        return []
    if value.get("role") == "tool" and value.get("tool_call_id"):
        return [value["tool_call_id"]]
    if value.get("type") == "tool_result":
        return [value["tool_use_id"]]
    if str(value.get("type")).endswith("_call_output"):
        return [value["call_id"]]
    if "toolResult" in value:
        return [value["toolResult"]["toolUseId"]]
    if "functionResponse" in value and value["functionResponse"].get("id"):
        return [value["functionResponse"]["id"]]
    return [found for entry in value.values() for found in tool_results(entry)]


def test_output_that_is_seen_in_the_first_bytes_is_there() -> None:
    """Where the bytes show output before they are read, reading finds it; and it mostly is seen."""
    seen: list[bool] = []
    for exchange in filter(is_streamed, EXCHANGES):
        route, kind = route_of(exchange), headers_of(exchange).get("content-type", "")
        shows = route.dialect.shows_output(route, kind)
        if shows is None:
            continue
        end = rb"(?:\r?\n){2}" if kind.startswith("text/event-stream") else rb"\r?\n"
        events = re.findall(rb".+?" + end + rb"|.+", wire_bytes(exchange), re.DOTALL)
        for number in (4, 8, 16, len(events)):
            begun = shows(b"".join(events[:number])) is not None
            started = streamed(route, exchange, events[:number])[2]
            assert started or not begun, (exchange.name, number)
            seen.append(begun == started)
    assert len(seen) > 400
    assert sum(seen) > 0.94 * len(seen)
