"""What can be told about the benchmarks without a clock: the unit, the loads, the written page."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

HERE = Path(__file__).resolve().parent
SPANS = {"small chat": 1, "40 messages": 1, "stream": 1, "50 at once": 50, "agent run": 12}


@pytest.fixture
def bench(monkeypatch):
    """Import modules of the benchmarks, and forget them afterwards: their names are common."""
    monkeypatch.syspath_prepend(str(HERE))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(HERE) in sys.modules[name].__file__:
            del sys.modules[name]


@pytest.fixture
def taken():
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@pytest.mark.parametrize("library", ["openai", "anthropic"])
def test_the_floor_is_one_span_of_25_attributes_for_each_call_run_and_tool_call(
    library, bench, taken
):
    """Every load has exactly as many floor spans as it says, and none once they are taken off."""
    provider, exporter = taken
    floor, member, traffic = bench("floor"), bench("member"), bench("traffic")
    idle = bench("subjects").nothing(None, content=False, library=library)
    loads = traffic.Traffic(library, idle)
    switch = member.Switch(library)
    switch.add_floor(floor.patches(library, provider))
    found: dict[str, tuple[int, int]] = {}
    widths: set[int] = set()
    try:
        for load in loads.loads:
            switch.turn("floor")
            loads.subject = floor.subject(provider)
            load.use()
            spans = exporter.get_finished_spans()
            widths |= {len(span.attributes) for span in spans}
            exporter.clear()
            switch.turn("bare")
            loads.subject = idle
            load.use()
            found[load.name] = (len(spans), len(exporter.get_finished_spans()))
    finally:
        switch.turn("bare")
        loads.close()
    assert {load.name: load.spans for load in loads.loads} == SPANS
    assert found == {name: (count, 0) for name, count in SPANS.items()}
    assert widths == {25}


def test_a_switch_leaves_the_classes_as_they_were(bench, taken):
    """What a mode puts on is the very object that was there before, once it is taken off."""
    from openai.resources.chat.completions import AsyncCompletions, Completions

    before = Completions.create, AsyncCompletions.create
    switch = bench("member").Switch("openai")
    switch.add_floor(bench("floor").patches("openai", taken[0]))
    switch.turn("floor")
    during = Completions.create, AsyncCompletions.create
    switch.turn("bare")
    assert [a is b for a, b in zip(before, during, strict=True)] == [False, False]
    assert (Completions.create, AsyncCompletions.create) == before


def test_three_modes_take_turns_in_every_order(bench):
    """Each is used as often, the first use of a turn untimed; a run is open, and closed to flush."""
    member, traffic, floor = bench("member"), bench("traffic"), bench("floor")
    said: list[str] = []

    class Run:
        def __enter__(self):
            said.append("run")

        def __exit__(self, *error):
            said.append("ended")

    def subject(name):
        return floor.Subject(lambda: said.append(f"flush {name}"), Run, nullcontext)

    subjects = {mode: subject(mode) for mode in member.MODES}
    played = SimpleNamespace(subject=None)
    names = {id(one): mode for mode, one in subjects.items()}
    load = traffic.Load("any", lambda: said.append(names[id(played.subject)]), 100, in_run=True)
    measured = member.Bench(subjects, played, member.Switch("openai"), ())
    spent = measured.measure(load, member.Plan(0.0, 1))
    start, batches = said[9:11], said[11:]
    orders = [[mode for mode in order for _ in range(2)] for order in member.ORDERS]
    flushes = ["flush subject", "flush floor"]
    batch = ["run", "flush subject"]
    assert said[:9] == [mode for mode in member.MODES for _ in range(3)]
    assert start == flushes
    assert batches == [
        *batch, *orders[0], *orders[1], "ended", *flushes,
        *batch, *orders[2], *orders[3], "ended", *flushes,
        *batch, *orders[4], *orders[5], "ended", *flushes,
    ]  # fmt: skip
    assert [list(turn) for turn in spent.turns] == [list(order) for order in member.ORDERS]
    assert spent.uses == 12


def test_each_pays_for_its_own_thread(bench):
    """What the floor's thread does is the floor's; what any other does is the subject's."""
    member, traffic, floor = bench("member"), bench("traffic"), bench("floor")
    ours, other = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
    thread = ours.submit(threading.current_thread).result()

    def work(seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    def use():
        ours.submit(work, 0.004).result()
        other.submit(work, 0.001).result()

    subjects = {
        mode: floor.Subject(lambda: None, nullcontext, nullcontext) for mode in member.MODES
    }
    load = traffic.Load("any", use, 100, in_run=False)
    played, switch = SimpleNamespace(subject=None), member.Switch("openai")
    spent = member.Bench(subjects, played, switch, [thread]).measure(load, member.Plan(0.0, 1))
    uses = spent.uses * len(member.MODES)
    assert 0.004 * uses <= spent.export["floor"] < 0.005 * uses
    assert 0.001 * uses <= spent.export["subject"] < 0.003 * uses
    ours.shutdown()
    other.shutdown()


def spent(member, bare, floor, subject, exports):
    found = member.Spent()
    found.turns = [
        {"bare": b, "floor": b + f, "subject": b + s}
        for b, f, s in zip(bare, floor, subject, strict=True)
    ]
    found.uses = len(bare)
    found.export = {"floor": exports[0], "subject": exports[1]}
    return found


def test_a_figure_is_what_the_subject_adds_over_what_the_floor_adds_exports_included(bench):
    """Medians of the differences between neighbours, and the exports divided by the uses."""
    member = bench("member")
    turns = [1.0, 2.0, 4.0], [0.25, 0.25, 0.25], [0.5, 0.5, 8.0]
    found = member.figures(spent(member, *turns, exports=(0.75, 1.5)))
    assert found["ratio"] == (0.5 + 0.5) / (0.25 + 0.25)
    assert found["turns"] == 3
    assert found["bare us"] == 2e6
    assert found["floor us"] == 0.25e6
    assert found["floor export us"] == 0.25e6
    assert found["added us"] == 0.5e6
    assert found["export us"] == 0.5e6
    assert (found["low"], found["high"]) == (2.0, 17.0)


def test_processes_are_put_together(bench):
    """The middle figures, between the least and the greatest; one that fails is left out."""
    compare = bench("compare")
    three = [
        {
            "small chat": {
                "ratio": ratio,
                "low": 0.0,
                "high": 9.0,
                "added us": 10 * ratio,
                "turns": 4,
            }
        }
        for ratio in (3.0, 1.0, 2.0)
    ]
    found = compare.together([*three, {"error": "gone"}])
    assert found["small chat"] == {
        "ratio": 2.0, "low": 1.0, "high": 3.0, "turns": 12,
        "added us": 20.0, "added low us": 10.0, "added high us": 30.0,
    }  # fmt: skip
    assert compare.together([{"error": "gone"}]) == {"error": "gone"}


def row(ratio, spread=0.1, **more):
    figures = {
        "turns": 10,
        "ratio": ratio,
        "low": ratio - spread,
        "high": ratio + spread,
        "bare us": 600.0,
        "floor us": 40.0,
        "floor export us": 70.0,
        "added us": 120.0,
        "added low us": 100.0,
        "added high us": 140.0,
        **more,
    }
    return {load: dict(figures) for load in SPANS}


def test_the_page_is_written_the_same_however_often(bench):
    """What was between the marks is replaced, all else stays; a mark that is missing is told."""
    table = bench("table")
    rows = {
        "Clew|anthropic|otlp|off": row(0.8),
        "Logfire|anthropic|otlp|off": row(2.0),
        "MLflow|anthropic|otlp|off": {"error": "no such package"},
        "versions|Clew": {"clew": "1.0"},
    }
    (begin, end), (figures, end_figures) = table.AIMS_MARKS, table.FIGURES_MARKS
    empty = f"one\n{begin}\nold\n{end}\ntwo\n{figures}\n{end_figures}\nthree\n"
    once = table.page(empty, rows)
    assert table.page(once, rows) == once
    assert once.startswith(f"one\n{begin}\n\n| | aim, no-op |")
    assert once.endswith(f"- Clew: clew 1.0\n\n{end_figures}\nthree\n")
    assert "old" not in once
    assert "| Clew |" in once.partition(figures)[2]
    assert "| MLflow | not measured: no such package | | | | | |" in once
    with pytest.raises(ValueError, match="no <!-- aims"):
        table.page("nothing", rows)


def test_an_aim_is_met_missed_or_within_noise(bench):
    """The value decides; an interval that holds the aim is said."""
    table = bench("table")
    assert [
        table.verdict(found, 0.7)
        for found in (
            table.Figure(0.5, 0.4, 0.6),
            table.Figure(0.7, 0.6, 0.8),
            table.Figure(0.71, 0.6, 0.8),
            table.Figure(0.9, 0.8, 1.0),
            None,
        )
    ] == [
        "0.50 met",
        "0.70 met, within noise",
        "0.71 **missed**, within noise",
        "0.90 **missed**",
        "not measured",
    ]


def test_aims_are_judged_from_the_rows_of_their_subject(bench):
    """Each aim has a cell for each client and exporter; microseconds a chunk are what is added."""
    table = bench("table")
    lines = table.aims({"Clew|anthropic|otlp|off": row(0.8)}).splitlines()
    missing = "not measured | not measured"
    assert lines[2] == (f"| small chat | 1.3 | {missing} | 0.7 | not measured | 0.80 **missed** |")
    assert lines[6] == (
        f"| stream, us a chunk | 0.6 | {missing} | 0.6 | not measured | 0.60 met, within noise |"
    )
    assert lines[8] == (
        f"| small chat, sampled out, keep rules | 0.6 | {missing} | 0.6 | {missing} |"
    )


def test_where_a_peer_costs_less_is_said(bench):
    """Every place where a peer was measured counts; the least of the peers is named."""
    table = bench("table")
    ahead = {"Clew|anthropic|otlp|off": row(0.8), "Logfire|anthropic|otlp|off": row(2.0)}
    assert table.beside(ahead) == (
        "Clew costs less than every peer in 5 of 5 places (client, exporter, content, load).\n"
    )
    behind = {**ahead, "OpenLIT|anthropic|otlp|off": {**row(0.9), "stream": row(0.5)["stream"]}}
    head, *_, last = table.beside(behind).splitlines()
    assert head.startswith("Clew costs less than every peer in 4 of 5 places (")
    said = "stream | 0.80 (0.70 to 0.90) | OpenLIT 0.50 (0.40 to 0.60) | no |"
    assert last == f"| Anthropic, OTLP, content off | {said}"


def test_a_floor_that_one_row_does_not_tell_is_that_of_all(bench):
    """Its part on the calling thread; the export is the row's own, and so is all of other places."""
    table = bench("table")
    rows = {
        "Clew|openai|otlp|off": row(-9.0, **{"floor us": -30.0, "export us": 100.0}),
        "Clew|openai|no-op|off": row(5.0, **{"floor us": 40.0, "turns": 60}),
        "Logfire|openai|no-op|on": row(5.0, **{"floor us": 70.0, "turns": 30}),
        "Clew|anthropic|no-op|off": row(5.0, **{"floor us": 1.0, "turns": 900}),
        "MLflow|openai|no-op|off": {"error": "no such package"},
    }
    of_all = table.figure(rows, "Clew|openai|otlp|off", "stream")
    assert of_all == table.Figure(220 / 112, 200 / 112, 240 / 112)
    assert table.figure(rows, "Clew|openai|otlp|off", "40 messages").value == -9.0
    assert "| -30 + 70 | 42 + 70 | -30 + 70 |" in "".join(
        table._unit(rows, "openai", "otlp", "off")
    )


def test_shapes_and_unit_are_those_of_the_counted_workloads(bench):
    """Instruction counts and times are of the same requests, chunks and attributes."""
    floor, shapes, workloads = bench("floor"), bench("shapes"), bench("workloads")
    assert workloads.ATTRIBUTES is floor.ATTRIBUTES
    assert len(floor.ATTRIBUTES) == 25
    assert [len(shape().stream()) for shape in (shapes.OpenAI, shapes.Anthropic)] == [200, 200]
    assert shapes.ROUNDS == 5
    assert shapes.TOOLS == 6
    conversations = [shapes.history(shape(), 39) for shape in (shapes.OpenAI, shapes.Anthropic)]
    assert [len(messages) for messages in conversations] == [39, 39]
