"""Reading the formats of `tail_table`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_in
from clew.dialects._lines import LinesReader
from clew.dialects._read import count, loads, number, text
from clew.dialects._sse import SseReader
from clew.dialects._stream import COUNTS, TELLS, EventReader
from clew.dialects._template import holes
from clew.dialects.finish_reasons import finish_reasons
from clew.dialects.tail_table import TABLE, Paths
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, Usage
from clew.typing import Route


def find(value: Any, path: str) -> list[Any]:
    """Return what stands at `path`, nulls left out; of alternatives the first that finds any."""
    for option in path.split("|") if path else ():
        found: list[Any] = [value]
        for key in option.split("."):
            found = [
                cast("dict[str, Any]", entry).get(key)
                for entry in _entries(found)
                if isinstance(entry, dict)
            ]
        found = [entry for entry in found if entry is not None]
        if found:
            return found
    return []


def _entries(values: list[Any]) -> list[Any]:
    """Follow lists into their entries."""
    entries: list[Any] = []
    for value in values:
        if isinstance(value, list):
            entries += cast("list[Any]", value)
        else:
            entries.append(value)
    return entries


def _first(value: Any, path: str) -> Any:
    found = find(value, path)
    return found[0] if found else None


def read_request(body: bytes, route: Route, paths: Paths) -> RequestFacts:
    """Read a request."""
    value = loads(body)
    messages = _first(value, paths.messages)
    return RequestFacts(
        model=route.model or text(_first(value, paths.request_model)),
        stream=route.stream or (bool(paths.stream) and _first(value, paths.stream) is True),
        max_tokens=count(_first(value, paths.max_tokens)),
        temperature=number(_first(value, paths.temperature)),
        top_p=number(_first(value, paths.top_p)),
        top_k=number(_first(value, paths.top_k)),
        seed=count(_first(value, paths.seed)),
        frequency_penalty=number(_first(value, paths.frequency_penalty)),
        presence_penalty=number(_first(value, paths.presence_penalty)),
        dimensions=count(_first(value, paths.dimensions)),
        messages=len(cast("list[Any]", messages)) if isinstance(messages, list) else None,
    )


class Gathered:
    """What an answer has said, whole or event by event."""

    __slots__ = ("closed", "error", "id", "input", "model", "output", "paths", "words")

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.id: str | None = None
        self.model: str | None = None
        self.words: list[str | None] = []
        self.input: int | None = None
        self.output: int | None = None
        self.error: ErrorFacts | None = None
        self.closed = False

    def take(self, value: Any) -> bool:
        """Add an event; tell whether it said anything besides output and counts."""
        paths = self.paths
        self.id = self.id or text(_first(value, paths.id))
        self.model = self.model or text(_first(value, paths.model))
        self.input = _largest(self.input, _total(value, paths.input_tokens))
        self.input = _largest(self.input, _total(value, paths.total_is_input))
        self.output = _largest(self.output, _total(value, paths.output_tokens))
        told = self._choices(value)
        errors = [error for error in _entries(find(value, paths.error)) if error]
        if errors:
            self.error, told = error_in(errors[0]), True
        return told

    def _choices(self, value: Any) -> bool:
        """Read a finish reason for each choice: `choice` is where one stands, or beside which."""
        paths = self.paths
        if not paths.choice:
            return False
        choices = _entries(find(value, paths.choice))
        beside = choices and not isinstance(choices[0], dict)
        holders = _entries([value]) if beside else choices
        words: list[str | None] = [
            self._word(_first(holder, paths.finish_reason)) for holder in holders
        ]
        if not words and not self.words:
            word = self._word(_first(value, paths.finish_reason))
            words = [word] if word else []
        told = any(words)
        if told or len(words) > len(self.words):
            self.words = words
        self.closed = self.closed or told
        return told

    def _word(self, value: Any) -> str | None:
        word = text(value)
        return None if word in self.paths.not_finished else word

    def facts(self, *, complete: bool) -> ResponseFacts:
        """Return the facts gathered."""
        words = tuple(self.words)
        known = self.input is not None or self.output is not None
        return ResponseFacts(
            id=self.id,
            model=self.model,
            finish_reasons=finish_reasons(words),
            finish_reasons_raw=words,
            usage=Usage(input_tokens=self.input, output_tokens=self.output) if known else None,
            error=self.error,
            complete=complete,
        )


def _total(value: Any, path: str) -> int | None:
    counts = [known for entry in find(value, path) if (known := count(entry)) is not None]
    return sum(counts) if counts else None


def _largest(known: int | None, found: int | None) -> int | None:
    return found if known is None or (found is not None and found > known) else known


class _PathsReader(EventReader):
    __slots__ = ()
    _gathered: Gathered
    holes = holes("completion", "generated_text", "text", "value", "content")

    def apply(self, payload: bytes) -> int:
        """Take one event."""
        value = loads(payload)
        if value is None:
            return TELLS
        told = self._gathered.take(value)
        if not self.started:
            self.started = any(find(value, self._gathered.paths.output))
        return TELLS if told else COUNTS

    def facts(self) -> ResponseFacts:
        """Return the facts learnt so far."""
        return self._gathered.facts(complete=self._complete())

    def _complete(self) -> bool:
        return self._gathered.closed


class PathsEventsReader(_PathsReader, SseReader):
    """A stream of server-sent events."""

    __slots__ = ("_gathered",)

    def __init__(self, paths: Paths) -> None:
        super().__init__()
        self._gathered = Gathered(paths)

    def _complete(self) -> bool:
        # Where no finish reason is sent, nothing marks the end.
        return self._gathered.closed or self.done or not self._gathered.paths.choice


class PathsLinesReader(_PathsReader, LinesReader):
    """A stream of JSON lines."""

    __slots__ = ("_gathered",)

    def __init__(self, paths: Paths) -> None:
        super().__init__()
        self._gathered = Gathered(paths)


def _dialect(paths: Paths) -> WireDialect:
    def request(body: bytes, route: Route) -> RequestFacts:
        return read_request(body, route, paths)

    def response(answer: Answer) -> ResponseFacts:
        gathered = Gathered(paths)
        gathered.take(loads(answer.body))
        return gathered.facts(complete=True)

    reader: Callable[[Paths], EventReader] = PathsLinesReader if paths.lines else PathsEventsReader
    return WireDialect(paths.name, request, response, lambda _: reader(paths))


BY_PATHS: Final[dict[str, WireDialect]] = {paths.name: _dialect(paths) for paths in TABLE}
"""The dialects of the table, by name."""
PATHS: Final[dict[str, Paths]] = {paths.name: paths for paths in TABLE}
