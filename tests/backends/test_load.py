"""`clew load`: bounded, for receivers of this machine only, and true about what it sent."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json

import pytest
import real_peers
from typer.testing import CliRunner

from clew.cli import build
from clew.errors import ClewError
from clew.testing import OtlpSink


def load(*arguments: str) -> tuple[int, str, BaseException | None]:
    """Run the command; return exit code, what it printed, and what it raised."""
    result = CliRunner().invoke(build(["load"]), ["load", *arguments])
    return result.exit_code, result.stdout, result.exception


@pytest.mark.parametrize(
    "address",
    ["http://example.com:4318", "http://10.0.0.1:4318", "https://127.0.0.1", "127.0.0.1:4318", ""],
)
def test_only_receivers_of_this_machine(address: str) -> None:
    """Another host is refused before anything is recorded."""
    _, _, raised = load("--to", address)
    assert isinstance(raised, ClewError)
    assert "is not on loopback" in str(raised)


@pytest.mark.parametrize("more", [("--seconds", "601"), ("--rate", "10001"), ("--threads", "65")])
def test_bounds(more: tuple[str, str]) -> None:
    """Time, rate and threads have an end."""
    assert 2 == load(*more)[0]


def test_what_it_says_is_what_arrived() -> None:
    """Spans and runs are those that the receiver has."""
    with OtlpSink() as sink:
        code, printed, _ = load("--to", sink.base_url, "--rate", "20", "--seconds", "1", "--json")
        received = len(sink.spans)
        traces = {each.trace_id for each in sink.spans}
    assert 0 == code
    figures = json.loads(printed)
    assert (received, len(traces)) == (figures["spans"], figures["runs"])
    assert 9 * figures["runs"] == figures["spans"]
    assert (0, 0) == (figures["spans_lost"], figures["spans_refused"])
    assert len(sink.bodies) == figures["requests"]
    assert sum(map(len, sink.bodies)) // figures["runs"] in range(
        figures["bytes_per_run"] - 1, figures["bytes_per_run"] + 2
    )


def test_through_the_real_collector(gateway: real_peers.Collector) -> None:
    """The gateway takes all of it, and says so."""
    code, printed, _ = load("--to", gateway.otlp, "--rate", "40", "--seconds", "2", "--json")
    assert 0 == code
    figures = json.loads(printed)
    assert (0, 0) == (figures["spans_lost"], figures["spans_refused"])
    assert figures["spans_per_second"] > 0
