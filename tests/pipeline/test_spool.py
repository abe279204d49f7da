"""The spool: batches on the disk, in order, bounded, whole."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from clew import semconv
from clew.pipeline import otlp_writer
from clew.pipeline.otlp_spool import SpoolingOTLPSpanExporter, split
from clew.pipeline.spool import Spool, folder_for
from clew.testing import LoopbackServer, ReceivedRequest
from clew.testing.loopback import Connection


def spool(tmp_path: Path, most: int = 1 << 20) -> Spool:
    return Spool(tmp_path / "spool", most)


def contents(one: Spool) -> list[bytes | None]:
    return [one.read(each) for each in one.files()]


def test_what_waits_keeps_its_order(tmp_path: Path) -> None:
    """Oldest first, also when the numbers get longer."""
    one = spool(tmp_path)
    expected = [str(number).encode() for number in range(120)]
    assert [one.add(each, 1) for each in expected] == [True] * 120
    assert contents(one) == expected


def test_it_is_closed_to_others(tmp_path: Path) -> None:
    """Folder 0700, files 0600, and no half-written file stays."""
    one = spool(tmp_path)
    one.add(b"x", 1)
    assert stat.S_IMODE(one.folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(each.stat().st_mode) for each in one.folder.iterdir()] == [0o600]


def test_the_oldest_make_room(tmp_path: Path) -> None:
    """What is given up is counted, in spans."""
    one = spool(tmp_path, most=100)
    for number in range(5):
        assert one.add(bytes([number]) * 40, 10 + number)
    assert contents(one) == [b"\3" * 40, b"\4" * 40]
    assert one.dropped == 10 + 11 + 12


def test_a_batch_that_is_larger_than_the_spool(tmp_path: Path) -> None:
    """It is refused, and costs none of the others."""
    one = spool(tmp_path, most=100)
    assert one.add(b"x" * 60, 1)
    assert not one.add(b"x" * 101, 1)
    assert contents(one) == [b"x" * 60]


def test_a_damaged_file_is_given_up(tmp_path: Path) -> None:
    """By its checksum; the others are read."""
    one = spool(tmp_path)
    one.add(b"first", 3)
    one.add(b"second", 4)
    first = one.files()[0]
    (one.folder / first.name).write_bytes(b"fir")
    assert contents(one) == [None, b"second"]
    assert one.dropped == 3
    assert len(one.files()) == 1


def test_half_written_files_of_crashed_processes_go(tmp_path: Path) -> None:
    """After an hour; a fresh one may be somebody's work."""
    one = spool(tmp_path)
    one.add(b"x", 1)
    for name, age in (("old.tmp", 7200), ("new.tmp", 0)):
        (one.folder / name).write_bytes(b"")
        os.utime(one.folder / name, (time.time() - age,) * 2)
    assert len(one.files()) == 1
    assert sorted(each.name for each in one.folder.glob("*.tmp")) == ["new.tmp"]


def test_only_one_process_sends_what_waits(tmp_path: Path) -> None:
    """The right to it ends with the process that has it."""
    one = spool(tmp_path)
    one.add(b"x", 1)
    program = (
        "import sys; from pathlib import Path; from clew.pipeline.spool import Spool\n"
        "with Spool(Path(sys.argv[1]), 100).claimed() as mine:\n    print(mine)"
    )
    ask = [sys.executable, "-c", program, str(one.folder)]
    with one.claimed() as mine:
        assert mine
        assert subprocess.run(ask, capture_output=True, check=True).stdout == b"False\n"
    assert subprocess.run(ask, capture_output=True, check=True).stdout == b"True\n"


def test_each_receiver_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """What waits for one is never sent to another; no address is in the name."""
    places = {folder_for(tmp_path, each).name for each in ("http://a/v1", "http://b/v1")}
    assert len(places) == 2
    assert all(len(each) == 16 and "http" not in each for each in places)


def made(number: int, **attributes: Any) -> ReadableSpan:
    return ReadableSpan(
        name=f"s{number}",
        context=SpanContext(1, number + 1, is_remote=False),
        resource=Resource({"service.name": f"r{number % 3}"}),
        instrumentation_scope=InstrumentationScope("clew"),
        attributes=attributes,
        start_time=1,
        end_time=2,
    )


def names(*messages: bytes) -> list[str]:
    return [
        span.name
        for message in messages
        for resource in ExportTraceServiceRequest.FromString(message).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@hypothesis.given(st.integers(2, 40))
@hypothesis.settings(max_examples=30)
def test_halves_have_the_same_spans(number: int) -> None:
    """Each once, none empty, whatever resources they are of."""
    whole = otlp_writer.encode([made(each) for each in range(number)])
    halves = split(whole)
    assert sorted(names(*halves)) == sorted(names(whole))
    assert [len(names(each)) for each in halves] == [number // 2, number - number // 2]


def test_a_large_span_loses_its_texts_alone() -> None:
    """What is counted and decided stays; a span without texts cannot be made smaller."""
    large = {semconv.INPUT_MESSAGES: "x" * 5000, semconv.USAGE_INPUT: 7, "k": "y" * 5000}
    (cut,) = split(otlp_writer.encode([made(0, **large)]))
    (span,) = ExportTraceServiceRequest.FromString(cut).resource_spans[0].scope_spans[0].spans
    assert [each.key for each in span.attributes] == [semconv.USAGE_INPUT]
    assert span.dropped_attributes_count == 2
    assert split(cut) == []


class Refusing(LoopbackServer):
    """Answers with the statuses in turn, then takes everything."""

    def __init__(self, *statuses: int) -> None:
        super().__init__()
        self.statuses = list(statuses)
        self.taken: list[bytes] = []

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 200:
            self.taken.append(request.content())
        connection.head(status, {"retry-after": "0"}, 0)


def exporter(server: Refusing, tmp_path: Path) -> SpoolingOTLPSpanExporter:
    import requests

    session = requests.Session()
    session.trust_env = False
    return SpoolingOTLPSpanExporter(
        tmp_path, 1 << 20, endpoint=f"{server.base_url}/v1/traces", session=session, timeout=5
    )


def test_new_spans_come_after_those_that_wait(tmp_path: Path) -> None:
    """The receiver is asked again after the time that it names."""
    with Refusing(503) as server:
        one = exporter(server, tmp_path)
        assert one.export([made(1)]) is SpanExportResult.SUCCESS
        assert one.export([made(2)]) is SpanExportResult.SUCCESS
        assert names(*server.taken) == ["s1", "s2"]
        assert (one.spans_lost, one.spool.files()) == (0, [])
        one.shutdown()


def test_a_batch_that_will_never_be_taken_does_not_stop_the_others(tmp_path: Path) -> None:
    """It is counted as lost; what waits behind it is sent."""
    with Refusing(503, 400, 200) as server:
        one = exporter(server, tmp_path)
        one.export([made(1)])
        one.export([made(2)])
        assert names(*server.taken) == ["s2"]
        assert (one.spans_lost, one.spool.files()) == (1, [])
        one.shutdown()


def test_after_shutdown_spans_wait(tmp_path: Path) -> None:
    """For the next process."""
    with Refusing() as server:
        one = exporter(server, tmp_path)
        one.shutdown()
        assert one.export([made(1)]) is SpanExportResult.SUCCESS
        assert server.taken == []
        assert [each.spans for each in one.spool.files()] == [1]


def test_a_redirect_is_no_delivery(tmp_path: Path) -> None:
    """It is not followed, so the spans wait."""
    with Refusing(302) as server:
        one = exporter(server, tmp_path)
        one.export([made(1)])
        assert [each.spans for each in one.spool.files()] == [1]
        one.shutdown()


def test_a_forked_child_counts_from_zero(tmp_path: Path) -> None:
    """And leaves the batch that its parent was sending to the parent."""
    with Refusing(400) as server:
        one = exporter(server, tmp_path)
        one.export([made(1)])
        assert one.spans_lost == 1
        one._unsent.append((b"x", 1))
        one.forget()
        one.shutdown()
        assert (one.spans_lost, one.spool.files()) == (0, [])


class Earlier(SpoolingOTLPSpanExporter):
    """Over a stock exporter of the generation before, which sends a message by `_export`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._session = kwargs["session"]
        self._client_known, self._earlier = False, True

    def _export(self, serialized_data: bytes, timeout_sec: float | None = None) -> Any:
        return self._session.post(self.endpoint, data=serialized_data, timeout=timeout_sec)


def test_an_earlier_stock_exporter_has_a_spool_too(tmp_path: Path) -> None:
    """Its answers are judged the same; each span arrives once, in order."""
    import requests

    session = requests.Session()
    session.trust_env = False
    with Refusing(503, 200, 400) as server:
        one = Earlier(tmp_path, 1 << 20, endpoint=f"{server.base_url}/v1/traces", session=session)
        assert one.export([made(1)]) is SpanExportResult.SUCCESS
        assert [each.spans for each in one.spool.files()] == [1]
        assert one.export([made(2)]) is SpanExportResult.FAILURE
        assert one.export([made(3)]) is SpanExportResult.SUCCESS
        one.shutdown()
    assert names(*server.taken) == ["s1", "s3"]
    assert (one.spans_lost, one.spool.files()) == (1, [])
