"""A server that asks who is there, with runs of two tenants and of none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_calls
import sample_messages
import sample_runs

from clew import semconv
from clew.digests import Digests
from clew.store.prompt_index import RecordStore
from clew.web.server import Running, start
from clew.web.tokens import Entry, StaticTokens, add

KEY = "k" * 40
ANN = Digests(KEY.encode()).of("ann")
BOB = Digests(KEY.encode()).of("bob")
STEMS = {
    "acme": "11111111-0000-4000-8000-00000000000",
    "evil": "22222222-0000-4000-8000-00000000000",
    None: "33333333-0000-4000-8000-00000000000",
}


def run_of(
    tenant: str | None, number: int = 1, actor: str | None = ANN, status: str = "completed"
) -> sample_runs.Sample:
    """A small run of a tenant, acting for somebody."""
    run = sample_runs.Sample(f"{STEMS[tenant]}{number}")
    about: dict[str, Any] = {semconv.RUN_STATUS: status}
    if tenant is not None:
        about[semconv.TENANT] = tenant
    if actor is not None:
        about[semconv.ACTOR] = actor
    root = run.root(f"agent-{tenant or 'none'}", 0, 100, **about)
    run.mark("started", f"agent-{tenant or 'none'}", 0, root, **about)
    run.model(1, 1, 50, root, model=f"model-{tenant or 'none'}")
    return run


ACME, EVIL, NONE = run_of("acme"), run_of("evil"), run_of(None)
BOBS = run_of("acme", 2, BOB)
WAITING = run_of("acme", 3, BOB, "waiting_for_approval")
ALL = (ACME, EVIL, NONE, BOBS, WAITING)


class House:
    """A server that asks who is there, with a token for each kind of reader."""

    def __init__(self, running: Running, folder: Path, tokens: dict[str, str]) -> None:
        self.running = running
        self.folder = folder
        self.tokens = tokens
        self.call = ""
        self.theirs = ""

    def http(self, who: str | None, **headers: str) -> httpx.Client:
        """Return a client that has somebody's token."""
        if who is not None:
            headers["authorization"] = f"Bearer {self.tokens[who]}"
        return httpx.Client(
            base_url=self.running.address, timeout=20, trust_env=False, headers=headers
        )

    def get(self, who: str | None, path: str, **more: Any) -> httpx.Response:
        """Ask as somebody."""
        with self.http(who) as client:
            return client.get(path, **more)


ENTRIES = (
    Entry(id="root", admin=True),
    Entry(id="acme-reader", scopes=("agent:read",), tenant="acme"),
    Entry(id="acme-auditor", scopes=("agent:read", "capture:read"), tenant="acme"),
    Entry(id="plain-reader", scopes=("agent:read",)),
    Entry(id="all-reader", scopes=("agent:read", "capture:read", "capture:raise"), tenant="*"),
    Entry(id="collector", scopes=("ingest",)),
    Entry(id="nobody"),
    Entry(id="ann", kind="human", tenant="acme"),
    Entry(id="approver", kind="human", tenant="acme", scopes=("agent:approve",)),
    Entry(id="old", scopes=("agent:read",), tenant="*", expires="2020-01-01"),
)


@contextmanager
def house_in(folder: Path) -> Iterator[House]:
    """Start a house in a folder; it has all runs, and a recorded call of ours and of others."""
    file = folder / "tokens.json"
    tokens = {entry.id: add(file, entry) for entry in ENTRIES}
    store = RecordStore(folder)
    ours = sample_calls.call(
        run_id=ACME.run_id,
        trace_id=ACME.trace_id,
        span_id=ACME.spans[2].span_id,
        tenant="acme",
        actor=ANN,
    )
    theirs = sample_calls.call(run_id=EVIL.run_id, trace_id=EVIL.trace_id, tenant="evil", actor=ANN)
    store.save([ours, theirs])
    store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEW_DIGEST_KEY", KEY)
        with start(
            port=0, store_path=folder / "clew.db", authenticator=StaticTokens(file)
        ) as running:
            found = House(running, folder, tokens)
            found.call, found.theirs = ours[0].request_id, theirs[0].request_id
            with found.http("collector") as client:
                client.post(
                    "/v1/traces",
                    content=sample_messages.protobuf(*ALL),
                    headers={"content-type": "application/x-protobuf"},
                ).raise_for_status()
            yield found


def listed(house: House, who: str, **asked: Any) -> set[str]:
    """Whose runs a reader gets in the list, by the beginnings of their ids and their number."""
    found = house.get(who, "/api/runs", params=asked).json()["runs"]
    return {f"{each['agent'].removeprefix('agent-')}{each['run_id'][-1]}" for each in found}
