"""How much a search looks at, counted in steps of SQLite: no more in a larger store."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import sample_messages
import sample_runs

from clew import semconv
from clew.store import search
from clew.store.reader import Reader
from clew.store.records import Page, RunFilter
from clew.store.scopes import Scope
from clew.store.writer import Writer

SECOND = 10**9
SIZES = (100, 1600)
"""Runs in the small store and in the large one, 14 spans each."""
MOST = 2500
"""Steps that any search may take: a walk through half of the large store takes 8,000."""
HALF_NS = sample_runs.START_NS + 10_000_000 * SECOND
"""Runs of the first kind begin before it, those of the second after it."""

KINDS: tuple[dict[str, dict[str, Any]], ...] = tuple(
    {
        "agent": {"agent": f"agent{n}"},
        "status": {"status": ("completed", "failed")[n]},
        "model": {"model": f"model{n}-2026-08-07"},
        "tool": {"tool": f"tool{n}"},
        "gate": {"gate": f"gate{n}"},
        "outcome": {"outcome": ("allow", "deny")[n]},
        "decision": {"gate": f"gate{n}", "outcome": ("allow", "deny")[n]},
        "cost": ({"cost_to": 0.25}, {"cost_from": 0.5})[n],
        "time": ({"until_ns": HALF_NS}, {"since_ns": HALF_NS})[n],
        "tenant": {"scope": Scope(tenant=f"tenant{n}")},
        "actor": {"scope": Scope(actor=f"actor{n}")},
        **({"denied": {"denied": True}, "failed": {"failed": True}} if n else {}),
    }
    for n in range(2)
)
"""What half of the runs have each, and none of the others; of an actor there are few."""
PAIRS = [
    (one, other)
    for one, other in itertools.product(KINDS[0], KINDS[1])
    if one != other and not KINDS[0][one].keys() & KINDS[1][other].keys()
]


def made(number: int) -> sample_runs.Sample:
    """One run of either kind, by turns."""
    kind = number % 2
    run = sample_runs.Sample(
        str(uuid.UUID(int=(number + 1) << 64 | 7)),
        base_ns=(sample_runs.START_NS, HALF_NS)[kind] + number * SECOND,
    )
    about: dict[str, Any] = {
        semconv.RUN_STATUS: ("completed", "failed")[kind],
        semconv.TENANT: f"tenant{kind}",
        semconv.ACTOR: f"actor{kind}" if number < 20 else f"actor{number}",
        "clew.run.denials": kind,
        "clew.run.cost.usd": (0.25, 0.5)[kind],
    }
    root = run.root(f"agent{kind}", 0, 100, **about)
    root.status = 2 * kind
    for place in range(6):
        run.model(place + 1, place, place + 1, root, model=f"model{kind}")
    for place in range(6):
        run.tool((f"tool{kind}", f"special{number % 10}")[place % 2], 10, 20, root, "ok")
    run.decide(f"gate{kind}", ("allow", "deny")[kind], 30, root, "subject", "why")
    return run


class Counted(NamedTuple):
    """A reader whose steps are counted."""

    reader: Reader
    ticks: list[int]

    def steps(self, wanted: RunFilter, page: Page | None = None) -> tuple[int, int]:
        """Return how many runs a search finds, and how many steps it takes."""
        self.ticks[0] = 0
        found = self.reader.runs(wanted, page or Page())
        return len(found.runs), self.ticks[0]


@pytest.fixture(scope="module", params=SIZES)
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Counted]:
    """A store whose runs are of two kinds, with few of them looked at one by one."""
    path = tmp_path_factory.mktemp("work") / "clew.db"
    writer = Writer(path)
    for first in range(0, request.param, 50):
        runs = [made(number) for number in range(first, first + 50)]
        writer.write(sample_messages.spans_of(*runs))
    # One run has the agent of one kind and the model and tool of the other, before all others.
    odd = sample_runs.Sample(base_ns=sample_runs.START_NS - SECOND)
    root = odd.root("agent0", 0, 100, **{semconv.TENANT: "odd"})
    odd.model(1, 1, 2, root, model="model1")
    odd.tool("tool1", 3, 4, root, "ok")
    writer.write(sample_messages.spans_of(odd))
    writer.close()
    reader = Reader(path, connections=1)
    ticks = [0]

    def tick() -> None:
        ticks[0] += 1

    with reader._connection() as connection:
        connection.set_progress_handler(tick, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "_FEW", 40)
        yield Counted(reader, ticks)
    reader.close()


def expected(one: str, other: str) -> int:
    return int(one in {"agent", "time"} and other in {"model", "tool"})


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_conditions_that_never_meet(store: Counted, one: str, other: str) -> None:
    """No pair of conditions has the half of the store looked through for nothing, or for one run."""
    found, steps = store.steps(RunFilter(**KINDS[0][one], **KINDS[1][other]))
    assert expected(one, other) == found
    assert steps < MOST


@pytest.mark.parametrize("kind", range(2))
@pytest.mark.parametrize("name", KINDS[1])
def test_each_condition_alone(store: Counted, name: str, kind: int) -> None:
    """A page is found without looking at the rest, the later one too."""
    wanted = RunFilter(**KINDS[kind].get(name, {}))
    found, steps = store.steps(wanted)
    assert found == (10 if name == "actor" else 50)
    assert steps < MOST
    page = Page(limit=10, after=store.reader.runs(wanted, Page(limit=5)).next)
    assert store.steps(wanted, page)[1] < MOST


def test_three_conditions_of_which_no_two_exclude_each_other(store: Counted) -> None:
    """The only run that has them is found, though it is the oldest."""
    wanted = RunFilter(agent="agent0", model="model1-2026-08-07", tool="tool1")
    found, steps = store.steps(wanted)
    assert found == 1
    assert steps < MOST
