"""Putting the taps on and off, in any order, any number of times."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import httpx
import httpx2
import pytest
from either_way import settle

import clew
from clew.errors import ClewError
from clew.testing import CaptureExporter, OtlpSink, Reply, ScriptedProvider, captured

METHODS = [
    (httpx.Client, "send"),
    (httpx.AsyncClient, "send"),
    (httpx2.Client, "send"),
    (httpx2.AsyncClient, "send"),
]


def rounds_in(exporter: CaptureExporter) -> list[Any]:
    return [span for span in exporter.spans if "clew.attempts" in span.attributes]


@pytest.mark.covers("wrapped twice")
async def test_everything_twice_and_the_client_too(kit: Any):
    """However often a client is instrumented, a call is one round."""
    with ScriptedProvider([kit.reply]) as server, captured() as exporter:
        client = kit.client(server)
        clew.instrument()
        assert clew.instrument(client) is client
        clew.instrument(client)
        clew.instrument(client._client)
        await kit.ask(client)
        assert len(rounds_in(exporter)) == 1
        await settle(client.close())


async def test_one_client(kit: Any):
    """A client that was given is listened to, another one is not."""
    with ScriptedProvider([kit.reply] * 3) as server, captured(instrument=False) as exporter:
        given, other = kit.client(server), kit.client(server)
        clew.instrument(given)
        await kit.ask(other)
        assert rounds_in(exporter) == []
        await kit.ask(given)
        assert len(rounds_in(exporter)) == 1
        clew.uninstrument(given)
        await kit.ask(given)
        assert len(rounds_in(exporter)) == 1
        await settle(given.close())
        await settle(other.close())


async def test_one_client_s_retries_are_one_round(kit: Any):
    """Attempts are grouped for a single client as they are for all."""
    failure = Reply.failure(429, retry_after_ms=5)
    with (
        ScriptedProvider([failure, kit.reply]) as server,
        captured(instrument=False) as exporter,
    ):
        client = kit.client(server, max_retries=2)
        clew.instrument(client)
        await kit.ask(client)
        (round_,) = rounds_in(exporter)
        await settle(client.close())
    assert round_.attributes["clew.attempts"] == 2
    assert round_.attributes["clew.attempt.grouped"] is True


async def test_the_http_client_inside(kit: Any):
    """The HTTP client of an SDK client may be given instead of it."""
    with ScriptedProvider([kit.reply]) as server, captured(instrument=False) as exporter:
        client = kit.client(server)
        clew.instrument(client._client)
        await kit.ask(client)
        assert len(rounds_in(exporter)) == 1
        await settle(client.close())


async def test_uninstrument_restores_everything(kit: Any):
    """After one `uninstrument` the libraries are as they came, and so is the client."""
    before = [vars(owner)[name] for owner, name in METHODS]
    with ScriptedProvider([kit.reply] * 2) as server, captured() as exporter:
        client = kit.client(server)
        own = set(vars(client)), set(vars(client._client))
        clew.instrument()
        clew.instrument(client)
        clew.uninstrument()
        assert [vars(owner)[name] for owner, name in METHODS] == before
        assert (set(vars(client)), set(vars(client._client))) == own
        await kit.ask(client)
        assert rounds_in(exporter) == []
        clew.instrument()
        await kit.ask(client)
        assert len(rounds_in(exporter)) == 1
        await settle(client.close())
    assert [vars(owner)[name] for owner, name in METHODS] == before


async def test_without_a_configured_clew_nothing_happens(kit: Any):
    """Instrumented but not configured: the call is as it would be."""
    clew.instrument()
    try:
        with ScriptedProvider([kit.reply]) as server:
            client = kit.client(server)
            with clew.run("agent"), clew.tool("find"):
                answer = await kit.ask(client)
            assert "zqmark" in kit.text(answer)
            await settle(client.close())
    finally:
        clew.uninstrument()


def test_something_else_cannot_be_instrumented():
    """The error names the kind of object that was given."""
    with pytest.raises(ClewError, match=r"builtins\.object"):
        clew.instrument(object())


ORDERS = {
    "the client first": """
        from {module} import {kind}
        client = make({kind})
        start()
        ask = client.{method}
    """,
    "instrument first": """
        start()
        from {module} import {kind}
        client = make({kind})
        ask = client.{method}
    """,
    "a name imported first": """
        from {module} import {kind} as kept
        start()
        client = make(kept)
        ask = client.{method}
    """,
    "a bound method first": """
        from {module} import {kind}
        client = make({kind})
        ask = client.{method}
        start()
    """,
}
PROGRAM = """
import clew
from clew.pipeline import runtime
from clew.testing import CaptureExporter, MistralChatCompletions, Reply, ScriptedProvider
from clew.testing.provider import FORMATS

exporter = CaptureExporter()

def start():
    clew.configure(settings=clew.Settings(), span_exporters=[exporter])
    clew.instrument()

formats = (MistralChatCompletions(),) if "{module}" == "mistralai.client" else FORMATS
with ScriptedProvider([Reply(text="hello")], formats=formats) as server:
    def make(kind):
        return kind({options})
{order}
    ask({arguments})
clew.shutdown()
rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
assert len(rounds) == 1, [span.name for span in exporter.spans]
assert rounds[0].attributes["clew.attempt.grouped"] is {grouped}
"""
ASK = 'model="m", messages=[{"role": "user", "content": "hi"}]'
TURN = '[{"role": "user", "content": [{"text": "hi"}]}]'
KEYS = 'aws_access_key_id="A", aws_secret_access_key="key", region_name="eu-west-1"'
SDKS: dict[str, tuple[str, str, str, str, str]] = {
    "openai": (
        "openai", "OpenAI", 'base_url=server.openai_base_url, api_key="key"',
        "chat.completions.create", ASK,
    ),
    "anthropic": (
        "anthropic", "Anthropic", 'base_url=server.base_url, api_key="key"', "messages.create",
        f"max_tokens=5, {ASK}",
    ),
    "google-genai": (
        "google.genai", "Client",
        'api_key="key", http_options={"base_url": server.base_url}',
        "models.generate_content", 'model="m", contents="hi"',
    ),
    "mistralai": (
        "mistralai.client", "Mistral", 'server_url=server.base_url, api_key="key"',
        "chat.complete", ASK,
    ),
    "groq": (
        "groq", "Groq", 'base_url=server.base_url, api_key="key"', "chat.completions.create", ASK,
    ),
    "cohere": ("cohere", "ClientV2", '"key", base_url=server.base_url', "chat", ASK),
    "ollama": ("ollama", "Client", "host=server.base_url", "chat", ASK),
    "boto3": (
        "boto3", "client", f'"bedrock-runtime", endpoint_url=server.base_url, {KEYS}',
        "converse", f'modelId="m", messages={TURN}',
    ),
}  # fmt: skip
"""Module, name in it, how a client is made, which method is called, and how."""
OTHERS = ["instrument first", "a bound method first"]
"""For SDKs that are listened to below them the two extremes say it all."""


def runs(program: str, **environment: str) -> None:
    """Run a program of its own, which must have nothing to say."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "", "CLEW_DIGEST_KEY": "key", **environment},
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("sdk", "order"),
    [
        (sdk, order)
        for sdk in SDKS
        for order in (ORDERS if sdk in ("openai", "anthropic") else OTHERS)
    ],
)
def test_the_order_of_imports_does_not_matter(sdk: str, order: str):
    """Whatever comes first, the client, its class, or `instrument`: the call is a round."""
    module, kind, options, method, arguments = SDKS[sdk]
    steps = ORDERS[order].format(module=module, kind=kind, method=method)
    runs(
        PROGRAM.format(
            module=module,
            options=options,
            arguments=arguments,
            order=textwrap.indent(textwrap.dedent(steps), "    "),
            # Where no logical entry is known, nothing is grouped.
            grouped=sdk != "ollama",
        )
    )


FUNCTION_FIRST = """
import os
import clew
from clew.testing import CaptureExporter, Reply, ScriptedProvider

exporter = CaptureExporter()
with ScriptedProvider([Reply(text="hello")] * 2) as server:
    os.environ["OLLAMA_HOST"] = server.base_url
    from ollama import chat, generate
    clew.configure(settings=clew.Settings(), span_exporters=[exporter])
    clew.instrument()
    chat(model="m", messages=[{"role": "user", "content": "hi"}])
    assert [part for part in chat(model="m", messages=[], stream=True)]
clew.shutdown()
rounds = [span for span in exporter.spans if "clew.attempts" in span.attributes]
assert [span.name for span in rounds] == ["chat m", "chat m"]
"""


def test_a_function_that_was_imported_before():
    """`from ollama import chat` before `instrument`: the function's own client is listened to."""
    runs(FUNCTION_FIRST)


async def test_configuring_many_times_exports_once(kit: Any):
    """Set up five times with the same arguments, as a tool call in a thread may: one copy."""
    with ScriptedProvider([kit.reply]) as server, OtlpSink() as sink:
        exporters = [exporter_to(sink)]
        settings = clew.Settings(digest_key="key")
        try:
            for _ in range(5):
                clew.configure(settings=settings, span_exporters=exporters)
                clew.instrument()
            client = kit.client(server)
            with clew.run("agent"):
                await kit.ask(client)
            await settle(client.close())
        finally:
            clew.uninstrument()
            clew.shutdown()
        ids = [span.span_id for span in sink.spans]
        assert len(ids) == len(set(ids))
        names = [span.name for span in sink.spans]
        assert [name for name in names if name.startswith("chat ")] == [f"chat {kit.model}"]
        assert names.count("invoke_agent agent") == 1


async def test_a_receiver_that_answers_503_after_storing(kit: Any):
    """A retried export gives a copy of the same span, with the same id and content."""
    with ScriptedProvider([kit.reply]) as server, OtlpSink() as sink:
        sink.refuse(503, keep=True)
        settings = clew.Settings(digest_key="key", seal_grace_s=0)
        clew.configure(settings=settings, span_exporters=[exporter_to(sink)])
        clew.instrument()
        try:
            client = kit.client(server)
            await kit.ask(client)
            await settle(client.close())
        finally:
            clew.uninstrument()
            clew.shutdown(10)
        copies = [span for span in sink.spans if span.name.startswith("chat ")]
        assert len(copies) == 2
        assert copies[0] == copies[1]


def exporter_to(sink: OtlpSink) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(sink.traces_endpoint)
