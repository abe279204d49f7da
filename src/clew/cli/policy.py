"""`clew policy`: what the allow-list is, and what it would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from clew import rule_data, semconv
from clew.allow_list import DROPPED, AllowList, Identifier, Rule
from clew.cli.output import print_json, print_table, say
from clew.errors import ClewError, ConfigurationError
from clew.pipeline.filter import SAMPLING_STATE, name_that_leaves, schema_that_leaves
from clew.pipeline.labels import MEANINGS
from clew.pipeline.runtime import digests_of
from clew.settings import Settings
from clew.setup import allow_list_in_force
from clew.store.records import SpanRecord

policy = typer.Typer(no_args_is_help=True, help="Look at the allow-list, and try it out.")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def allow_list() -> AllowList:
    """Return the list that this environment configures, its digests with this environment's key."""
    settings = Settings.from_environment()
    return allow_list_in_force(settings, digests_of(settings))


def described(rule: Rule) -> str:
    """Say in a few words what a rule lets through."""
    try:
        data = rule_data.to_data(rule)
    except ConfigurationError:
        return "a rule of your own"
    name = data.pop("rule")
    if name == "closed_set":
        others = f" (others: {data['other']})" if "other" in data else ""
        return " ".join(data["values"]) + others
    if name == "number_range":
        return f"{data['low']:g} to {data['high']:g}"
    if name in ("identifier", "opaque", "hex"):
        return f"at most {data['max_length']} characters"
    if name == "each":
        assert hasattr(rule, "rule")  # noqa: S101 - `each` has one
        return f"at most {data['max_items']} values: {described(rule.rule)}"  # type: ignore[attr-defined]
    return ""


@policy.command("show")
def show(json: Json = False) -> None:
    """Print every key that may leave, with its rule: of spans, resources and metrics."""
    listed = allow_list()
    if json:
        print_json({**listed.to_data(), "metric_labels": MEANINGS})
        return
    rows = [
        (place, key, rule.name, described(rule))
        for place, rules in (("span", listed.spans), ("resource", listed.resource))
        for key, rule in sorted(rules.items())
    ]
    rows += [("metric", key, "label", meaning) for key, meaning in sorted(MEANINGS.items())]
    print_table(("place", "key", "rule", "lets through"), rows)


@policy.command("explain")
def explain(
    key: Annotated[str, typer.Argument(help="An attribute key.", metavar="KEY")],
    value: Annotated[
        str, typer.Argument(help="A value: JSON, or else a text as it is.", metavar="VALUE")
    ],
    resource: Annotated[
        bool, typer.Option("--resource", help="Ask for an attribute of a resource.")
    ] = False,
    json: Json = False,
) -> None:
    """Say whether a value may leave under a key, and by which rule."""
    listed = allow_list()
    rule = (listed.resource if resource else listed.spans).get(key)
    # A number in quotes is a text; an identifier needs none.
    kept = DROPPED if rule is None else _judge(rule, value)
    verdict = "dropped" if kept is DROPPED else "keep"
    name = "key" if rule is None else rule.name
    if json:
        answer: dict[str, Any] = {"verdict": verdict, "rule": name}
        print_json(answer if kept is DROPPED else {**answer, "value": kept})
        return
    words = described(rule) if rule is not None else "the key is not on the list"
    print(f"{verdict}  {name}" + (f"  {words}" if words else ""))
    if kept is not DROPPED and kept != value and str(kept) != value:
        print(f"leaves as  {kept}")


def _judge(rule: Rule, value: str) -> Any:
    """Apply a rule to a value of the command line: as JSON, then as the text that it is."""
    try:
        read: Any = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError):
        return rule.apply(value)
    kept = rule.apply(read)
    return rule.apply(value) if kept is DROPPED else kept


@policy.command("check")
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="A list file. [default: CLEW_ALLOW_LIST]", metavar="FILE"),
    ] = None,
) -> None:
    """Check a list file, and the settings of this environment."""
    settings = Settings.from_environment()
    path = file or settings.allow_list_file
    if path is None:
        settings.effective_allow_list()
        say("No list file is configured; the settings are in order.")
        return
    added = AllowList.read(path)
    base = settings.allow_list
    changed = [
        key
        for own, others in ((added.spans, base.spans), (added.resource, base.resource))
        for key, rule in own.items()
        if key in others and rule_data.to_data(rule) != rule_data.to_data(others[key])
    ]
    for key in changed:
        say(f"{key!r} gets another rule than it has by default")
    say(
        f"{path} is in order: {len(added.spans)} keys of spans, {len(added.resource)} of "
        f"resources; {len(changed)} rules of the default list are replaced"
    )


@policy.command("test")
def try_out(
    file: Annotated[
        Path, typer.Argument(help="One OTLP JSON document, or one on each line.", metavar="FILE")
    ],
    json: Json = False,
) -> None:
    """Say what of the spans in a file would leave, and by which rule the rest would not.

    Counts only: no value is printed. Dropped keys are named, they come from your own file.
    """
    from clew.sources.otlp_json import batches

    trial = _Trial(allow_list())
    spans = 0
    for batch in batches(file):
        for span in batch.spans:
            spans += 1
            trial.look(span)
    kept, dropped = trial.kept, trial.dropped
    if not spans:
        raise ClewError(f"{file} holds no spans")
    if json:
        print_json(
            {
                "spans": spans,
                "kept": [{"place": p, "key": k, "count": n} for (p, k), n in sorted(kept.items())],
                "dropped": [
                    {"place": p, "key": k, "rule": r, "count": n}
                    for (p, k, r), n in sorted(dropped.items())
                ],
            }
        )
        return
    rows = [("keep", place, key, "", str(n)) for (place, key), n in sorted(kept.items())]
    rows += [("dropped", place, key, r, str(n)) for (place, key, r), n in sorted(dropped.items())]
    print_table(("verdict", "place", "key", "rule", "count"), rows, right=(4,))
    say(f"{spans} spans: {kept.total()} values would leave, {dropped.total()} would not")


_WORD = Identifier(128)
_NONE = semconv.CAPTURE_LEVELS[0]


class _Trial:
    """Does to spans of a file what the filter does to spans on their way out, and counts.

    Content that Clew has captured is counted as dropped: a file does not say who captured it.
    """

    def __init__(self, listed: AllowList) -> None:
        self._listed = listed
        self._at_none = listed.bound(None)
        self.kept: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[tuple[str, str, str]] = Counter()

    def look(self, span: SpanRecord) -> None:
        """Count what would leave of one span, and what would not."""
        at_none = span.attributes.get(semconv.CAPTURE_LEVEL) == _NONE
        rules = (self._at_none if at_none else self._listed).spans
        passed = self._attributes("span", rules, span.attributes)
        self._verdict("span", "(name)", "name", name_that_leaves(span.name, passed) == span.name)
        if span.status_message:
            self._verdict("span", "(status description)", "status_description", False)
        self._trace_state("span", span.trace_state)
        for event in span.events:
            self._word("event", "(name)", event.name)
            self._attributes("event", rules, event.attributes)
        for link in span.links:
            self._trace_state("link", link.trace_state)
            self._attributes("link", rules, link.attributes)
        self._attributes("resource", self._listed.resource, span.resource.attributes)
        self._schema("resource", span.resource.schema_url)
        self._word("scope", "(name)", span.scope.name)
        if span.scope.version:
            self._word("scope", "(version)", span.scope.version)
        self._schema("scope", span.scope.schema_url)
        self._attributes("scope", self._listed.spans, span.scope.attributes)

    def _verdict(self, place: str, key: str, rule: str, passes: bool) -> None:
        if passes:
            self.kept[place, key] += 1
        else:
            self.dropped[place, key, rule] += 1

    def _attributes(
        self, place: str, rules: Mapping[str, Rule], values: Mapping[str, Any]
    ) -> dict[str, Any]:
        passed: dict[str, Any] = {}
        for key, value in values.items():
            rule = rules.get(key)
            result = DROPPED if rule is None else rule.apply(value)
            self._verdict(place, key, "key" if rule is None else rule.name, result is not DROPPED)
            if result is not DROPPED:
                passed[key] = result
        return passed

    def _word(self, place: str, key: str, text: str) -> None:
        self._verdict(place, key, "name", _WORD.apply(text) is not DROPPED)

    def _schema(self, place: str, url: str) -> None:
        if url:
            self._verdict(place, "(schema)", "schema", schema_that_leaves(url) == url)

    def _trace_state(self, place: str, state: str) -> None:
        for entry in filter(None, (each.strip() for each in state.split(","))):
            ours = entry.partition("=")[0] == SAMPLING_STATE
            self._verdict(place, "(trace state)", "trace_state", ours)
