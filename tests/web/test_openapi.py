"""The description of the JSON twins, and the twins against it."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import sample_calls
import sample_messages
import sample_runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from clew.prompts.skills import Skill
from clew.prompts.snippets import Snippet
from clew.store.prompt_index import RecordStore
from clew.store.snippets import SqliteRepository
from clew.web import openapi
from clew.web.app import create_app
from clew.web.server import Running, start

RUN = sample_runs.triage("11111111-0000-4000-8000-000000000001")


class Filled:
    """A server with something under every address, and what the addresses are."""

    def __init__(self, running: Running, calls: list[Any]) -> None:
        self.running = running
        self.http = httpx.Client(base_url=running.address, timeout=20, trust_env=False)
        self.names = {
            "run": RUN.run_id,
            "span": RUN.spans[3].span_id,
            "request": calls[0][0].request_id,
            "other": calls[1][0].request_id,
            "identifier": "house-style",
            "reference": "greeting",
        }

    def url(self, path: str) -> str:
        return path.format(**self.names)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    folder = tmp_path_factory.mktemp("described")
    store = RecordStore(folder)
    calls = [sample_calls.call(run_id=RUN.run_id), sample_calls.call(run_id=RUN.run_id)]
    store.save(calls)
    store.close()
    repository = SqliteRepository(folder / "clew.db")
    repository.put(
        [Snippet(identifier="house-style", text="Be brief.", tags="tone")],
        [Skill(identifier="greeting", name="Greeting", body="Say hello.")],
    )
    with start(port=0, store_path=folder / "clew.db") as running:
        found = Filled(running, calls)
        found.http.post(
            "/v1/traces",
            content=sample_messages.protobuf(RUN, sample_runs.suspended(), sample_runs.failed()),
            headers={"content-type": "application/x-protobuf"},
        ).raise_for_status()
        yield found
        found.http.close()


@pytest.fixture(scope="module")
def described(filled: Filled) -> dict[str, Any]:
    return filled.http.get("/openapi.json").json()


def test_every_twin_is_described(filled: Filled, described: dict[str, Any]) -> None:
    """Each route below `/api` is in the description, and nothing else is."""
    assert {each.path for each in openapi.TWINS} >= set(described["paths"])
    served = {each.path for each in openapi.TWINS} - {"/api/play"}
    assert served == set(described["paths"])


def test_a_twin_that_nobody_described_is_noticed() -> None:
    """The addresses are read from the routes, whatever converter they have."""

    def view(_: Any) -> Any: ...

    routes = [Route("/api/new/{id:path}", view), Route("/new", view), Route("/api/other", view)]
    assert {"/api/new/{id}", "/api/other"} == openapi.paths_of(routes)


def test_every_route_of_the_application_is_in_the_table(tmp_path: Path) -> None:
    """With everything switched on, the table has exactly the twins that there are."""
    from clew.sources.store import StoreSource
    from clew.store.prompt_index import PromptReader
    from clew.store.writer import Writer
    from clew.web.play import Playground, PlayPages

    writer = Writer(tmp_path / "clew.db")
    source, prompts = StoreSource(tmp_path / "clew.db"), PromptReader(tmp_path)
    app = create_app(
        writer,
        source,
        address="",
        prompts=prompts,
        play=lambda views: PlayPages(Playground([]), views, flush=lambda: None),
    )
    assert {each.path for each in openapi.TWINS} == openapi.paths_of(app.routes)
    for each in (source, prompts, writer):
        each.close()


@pytest.mark.parametrize(
    "twin",
    [each for each in openapi.TWINS if each.name != "list_configurations"],
    ids=lambda each: each.name,
)
def test_an_answer_has_exactly_the_described_fields(filled: Filled, twin: openapi.Twin) -> None:
    """A real answer of each twin is of its type: every field there, none more."""
    answer = filled.http.get(filled.url(twin.path))
    assert 200 == answer.status_code, answer.text
    body = answer.json()
    again = msgspec.json.decode(msgspec.json.encode(msgspec.convert(body, twin.answer)))
    assert again == body


NUMBERS = [
    (twin, parameter.name, parameter.schema["anyOf"][0])
    for twin in openapi.TWINS
    for parameter in twin.query
    if "minimum" in parameter.schema.get("anyOf", [{}])[0]
]


@pytest.mark.parametrize(
    ("twin", "name", "bounds"), NUMBERS, ids=[f"{twin.name} {name}" for twin, name, _ in NUMBERS]
)
def test_numbers_beyond_their_bounds_are_400(
    filled: Filled, twin: openapi.Twin, name: str, bounds: dict[str, int]
) -> None:
    """Of each list: its bounds are taken, what is outside of them or no number is refused."""
    least, most = bounds["minimum"], bounds["maximum"]
    wrong = [least - 1, -5, -(10**7), 2**63, 10**30, "1e3", "1.5", "x", "\u0663", "1 "]
    for value in [*wrong, most + 1]:
        answer = filled.http.get(filled.url(twin.path), params={name: value})
        assert (400, "application/json") == (answer.status_code, answer.headers["content-type"])
    for value in (least, most):
        answer = filled.http.get(filled.url(twin.path), params={name: value})
        assert 200 == answer.status_code, answer.text


def test_there_are_lists_with_bounds() -> None:
    """The test above is about something: runs, the timeline of one, and prompts have pages."""
    assert {"list_runs", "list_calls", "get_timeline"} <= {twin.name for twin, _, _ in NUMBERS}
    assert {"limit", "after"} <= {name for _, name, _ in NUMBERS}


def test_statuses_are_declared(described: dict[str, Any]) -> None:
    """A call may be there, missing, meant ambiguously, or unreadable: each with a named type."""
    found = described["paths"]["/api/prompts/{request}"]["get"]["responses"]
    assert {"200", "400", "404", "409", "500", "503"} == set(found)
    names = {
        status: each["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for status, each in found.items()
    }
    assert "Call" == names.pop("200")
    assert {"Error"} == set(names.values())
    assert set(names) <= set(found)


def test_a_description_behind_tokens_says_so() -> None:
    """Where a token is needed, the scheme, 401 and 403 are declared; elsewhere they are not."""
    paths = frozenset(each.path for each in openapi.TWINS)
    open_one = openapi.description(paths, version="1", authenticated=False)
    closed = openapi.description(paths, version="1", authenticated=True)
    assert "security" not in open_one
    assert [{"token": []}] == closed["security"]
    assert "401" not in open_one["paths"]["/api/settings"]["get"]["responses"]
    assert {"401", "403"} < set(closed["paths"]["/api/settings"]["get"]["responses"])


def test_the_description_is_valid(described: dict[str, Any]) -> None:
    """It has unique operation ids, every reference resolves, and no type is unnamed."""
    names = [each["get"]["operationId"] for each in described["paths"].values()]
    assert len(set(names)) == len(names)
    schemas = described["components"]["schemas"]

    def references(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"]
            for each in node.values():
                yield from references(each)
        elif isinstance(node, list):
            for each in node:
                yield from references(each)

    found = set(references(described))
    assert {f"#/components/schemas/{name}" for name in schemas} == found
    assert all(each["type"] == "object" for each in schemas.values())


def test_the_twins_keep_to_their_description(filled: Filled) -> None:
    """What schemathesis makes up, valid and not, gets answers that are declared, in their types."""
    try:
        import schemathesis
        from schemathesis.checks import not_a_server_error
        from schemathesis.specs.openapi import checks
    except ImportError:
        if os.environ.get("CI") == "true":
            pytest.fail("schemathesis is not installed")
        pytest.skip("schemathesis is not installed")
    schema = schemathesis.openapi.from_url(f"{filled.running.address}/openapi.json")
    twins = {each.path: each for each in openapi.TWINS}
    seen: set[tuple[str, int]] = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        modes = [schemathesis.GenerationMode.POSITIVE]
        if twins[operation.path].query:  # nothing can be wrong where there are no parameters
            modes.append(schemathesis.GenerationMode.NEGATIVE)
        for mode in modes:
            cases = operation.as_strategy(generation_mode=mode)
            valid = mode is schemathesis.GenerationMode.POSITIVE
            _ask(operation, cases, filled, seen, valid, not_a_server_error, checks)
    statuses = {status for _, status in seen}
    assert {200, 400, 404} <= statuses
    assert {path for path, status in seen if status == 200} == {
        each.path for each in openapi.TWINS if each.path != "/api/play"
    }


_PAIRS = (("since", "until"), ("cost_from", "cost_to"), ("first", "last"))


def _ask(
    operation: Any,
    cases: Any,
    filled: Filled,
    seen: set[tuple[str, int]],
    valid: bool,
    fault: Any,
    checks: Any,
) -> None:
    @settings(
        max_examples=12,
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases, known=st.booleans())
    def ask(case: Any, known: bool) -> None:
        if known:
            for name in case.path_parameters or {}:
                case.path_parameters[name] = filled.names[name]
        # Bounds of one thing by two parameters are told in words only.
        for low, high in _PAIRS if valid else ():
            case.query.pop(high, None)
            if low == "first" and low in case.query:
                case.query[high] = case.query[low]
        response = case.call(headers={"accept": "application/json"})
        case.validate_response(
            response,
            checks=[
                fault,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
                checks.negative_data_rejection,
                checks.positive_data_acceptance,
            ],
        )
        seen.add((operation.path, response.status_code))

    ask()
