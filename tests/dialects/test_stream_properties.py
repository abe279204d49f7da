"""Streams read the same however they are cut, with the fast path and without."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest
from drawn_streams import GENERATORS, TEXTS, events_of, outcome, slowly, written
from hypothesis import given, settings
from hypothesis import strategies as st
from usual_routes import usual_route
from wire_reading import random_pieces

from clew import _guard
from clew.typing import StreamReader


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_fast_and_slow_reading_agree_however_the_stream_is_cut(name: str) -> None:
    """Templates and types only save work: no fact is missed, whatever the content looks like."""

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        events = events_of(name, data.draw)
        body = written(name, events, data.draw)
        cut = random.Random(data.draw(st.integers(0, 10**6)))  # noqa: S311
        route = usual_route(name)
        kind = "application/x-ndjson" if name == "ollama" else "text/event-stream"

        def fresh() -> StreamReader:
            return route.dialect.stream(route, kind)

        whole = [body]
        single = split_after(body, b"\n" if name == "ollama" else b"\n\n")
        anywhere = random_pieces(body, cut)
        expected = outcome(slowly(fresh()), whole)
        assert outcome(fresh(), whole) == expected
        assert outcome(fresh(), single) == expected
        assert outcome(slowly(fresh()), single) == expected
        assert outcome(fresh(), anywhere) == expected
        assert outcome(fresh(), [body[at : at + 1] for at in range(len(body))]) == expected
        assert dict(_guard.failures) == {}

    run()


def split_after(body: bytes, end: bytes) -> list[bytes]:
    """Cut a body after each `end`."""
    pieces = [piece + end for piece in body.split(end)]
    pieces[-1] = pieces[-1][: -len(end)]
    return pieces


def test_an_array_of_chunks_reads_the_same_however_it_is_cut() -> None:
    """Gemini without `alt=sse`: one JSON array, separators in any piece."""

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        events = events_of("gemini_content", data.draw)
        indent = data.draw(st.sampled_from([None, 1]))
        separator = data.draw(st.sampled_from([",\r\n", ",\n", ",", "\n,\r\n"]))
        body = "[" + separator.join(json.dumps(event, indent=indent) for event in events) + "\n]"
        data_bytes = body.encode()
        cut = random.Random(data.draw(st.integers(0, 10**6)))  # noqa: S311
        route = usual_route("gemini_content")

        def fresh() -> StreamReader:
            return route.dialect.stream(route, "application/json; charset=UTF-8")

        expected = outcome(slowly(fresh()), [data_bytes])
        assert expected[1] == len(events)
        assert outcome(fresh(), random_pieces(data_bytes, cut)) == expected
        assert outcome(fresh(), split_after(data_bytes, b",\r\n")) == expected
        assert (
            outcome(fresh(), [data_bytes[at : at + 1] for at in range(len(data_bytes))]) == expected
        )

    run()


def frame(kind: str, payload: bytes) -> bytes:
    """Write an event stream frame (checksums are not looked at)."""
    head = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in ((":event-type", kind), (":message-type", "event"))
    )
    total = 16 + len(head) + len(payload)
    return struct.pack(">III", total, len(head), 0) + head + payload + b"\0\0\0\0"


def test_frames_read_the_same_however_they_are_cut() -> None:
    """Bedrock's event stream: frames in any pieces, with the fast path and without."""

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        draw = data.draw
        frames: list[bytes] = []
        for _ in range(draw(st.integers(0, 10))):
            kind = draw(
                st.sampled_from(["contentBlockDelta"] * 4 + ["contentBlockStart", "metadata"])
            )
            payload: dict[str, Any] = {"contentBlockIndex": draw(st.integers(0, 2))}
            if kind == "contentBlockDelta":
                payload["delta"] = {"text": draw(TEXTS)}
            elif kind == "contentBlockStart":
                payload["start"] = {
                    "toolUse": {"toolUseId": draw(st.sampled_from("ab")), "name": "f"}
                }
            else:
                payload = {"usage": {"inputTokens": draw(st.integers(0, 9)), "outputTokens": 1}}
            frames.append(frame(kind, json.dumps(payload).encode()))
        body = b"".join(frames)
        cut = random.Random(draw(st.integers(0, 10**6)))  # noqa: S311
        route = usual_route("bedrock_converse")

        def fresh() -> StreamReader:
            return route.dialect.stream(route, "application/vnd.amazon.eventstream")

        expected = outcome(fresh(), [body])
        assert expected[1] == len(frames)
        assert outcome(fresh(), frames) == expected
        assert outcome(fresh(), random_pieces(body, cut)) == expected
        assert outcome(fresh(), [body[at : at + 1] for at in range(len(body))]) == expected

    run()
