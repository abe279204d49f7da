"""The same runs from every backend, and what is said when one is down, slow, or something else."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import agent_runs
import msgspec
import pytest
import real_peers
import requests
import sample_messages
import sample_runs
import stand_ins
from trustme import CA

from clew.sources import RunNotFoundError, Source, open_source, resolve
from clew.sources.forms import record_form
from clew.sources.http import SourceError
from clew.store import otlp_protobuf
from clew.store.records import Page, RunFilter
from clew.store.writer import Writer

BASE = sample_runs.START_NS
MADE = [
    make(f"{number:08x}-0000-4000-8000-00000000000a", base_ns=BASE + number * 10**9)
    for number, make in enumerate(
        [sample_runs.triage, sample_runs.suspended, sample_runs.failed, sample_runs.foreign] * 3
    )
]
MESSAGE = sample_messages.protobuf(*MADE)
RANGE = RunFilter(since_ns=BASE, until_ns=BASE + 10**11)
KINDS = ["store", "jaeger", "tempo", "clickhouse"]


@pytest.fixture(scope="module", params=KINDS)
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Source]:
    """The same twelve traces behind each kind of source."""
    match request.param:
        case "store":
            path = tmp_path_factory.mktemp("store") / "clew.db"
            writer = Writer(path)
            writer.write(otlp_protobuf.decode(MESSAGE).spans)
            writer.close()
            with open_source(f"store://{path}") as opened:
                yield opened
        case "jaeger":
            jaeger: real_peers.Jaeger = request.getfixturevalue("jaeger")
            gateway: real_peers.Collector = request.getfixturevalue("gateway")
            headers = {"content-type": "application/x-protobuf"}
            requests.post(f"{gateway.otlp}/v1/traces", data=MESSAGE, headers=headers, timeout=10)
            with open_source(f"jaeger://{jaeger.address}") as opened:
                agent_runs.eventually(
                    lambda: sum(
                        each.spans
                        for each in opened.runs(
                            msgspec.structs.replace(RANGE, everything=True), Page()
                        ).runs
                    ),
                    sum(len(each.spans) for each in MADE),
                )
                yield opened
        case "tempo":
            with (
                stand_ins.Tempo(MESSAGE) as tempo,
                open_source(f"tempo://{tempo.address}") as opened,
            ):
                yield opened
        case _:
            pytest.importorskip("chdb")
            with (
                stand_ins.ClickHouse(MESSAGE) as house,
                open_source(f"clickhouse://{house.address}") as opened,
            ):
                yield opened


def test_each_source_shows_each_run_alike(source: Source) -> None:
    """Span for span, attribute for attribute; the sample's own document is the measure."""
    for made in MADE[:4]:
        spans = sample_messages.spans_of(made)
        expected = {each.span_id: each for each in spans}
        record = source.run(made.trace_id)
        places = [(each.segment, each.seq) for each in record.spans if each.seq]
        assert sorted(places) == places
        got = {each.span_id: each for each in record.spans}
        assert expected.keys() == got.keys()
        for span_id, span in expected.items():
            other = got[span_id]
            assert (span.parent_id, span.kind, span.start_ns, span.end_ns, span.status) == (
                other.parent_id, other.kind, other.start_ns, other.end_ns, other.status,
            )  # fmt: skip
            assert span.attributes == other.attributes
            assert span.type == other.type
            assert span.resource.attributes == other.resource.attributes
            assert (span.scope.name, span.scope.version) == (other.scope.name, other.scope.version)
            assert [e.name for e in span.events] == [e.name for e in other.events]


def test_summaries_are_the_same(source: Source) -> None:
    """The list says the same of each run, whatever it was read from."""
    runs = source.runs(msgspec.structs.replace(RANGE, everything=True), Page()).runs
    found = {each.trace_id: each for each in runs}
    for made in MADE:
        from clew.store.summary import fold

        expected = fold(sample_messages.spans_of(made), made.trace_id)
        assert expected == found[made.trace_id]


def test_lists_filters_and_pages_agree(source: Source) -> None:
    """Newest first; filters and pages of any size give the same list."""
    everything = msgspec.structs.replace(RANGE, everything=True)
    wanted = [each.trace_id for each in reversed(MADE)]
    assert wanted == [each.trace_id for each in source.runs(everything, Page()).runs]
    ours = [each for number, each in enumerate(reversed(MADE)) if number % 4 != 0]
    for limit in (1, 4, 9, 50):
        seen: list[str] = []
        after = None
        for _ in range(20):
            page = source.runs(RANGE, Page(limit=limit, after=after))
            assert len(page.runs) <= limit
            seen += [each.trace_id for each in page.runs]
            after = page.next
            if after is None:
                break
        assert [each.trace_id for each in ours] == seen
    failed = source.runs(msgspec.structs.replace(RANGE, status="failed"), Page()).runs
    assert [each.trace_id for each in reversed(MADE[2::4])] == [each.trace_id for each in failed]
    agent = source.runs(msgspec.structs.replace(RANGE, agent="triage"), Page()).runs
    assert [each.trace_id for each in reversed(MADE[0::4])] == [each.trace_id for each in agent]
    part = RunFilter(since_ns=BASE + 2 * 10**9, until_ns=BASE + 6 * 10**9, everything=True)
    inside = source.runs(part, Page()).runs
    assert [each.trace_id for each in reversed(MADE[2:6])] == [each.trace_id for each in inside]


def test_a_run_is_found_by_its_whole_id(source: Source) -> None:
    """With the uuid a run is found however old; one that is not there is said to be missing."""
    one = MADE[5]
    assert one.trace_id == resolve(source, one.run_id)
    record = source.run(one.trace_id)
    assert record_form(record)["run"]["run_id"] == one.run_id
    with pytest.raises(RunNotFoundError):
        source.run("f" * 32)


REMOTE = ["jaeger", "tempo", "clickhouse"]


def ask(address: str) -> str:
    """Ask for a list; return what is said."""
    with pytest.raises(SourceError) as caught, open_source(address) as source:
        source.runs(RunFilter(), Page())
    return str(caught.value)


@pytest.mark.parametrize("kind", REMOTE)
def test_a_backend_that_is_down(kind: str) -> None:
    """It is said where nobody listens."""
    address = f"127.0.0.1:{real_peers.free_port()}"
    said = ask(f"{kind}://{address}")
    assert said.endswith(f" at http://{address} cannot be reached: nobody listens there")


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize("trickles", [False, True])
def test_a_backend_that_is_slow(kind: str, trickles: bool) -> None:
    """An answer that does not come, or comes drop by drop, ends at the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                if trickles:
                    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                while not ended.wait(0.1):
                    if trickles:
                        connection.sendall(b" ")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        began = time.monotonic()
        port = server.getsockname()[1]
        said = ask(f"{kind}://127.0.0.1:{port}?timeout=0.5")
        ended.set()
        thread.join(5)
    assert "did not answer within 0.5 s (the option timeout=SECONDS waits longer)" in said
    assert time.monotonic() - began < 5


class Strange(stand_ins.StandIn):
    """Answers everything alike."""

    answer = (200, "text/html", b"<html>an intranet page</html>")

    def handle(self, *_: object) -> tuple[int, str, bytes]:
        return self.answer


@pytest.mark.parametrize("kind", REMOTE)
def test_something_else_that_answers(kind: str) -> None:
    """A page of something else, an error, a redirect and a refusal each have their sentence."""
    with Strange() as server:
        assert "does not answer as" in ask(f"{kind}://{server.address}")
        server.answer = (500, "text/plain", b"no such\n table")
        assert ask(f"{kind}://{server.address}").endswith("answered 500: no such table")
        server.answer = (401, "text/plain", b"")
        assert "set CLEW_SOURCE_AUTHORIZATION" in ask(f"{kind}://{server.address}")
        server.answer = (302, "text/plain", b"")
        assert "sends elsewhere" in ask(f"{kind}://{server.address}")


@pytest.mark.parametrize("kind", REMOTE)
def test_credentials(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is sent as the header; a user in the address as basic authentication."""
    with Strange() as server:
        server.answer = (403, "text/plain", b"")
        ask(f"{kind}://ada:s%3Acret@{server.address}")
        monkeypatch.setenv("CLEW_SOURCE_AUTHORIZATION", "Bearer a-token")
        ask(f"{kind}://ada:secret@{server.address}")
        sent = [headers.get("authorization") for _, _, headers in server.requests]
        assert ["Basic YWRhOnM6Y3JldA==", "Bearer a-token"] == sent


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("jaeger://", "write the address as HOST:PORT"),
        ("jaeger://host:port", "is no address"),
        ("jaeger://host?servise=a", "no option is called 'servise'"),
        ("tempo://host?timeout=0", "give seconds"),
        ("tempo://host?range=1y", "write it like 12h or 30d"),
        ("clickhouse://host?database=a;drop", "is no name"),
        ("clickhouse+https://host?ca=/nowhere.pem", "/nowhere.pem"),
    ],
)
def test_addresses_that_cannot_be_used(address: str, said: str) -> None:
    """What is wrong with an address is said before anybody is asked."""
    with pytest.raises(SourceError, match=said):
        open_source(address)


@pytest.mark.parametrize("kind", REMOTE)
def test_tls(kind: str, tmp_path: Path) -> None:
    """A certificate of an unknown authority is refused; with `ca` it is trusted."""
    authority = CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = Strange()
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    server._server.handle_error = lambda *_: None  # type: ignore[method-assign]
    with server:
        address = f"{kind}+https://{server.address}"
        said = ask(address)
        assert "its certificate is not trusted" in said
        assert "ca=FILE" in said
        assert "does not answer as" in ask(f"{address}?ca={tmp_path / 'ca.pem'}")
