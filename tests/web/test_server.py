"""The server's life: one for a store and a port, started again, with all that was accepted."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from pathlib import Path

import httpx
import pytest
import sample_messages
import sample_runs
from posting import PROTOBUF, post, traces

from clew.errors import ClewError, StoreError
from clew.sources import open_source
from clew.store.database import connect
from clew.store.records import Page, RunFilter
from clew.web.server import Running, start


def test_what_was_accepted_survives_the_server(store_file: Path) -> None:
    """Once a message is answered with 200, it is in the file after the server has stopped."""
    run = sample_runs.triage()
    with start(port=0, store_path=store_file) as running:
        answer = httpx.post(
            f"{running.address}/v1/traces",
            content=sample_messages.protobuf(run),
            headers={"content-type": PROTOBUF},
        )
    assert 200 == answer.status_code
    assert not running.alive
    with open_source(f"store://{store_file}") as source:
        assert len(run.spans) == len(source.run(run.trace_id).spans)


def test_two_servers_on_one_store_are_refused(
    server: Running, http: httpx.Client, store_file: Path
) -> None:
    """The second one is told why; the first one goes on."""
    with pytest.raises(StoreError, match="already served"):
        start(port=0, store_path=store_file)
    assert 200 == post(http, sample_messages.protobuf(sample_runs.running())).status_code


def test_two_servers_on_one_port_are_refused(
    server: Running, http: httpx.Client, tmp_path: Path
) -> None:
    """A port that is taken is named; no store is left behind, and the first server goes on."""
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(ClewError, match=f"port {port}"):
        start(port=port, store_path=tmp_path / "other" / "clew.db")
    assert not (tmp_path / "other").exists()
    assert 200 == http.get("/api/runs").status_code


def test_a_server_can_be_started_again(store_file: Path) -> None:
    """Stopping gives back the port and the store, with all that was stored."""
    run = sample_runs.running()
    with (
        start(port=0, store_path=store_file) as first,
        httpx.Client(base_url=first.address) as client,
    ):
        assert 200 == post(client, sample_messages.protobuf(run)).status_code
    port = int(first.address.rpartition(":")[2])
    with (
        start(port=port, store_path=store_file) as second,
        httpx.Client(base_url=second.address) as client,
    ):
        assert [run.trace_id] == traces(client)
    with open_source(f"store://{store_file}") as source:
        assert 1 == len(source.runs(RunFilter(), Page()).runs)


def test_a_newer_store_is_not_served(store_file: Path) -> None:
    """A server refuses a file that it does not understand, before it listens."""
    start(port=0, store_path=store_file).stop()
    connection = connect(store_file)
    connection.execute("INSERT INTO migrations VALUES (999, 'future', 0)")
    connection.close()
    with pytest.raises(StoreError, match="newer Clew"):
        start(port=0, store_path=store_file)
