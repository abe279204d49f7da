"""Calls through an older version of an SDK; run in an environment that has it.

Arguments: the SDK, and `sync` or `async`. Prints what was exported, and what was sent, as JSON.
"""

import asyncio
import inspect
import json
import sys
import warnings

import pydantic

import clew
from clew.facts import Usage
from clew.testing import CaptureExporter, Reply, ScriptedProvider

SDK, ASYNC = sys.argv[1], sys.argv[2] == "async"
ASK = [{"role": "user", "content": "SECRET"}]
USAGE = Usage(input_tokens=100, output_tokens=20)
warnings.simplefilter("ignore")


class Place(pydantic.BaseModel):
    """What is asked for."""

    city: str


async def settle(value):
    return await value if inspect.isawaitable(value) else value


async def read(stream):
    if hasattr(stream, "__aiter__"):
        return [chunk async for chunk in stream]
    return list(stream)


async def entered(manager):
    if hasattr(manager, "__aenter__"):
        async with manager as stream:
            await read(stream)
    else:
        with manager as stream:
            await read(stream)


def openai_calls(client):
    chat, beta = client.chat.completions, client.beta.chat.completions
    parse = getattr(chat, "parse", None)
    ask = {"model": "m", "messages": ASK}
    counted = {"stream": True, "stream_options": {"include_usage": True}}
    return {
        "create": lambda: chat.create(**ask),
        "stream": lambda: chat.create(**ask, **counted),
        "parse": lambda: (parse or beta.parse)(**ask, response_format=Place),
        "beta parse": lambda: beta.parse(**ask, response_format=Place),
        "raw": lambda: chat.with_raw_response.create(**ask),
        "helper": lambda: beta.stream(**ask, stream_options={"include_usage": True}),
    }


def anthropic_calls(client):
    ask = {"model": "m", "max_tokens": 9, "messages": ASK}
    return {
        "create": lambda: client.messages.create(**ask),
        "stream": lambda: client.messages.create(**ask, stream=True),
        "raw": lambda: client.messages.with_raw_response.create(**ask),
        "helper": lambda: client.messages.stream(**ask),
        "beta": lambda: client.beta.messages.create(**ask),
    }


def client_of(server):
    if SDK == "openai":
        import openai

        kind = openai.AsyncOpenAI if ASYNC else openai.OpenAI
        return kind(base_url=server.openai_base_url, api_key="key", max_retries=0)
    import anthropic

    kind = anthropic.AsyncAnthropic if ASYNC else anthropic.Anthropic
    return kind(base_url=server.base_url, api_key="key", max_retries=0)


async def main():
    exporter = CaptureExporter()
    clew.configure("older", span_exporters=[exporter])
    clew.instrument()
    reply = Reply(text='{"city": "SECRET"}', usage=USAGE)
    with ScriptedProvider(lambda _: reply) as server:
        client = client_of(server)
        calls = (openai_calls if SDK == "openai" else anthropic_calls)(client)
        with clew.run("agent"):
            for call in calls.values():
                result = await settle(call())
                if type(result).__name__.endswith("StreamManager"):
                    await entered(result)
                elif hasattr(result, "__anext__") or hasattr(result, "__next__"):
                    await read(result)
        await settle(client.close())
        sent = len(server.requests)
    clew.shutdown()
    found = {"calls": list(calls), "sent": sent, "otlp": exporter.otlp_json()}
    print(json.dumps({**found, "leaks": b"SECRET" in exporter.otlp_bytes()}))


asyncio.run(main())
