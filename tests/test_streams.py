"""Following a body: what is only counted says nothing that reading would have told."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from opentelemetry.trace import SpanKind, StatusCode

import clew
from clew import _guard, exchange, semconv, streams
from clew.audit.verify import verify
from clew.endings import Ending
from clew.pipeline import runtime as runtimes
from clew.sources.otlp_json import record_of
from clew.store import otlp_protobuf
from clew.streams import StreamTap, afollow, follow

SSE = "text/event-stream"
CHAT = ("api.openai.com", "/v1/chat/completions")
MESSAGES = ("api.anthropic.com", "/v1/messages")
RESPONSES = ("api.openai.com", "/v1/responses")


def tap_on(address) -> StreamTap:
    """Return a tap on the answer to a request that goes to an address."""
    runtime = runtimes.get()
    target = exchange.target_of(runtime, "POST", "https", address[0], None, address[1])
    begun = exchange.begin(runtime, object(), target, None, first=True)
    return StreamTap(begun, 200, SSE, {})


def chat(text: str, **fields: object) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c-1", "choices": [delta], **fields}).encode() + b"\n\n"


def message(text: str, **fields: object) -> bytes:
    event = {"type": "content_block_delta", "index": 0, "delta": {"text": text}, **fields}
    return b"event: content_block_delta\ndata: " + json.dumps(event).encode() + b"\n\n"


def response(text: str, **fields: object) -> bytes:
    event = {"type": "response.output_text.delta", "delta": text, **fields}
    return b"event: response.output_text.delta\ndata: " + json.dumps(event).encode() + b"\n\n"


LOUD = {
    CHAT: [
        b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}\n\n',
        b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n',
        b'data: {"error": {"type": "overloaded"}}\n\n',
        b"data: [DONE]\n\n",
        chat("x", usage={"prompt_tokens": 9, "completion_tokens": 7}),
        chat("x", service_tier="flex"),
        chat('", "tool_calls": [{"id": "call_1"}], "a": "'),
    ],
    MESSAGES: [
        b'event: message_delta\ndata: {"type": "message_delta", "usage": {"output_tokens": 4}}\n\n',
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n',
        b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
        message("x\n\n"),
        (
            b'event: content_block_delta\ndata: {"type": "content_block_delta"}\rdata: {"type": '
            b'"message_stop"}\n\n'
        ),
    ],
    RESPONSES: [
        (
            b'event: response.completed\ndata: {"type": "response.completed", "response": {"id": "r",'
            b' "status": "completed", "usage": {"input_tokens": 9, "output_tokens": 4}}}\n\n'
        ),
        b'event: error\ndata: {"type": "error", "code": "server_error"}\n\n',
    ],
}
QUIET = {CHAT: chat, MESSAGES: message, RESPONSES: response}


@st.composite
def bodies(draw):
    """Events of one dialect, most of them text, in pieces that are mostly whole events."""
    address = draw(st.sampled_from([CHAT, MESSAGES, RESPONSES]))
    quiet = QUIET[address]
    words = st.text(st.sampled_from('ab "\\\n\r}{é,:'), max_size=6)
    padding = draw(st.sampled_from([{}, {"obfuscation": "x"}]))
    text = words.map(lambda word: quiet(word, **dict.fromkeys(padding, word)))
    loud = st.sampled_from(LOUD[address])
    events = draw(st.lists(st.one_of(text, text, text, loud), min_size=3, max_size=14))
    events = [quiet("start", **padding), quiet("then", **padding), *events]
    pieces: list[bytes] = []
    for event in events:
        cut = draw(st.sampled_from([0, 0, 0, 0, 1, 2]))
        if cut == 1 and pieces:
            pieces[-1] += event
        elif cut == 2:
            middle = draw(st.integers(1, len(event) - 1))
            pieces += [event[:middle], event[middle:]]
        else:
            pieces.append(event)
    return address, pieces


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=bodies())
def test_following_tells_what_reading_tells(exported, body):
    """The facts, the count of events and the size, piece by piece; the pieces unchanged."""
    address, pieces = body
    tap, atap, read = tap_on(address), tap_on(address), tap_on(address)
    for piece in pieces:
        read.take(piece)
        read.catch_up()
    assert pieces == list(follow(pieces, tap))

    async def source() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def gather() -> list[bytes]:
        return [piece async for piece in afollow(source(), atap)]

    assert pieces == asyncio.run(gather())
    expected = (read.reader.result(), read.reader.chunks, read.size, bool(read.first_ns))
    for one in (tap, atap):
        assert expected == (
            *(one.reader.result(), one.reader.chunks),
            *(one.size, bool(one.first_ns)),
        )


def ended(address, pieces, end="exhausted"):
    """Return how a round ended whose answer came in pieces, once it was counted."""
    tap = tap_on(address)
    for piece in pieces:
        tap.take(piece)
    getattr(tap, end)()
    round_ = tap._exchange.round
    waited = round_.unread is not None
    round_.count_up()
    assert round_.unread is None
    assert tap.waiting == []
    ending = round_.ending
    started = bool(ending.first_chunk_s)
    return waited, structs.replace(ending, first_chunk_s=None), started, round_.failure


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=bodies(), end=st.sampled_from(["exhausted", "closed"]))
def test_what_is_read_later_is_the_same(exported, body, end):
    """In a run an answer is read when somebody looks at its round: the ending is that of others."""
    address, pieces = body
    early, *expected = ended(address, pieces, end)
    with clew.run("desk"):
        late, *told = ended(address, pieces, end)
    assert (early, late) == (False, True)
    assert told == expected


@pytest.mark.parametrize("address", [CHAT, MESSAGES, RESPONSES])
def test_the_first_output_is_timed_when_it_came(exported, address, monkeypatch):
    """Whatever is read when, the time is that of the piece that brought it."""
    begins = b'event: ping\ndata: {"type": "ping"}\n\n'
    for silent in (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 40):
        pieces = [*[begins] * silent, *[QUIET[address](word) for word in "abcdefgh" * 12]]
        with clew.run("desk"):
            tap = tap_on(address)
            clock = itertools.count(tap._exchange.started)
            monkeypatch.setattr(streams.time, "perf_counter_ns", clock.__next__)
            assert pieces == list(follow(pieces, tap))
            monkeypatch.undo()
            tap._exchange.round.count_up()
        assert tap.first_ns - tap._exchange.started == silent, silent


def test_a_stream_that_was_cut_off_has_failed_though_it_is_read_later(exported):
    """Status and `error.type` are there when the span is exported, and in its digest."""
    with clew.run("desk"):
        waited, ending, _, failure = ended(MESSAGES, [message("a"), message("b")])
    assert waited
    assert (ending.outcome, failure) == ("failed", "stream_cut_off")
    clew.shutdown()
    (span,) = [span for span in exported.spans if span.kind is SpanKind.CLIENT]
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes[semconv.ERROR_TYPE] == "stream_cut_off"
    spans = otlp_protobuf.decode(exported.otlp_bytes()).spans
    report = verify(record_of(f"{span.context.trace_id:032x}", spans))
    assert (report.status, report.integrity) == ("COMPLETE", "CONSISTENT")


def test_little_waits(exported):
    """Long answers are read as they come, and some answers where too many wait."""
    long = [message("x" * 1000) for _ in range(300)]
    with clew.run("desk"):
        tap = tap_on(MESSAGES)
        assert long == list(follow(long, tap))
        assert tap.waiting == []
        assert tap._exchange.round.unread is None
        few = [message("one"), message("two")]
        worker = runtimes.get().worker
        worker.call_soon = lambda _: None  # the thread that reads them has no turn
        waited = [ended_at_once(few) for _ in range(40)]
        del worker.call_soon
    assert waited == [True] * 24 + [False] * 16


@pytest.mark.parametrize("number", [3, 16, 63, 64, 65, 68, 79, 130])
def test_no_large_answer_waits_however_many_pieces_it_came_in(exported, number):
    """What came since it was last looked how much waits counts as well; each is counted once."""
    size = 160_000 // number
    with clew.run("desk"):
        assert not ended_at_once([message("x" * size) for _ in range(number)])
        tap = tap_on(MESSAGES)
        for piece in [message("x" * (size // 2 - 100)) for _ in range(number)]:
            tap.take(piece)
        tap.exhausted()
        assert tap._exchange.round.unread is not None


def test_a_round_that_has_ended_before_its_stream_waits_for_nobody(exported):
    """As one does that a signal has ended: what comes after that is read at once."""
    with clew.run("desk"):
        tap = tap_on(CHAT)
        round_ = tap._exchange.round
        tap.take(chat("a"))
        round_.finish(Ending(status=200, outcome="closed"))
        tap.exhausted()
        assert (tap.done, tap.waiting, round_.unread) == (True, [], None)
        assert round_.ending.outcome == "closed"
        assert ended_at_once([chat("one")])


@pytest.mark.parametrize(
    ("body", "waits"),
    [
        (b'{"id": "c", "usage": {"prompt_tokens": 9}, "choices": []}', True),
        (b'{"id": "c", "usage": {"prompt_tokens": 9}, "x": "' + b"a" * 8000 + b'"}', True),
        (b'{"id": "c", "usage": {"prompt_tokens": 9}, "x": "' + b"a" * 140_000 + b'"}', False),
        (b'{"id": "c", "error": {"type": "overloaded"}, "x": "' + b"a" * 8000 + b'"}', False),
    ],
)
def test_a_whole_answer_waits_likewise(exported, body, waits):
    """Unless it is very long or tells of an error; what it says is what reading at once says."""

    def answered():
        runtime = runtimes.get()
        target = exchange.target_of(runtime, "POST", "https", CHAT[0], None, CHAT[1])
        begun = exchange.begin(runtime, object(), target, None, first=True)
        begun.responded(200, "application/json", body, {})
        waited = begun.round.unread is not None
        begun.round.count_up()
        return waited, begun.round.ending, begun.round.failure

    at_once, *expected = answered()
    with clew.run("desk"):
        later, *told = answered()
    assert (at_once, later) == (False, waits)
    assert told == expected
    assert told[0].response_bytes == len(body)


def ended_at_once(pieces) -> bool:
    """Tell whether an answer waits once it has ended."""
    tap = tap_on(MESSAGES)
    assert pieces == list(follow(pieces, tap))
    return tap._exchange.round.unread is not None


@pytest.mark.parametrize("address", [CHAT, MESSAGES, RESPONSES])
def test_text_is_only_counted(exported, address, monkeypatch):
    """After the first events of a stream, one more of the kind is not read."""
    quiet = QUIET[address]
    tap = tap_on(address)
    events = [quiet(word, obfuscation=word * 2) for word in "abcdefghijklmnop"]
    read: list[bytes] = []
    kind = type(tap.reader)
    original = kind.apply
    monkeypatch.setattr(
        kind, "apply", lambda self, data: (read.append(data), original(self, data))[1]
    )
    assert events == list(follow(events, tap))
    assert len(read) <= 3
    assert len(events) == tap.reader.chunks


def test_a_body_of_another_kind_passes_unharmed(exported):
    """Pieces that are no bytes are the caller's business."""
    pieces = [memoryview(chat("a")), "text", memoryview(chat("b")), None, bytearray(chat("c"))]
    assert pieces == list(follow(pieces, tap_on(CHAT)))
    assert _guard.failures["read a stream"] > 0
    _guard.forget()


def test_a_failing_source_fails_alike(exported):
    """What the source raises reaches the caller, and the round."""

    def source() -> Iterator[bytes]:
        yield chat("a")
        raise ConnectionError("cut")

    tap = tap_on(CHAT)
    with pytest.raises(ConnectionError):
        list(follow(source(), tap))
    assert tap.done
