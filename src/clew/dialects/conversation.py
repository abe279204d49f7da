"""A request that repeats the one before it, and of which only what is new is read.

An agent sends its whole conversation with every request: what is new are a few entries at its end.
The bytes up to one of the last entries stand at the beginning of the next request, too, where
nothing before them has changed. JSON that begins alike is read alike as far as it is alike, so the
entries there need no second look: they are known by how many they are, and by the results of tool
calls among them.

The last entries are always read: SDKs change those when they go on, as where a mark for a
provider's cache moves along. Where something earlier has changed, the request is read as a whole.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from clew._guard import record_failure
from clew.facts import RequestFacts
from clew.typing import Dialect, Route

LONG: Final = 4096
"""Bytes from which on a request is worth the trouble."""
_LARGEST: Final = 1024 * 1024
_HELD: Final = 16 * 1024 * 1024
"""Bytes that all conversations of a process hold at the most."""
_OPEN: Final = 4
"""Entries at the end that are not taken for known."""
_MANY: Final = 12
"""Entries read in vain from which on more of them are taken for known."""
_MISSES: Final = 4
"""Requests in a row that were none that went on, after which that is looked for no more."""
_FORMS: Final = ((b'"%s":[', b","), (b'"%s": [', b", "))
"""How a list begins and what stands between its entries, as JSON is written without space and with
it."""


class _Known(NamedTuple):
    """What a conversation begins with, and what that says."""

    dialect: Dialect
    prefix: bytes
    """Up to the last entry that is known, with the comma after it."""
    head: bytes
    """Up to the bracket before the first one."""
    opening: bytes
    """The list's name and its bracket, which end the head."""
    entries: int
    result_ids: tuple[str, ...]


class Conversation:
    """What one agent has sent before.

    Used by several threads at once it loses nothing but time.
    """

    __slots__ = ("_known", "_misses", "_seen")
    held = 0
    """Bytes that all of them hold."""

    def __init__(self) -> None:
        self._known: _Known | None = None
        self._seen = False
        self._misses = 0

    def request(self, dialect: Dialect, body: bytes, route: Route) -> RequestFacts:
        """Read a request body, as the dialect does it. Never raises."""
        member = dialect.conversation
        if member is None or self._misses >= _MISSES or len(body) < LONG:
            return dialect.request(body, route)
        try:
            known = self._known
            if known is not None and known.dialect is dialect and body.startswith(known.prefix):
                facts = _of_rest(body, route, known)
                if facts is not None:
                    self._misses = 0
                    if (facts.messages or 0) - known.entries > _MANY:
                        self._learn(dialect, member, body, route, facts)
                    return facts
            facts = dialect.request(body, route)
            if self._seen:  # a single request is followed by none
                self._misses += 1
                self._learn(dialect, member, body, route, facts)
            self._seen = True
        except Exception:
            record_failure("read a conversation")
            return dialect.request(body, route)
        return facts

    def forget(self) -> None:
        """Let go of what is held."""
        self._keep(None)

    def _learn(
        self, dialect: Dialect, member: str, body: bytes, route: Route, facts: RequestFacts
    ) -> None:
        found = _beginning(dialect, member, body) if len(body) <= _LARGEST else None
        rest = _of_rest(body, route, found) if found is not None else None
        if found is not None and rest is not None:
            ids, new = facts.tool_result_ids, len(rest.tool_result_ids)
            found = found._replace(result_ids=ids[: len(ids) - new])
            # Wherever the entries were found: the same must come of reading the rest.
            if replace(rest, tool_result_ids=found.result_ids + rest.tool_result_ids) == facts:
                self._keep(found)
                return
        self._keep(None)

    def _keep(self, known: _Known | None) -> None:
        before, self._known = self._known, None
        size = 0 if before is None else len(before.prefix)
        more = 0 if known is None else len(known.prefix)
        if Conversation.held - size + more > _HELD:
            known, more = None, 0
        Conversation.held += more - size
        self._known = known

    def __del__(self) -> None:
        self.forget()


def _of_rest(body: bytes, route: Route, known: _Known) -> RequestFacts | None:
    """Read what is not known of a body that begins with it; None where that cannot be done."""
    rest = body[len(known.prefix) :]
    if known.opening in rest:
        return None  # twice the same member, of which the last one counts; or it is deeper inside
    facts = known.dialect.request(known.head + rest, route)
    if facts.messages is None:
        return None
    return replace(
        facts,
        messages=known.entries + facts.messages,
        tool_result_ids=known.result_ids + facts.tool_result_ids,
    )


def _beginning(dialect: Dialect, member: str, body: bytes) -> _Known | None:
    """Return what a body begins with, up to its last entries; None where that cannot be told."""
    try:
        raws = _decoder(member).decode(body).entries
    except (ValueError, RecursionError):
        return None
    if len(raws) <= _OPEN:
        return None
    entries = [bytes(raw) for raw in raws[:-_OPEN]]
    for form, comma in _FORMS:
        opening = form % member.encode()
        known = comma.join(entries) + comma
        start = body.find(opening + known)
        if start >= 0:
            start += len(opening)
            end = start + len(known)
            return _Known(dialect, body[:end], body[:start], opening, len(entries), ())
    return None


@functools.cache
def _decoder(member: str) -> msgspec.json.Decoder[Any]:
    entries = ("entries", list[msgspec.Raw], msgspec.field(name=member))
    return msgspec.json.Decoder(msgspec.defstruct("Entries", [entries]))
