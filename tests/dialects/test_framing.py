"""How events are framed, and which of them are parsed at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_reading import (
    CHAT,
    COHERE,
    GEMINI_STREAM,
    MESSAGES,
    RESPONSES,
    chunk,
    reader_of,
    sse,
)

from clew.dialects import _stream
from clew.facts import ResponseFacts, Usage

# --- framing ------------------------------------------------------------------------------------------

EVENTS = (
    chunk({"content": "one"}),
    chunk({"content": "two"}),
    chunk({"content": "three"}, usage={"prompt_tokens": 4, "completion_tokens": 2}),
    chunk(finish="stop"),
)
EXPECTED = ResponseFacts(
    id="c1",
    model="m-1",
    finish_reasons=("stop",),
    finish_reasons_raw=("stop",),
    usage=Usage(input_tokens=4, output_tokens=2),
)


def framed(line_end: str, *, space: str = " ", before: str = "", between: str = "") -> bytes:
    """Write the events with these line ends."""
    lines = [before] if before else []
    for event in EVENTS:
        lines += [between] if between else []
        lines += [f"data:{space}{json.dumps(event)}", ""]
    return (line_end.join(lines) + line_end).encode()


@pytest.mark.parametrize(
    "body",
    [
        framed("\n"),
        framed("\r\n"),
        framed("\r"),
        framed("\n", space=""),
        framed("\n", before=": a comment\n"),
        framed("\n", between=": a comment\n\nevent: ping\n\nretry: 10\n"),
        framed("\n", between="id: 7\nevent: chunk"),
        b"\xef\xbb\xbf" + framed("\n"),
        b"\n\n\n" + framed("\n"),
        framed("\n").rstrip(b"\n"),
        framed("\r\n").rstrip(b"\r\n"),
    ],
)
def test_framing(body: bytes):
    """LF, CRLF and CR, comments, other fields, a BOM, blank lines, no last line end: the same."""
    for pieces in ([body], [body[at : at + 1] for at in range(len(body))]):
        reader = reader_of(CHAT)
        for piece in pieces:
            reader.feed(piece)
        assert (reader.result(), reader.chunks) == (EXPECTED, 4)


def test_data_over_several_lines():
    """Lines of data are joined by line ends."""
    text = json.dumps(chunk(finish="stop"), indent=1)
    body = "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
    reader = reader_of(CHAT)
    reader.feed(body.encode())
    assert (reader.result().finish_reasons, reader.chunks) == (("stop",), 1)


def test_asking_early_changes_nothing():
    """A result may be asked for at any time, also inside an event."""
    body = framed("\n")
    reader = reader_of(CHAT)
    for at in range(len(body)):
        reader.feed(body[at : at + 1])
        reader.result()
    assert (reader.result(), reader.chunks) == (EXPECTED, 4)


def test_an_event_too_large_is_passed_over():
    """Its bytes are not kept, and the events after it count."""
    reader = reader_of(CHAT)
    filler = b"x" * 1_000_000
    reader.feed(b'data: {"choices":[{"delta":{"content":"')
    largest = 0
    for _ in range(12):
        reader.feed(filler)
        largest = max(largest, len(reader._pending))  # type: ignore[attr-defined]
    reader.feed(b'"}}]}\n\n' + framed("\n"))
    assert largest <= _stream.MAX_EVENT
    assert reader.result() == EXPECTED
    assert reader.chunks == 5


def test_uneventful_events_are_not_parsed(monkeypatch: pytest.MonkeyPatch):
    """A stream of text costs a comparison each; quotes in the text change nothing about it."""
    reader = reader_of(CHAT)
    parsed: list[bytes] = []
    original = type(reader).apply  # type: ignore[attr-defined]

    def counting(self: Any, payload: bytes) -> int:
        parsed.append(payload)
        return original(self, payload)

    monkeypatch.setattr(type(reader), "apply", counting)
    words = [
        "plain",
        'a "quoted" word',
        "back\\slash",
        "é",
        "new\nline",
        '"usage":{"prompt_tokens":1}',
    ]
    for position in range(200):
        (event,) = sse(chunk({"content": words[position % len(words)]}))
        reader.feed(event)
    assert len(parsed) <= 2
    assert reader.chunks == 200


@pytest.mark.parametrize(
    ("address", "event"),
    [
        (CHAT, lambda n: chunk({"content": f"w{n}"}, obfuscation="x" * (n % 7))),
        (CHAT, lambda n: chunk({"content": f"w{n}"}, usage={"prompt_tokens": 5, "completion_tokens": n})),
        (CHAT, lambda n: chunk({"tool_calls": [{"index": 0, "function": {"arguments": f'"{n}'}}]})),
        (RESPONSES, lambda n: {"type": "response.output_text.delta", "delta": f"w{n}", "sequence_number": n}),
        (RESPONSES, lambda n: {"sequence_number": n, "type": "response.output_text.delta", "delta": "w"}),
        (MESSAGES, lambda n: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"w{n}"}}),
        (
            GEMINI_STREAM,
            lambda n: {
                "candidates": [{"content": {"parts": [{"text": f"w{n}"}], "role": "model"}, "index": 0}],
                "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": n, "totalTokenCount": 5 + n},
                "responseId": "r",
            },
        ),
        (COHERE, lambda n: {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": f"w{n}"}}}}),
        (
            ("api.together.xyz", "/v1/chat/completions"),
            lambda n: chunk({"token_id": n * 7, "content": f"w{n}"}),
        ),
        (
            ("router.huggingface.co", "/v1/chat/completions"),
            lambda n: chunk({"content": f"w{n}"}, sla_metrics={"ttft_ms": 12.5, "ts_us": 10**9 + n}),
        ),
    ],
)  # fmt: skip
def test_counters_and_times_do_not_spoil_it(
    address: tuple[str, str], event: Any, monkeypatch: pytest.MonkeyPatch
):
    """Sequence numbers, running counts, padding, timings: a handful of events is parsed."""
    reader = reader_of(address)
    parsed: list[bytes] = []
    original = type(reader).apply  # type: ignore[attr-defined]

    def counting(self: Any, payload: bytes) -> int:
        parsed.append(payload)
        return original(self, payload)

    monkeypatch.setattr(type(reader), "apply", counting)
    for written in sse(*[event(position) for position in range(1, 100)]):
        reader.feed(written)
    usage = reader.result().usage
    assert len(parsed) <= 6
    assert reader.chunks == 99
    if usage is not None:
        assert usage.output_tokens == 99
