"""Events of a stream that only go on with a text, made one event before anything is decoded.

Nearly all events of a stream differ from the one before in a few words of one text. Where the bytes
before and after that text are the same, what stands between two texts is the end of one event and
the beginning of the next. Taken out, it leaves one event with both texts in it, for half a JSON
string and the other half are a JSON string. Text cannot deceive: in JSON, a line never ends inside
a string, and a quotation mark there is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from clew._json_text import are_inside, texts_of

_LOOKED_AT: Final = 12
"""Events at the beginning among which two are looked for that differ in a text."""
_END: Final = b"\n\n"


def joined(body: bytes, growing: frozenset[bytes]) -> bytes:
    """Return server-sent events with fewer of them, that say the same.

    Args:
        body: the events; no line ends in a carriage return.
        growing: the members whose texts, from event to event, are parts of one text.
    """
    form = _form(body, growing)
    if form is None:
        return body
    head, tail = form
    seam = tail + head
    first, *rest = body.split(seam)
    made = [first]
    goes_on = _ends_so(first, head)
    texts = rest[:-1]
    if len(texts) > 1 and _are_texts(texts):  # as a rule: then there is no need to look at each
        made += ([] if goes_on else [seam]) + texts
        goes_on, rest = True, rest[-1:]
    for left, part in zip(range(len(rest) - 1, -1, -1), rest, strict=True):
        # What follows a seam is the text of an event, its end, and perhaps more events. The end
        # may be that of the next seam; of the last one it may have been cut off.
        text, ended, more = part.partition(tail)
        is_so = (left > 0 or bool(ended)) and _are_texts([text])
        made.append(part if goes_on and is_so else seam + part)
        goes_on = _ends_so(more, head) if more else is_so
    return b"".join(made)


def _ends_so(events: bytes, head: bytes) -> bool:
    """Tell whether the last of some events begins like these, and is all text up to its end."""
    event = events.rpartition(_END)[2]
    return event.startswith(head) and _are_texts([event[len(head) :]])


def _are_texts(parts: Sequence[bytes]) -> bool:
    """Tell whether each of them is the inside of a JSON string, which no line ends in."""
    return b"\n" not in b"".join(parts) and are_inside(parts)


def _form(body: bytes, growing: frozenset[bytes]) -> tuple[bytes, bytes] | None:
    """Return what events with a growing text begin and end with, if two in a row differ in that.

    No other growing text is in them: it would be said once, where each of them has said it.
    """
    events = body.split(_END, _LOOKED_AT)[:_LOOKED_AT]
    for event, following in pairwise(events):
        texts = [text for text in texts_of(growing).finditer(event) if text[1]]
        if len(texts) != 1:
            continue
        head, tail = event[: texts[0].start(1)], event[texts[0].end(1) :]
        long_enough = len(following) >= len(head) + len(tail)
        if long_enough and following.startswith(head) and following.endswith(tail):
            return head, tail + _END
    return None
