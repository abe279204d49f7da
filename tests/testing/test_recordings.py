"""Recordings: reading the files, and answering with them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.testing import (
    RecordedExchange,
    RecordingError,
    RedirectedTransport,
    ReplayServer,
    find_recordings,
    read_recording,
)
from clew.testing.recordings import _exchange

REQUEST: dict[str, Any] = {
    "method": "POST",
    "url": "https://models.example/v1/chat/completions?x=1",
    "headers": {"content-type": "application/json", "x-mark": "kept"},
    "body": {"model": "m", "text": "grün"},
}
RESPONSE: dict[str, Any] = {
    "status": 201,
    "headers": {"content-type": "application/json", "content-length": "9999", "x-id": "r1"},
    "body": {"ok": True, "text": "grün"},
}


def write(folder: Path, content: object, name: str = "one.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def recording(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    exchanges = [{"request": request, "response": response} for request, response in pairs]
    return {"id": "rec", "exchanges": exchanges}


def test_an_exchange_is_read_as_what_goes_over_the_wire(tmp_path: Path):
    """Bodies become bytes, framing headers of the recording are dropped."""
    path = write(tmp_path, recording((REQUEST, RESPONSE)))
    assert read_recording(path) == [
        RecordedExchange(
            id="rec",
            exchange=0,
            method="POST",
            url="https://models.example/v1/chat/completions?x=1",
            request_headers=(("content-type", "application/json"), ("x-mark", "kept")),
            request_body='{"model":"m","text":"grün"}'.encode(),
            status=201,
            response_headers=(("content-type", "application/json"), ("x-id", "r1")),
            pieces=('{"ok":true,"text":"grün"}'.encode(),),
            streamed=False,
        )
    ]


@pytest.mark.parametrize(
    ("request_change", "response_change", "streamed"),
    [
        ({}, {}, False),
        ({"body": {"stream": True}}, {}, True),
        ({"body": {"stream": False}}, {}, False),
        ({}, {"text": "data: 1\n\n"}, True),
        ({}, {"base64": "AAAA"}, True),
    ],
)
def test_what_is_read_as_a_stream(
    tmp_path: Path, request_change: dict[str, Any], response_change: dict[str, Any], streamed: bool
):
    """A stream is what was asked for as one, or was recorded as text or as binary."""
    path = write(tmp_path, recording((REQUEST | request_change, RESPONSE | response_change)))
    assert [exchange.streamed for exchange in read_recording(path)] == [streamed]


def test_an_upload_gets_its_parts_back(tmp_path: Path):
    """A multipart request is rebuilt, with zeros for the contents of files."""
    request = REQUEST | {
        "headers": {"content-type": "multipart/form-data"},
        "body": [{"name": "model", "value": "m"}, {"name": "f", "filename": "a.wav", "bytes": 3}],
    }
    (exchange,) = read_recording(write(tmp_path, recording((request, RESPONSE))))
    assert dict(exchange.request_headers) == {
        "content-type": "multipart/form-data; boundary=clew-recorded-part"
    }
    assert exchange.request_body == (
        b'--clew-recorded-part\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b'--clew-recorded-part\r\nContent-Disposition: form-data; name="f"; filename="a.wav"\r\n\r\n'
        b"\0\0\0\r\n--clew-recorded-part--\r\n"
    )


def test_other_request_bodies(tmp_path: Path):
    """Text is sent as it is, null as nothing, and a file without an id is called by its name."""
    pairs = [(REQUEST | {"body": body}, RESPONSE) for body in ("plain", None, [1])]
    content = recording(*pairs)
    del content["id"]
    exchanges = read_recording(write(tmp_path, content, "named.json"))
    assert [exchange.request_body for exchange in exchanges] == [b"plain", b"", b"[1]"]
    assert [(each.id, each.exchange) for each in exchanges] == [
        ("named", 0),
        ("named", 1),
        ("named", 2),
    ]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not a JSON object"),
        ({"id": "x"}, "no list `exchanges`"),
        ({"exchanges": {}}, "no list `exchanges`"),
        ({"exchanges": [1]}, "exchange 0 is not a JSON object"),
        ({"exchanges": [{"request": REQUEST}]}, "the response of exchange 0"),
        (recording((REQUEST | {"method": "P O"}, RESPONSE)), "no method"),
        (recording((REQUEST | {"url": "ftp://x/"}, RESPONSE)), "`url`"),
        (recording((REQUEST | {"url": "https://[bad/"}, RESPONSE)), "`url`"),
        (recording((REQUEST | {"url": "https://x:99999/"}, RESPONSE)), "`url`"),
        (recording((REQUEST | {"headers": []}, RESPONSE)), "`headers`"),
        (recording((REQUEST, RESPONSE | {"status": "200"})), "`status`"),
        (recording((REQUEST, RESPONSE | {"status": 100})), "`status`"),
        (recording((REQUEST, RESPONSE | {"base64": "A"})), "broken `base64`"),
        (recording((REQUEST, {"status": 200, "headers": {}})), "none of"),
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, content: object, complaint: str):
    """The error says what is wrong."""
    with pytest.raises(RecordingError, match=complaint):
        read_recording(write(tmp_path, content))


def test_a_file_that_cannot_be_read(tmp_path: Path):
    """A missing file and a folder in place of a file are errors of the same kind."""
    with pytest.raises(RecordingError, match="cannot be read"):
        read_recording(tmp_path / "absent.json")
    with pytest.raises(RecordingError, match="no such file"):
        find_recordings(tmp_path / "absent.json")


def test_folders_are_searched(tmp_path: Path):
    """A folder gives its JSON files, those of its folders too, in order, without its index."""
    (tmp_path / "b").mkdir()
    two, one = write(tmp_path / "b", {}, "two.json"), write(tmp_path, {}, "one.json")
    write(tmp_path, {}, "index.json")
    write(tmp_path, "", "note.txt")
    assert find_recordings(tmp_path) == [two, one]
    assert find_recordings(one) == [one]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["request", "response", "method", "url", "status", "body", "text"]),
                inner,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_refused(entry: object):
    """Whatever stands in the place of an exchange, the only exception is a RecordingError."""
    try:
        exchange = _exchange("any", 0, entry)
    except RecordingError:
        return
    assert exchange.id == "any"


def test_answers_are_sent_as_they_were_recorded():
    """The client sees the recorded URL; status, headers and body are the recorded ones."""
    text = "".join(f"data: {number}\n\n" for number in range(40))
    blob = bytes(range(256))
    pairs = [
        (REQUEST, RESPONSE),
        (REQUEST, {"status": 200, "headers": {"x-id": "r2"}, "text": text}),
        (REQUEST, {"status": 429, "headers": {}, "base64": base64.b64encode(blob).decode()}),
    ]
    exchanges = [
        _exchange("rec", index, {"request": request, "response": response})
        for index, (request, response) in enumerate(pairs)
    ]
    with (
        ReplayServer(exchanges) as server,
        httpx.Client(transport=RedirectedTransport(server.address)) as client,
    ):
        answers = [
            client.request(
                each.method,
                each.url,
                headers=list(each.request_headers),
                content=each.request_body,
            )
            for each in exchanges
        ]
        (first, *_) = server.requests
        assert server.connections == 1
    assert [answer.status_code for answer in answers] == [201, 200, 429]
    assert str(answers[0].request.url) == REQUEST["url"]
    assert answers[0].json() == RESPONSE["body"]
    assert answers[0].headers["x-id"] == "r1"
    assert answers[1].text == text
    assert answers[2].content == blob
    assert (first.path, first.header("host")) == ("/v1/chat/completions?x=1", "models.example")
    assert first.body == exchanges[0].request_body


def test_a_server_without_anything_left():
    """A request too many is told to the test."""
    with (
        pytest.raises(IndexError),
        ReplayServer() as server,
        httpx.Client(transport=RedirectedTransport(server.address)) as client,
    ):
        assert client.get("https://models.example/").status_code == 500
