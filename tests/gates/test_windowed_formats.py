"""Output guardrails over the wire formats of streams, asked by a bare client."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
from chat_events import event, texts
from governed import Kit
from saying import SECRET, Govern, decisions, no_keys

import clew
from clew.errors import ConfigurationError, PolicyDenied
from clew.gates.guardrail import OutputGuardrail
from clew.testing import Reply, ScriptedProvider
from clew.testing.loopback import Connection, LoopbackServer, ReceivedRequest
from clew.typing import Verdict

WORDS = ("one two three four ", "five six seven ", "eight nine ten ")


def sse(*events: Any) -> tuple[bytes, ...]:
    return tuple(b"data: %s\n\n" % json.dumps(each).encode() for each in events)


def _read_by(url: str, asked: dict[str, Any]) -> bytes:
    with httpx.Client(trust_env=False) as client, client.stream("POST", url, json=asked) as got:
        return b"".join(got.iter_bytes())


async def through(server: LoopbackServer, path: str, *, sync: bool, **body: Any) -> bytes:
    """Return the streamed body of a request by a bare client."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True, **body}
    url = f"{server.base_url}{path}"
    if sync:
        return _read_by(url, asked)
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        client.stream("POST", url, json=asked) as got,
    ):
        return b"".join([piece async for piece in got.aiter_bytes()])


def output(*content: str) -> dict[str, Any]:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in content]
    return {"id": "m", "type": "message", "role": "assistant", "content": parts}


class Events(LoopbackServer):
    """A server that sends events, whatever it is asked for."""

    def __init__(self, pieces: tuple[bytes, ...]) -> None:
        super().__init__()
        self._pieces = pieces

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        connection.head(200, {"content-type": "text/event-stream"}, None)
        for piece in self._pieces:
            connection.send(piece)
        connection.end()


@pytest.mark.parametrize("sync", [True, False])
async def test_closing_events_that_repeat_a_text(govern: Govern, sync: bool) -> None:
    """Responses says a text once more when it is whole: there, too, it is the redacted one."""
    exported = govern(OutputGuardrail(no_keys, window=8, overlap=16))
    told = {"output_index": 0, "content_index": 0, "item_id": "m"}
    whole = "".join((*WORDS, SECRET, " end"))
    raw = sse(
        {"type": "response.created", "response": {"id": "r", "instructions": SECRET, "output": []}},
        *[
            {"type": "response.output_text.delta", "delta": each, "obfuscation": "xyz", **told}
            for each in (*WORDS, SECRET[:5], SECRET[5:], " end")
        ],
        {"type": "response.output_text.done", "text": whole, **told},
        {"type": "response.output_item.done", "item": output(whole), "output_index": 0},
        {
            "type": "response.completed",
            "response": {
                "id": "r",
                "status": "completed",
                "output": [output(whole, f"not said before {SECRET}")],
                "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8},
            },
        },
    )
    with Events(raw) as events_only, clew.run("triage") as run:
        body = await through(events_only, "/v1/responses", sync=sync, input="x")
        assert run.totals.output_tokens == 5
    events = [json.loads(line[6:]) for line in body.splitlines() if line]
    said = "".join((*WORDS, "[gone]", " end"))
    deltas = [each["delta"] for each in events if each["type"].endswith("delta")]
    assert "".join(deltas) == said
    assert events[-3]["text"] == said
    assert events[-2]["item"]["content"][0]["text"] == said
    assert [part["text"] for part in events[-1]["response"]["output"][0]["content"]] == [
        said,
        "not said before [gone]",
    ]
    assert events[0]["response"]["instructions"] == SECRET  # the request's, not the model's
    (found,) = decisions(exported)
    assert found["outcome"] == "redact"


@pytest.mark.parametrize("sync", [True, False])
async def test_each_text_has_a_window_of_its_own(
    govern: Govern, server: ScriptedProvider, sync: bool
) -> None:
    """Choices, reasoning and arguments are looked at apart, and go on in the order they came."""
    seen: list[str] = []

    def look(text: str) -> Verdict | None:
        seen.append(text)
        return no_keys(text)

    govern(OutputGuardrail(look, window=100, overlap=0))

    def delta(index: int, **said: Any) -> dict[str, Any]:
        return {"choices": [{"index": index, "delta": said}]}

    tool = {"index": 0, "id": "c", "type": "function"}
    raw = sse(
        delta(0, content="he", reasoning_content="hm"),
        delta(1, content=SECRET[:4]),
        delta(0, content="llo"),
        delta(1, content=SECRET[4:]),
        delta(0, tool_calls=[{**tool, "function": {"name": "find", "arguments": '{"q":'}}]),
        delta(0, tool_calls=[{"index": 0, "function": {"arguments": f'"{SECRET}"}}'}}]),
    )
    server.replace(Reply(raw=(*raw, b"data: [DONE]\n\n"), content_type="text/event-stream"))
    body = await through(server, "/v1/chat/completions", sync=sync)
    assert seen == ["hello", "hm", SECRET, f'{{"q":"{SECRET}"}}']
    assert SECRET.encode() not in body
    deltas = [
        json.loads(line[6:])["choices"][0]["delta"]
        for line in body.splitlines()
        if line.startswith(b"data: {")
    ]
    assert [each.get("content") for each in deltas] == ["he", "[gone]", "llo", "", None, None]
    arguments = [each["tool_calls"][0]["function"]["arguments"] for each in deltas[4:]]
    assert "".join(arguments) == '{"q":"[gone]"}'
    assert body.endswith(b"data: [DONE]\n\n")


async def test_token_by_token_repetitions_are_left_out(
    govern: Govern, server: ScriptedProvider
) -> None:
    """`logprobs` of a text that was changed would say it all the same; others stay."""
    govern(OutputGuardrail(no_keys))

    def delta(text: str) -> dict[str, Any]:
        logprobs = {"content": [{"token": text, "logprob": -1}]}
        return {"choices": [{"index": 0, "delta": {"content": text}, "logprobs": logprobs}]}

    raw = sse(delta("my key: "), delta(SECRET), delta(" and more"))
    server.replace(Reply(raw=raw, content_type="text/event-stream"))
    body = await through(server, "/v1/chat/completions", sync=True)
    assert SECRET.encode() not in body
    choices = [json.loads(line[6:])["choices"][0] for line in body.splitlines() if line]
    assert [choice["logprobs"] is None for choice in choices] == [False, True, False]


async def test_signed_thinking_is_denied(govern: Govern, server: ScriptedProvider) -> None:
    """What the provider has signed cannot be changed."""
    exported = govern(OutputGuardrail(no_keys))
    server.replace(Reply(reasoning=f"so {SECRET}", text="fine"))
    kit = Kit("anthropic-sync", server)
    with pytest.raises(PolicyDenied, match="redact_not_possible"):
        await kit.text(stream=True)
    await kit.close()
    (found,) = decisions(exported)
    assert (found["outcome"], found["reason"]) == ("deny", "redact_not_possible")


@pytest.mark.parametrize("sync", [True, False])
async def test_a_compressed_stream(govern: Govern, server: ScriptedProvider, sync: bool) -> None:
    """It is looked at decompressed, and goes on so."""
    govern(OutputGuardrail(no_keys, window=8, overlap=16))
    plain = event("one two three ") + event(SECRET[:6]) + event(SECRET[6:]) + event(" end")
    packed = gzip.compress(plain)
    server.replace(
        Reply(
            raw=(packed[:20], packed[20:]),
            content_type="text/event-stream",
            headers={"content-encoding": "gzip"},
        )
    )
    body = await through(server, "/v1/chat/completions", sync=sync)
    assert texts(body) == "one two three [gone] end"


async def test_what_is_no_json_is_looked_at_too(govern: Govern, server: ScriptedProvider) -> None:
    """Words in an event that are no JSON are a text; changed they cannot be."""
    govern(OutputGuardrail(no_keys))
    raw = (event("fine"), f"data: {SECRET}\n\n".encode())
    server.replace(Reply(raw=raw, content_type="text/event-stream"))
    with pytest.raises(PolicyDenied, match="redact_not_possible"):
        await through(server, "/v1/chat/completions", sync=True)


async def test_an_unknown_stream_is_held_back(govern: Govern, server: ScriptedProvider) -> None:
    """Gemini's JSON array goes through no window: it is looked at as a whole, or denied."""
    govern(OutputGuardrail(no_keys))
    path = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"
    server.replace(
        *[
            Reply(raw=(b"[", json.dumps(each).encode(), b"]"), content_type="application/json")
            for each in (
                {"candidates": [{"content": {"parts": [{"text": "fine"}]}}]},
                {"candidates": [{"content": {"parts": [{"text": SECRET}]}}]},
            )
        ]
    )
    assert b"fine" in await through(server, path, sync=True)
    with pytest.raises(PolicyDenied, match="redact_not_possible"):
        await through(server, path, sync=True)


@pytest.mark.parametrize("options", [{"window": 0}, {"window": -1}, {"overlap": -1}])
def test_a_window_that_is_none(options: dict[str, int]) -> None:
    """A window has at least one character, an overlap at least none."""
    with pytest.raises(ConfigurationError, match="window is"):
        OutputGuardrail(no_keys, **options)
