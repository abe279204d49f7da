"""The scripted provider, read by the real SDK clients and byte by byte."""

from __future__ import annotations

import json
import time
from typing import Any

import anthropic
import httpx
import openai
import pytest

from clew.facts import Usage
from clew.testing import Reply, ScriptedProvider, ScriptedToolCall, sse

USAGE = Usage(
    input_tokens=100,
    output_tokens=40,
    cache_read_tokens=30,
    cache_write_tokens=20,
    reasoning_tokens=8,
)
CALLS = (
    ScriptedToolCall(name="find", arguments={"parcel": "P-17", "deep": True}),
    ScriptedToolCall(name="find", arguments={}),
)
ASK: dict[str, Any] = {
    "model": "small",
    "messages": [{"role": "user", "content": "Where is it?"}],
}


def openai_client(provider: ScriptedProvider, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.openai_base_url, api_key="k", **options)


def anthropic_client(provider: ScriptedProvider, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=provider.base_url, api_key="k", **options)


def read_into(received: bytearray, client: httpx.Client, url: str, body: dict[str, Any]) -> None:
    with client.stream("POST", url, json=body) as answer:
        assert answer.status_code == 200
        for piece in answer.iter_raw():
            received += piece


def data_lines(body: str) -> list[Any]:
    lines = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_openai_plain():
    """The OpenAI client reads text, model, usage and the request id."""
    script = [Reply(text="In the depot.", usage=USAGE)]
    with ScriptedProvider(script) as provider, openai_client(provider) as client:
        answer = client.chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "In the depot."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "small"
    assert answer._request_id == "req_" + "1".rjust(32, "0")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 100
    assert answer.usage.completion_tokens == 40
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 30
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 8
    assert provider.requests[0].path == "/v1/chat/completions"
    assert provider.requests[0].json() == ASK


def test_openai_stream_helper_puts_everything_together():
    """The OpenAI stream helper accepts every event and gives the same message as a plain answer."""
    reply = Reply(text="One moment.", tool_calls=CALLS, usage=USAGE)
    with ScriptedProvider([reply, reply]) as provider, openai_client(provider) as client:
        plain = client.chat.completions.create(**ASK)
        with client.chat.completions.stream(
            **ASK, stream_options={"include_usage": True}
        ) as stream:
            streamed = stream.get_final_completion()
    assert streamed.choices[0].message.content == "One moment."
    assert streamed.choices[0].finish_reason == "tool_calls"
    assert streamed.usage == plain.usage
    plain_calls = plain.choices[0].message.tool_calls or []
    streamed_calls = streamed.choices[0].message.tool_calls or []
    assert [call.function.arguments for call in streamed_calls] == [
        '{"parcel":"P-17","deep":true}',
        "{}",
    ]
    assert [call.function.arguments for call in plain_calls if call.type == "function"] == [
        '{"parcel":"P-17","deep":true}',
        "{}",
    ]


def test_openai_usage_chunk_only_when_asked_for():
    """Without `include_usage` no chunk speaks of usage; with it each chunk does, the last fully."""
    reply = Reply(text="a b", usage=USAGE)
    with ScriptedProvider([reply, reply]) as provider, httpx.Client() as client:
        url = f"{provider.openai_base_url}/chat/completions"
        without = data_lines(client.post(url, json=ASK | {"stream": True}).text)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        included = data_lines(client.post(url, json=ASK | options).text)
    assert without[-1] == included[-1] == "[DONE]"
    assert not any("usage" in chunk for chunk in without[:-1])
    assert [chunk["usage"] for chunk in included[:-2]] == [None] * 4
    assert included[-2]["choices"] == []
    assert included[-2]["usage"]["total_tokens"] == 140
    assert [chunk["choices"][0]["delta"] for chunk in without[:-1]] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "a "},
        {"content": "b"},
        {},
    ]


def test_openai_several_choices():
    """`n` choices are answered, interleaved in a stream."""
    reply = Reply(text="yes")
    with ScriptedProvider([reply, reply]) as provider, openai_client(provider) as client:
        plain = client.chat.completions.create(**ASK, n=2)
        chunks = list(client.chat.completions.create(**ASK, n=2, stream=True))
    assert [choice.message.content for choice in plain.choices] == ["yes", "yes"]
    assert [chunk.choices[0].index for chunk in chunks] == [0, 1, 0, 1, 0, 1]


def test_anthropic_plain():
    """The Anthropic client reads thinking, text, tool calls and the split of the input tokens."""
    script = [Reply(text="I look.", reasoning="Hm.", tool_calls=CALLS, usage=USAGE)]
    with ScriptedProvider(script) as provider, anthropic_client(provider) as client:
        message = client.messages.create(**ASK, max_tokens=50)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.stop_reason == "tool_use"
    assert [block.input for block in message.content if block.type == "tool_use"] == [
        {"parcel": "P-17", "deep": True},
        {},
    ]
    assert message.usage.input_tokens == 50
    assert message.usage.cache_read_input_tokens == 30
    assert message.usage.cache_creation_input_tokens == 20
    assert message.usage.output_tokens == 40
    assert provider.requests[0].path == "/v1/messages"


def test_anthropic_stream_helper_puts_everything_together():
    """The Anthropic stream helper accepts every event and ends with the plain answer's message."""
    reply = Reply(text="I look.", reasoning="Hm.", tool_calls=CALLS, usage=USAGE, id="msg_1")
    with ScriptedProvider([reply, reply]) as provider, anthropic_client(provider) as client:
        plain = client.messages.create(**ASK, max_tokens=50)
        with client.messages.stream(**ASK, max_tokens=50) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_message()
    plain_blocks = plain.model_dump()["content"]
    streamed_blocks = streamed.model_dump()["content"]
    for block in (*plain_blocks, *streamed_blocks):
        # Made up anew for each request, and only there when a helper parsed the block.
        block.pop("id", None)
        block.pop("parsed_output", None)
    assert streamed_blocks == plain_blocks
    assert streamed.usage.output_tokens == 40
    assert streamed.usage.input_tokens == 50
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


def test_anthropic_event_order():
    """Events come named, in the server's order, with a ping after the first block's start."""
    with ScriptedProvider([Reply(text="a b")]) as provider, httpx.Client() as client:
        url = f"{provider.base_url}/v1/messages"
        body = client.post(url, json=ASK | {"stream": True, "max_tokens": 5}).text
    assert [line[7:] for line in body.splitlines() if line.startswith("event: ")] == [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, ending = data_lines(body)[0], data_lines(body)[-2]
    assert start["message"]["usage"]["output_tokens"] == 1
    assert ending == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 7,
        },
    }


def test_usage_can_be_left_out_or_given_verbatim():
    """None leaves every usage field out; a mapping goes over the wire as it is."""
    odd = {"prompt_tokens": 3, "surprise": True}
    script = [Reply(text="a", usage=None), Reply(text="a", usage=odd)]
    with ScriptedProvider(script) as provider, httpx.Client() as client:
        url = f"{provider.openai_base_url}/chat/completions"
        assert "usage" not in client.post(url, json=ASK).json()
        assert client.post(url, json=ASK).json()["usage"] == odd


@pytest.mark.parametrize(
    ("status", "openai_error", "anthropic_error"),
    [
        (400, openai.BadRequestError, anthropic.BadRequestError),
        (401, openai.AuthenticationError, anthropic.AuthenticationError),
        (404, openai.NotFoundError, anthropic.NotFoundError),
        (429, openai.RateLimitError, anthropic.RateLimitError),
        (500, openai.InternalServerError, anthropic.InternalServerError),
        (529, openai.InternalServerError, anthropic.InternalServerError),
    ],
)
def test_errors_have_the_provider_s_shape(
    status: int, openai_error: type[Exception], anthropic_error: type[Exception]
):
    """Each client raises its own error for the status, with the provider's type."""
    script = [Reply.failure(status, "No."), Reply.failure(status, "No.", type="odd")]
    with ScriptedProvider(script) as provider:
        with openai_client(provider, max_retries=0) as client, pytest.raises(openai_error) as one:
            client.chat.completions.create(**ASK)
        with (
            anthropic_client(provider, max_retries=0) as client,
            pytest.raises(anthropic_error) as two,
        ):
            client.messages.create(**ASK, max_tokens=5)
    assert isinstance(one.value, openai.APIStatusError)
    assert isinstance(two.value, anthropic.APIStatusError)
    assert one.value.body is not None
    assert "No." in str(one.value)
    assert two.value.body == {
        "type": "error",
        "error": {"type": "odd", "message": "No."},
        "request_id": "req_" + "2".rjust(24, "0"),
    }


def test_a_client_retries_after_the_time_given():
    """A refused request comes again, and the retry headers are on the wire."""
    failure = Reply.failure(429, retry_after=0.02, retry_after_ms=20)
    with ScriptedProvider([failure, failure, Reply(text="done")]) as provider:
        with httpx.Client() as client:
            refused = client.post(f"{provider.base_url}/v1/messages", json=ASK)
        with openai_client(provider) as client:
            answer = client.chat.completions.create(**ASK)
        assert [request.header("x-stainless-retry-count") for request in provider.requests] == [
            None,
            "0",
            "1",
        ]
        assert provider.left == 0
    assert (refused.headers["retry-after"], refused.headers["retry-after-ms"]) == ("0.02", "20")
    assert answer.choices[0].message.content == "done"


def test_error_inside_a_stream():
    """An error after some events reaches the client as the SDK's error."""
    reply = Reply.failure(200, "Too busy.")
    script = [
        Reply(text="a b c", error=reply.error, error_after=3),
        Reply(text="a b c", error=reply.error, error_after=4),
    ]
    with ScriptedProvider(script) as provider:
        with openai_client(provider) as client, pytest.raises(openai.APIError) as one:
            list(client.chat.completions.create(**ASK, stream=True))
        with anthropic_client(provider) as client, pytest.raises(anthropic.APIError) as two:
            list(client.messages.create(**ASK, max_tokens=5, stream=True))
    assert "Too busy." in str(one.value)
    assert "overloaded_error" in str(two.value)


def test_a_script_that_has_run_out_says_so():
    """The client gets an error that it does not retry."""
    with ScriptedProvider() as provider, openai_client(provider) as client:
        with pytest.raises(openai.InternalServerError, match="no more replies"):
            client.chat.completions.create(**ASK)
        assert len(provider.requests) == 1


def test_a_function_chooses_the_reply():
    """A script can be a function of the request."""
    with (
        ScriptedProvider(lambda request: Reply(text=request.json()["model"])) as provider,
        openai_client(provider) as client,
    ):
        answer = client.chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "small"


def test_a_script_can_be_changed_while_it_runs():
    """`add` appends, `replace` forgets what was left, a function too."""

    def ask(client: openai.OpenAI) -> str | None:
        return client.chat.completions.create(**ASK).choices[0].message.content

    with (
        ScriptedProvider(lambda _: Reply(text="chosen")) as provider,
        openai_client(provider) as client,
    ):
        assert ask(client) == "chosen"
        provider.replace(Reply(text="one"))
        provider.add(Reply(text="two"))
        assert [ask(client), ask(client)] == ["one", "two"]
        assert provider.left == 0


def test_unknown_paths_are_not_found():
    """A path that no format knows is a 404 and uses up no reply."""
    with ScriptedProvider([Reply(text="a")]) as provider, httpx.Client() as client:
        assert client.post(f"{provider.base_url}/v1/other", json={}).status_code == 404
        assert client.get(f"{provider.base_url}/v1/messages").status_code == 404
        assert provider.left == 1


def test_verbatim_bytes():
    """Raw pieces are sent as they are, with the media type that was asked for."""
    script = [Reply.verbatim(b"<html>", b"\xff</html>", status=502, content_type="text/html")]
    with ScriptedProvider(script) as provider, httpx.Client() as client:
        answer = client.post(f"{provider.base_url}/v1/messages", json={})
    assert answer.status_code == 502
    assert answer.headers["content-type"] == "text/html"
    assert answer.content == b"<html>\xff</html>"


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_cut_connection(stream: bool, reset: bool):
    """The answer stops where the script says, and the client sees the connection break."""
    script = [Reply(text="a b c d", cut_after=1, reset=reset)]
    received = bytearray()
    with ScriptedProvider(script) as provider, httpx.Client() as client:
        url = f"{provider.openai_base_url}/chat/completions"
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            read_into(received, client, url, ASK | {"stream": stream})
    if not reset:
        assert received.count(b"\n\n") == (1 if stream else 0)
        assert received.startswith(b"data: {" if stream else b"{")


def test_silence_and_hanging():
    """A silent reply times out before the status, a hanging one after the given events."""
    script = [Reply.silence(), Reply(text="a b c", hang_after=2)]
    with ScriptedProvider(script) as provider, httpx.Client(timeout=0.5) as client:
        url = f"{provider.openai_base_url}/chat/completions"
        with pytest.raises(httpx.ReadTimeout):
            client.post(url, json=ASK)
        received = bytearray()
        with pytest.raises(httpx.ReadTimeout):
            read_into(received, client, url, ASK | {"stream": True})
        assert received.count(b"\n\n") == 2
        deadline = time.monotonic() + 5
        while provider.open_connections and time.monotonic() < deadline:
            time.sleep(0.01)
        assert provider.open_connections == 0


def test_delays_before_single_events():
    """Each event can have its own delay."""
    script = [Reply(text="a b", delay=0.05, event_delay=(0.0, 0.1))]
    arrivals: list[float] = []
    with ScriptedProvider(script) as provider, httpx.Client() as client:
        url = f"{provider.openai_base_url}/chat/completions"
        started = time.monotonic()
        with client.stream("POST", url, json=ASK | {"stream": True}) as answer:
            headed = time.monotonic() - started
            arrivals = [time.monotonic() - started for _ in answer.iter_raw()]
    assert headed >= 0.05
    assert arrivals[1] - arrivals[0] >= 0.09


def test_closing_does_not_wait_for_a_hanging_reply():
    """Leaving the block ends replies that hang."""
    with ScriptedProvider([Reply.silence()]) as provider, httpx.Client() as client:
        started = time.monotonic()
        with pytest.raises(httpx.ReadTimeout):
            client.post(f"{provider.base_url}/v1/messages", json={}, timeout=0.05)
    assert time.monotonic() - started < 1.5


def test_sse_frames():
    """An event has its name only when it is given one; data is JSON unless it is text."""
    assert sse({"a": 1}) == b'data: {"a":1}\n\n'
    assert sse("[DONE]", "end") == b"event: end\ndata: [DONE]\n\n"
