"""A window over a stream: what is held back, what is let go, what is looked at."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from chat_events import event, texts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saying import SECRET, Govern, Saying, no_keys, saying

import clew
from clew.errors import PolicyDenied
from clew.gates.guardrail import OutputGuardrail, redact
from clew.governance import passages
from clew.governance.governor import governor_of
from clew.governance.windows import Window
from clew.pipeline import runtime
from clew.typing import Proposal


def window(*gates: Any) -> Window:
    current = runtime.get()
    assert current is not None
    proposal = Proposal(kind="model_output", number=1)
    return Window(governor_of(current), proposal, gates, "openai_chat", sse=True)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(place % (len(text) + 1) for place in cuts)})
    return [text[begin:end] for begin, end in pairwise(places)]


KEYED = st.lists(
    st.sampled_from([SECRET, SECRET[:6], SECRET[6:], " some words ", "x" * 30, "é\n"]), max_size=12
).map("".join)
CUTS = st.lists(st.integers(0, 1000), max_size=25)
FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FEW
@given(text=KEYED, cuts=CUTS, width=st.integers(1, 60), more=st.integers(0, 30))
def test_a_redaction_does_not_depend_on_the_events(
    govern: Govern, text: str, cuts: list[int], width: int, more: int
) -> None:
    """Whatever the events and the window, the text is that of a redaction of the whole."""
    if runtime.get() is None:
        govern()
        with clew.run("first", gates=[Saying()]):
            pass
    looking = window(OutputGuardrail(no_keys, window=width, overlap=len(SECRET) + more))
    out = b""
    for piece in pieces(text, cuts):
        out += passages.look(looking, looking.feed(event(piece)))
        assert SECRET not in texts(out)
        assert text.replace(SECRET, "[gone]").startswith(texts(out))
    out += passages.look(looking, looking.end())
    assert texts(out) == text.replace(SECRET, "[gone]")


@FEW
@given(text=KEYED, cuts=CUTS, bytes_cuts=CUTS, width=st.integers(1, 60))
def test_nothing_found_is_nothing_changed(
    govern: Govern, text: str, cuts: list[int], bytes_cuts: list[int], width: int
) -> None:
    """The bytes that come out are those that went in, however they were cut."""
    if runtime.get() is None:
        govern()
        with clew.run("first", gates=[Saying()]):
            pass
    body = b": ping\n\n" + b"".join(map(event, pieces(text, cuts))) + b"data: [DONE]\n\n"
    looking = window(OutputGuardrail(lambda _: None, window=width, overlap=10))
    places = sorted({0, len(body), *(place % (len(body) + 1) for place in bytes_cuts)})
    out = b"".join(
        passages.look(looking, looking.feed(body[begin:end])) for begin, end in pairwise(places)
    )
    assert out + passages.look(looking, looking.end()) == body


@FEW
@given(text=KEYED, cuts=CUTS, width=st.integers(1, 60), more=st.integers(0, 30))
def test_nothing_of_what_is_denied_is_released(
    govern: Govern, text: str, cuts: list[int], width: int, more: int
) -> None:
    """What had gone on ends before the finding, and is counted."""
    if runtime.get() is None:
        govern()
        with clew.run("first", gates=[Saying()]):
            pass
    looking = window(OutputGuardrail(saying("deny"), window=width, overlap=len(SECRET) + more))
    out = b""
    stopped = False
    try:
        for piece in pieces(text, cuts):
            out += passages.look(looking, looking.feed(event(piece)))
        out += passages.look(looking, looking.end())
    except PolicyDenied:
        stopped = True
    assert stopped == (SECRET in text)
    before = text.partition(SECRET)[0]
    assert (before if stopped else text).startswith(texts(out))
    assert looking.released == len(texts(out))


def test_how_much_is_held_back(govern: Govern) -> None:
    """Never more than window and overlap, in events of one character."""
    govern()
    with clew.run("first", gates=[Saying()]):
        pass
    seen: list[str] = []
    looking = window(OutputGuardrail(seen.append, window=10, overlap=4))
    out = b""
    held = []
    for number in range(30):
        out += passages.look(looking, looking.feed(event(chr(97 + number % 26))))
        held.append(number + 1 - len(texts(out)))
    out += passages.look(looking, looking.end())
    assert seen == ["abcdefghij", "ghijklmnopqrst", "qrstuvwxyzabcd", "abcd"]
    assert max(held) == 13
    assert len(texts(out)) == 30


def test_a_growing_match_is_not_cut(govern: Govern) -> None:
    """What a pattern takes of the next window belongs to the match, and is not let go before."""
    import re

    govern()
    with clew.run("first", gates=[Saying()]):
        pass
    key = re.compile(r"sk-\w+")
    guard = OutputGuardrail(
        lambda text: redact(key.sub("[key]", text)) if key.search(text) else None,
        window=8,
        overlap=20,
    )
    looking = window(guard)
    out = b"".join(
        passages.look(looking, looking.feed(event(each)))
        for each in "my key is sk-1234567890, he said"
    )
    assert texts(out + passages.look(looking, looking.end())) == "my key is [key], he said"
