"""The allow-list as processors of the Collector: what `clew.pipeline.filter` does, once more.

The redaction processor removes keys. The transform processor then moves a part's attributes aside
and lets back those whose values obey their rules: what no statement lets back is gone, also where
a statement fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from clew import semconv
from clew.allow_list import AllowList
from clew.cli.collector.conditions import Condition, Grade, condition, matches
from clew.pipeline.filter import SCHEMAS, VERBS
from clew.pipeline.instruments import EVERY
from clew.rules import OTHER, Identifier, Rule

_WORD: Final = "[A-Za-z0-9_][A-Za-z0-9_.:/@+=~#-]{0,127}"
_SCHEMA_URL: Final = f"^{SCHEMAS.replace('.', '[.]')}[A-Za-z0-9_.:/@+=~#-]{{0,90}}$"
_NAME: Final = f"^(?P<first>{_WORD})(?: (?P<second>[^ ]+)(?: (?P<third>[^ ]+))?)?(?: |$)"


class Row(Struct, frozen=True, kw_only=True):
    """One line of the table that tells how exact the Collector's copy of the list is."""

    part: str
    key: str
    rule: str
    grade: Grade
    note: str = ""


def allowed_keys(allow_list: AllowList) -> list[str]:
    """Return the keys of the redaction processor: those of spans and of resources, in one list."""
    return sorted({*allow_list.spans, *allow_list.resource})


def trace_statements(allow_list: AllowList) -> list[list[str]]:
    """Return the groups of statements for traces; a group's statements share one context."""
    return [
        _resource(allow_list),
        _scope(),
        _let_back("span", allow_list.spans),
        _rest_of_a_span(),
        [*_let_back("spanevent", allow_list.spans), *_word("spanevent.name")],
    ]


def metric_statements(allow_list: AllowList) -> list[list[str]]:
    """Return the groups of statements for metrics."""
    return [
        _resource(allow_list),
        _scope(),
        _let_back("datapoint", label_rules()),
        ["set(exemplar.filtered_attributes, {})"],
    ]


def metric_names() -> list[str]:
    """Return the names of the metrics that pass: Clew's, under the names of each profile."""
    return sorted({*EVERY})


def label_rules() -> dict[str, Rule]:
    """Return the rule for each label of Clew's metrics."""
    labels = {label for one in EVERY.values() for label in one.labels}
    return {key: semconv.RULES.get(key) or Identifier(128) for key in sorted(labels)}


def rows(allow_list: AllowList) -> list[Row]:
    """Return the table: each key with its rule and how exact the Collector's condition is."""
    found: list[Row] = []
    parts: tuple[tuple[str, Mapping[str, Rule]], ...] = (
        ("span, event", allow_list.spans),
        ("resource", allow_list.resource),
    )
    for part, rules in parts:
        for key in sorted(rules):
            said = condition(rules[key], "")
            row = Row(part=part, key=key, rule=rules[key].name, grade=said.grade, note=said.note)
            found.append(row)
    return [*found, *_OTHERS]


def _other(part: str, key: str, rule: str, grade: Grade = "exact", note: str = "") -> Row:
    return Row(part=part, key=key, rule=rule, grade=grade, note=note)


_OTHERS: Final = (
    _other("span", "name", "vouched words", "stricter", "a fourth word and the rest are cut"),
    _other("span", "status message", "never"),
    _other("span", "trace state", "`ot` alone", "stricter", "of letters, digits and `.:;_-`"),
    _other("span", "links", "as attributes", "stricter", "dropped: no statement looks into one"),
    _other("event", "name", "identifier"),
    _other("scope", "name, version", "identifier"),
    _other("scope", "attributes", "as attributes", "stricter", "dropped"),
    _other("resource, scope", "schema url", "those of OpenTelemetry"),
    _other("metric", "name", "closed_set"),
    _other("metric", "exemplar attributes", "never"),
)


def _let_back(part: str, rules: Mapping[str, Rule]) -> list[str]:
    """Move the attributes of a part aside and let back those that obey their rules."""
    statements = [f"set({part}.cache, {part}.attributes)", f"set({part}.attributes, {{}})"]
    for key in sorted(rules):
        quoted = key.replace("\\", "\\\\").replace('"', '\\"')
        aside, back = f'{part}.cache["{quoted}"]', f'{part}.attributes["{quoted}"]'
        statements += _statements(aside, back, condition(rules[key], aside))
    return statements


def _statements(aside: str, back: str, said: Condition) -> Iterable[str]:
    if said.other is not None:
        yield f'set({back}, "{said.other}") where {said.text}'
    if said.holds:
        yield f"set({back}, {aside}) where {said.holds}"


def _resource(allow_list: AllowList) -> list[str]:
    url = matches("resource.schema_url", _SCHEMA_URL)
    return [
        *_let_back("resource", allow_list.resource),
        f'set(resource.schema_url, "") where not {url}',
    ]


def _scope() -> list[str]:
    version = matches("scope.version", f"^{_WORD}$")
    url = matches("scope.schema_url", _SCHEMA_URL)
    return [
        "set(scope.attributes, {})",
        *_word("scope.name"),
        f'set(scope.version, "") where not {version}',
        f'set(scope.schema_url, "") where not {url}',
    ]


def _word(path: str) -> list[str]:
    return [f'set({path}, "{OTHER}") where not {matches(path, f"^{_WORD}$")}']


def _rest_of_a_span() -> list[str]:
    """Return the statements for name, status, trace state and links of a span."""
    word = "span.cache"
    verbs = "|".join(sorted(VERBS))
    statements = [
        f'set({word}["found"], ExtractPatterns(span.name, "{_NAME}"))',
        f'set(span.name, "{OTHER}")',
        f'set(span.name, {word}["found"]["first"]) where {word}["found"]["first"] != nil',
    ]
    before = "true"
    for place in ("second", "third"):
        this = f'{word}["found"]["{place}"]'
        before = (
            f'{before} and {this} != nil and {this} != "" and '
            f"({matches(this, f'^(?:{verbs})$')} or ContainsValue(Values(span.attributes), {this}))"
        )
        statements.append(f'set(span.name, Concat([span.name, {this}], " ")) where {before}')
    state = f'{word}["ot"]'
    fits = matches(state, "^[A-Za-z0-9.:;_-]{1,255}$")
    return [
        *statements,
        'set(span.status.message, "")',
        f'set({state}, span.trace_state["ot"]) where span.trace_state != ""',
        'set(span.trace_state, "")',
        f'set(span.trace_state, Concat(["ot=", {state}], "")) where {state} != nil and {fits}',
        "set(span.links, nil)",
    ]
