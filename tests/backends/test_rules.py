"""The Collector's copy of the allow-list against the list itself, value by value."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import math
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import agent_runs
import pytest
import real_peers
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from clew.allow_list import AllowList
from clew.cli.collector import documents, statements
from clew.cli.collector.conditions import condition
from clew.pipeline.filter import name_that_leaves
from clew.rules import (
    DROPPED,
    Captured,
    Closed,
    Each,
    Flag,
    Hex,
    Identifier,
    KeyedDigest,
    Number,
    Opaque,
    Rule,
    Uuid,
)
from clew.testing import OtlpSink

RULES: dict[str, Rule] = {
    "identifier": Identifier(16),
    'a "quoted" \\ key, it\'s $1 ${env:HOME}': Identifier(16),
    "opaque": Opaque(300),
    "long": Identifier(5000),
    "hex": Hex(16),
    "uuid": Uuid(),
    "closed": Closed("free", "paid", 'a.b+c"d\\e', "ä[x]", "$1"),
    "closed other": Closed("free", "paid", other="_OTHER"),
    "count": Number(0),
    "whole": Number(-(2**63)),
    "status": Number(100, 999),
    "share": Number(0.25, 0.75),
    "tiny": Number(1e-30, 1e300),
    "flag": Flag(),
    "digest": KeyedDigest(),
    "captured": Captured(),
    "words": Each(Identifier(16), max_items=3),
    "filled": Each(Identifier(16), fill="_OTHER"),
    "chosen": Each(Closed("free", "paid")),
    "chosen other": Each(Closed("free", "paid", other="_OTHER")),
    "quoted": Each(Closed("free", 'a"b')),
    "seqs": Each(Number(1)),
    "flags": Each(Flag()),
    "digests": Each(Hex(64)),
    "nested": Each(Each(Identifier(16))),
}
UUID = "c0ffee00-0000-4000-8000-000000000001"
VALUES: list[Any] = [
    *("", "a", "free", "paid", "Free", "free\n", "\nfree", "free paid", "a" * 16, "a" * 17),
    *("a" * 300, "a" * 301, "a" * 5000, "a" * 5001, "-a", "a-b.c:d/e@f+g=h~i#j", "_OTHER"),
    *('a.b+c"d\\e', "axb+c", "ä[x]", "äx", "$1", "${env:HOME}", "ä", "a\x00", "a\u2028"),
    *("0", "1", "true", "null", "0123456789abcdef", "0123456789ABCDEF", "f" * 64, "f" * 65),
    *(UUID, UUID.upper(), UUID.replace("-", ""), f" {UUID}"),
    *(True, False, 0, 1, -1, 99, 100, 999, 1000, 2**53 + 1, 2**63 - 1, -(2**63)),
    *(0.0, -0.0, 0.25, 0.75, 0.2499999999999999, 0.7500000000000001, 0.5, 1.0, -0.5, 99.5, 999.5),
    *(1e-30, 9.9e-31, 1e300, 1.1e300, 9.223372036854774784e18, 2.0**63, 1e308),
    *(math.nan, math.inf, -math.inf),
    *([], ["a"], ["a", "b", "c"], ["a", "b", "c", "d"], ["a", "b c"], ["a\nb"], ["a", ""]),
    *(["free"], ["free", "paid"], ["free", "other"], ['a"b'], ["free", 'a"b'], ["&<>"]),
    *([1, 2], [1, -2], [0], [1.5], [math.nan], [True, False], [1, True], ["f" * 64], ["F" * 64]),
    *([["a"]], [["a"], "b"], [{"k": "v"}], {"k": "v"}, {}, b"bytes", b"", [b"a"]),
    ["a", b"a"],
]  # fmt: skip


def any_value(value: Any) -> AnyValue:
    """Return a value as OTLP has it."""
    found = AnyValue()
    match value:
        case bool():
            found.bool_value = value
        case int():
            found.int_value = value
        case float():
            found.double_value = value
        case str():
            found.string_value = value
        case bytes():
            found.bytes_value = value
        case dict():
            found.kvlist_value.SetInParent()
            for key, inner in value.items():
                found.kvlist_value.values.append(KeyValue(key=key, value=any_value(inner)))
        case _:
            found.array_value.SetInParent()
            found.array_value.values.extend(any_value(each) for each in value)
    return found


def plain(value: AnyValue) -> Any:
    """Return a value of OTLP as Python has it."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(plain(each) for each in value.array_value.values)
    if kind == "kvlist_value":
        return {each.key: plain(each.value) for each in value.kvlist_value.values}
    return getattr(value, kind) if kind else None


COARSER = ("digest", "captured", "seqs")


class Through:
    """The Collector under a configuration for one list, and a sink behind it."""

    def __init__(self, folder: Path, allow_list: AllowList) -> None:
        self.sink = OtlpSink()
        config = folder / "local.yaml"
        config.write_text(documents.document("local", allow_list))
        self.collector = real_peers.Collector(folder, config, CLEW_FILE=str(folder / "out.jsonl"))

    def __enter__(self) -> Self:
        self.sink.__enter__()
        self.collector._environment["CLEW_VIEWER"] = self.sink.base_url
        self.collector.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.collector.stop()
        self.sink.__exit__(None, None, None)

    def send(self, spans: list[Span]) -> list[Span]:
        """Return spans as they come out, in the order of the given ones."""
        sent = ExportTraceServiceRequest()
        scope = sent.resource_spans.add().scope_spans.add()
        for number, span in enumerate(spans):
            span.trace_id = b"\7" * 16
            span.span_id = (number + 1).to_bytes(8, "big")
            span.start_time_unix_nano = span.end_time_unix_nano = time.time_ns()
        scope.spans.extend(spans)
        before = len(self.sink.spans)
        answer = requests.post(
            f"{self.collector.otlp}/v1/traces",
            data=sent.SerializeToString(),
            headers={"content-type": "application/x-protobuf"},
            timeout=10,
        )
        assert 200 == answer.status_code
        agent_runs.eventually(lambda: len(self.sink.spans) - before, len(spans))
        found = {each.span_id: each for each in self.sink.spans[before:]}
        return [found[each.span_id] for each in spans]


@pytest.mark.parametrize("part", ["span", "event"])
def test_each_rule_decides_as_the_list_does(programs: None, tmp_path: Path, part: str) -> None:
    """The same is kept and dropped, but for what stricter rules drop besides.

    Spans and events hold one value each under every key.
    """
    allow_list = AllowList(RULES)
    with Through(tmp_path, allow_list) as through:
        spans: list[Span] = []
        for value in VALUES:
            span = Span(name="x")
            holder = span if part == "span" else span.events.add(name="x")
            holder.attributes.extend(KeyValue(key=key, value=any_value(value)) for key in RULES)
            spans.append(span)
        results = through.send(spans)
    wrong: list[tuple[Any, ...]] = []
    for value, result in zip(VALUES, results, strict=True):
        holder = result if part == "span" else result.events[0]
        got = {each.key: plain(each.value) for each in holder.attributes}
        for key, rule in RULES.items():
            wanted = rule.apply(value)
            here = got.get(key, DROPPED)
            grade = condition(rule, "x").grade
            same = wanted is here if DROPPED in (wanted, here) else wanted == here
            if same or (grade == "stricter" and here is DROPPED) or key in COARSER:
                continue
            if isinstance(rule, Each) and value == ["a", b"a"] and here == ("a", b"a"):
                continue  # the table says so
            wrong.append((key, value, wanted, here))
    assert [] == wrong


def test_what_coarser_rules_let_pass(programs: None, tmp_path: Path) -> None:
    """Each of the coarser rules lets exactly that pass which the table says of it."""
    allow_list = AllowList({key: RULES[key] for key in COARSER})
    with Through(tmp_path, allow_list) as through:
        spans = [
            Span(
                name="x", attributes=[KeyValue(key=k, value=any_value(v)) for k in allow_list.spans]
            )
            for v in VALUES
        ]
        results = through.send(spans)
    passed: dict[str, list[Any]] = {key: [] for key in allow_list.spans}
    for result in results:
        for each in result.attributes:
            passed[each.key].append(plain(each.value))
    assert ["f" * 64] == passed["digest"]
    assert [each for each in VALUES if isinstance(each, str)] == passed["captured"]
    assert [(), (1, 2), (0,), (1.5,)] == passed["seqs"]


def test_the_list_as_it_comes_is_true_to_its_table(programs: None, tmp_path: Path) -> None:
    """Under the default list, values of random kinds under every key pass as its rules say."""
    allow_list = AllowList.default()
    dice = random.Random(20261130)  # noqa: S311 - not a secret
    rows = [each for each in statements.rows(allow_list) if "span, event" == each.part]
    grades = {each.key: each.grade for each in rows}
    same = ("keyed_digest", "each_number_range")  # what these let pass besides, a test above says
    with Through(tmp_path, allow_list) as through:
        chosen = [{key: dice.choice(VALUES[:-1]) for key in allow_list.spans} for _ in range(40)]
        spans = [
            Span(
                name="x",
                attributes=[KeyValue(key=k, value=any_value(v)) for k, v in one.items()],
            )
            for one in chosen
        ]
        results = through.send(spans)
    for given, result in zip(chosen, results, strict=True):
        got = {each.key: plain(each.value) for each in result.attributes}
        wanted = allow_list.keep(given, Counter())
        exact = {e.key for e in rows if e.grade != "stricter" and e.rule not in same}
        assert {k: v for k, v in wanted.items() if k in exact} == {
            k: v for k, v in got.items() if k in exact
        }
        stricter = {k: v for k, v in got.items() if grades[k] == "stricter"}
        assert stricter == {key: wanted.get(key) for key in stricter}


NAMES = (
    *(
        "chat",
        "chat gpt-4o",
        "chat gpt-4o now",
        "chat secret",
        "a secret place",
        "",
        " chat",
        "GET",
    ),
    *("GET chat send", "GET chat send POST", "chat  gpt-4o", "ch\u00e4t", "x" * 128, "x" * 129),
    *("chat gpt-4o chat", "chat\ngpt-4o", "chat gpt-4o\n"),
)


def test_names_leave_as_the_filter_lets_them(programs: None, tmp_path: Path) -> None:
    """A name keeps its first word and what a kept attribute or a known verb vouches for.

    At most three words; the filter in the process knows no such bound.
    """
    allow_list = AllowList({"gen_ai.request.model": Identifier(64)})
    model = KeyValue(key="gen_ai.request.model", value=any_value("gpt-4o"))
    with Through(tmp_path, allow_list) as through:
        results = through.send([Span(name=each, attributes=[model]) for each in NAMES])
    wanted = [name_that_leaves(each, {"gen_ai.request.model": "gpt-4o"}) for each in NAMES]
    assert "GET chat send POST" in wanted
    expected = [" ".join(each.split(" ")[:3]) for each in wanted]
    assert expected == [each.name for each in results]


def test_trace_state_keeps_the_sampling_entry_alone(programs: None, tmp_path: Path) -> None:
    """The entry `ot` stays, others go; what is no trace state goes as a whole."""
    states = ["", "ot=th:c;rv:1234", "a=1,ot=th:8", "a=secret", "secret", "ot=a b"]
    with Through(tmp_path, AllowList()) as through:
        results = through.send([Span(name="x", trace_state=each) for each in states])
    assert ["", "ot=th:c;rv:1234", "ot=th:8", "", "", ""] == [e.trace_state for e in results]


def test_an_empty_list_lets_nothing_pass(programs: None, tmp_path: Path) -> None:
    """Fail-closed: with no key on the list no attribute passes, on spans, events or resources."""
    with Through(tmp_path, AllowList()) as through:
        span = Span(
            name="x", attributes=[KeyValue(key="gen_ai.request.model", value=any_value("a"))]
        )
        span.events.add(name="e").attributes.append(KeyValue(key="k", value=any_value(1)))
        (result,) = through.send([span])
        assert ([], []) == (list(result.attributes), list(result.events[0].attributes))
        resource = through.sink.traces[-1].resource_spans[0]
        assert [] == list(resource.resource.attributes)
