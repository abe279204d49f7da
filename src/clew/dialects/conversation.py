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
import threading
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from clew._forks import new_in_each_child
from clew._guard import record_failure
from clew.facts import RequestFacts
from clew.typing import Beginning, Dialect, Route

LONG: Final = 8192
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

_lock = threading.RLock()
"""For what all of them hold. A collection may let go of one while another is being kept."""
new_in_each_child(globals(), "_lock", threading.RLock)


class Conversation:
    """What one agent has sent before.

    Used by several threads at once it loses nothing but time.
    """

    __slots__ = ("_from", "_misses", "known")
    held = 0
    """Bytes that all of them hold."""

    def __init__(self) -> None:
        self.known: Beginning | None = None
        """What its requests begin with, as far as that is known."""
        self._from: int | None = None
        """Bytes from which on a request is worth learning from; None before the first one."""
        self._misses = 0

    def request(self, dialect: Dialect, body: bytes, route: Route) -> RequestFacts:
        """Read a request body, as the dialect does it. Never raises."""
        if dialect.conversation is None or self._misses >= _MISSES or len(body) < LONG:
            return dialect.request(body, route)
        try:
            known = self.known
            if known is not None and known.dialect is dialect:
                facts = _of_rest(body, route, known)
                if facts is not None:
                    self._misses = 0
                    if (facts.messages or 0) - known.entries > _MANY:
                        self._keep(_longer(known, body, route, facts) or known)
                    return facts
            facts = dialect.request(body, route)
            if self._from is None:
                self._from = LONG  # most agents that have sent one long request send another one
            elif self._from <= len(body) <= _LARGEST:
                self._learn(dialect, body, route, facts)
        except Exception:
            record_failure("read a conversation")
            return dialect.request(body, route)
        return facts

    def forget(self) -> None:
        """Let go of what is held."""
        self._keep(None)

    def _learn(self, dialect: Dialect, body: bytes, route: Route, facts: RequestFacts) -> None:
        found = _proven(_beginning(dialect, body), body, route, facts)
        if found is not None and 2 * len(found.prefix) >= len(body):
            self._misses += 1  # until a request goes on with it
        else:
            found, self._from = None, 2 * len(body)  # what is not said in turns is the most of it
        self._keep(found)

    def _keep(self, known: Beginning | None) -> None:
        with _lock:
            before = 0 if self.known is None else len(self.known.prefix)
            more = 0 if known is None else len(known.prefix)
            if Conversation.held - before + more > _HELD:
                known, more = None, 0
            self.known = known
            Conversation.held += more - before

    def __del__(self) -> None:
        self.forget()


def _of_rest(body: bytes, route: Route, known: Beginning) -> RequestFacts | None:
    """Read what is not known of a body that begins with it; None where that cannot be done."""
    rest = known.rest_of(body)
    facts = None if rest is None else known.dialect.request(rest, route)
    if facts is None or facts.messages is None:
        return None
    return replace(
        facts,
        messages=known.entries + facts.messages,
        tool_result_ids=known.result_ids + facts.tool_result_ids,
    )


def _longer(known: Beginning, body: bytes, route: Route, facts: RequestFacts) -> Beginning | None:
    """Return what a body begins with that goes on with what is known; None where it is no more."""
    rest = known.rest_of(body)
    more = None if rest is None else _beginning(known.dialect, rest)
    if more is None or more.head != known.head:
        return None
    longer = more._replace(
        prefix=known.prefix + more.prefix[len(more.head) :], entries=known.entries + more.entries
    )
    return _proven(longer, body, route, facts)


def _proven(
    found: Beginning | None, body: bytes, route: Route, facts: RequestFacts
) -> Beginning | None:
    """Return a beginning with its results, if reading the rest says the same as reading it all.

    That is so only where the entries were found in the list that counts, wherever they stand else.
    """
    rest = None if found is None else _of_rest(body, route, found)
    if found is None or rest is None:
        return None
    ids, new = facts.tool_result_ids, rest.tool_result_ids
    found = found._replace(result_ids=ids[: len(ids) - len(new)])
    return found if replace(rest, tool_result_ids=found.result_ids + new) == facts else None


def _beginning(dialect: Dialect, body: bytes) -> Beginning | None:
    """Return what a body begins with, up to its last entries; None where that cannot be told."""
    member = dialect.conversation or ""
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
            return Beginning(dialect, body[:end], body[:start], opening, len(entries), (), {})
    return None


@functools.cache
def _decoder(member: str) -> msgspec.json.Decoder[Any]:
    entries = ("entries", list[msgspec.Raw], msgspec.field(name=member))
    return msgspec.json.Decoder(msgspec.defstruct("Entries", [entries]))
