"""The mapping by which a callable of your own says where its facts stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Final, cast

from clew._guard import warn_once
from clew.dialects.finish_reasons import finish_reasons
from clew.errors import ClewError
from clew.facts import RequestFacts, ResponseFacts, ToolCall, Usage

Place = Callable[[Any], Any]


def _text(value: Any) -> str | None:
    value = getattr(value, "value", value)  # an enumeration's
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _count(value: Any) -> int | None:
    return len(value) if isinstance(value, Sized) else _whole(value)


def _several(value: Any) -> Iterable[Any]:
    if isinstance(value, (str, Mapping)):
        return (cast("Any", value),)
    return cast("Iterable[Any]", value) if isinstance(value, Iterable) else (value,)


def _reasons(value: Any) -> tuple[str | None, ...] | None:
    return tuple(_text(one) for one in _several(value)) or None


def _name(value: Any) -> str | None:
    """Return the name of a tool, or of a call of one: text, or something that has a name."""
    for path in (_identity, _path("name"), _path("function.name"), _path("tool_name")):
        found = path(value)
        if isinstance(found, str):
            return found
    return None


def _names(value: Any) -> tuple[str, ...] | None:
    names = tuple(name for one in _several(value) if (name := _name(one)) is not None)
    # What an SDK has for "not given" is an object of its own: no list, and not an empty one.
    return names if names or isinstance(value, (Sized, Iterator)) else None


def _calls(value: Any) -> tuple[ToolCall, ...] | None:
    calls: list[ToolCall] = []
    for one in _several(value):
        if isinstance(one, ToolCall):
            calls.append(one)
        elif isinstance(one, tuple) and len(cast("tuple[Any, ...]", one)) == 2:
            calls.append(ToolCall(*(_text(part) for part in cast("tuple[Any, ...]", one))))
        else:
            calls.append(ToolCall(_text(_get(one, "id")), _name(one)))
    return tuple(calls) or None


_REQUEST: Final[Mapping[str, Callable[[Any], Any]]] = {
    "model": _text,
    "max_tokens": _whole,
    "temperature": _number,
    "top_p": _number,
    "top_k": _number,
    "frequency_penalty": _number,
    "presence_penalty": _number,
    "seed": _whole,
    "choice_count": _whole,
    "reasoning_level": _text,
    "messages": _count,
    "tools": _names,
}
"""Facts that stand among the arguments, and what makes a fact of what is found there."""

_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
_RESPONSE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "response_model": _text,
    "response_id": _text,
    "finish_reason": _reasons,
    "tool_calls": _calls,
    "service_tier": _text,
    "served_provider": _text,
    **dict.fromkeys(_COUNTS, _whole),
    "cost_usd": _number,
}
"""Facts that stand in the result, or in an item of a stream. `input_tokens` includes what was read
from and written to a cache, `output_tokens` includes reasoning."""

_LITERAL: Final = ("provider", "operation", "stream")
"""Said in the mapping itself."""

_SYSTEM: Final = "system"
"""Where the system text stands among the arguments; only segmented prompts are looked for in it."""


def _joined(value: Any) -> str | None:
    """Return a text, or texts put together."""
    if isinstance(value, str):
        return value
    texts = [each for each in _several(value) if isinstance(each, str)]
    return "".join(texts) or None


class Places:
    """The mapping, checked and ready to look things up.

    Args:
        facts: fact name to path or function; `provider` and `operation` are said as they are;
            `stream` is True or False, or the name of the result's attribute or key that is the
            stream.

    Raises:
        ClewError: a name that is no fact, or a place that is neither path nor function.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.provider: str | None = facts.get("provider")
        self.operation: str = facts.get("operation") or "chat"
        self.stream: bool | str | None = facts.get("stream")
        self._request: list[tuple[str, Place, Callable[[Any], Any]]] = []
        self._response: list[tuple[str, Place, Callable[[Any], Any]]] = []
        self._system: list[tuple[str, Place, Callable[[Any], Any]]] = []
        for name, given in facts.items():
            if name in _LITERAL:
                continue
            if name == _SYSTEM:
                self._system = [(name, _place(name, given), _joined)]
            elif name in _REQUEST:
                self._request.append((name, _place(name, given), _REQUEST[name]))
            elif name in _RESPONSE:
                self._response.append((name, _place(name, given), _RESPONSE[name]))
            else:
                known = ", ".join((*_LITERAL, _SYSTEM, *_REQUEST, *_RESPONSE))
                raise ClewError(f"{name!r} is no fact of a model call; give some of: {known}")

    def request(self, arguments: Mapping[str, Any]) -> RequestFacts:
        """Return what the arguments say."""
        found = _look(self._request, arguments)
        return RequestFacts(operation=self.operation, **found)

    def system_text(self, arguments: Mapping[str, Any]) -> str | None:
        """Return the system text; None where there is none, or no place was given for it."""
        return _look(self._system, arguments).get(_SYSTEM)

    def gather(self) -> Gathered:
        """Return what collects the facts of one response."""
        return Gathered(self._response)


class Gathered:
    """Collects what a result, or the items of a stream, say: the last word on each fact counts."""

    def __init__(self, places: list[tuple[str, Place, Callable[[Any], Any]]]) -> None:
        self._places = places
        self._found: dict[str, Any] = {}
        self._calls: dict[Any, ToolCall] = {}

    def take(self, item: Any) -> None:
        """Take note of what one item says."""
        found = _look(self._places, item)
        for call in found.pop("tool_calls", ()):
            self._calls[call.id or (call.name, len(self._calls))] = call
        self._found.update(found)

    def facts(self, complete: bool) -> ResponseFacts:
        """Return what is known."""
        found = dict(self._found)
        usage = {name: found.pop(name) for name in (*_COUNTS, "cost_usd") if name in found}
        reasons: tuple[str | None, ...] = found.pop("finish_reason", ())
        return ResponseFacts(
            id=found.pop("response_id", None),
            model=found.pop("response_model", None),
            finish_reasons=finish_reasons(reasons),
            finish_reasons_raw=reasons,
            tool_calls=tuple(self._calls.values()),
            usage=Usage(**usage) if usage else None,
            complete=complete,
            **found,
        )


def _look(places: list[tuple[str, Place, Callable[[Any], Any]]], source: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, place, fact_of in places:
        try:
            value = place(source)
            fact = None if value is None else fact_of(value)
        except Exception as error:
            warn_once(
                f"look for the fact {name}",
                "The place given for the fact %r of an instrumented callable raised %s; it stays "
                "unknown.",
                *(name, type(error).__name__),
            )
            continue
        if fact is not None:
            found[name] = fact
    return found


def _place(name: str, given: Any) -> Place:
    if callable(given):
        return cast("Place", given)
    if isinstance(given, str) and given:
        return _path(given)
    raise ClewError(f"the place of the fact {name!r} is {given!r}; give a path or a function")


def _identity(value: Any) -> Any:
    return value


def _path(path: str) -> Place:
    names = path.split(".")

    def look(thing: Any) -> Any:
        for name in names:
            if thing is None:
                return None
            thing = _get(thing, name)
        # What can be read once is left to whom it was given to.
        return None if isinstance(thing, Iterator) else thing

    return look


def _get(thing: Any, name: str) -> Any:
    if isinstance(thing, Mapping):
        return cast("Mapping[str, Any]", thing).get(name)
    if isinstance(thing, (list, tuple)) and name.lstrip("-").isdigit():
        several = cast("list[Any]", thing)
        index = int(name)
        return several[index] if -len(several) <= index < len(several) else None
    return getattr(cast("Any", thing), name, None)
