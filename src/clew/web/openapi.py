"""The description of the JSON twins (OpenAPI 3.1), served at `/openapi.json`.

Each twin is one line in `TWINS`: a new one that is not there fails a test. Response types are those
of `clew.web.wire`; every status that can be answered is declared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec
from msgspec import Struct
from starlette.routing import Route

from clew import semconv
from clew.store.groups import LONGEST
from clew.store.prompt_records import STATUSES
from clew.store.records import MAX_PAGE, SPAN_TYPES
from clew.web import wire
from clew.web.run_pages import MOST_ROWS
from clew.web.timeline import OUTCOMES

# An empty value is one that was not given: forms send those.
_TEXT: Final = {"type": "string", "maxLength": LONGEST}
_ANY_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "string", "enum": ["", "1", "0", "true", "false", "on"]}
_MOMENT: Final = {
    "type": "string",
    "pattern": r"^(|[0-9]{1,5}[mhdw]|(19[7-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])"
    r"-(0[1-9]|1[0-9]|2[0-8])"
    r"(T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?(Z|[+-](0[0-9]|1[0-2]):00)?)?)$",
    "examples": ["24h", "2026-12-01", "2026-12-01T10:00"],
}
_DAY: Final = {
    "type": "string",
    "pattern": r"^(|20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8]))$",
    "examples": ["2026-12-01"],
}
_AMOUNT: Final = {"type": "string", "pattern": r"^(|[0-9]{1,9}(\.[0-9]{1,12})?)$"}
_CURSOR: Final = {"type": "string", "pattern": "^(|[0-7]?[0-9a-f]{1,15}-[0-9a-f]{32})$"}
_UUID: Final = {
    "type": "string",
    "pattern": "^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$",
}


def _one_of(names: Iterable[str]) -> dict[str, Any]:
    return {"type": "string", "enum": ["", *names]}


def _number(least: int, most: int) -> dict[str, Any]:
    whole = {"type": "integer", "minimum": least, "maximum": most}
    return {"anyOf": [whole, {"type": "string", "maxLength": 0}]}


class Parameter(Struct, frozen=True):
    """One parameter of a query."""

    name: str
    schema: dict[str, Any]
    words: str
    repeated: bool = False


class Twin(Struct, frozen=True, kw_only=True):
    """One JSON twin."""

    path: str
    name: str
    words: str
    answer: Any
    query: tuple[Parameter, ...] = ()
    missing: bool = False
    """404: what it names may not be there."""
    ambiguous: bool = False
    """409: what it names may be several things."""
    right: str = ""
    """403: it needs this right, whoever owns what."""
    tagged: bool = False
    """304: it has an entity tag."""


_LIMIT: Final = Parameter("limit", _number(1, MAX_PAGE), "Most entries on a page.")
_AFTER: Final = Parameter("after", _CURSOR, "The `next` of the page before.")
_SEARCH: Final = (
    Parameter("agent", _TEXT, "The agent's name."),
    Parameter("status", _one_of(semconv.RUN_STATUSES), "How the run stands."),
    Parameter("model", _TEXT, "A model that was called."),
    Parameter("tool", _TEXT, "A tool that was called."),
    Parameter("gate", _TEXT, "A gate that decided something."),
    Parameter(
        "outcome",
        _one_of(semconv.DECISION_OUTCOMES),
        "What a gate decided; with `gate`, the same decision.",
    ),
    Parameter("since", _MOMENT, "Started at this time or later; a time alone is UTC."),
    Parameter("until", _MOMENT, "Started before this time; a day means its end."),
    Parameter("cost_from", _AMOUNT, "The known cost is at least this, in US dollars."),
    Parameter("cost_to", _AMOUNT, "The known cost is at most this, in US dollars."),
    Parameter("denied", _FLAG, "With a denial."),
    Parameter("failed", _FLAG, "With an error."),
    Parameter("everything", _FLAG, "Traces without any span of Clew too."),
)
_CALLS: Final = (
    Parameter("run", _UUID, "Calls of this run."),
    Parameter("conversation", _ANY_TEXT, "Calls of this conversation."),
    Parameter("message", _ANY_TEXT, "Calls of this message; wins over the others."),
    Parameter("agent", _ANY_TEXT, "Calls of this agent."),
    Parameter("model", _ANY_TEXT, "Calls that asked this model, or that it answered."),
    Parameter("status", {"type": "string", "enum": list(STATUSES)}, "How the call ended."),
)
TWINS: Final = (
    Twin(
        path="/api/runs",
        name="list_runs",
        words="Runs, newest first.",
        answer=wire.RunList,
        query=(*_SEARCH, _LIMIT, _AFTER),
    ),
    Twin(
        path="/api/runs/{run}",
        name="get_run",
        words="One run with all its spans.",
        answer=wire.RunDetail,
        missing=True,
    ),
    Twin(
        path="/api/runs/{run}/timeline",
        name="get_timeline",
        words="Rows of a run's timeline.",
        answer=wire.TimelineRows,
        missing=True,
        tagged=True,
        query=(
            Parameter("q", {"type": "string", "maxLength": 200}, "Words in a row."),
            Parameter("kind", _one_of(SPAN_TYPES), "Kinds of span.", repeated=True),
            Parameter("outcome", _one_of(OUTCOMES), "How a row came out."),
            Parameter("limit", _number(1, MOST_ROWS), "Most rows."),
            Parameter("after", _number(-1, 999_999_999), "Place of the last row that is known."),
        ),
    ),
    Twin(
        path="/api/runs/{run}/spans/{span}",
        name="get_span",
        words="One span of a run.",
        answer=wire.SpanDetail,
        missing=True,
    ),
    Twin(
        path="/api/runs/{run}/prompts",
        name="get_run_prompts",
        words="How the prompts of a run developed.",
        answer=wire.RunPrompts,
        missing=True,
    ),
    Twin(
        path="/api/costs",
        name="get_costs",
        words="What model calls cost, by day (UTC), agent and model.",
        answer=wire.Costs,
        missing=True,
        query=(
            Parameter("first", _DAY, "The first day; by default 30 days are summed."),
            Parameter("last", _DAY, "The last day; by default today."),
            Parameter("agent", _TEXT, "Calls of this agent only."),
            Parameter("model", _TEXT, "Calls of this model only."),
        ),
    ),
    Twin(
        path="/api/prompts",
        name="list_calls",
        words="Recorded model calls, newest first.",
        answer=wire.CallList,
        query=(
            *_CALLS,
            _LIMIT,
            _AFTER,
        ),
    ),
    Twin(
        path="/api/prompts/{request}",
        name="get_call",
        words="One recorded call, by its id or how that begins. Reading it is written down.",
        answer=wire.Call,
        missing=True,
        ambiguous=True,
    ),
    Twin(
        path="/api/prompts/{request}/diff/{other}",
        name="diff_calls",
        words="The difference between two recorded calls.",
        answer=wire.CallDiff,
        missing=True,
        ambiguous=True,
    ),
    Twin(
        path="/api/settings",
        name="get_settings",
        words="The switch of capture.",
        answer=wire.CaptureSettings,
        right="capture:raise",
    ),
    Twin(
        path="/api/snippets",
        name="list_snippets",
        words="Snippets, skills and tags.",
        answer=wire.SnippetList,
        right="capture:read",
        query=(Parameter("tag", _ANY_TEXT, "Only snippets that carry this tag."),),
    ),
    Twin(
        path="/api/snippets/{identifier}",
        name="get_snippet",
        words="One snippet.",
        answer=wire.SnippetDetail,
        right="capture:read",
        missing=True,
    ),
    Twin(
        path="/api/skills/{reference}",
        name="get_skill",
        words="One skill.",
        answer=wire.SkillDetail,
        right="capture:read",
        missing=True,
    ),
    Twin(
        path="/api/play",
        name="list_configurations",
        words="The configurations that this reader may play.",
        answer=wire.PlayConfigurations,
        right="configuration:use",
    ),
)
_PATH: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "run": (_ANY_TEXT, "The run's uuid, with or without dashes."),
    "span": (_ANY_TEXT, "The span's id: 16 hexadecimal digits."),
    "request": (_ANY_TEXT, "The id of a recorded call, or how it begins."),
    "other": (_ANY_TEXT, "The id of another recorded call, or how it begins."),
    "identifier": (_ANY_TEXT, "The snippet's identifier."),
    "reference": (_ANY_TEXT, "The skill's identifier, or its source and identifier."),
}
_STATUSES: Final = {
    304: "It has not changed since the entity tag that was sent.",
    400: "A parameter cannot be used, or a Host name is not served here.",
    401: "No token, or one that is not known.",
    403: "The reader does not have the right.",
    404: "It is not there, or may not be read: nobody is told which.",
    409: "Several things are meant.",
    500: "The viewer has met a fault of its own.",
    503: "The store cannot be read.",
}


def paths_of(routes: Iterable[Any]) -> frozenset[str]:
    """Return the addresses of the JSON twins among routes, as this description writes them."""
    found = (each.path for each in routes if isinstance(each, Route))
    return frozenset(each.replace(":path}", "}") for each in found if each.startswith("/api/"))


def description(paths: frozenset[str], *, version: str, authenticated: bool) -> dict[str, Any]:
    """Return the description of those twins that are served.

    Args:
        paths: their addresses.
        version: of the program.
        authenticated: True where a token is needed.
    """
    twins = [each for each in TWINS if each.path in paths]
    types = [wire.Error, *(each.answer for each in twins)]
    _, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    for schema in components.values():
        if schema.get("type") == "object" and "properties" in schema:
            # A twin always has every field, those with a default too, and no other.
            schema["required"] = list(schema["properties"])
            schema["additionalProperties"] = False
            for each in schema["properties"].values():
                each.pop("default", None)
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Clew",
            "version": version,
            "description": "Runs of agents, read only. Unknown is null; it is never zero.",
        },
        "paths": {each.path: {"get": _operation(each, authenticated)} for each in twins},
        "components": {"schemas": components},
    }
    if authenticated:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}]
    return found


def _operation(twin: Twin, authenticated: bool) -> dict[str, Any]:
    names = [part[1:-1] for part in twin.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH[name][1],
            "schema": {**_PATH[name][0], "minLength": 1},
        }
        for name in names
    ]
    for each in twin.query:
        schema = {"type": "array", "items": each.schema} if each.repeated else each.schema
        parameters.append(
            {"name": each.name, "in": "query", "description": each.words, "schema": schema}
        )
    if twin.tagged:
        parameters.append(
            {
                "name": "If-None-Match",
                "in": "header",
                "description": "The entity tag of what is known.",
                "schema": {"type": "string"},
            }
        )
    return {
        "operationId": twin.name,
        "summary": twin.words,
        "parameters": parameters,
        "responses": _responses(twin, authenticated),
    }


def _responses(twin: Twin, authenticated: bool) -> dict[str, Any]:
    statuses = [400, 500, 503]
    for status, declared in (
        (304, twin.tagged),
        (401, authenticated),
        (403, bool(twin.right) and authenticated),
        (404, twin.missing),
        (409, twin.ambiguous),
    ):
        if declared:
            statuses.append(status)
    found: dict[str, Any] = {"200": _response("What was asked for.", twin.answer.__name__)}
    for status in sorted(statuses):
        name = None if status == 304 else "Error"
        found[str(status)] = _response(_STATUSES[status], name)
    if twin.right and authenticated:
        found["403"]["description"] = f"The reader does not have the right {twin.right}."
    return found


def _response(words: str, name: str | None) -> dict[str, Any]:
    if name is None:
        return {"description": words}
    reference = {"$ref": f"#/components/schemas/{name}"}
    return cast(
        "dict[str, Any]",
        {"description": words, "content": {"application/json": {"schema": reference}}},
    )
