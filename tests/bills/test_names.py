"""Names of models and hosts: which row of the prices is meant, and what is not told."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from bill_answers import (
    CHAT,
    CONVERSE,
    Bill,
    answer_of,
    chat,
)
from billing import Answering, ask, change, start
from opentelemetry import trace
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import clew
from clew import semconv as s
from clew.settings import Settings
from clew.testing import CaptureExporter

CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"
ACCOUNT = "123456789012"
ARN = f"arn:aws:bedrock:us-east-1:{ACCOUNT}"
RESOURCES = {
    f"us.{CLAUDE}": (f"us.{CLAUDE}", f"regional.{CLAUDE}"),
    f"global.{CLAUDE}": (f"global.{CLAUDE}", f"global.{CLAUDE}"),
    f"{ARN}:inference-profile/us.{CLAUDE}": (
        f"arn:aws:bedrock:us-east-1::inference-profile/us.{CLAUDE}", f"regional.{CLAUDE}",
    ),
    f"{ARN}:application-inference-profile/a1b2c3": (
        "arn:aws:bedrock:us-east-1::application-inference-profile/a1b2c3", None,
    ),
    f"{ARN}:application-inference-profile/mapped": (
        "arn:aws:bedrock:us-east-1::application-inference-profile/mapped", f"global.{CLAUDE}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("name", RESOURCES)
async def test_names_of_cloud_resources(name: str, twin: str, server: Answering) -> None:
    """They find their row, with the rates of their kind of region, or the operator's mapping.

    What hides the model has no price. The number of the account leaves nowhere, not on spans of
    other libraries either.
    """
    shown, row = RESOURCES[name]
    exporter, metrics = CaptureExporter(), InMemoryMetricReader()
    aliases = {f"aws.bedrock/{ARN}:application-inference-profile/mapped": f"global.{CLAUDE}"}
    settings = Settings(
        digest_key="k", seal_grace_s=0, model_aliases=aliases, metric_readers=(metrics,)
    )
    current = start(settings, exporter)
    usage = {"inputTokens": 10, "outputTokens": 2, "totalTokens": 12}
    server.gives(Bill(CONVERSE, usage, {}, None))
    library = trace.get_tracer("library")
    with clew.run("desk"):
        await ask(
            f"{server.base_url}/model/{quote(name, safe='')}/converse", {"messages": []}, twin
        )
        with library.start_as_current_span(f"chat {name}") as span:
            span.set_attribute(s.REQUEST_MODEL, name)
    current.settle(everywhere=True)
    assert current.worker.flush(10)
    measured: Any = metrics.get_metrics_data()
    clew.shutdown()
    found = [dict(each.attributes or {}) for each in exporter.spans if each.name.startswith("chat")]
    assert {each[s.REQUEST_MODEL] for each in found} == {shown}
    (round_,) = [each for each in found if s.ROUND in each]
    assert round_.get(s.PRICE_MODEL) == row
    assert (s.COST_USD in round_) == (row is not None)
    assert ACCOUNT.encode() not in exporter.otlp_bytes()
    assert ACCOUNT not in measured.to_json()


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize(
    ("answers", "aliases", "row"),
    [
        ("model-x", {}, "model-x"),
        (None, {}, None),
        (None, {"azure.ai.openai/gpt-4": "model-x"}, "model-x"),
        ("model-x", {"azure.ai.openai/gpt-4": "model-s"}, "model-x"),
    ],
)
async def test_a_deployment_is_priced_by_the_model_that_answers(
    answers: str | None, aliases: dict[str, str], row: str | None, twin: str,
    exporter: CaptureExporter, server: Answering,
) -> None:  # fmt: skip
    """Else by the operator's map, else not at all; the deployment's name stays the request's."""
    change(exporter, model_aliases=aliases)
    body = answer_of(Bill(CHAT, chat(100, 20), {}, None, model=answers or ""))
    if answers is None:
        del body["model"]
    server.kind, server.body = "application/json", json.dumps(body).encode()
    url = f"{server.base_url}/openai/deployments/gpt-4/chat/completions?api-version=1"
    with clew.run("desk"):
        await ask(url, {"messages": []}, twin)
    clew.shutdown()
    (round_,) = exporter.by_name("chat")
    found = dict(round_.attributes or {})
    assert found["gen_ai.provider.name"] == "azure.ai.openai"
    assert (found[s.REQUEST_MODEL], found.get(s.RESPONSE_MODEL)) == ("gpt-4", answers)
    assert found.get(s.PRICE_MODEL) == row
    assert found[s.COST_STATUS] == ("priced" if row else "unpriced")


HOSTS = {
    "https://api.deepseek.com/v1": ("deepseek", "api.deepseek.com", 443),
    "https://api.groq.com/openai/v1": ("groq", "api.groq.com", 443),
    "https://house.openai.azure.com/openai/v1": ("azure.ai.openai", "house.openai.azure.com", 443),
    "http://localhost:11434/v1": ("ollama", "localhost", 11434),
    "http://localhost:8000/v1": ("_OTHER", "localhost", 8000),
    "https://llm.example.org/v1": ("_OTHER", "llm.example.org", 443),
    "https://gateway.internal:8443/v1": ("openai", "gateway.internal", 8443),
}
PRICED = {"deepseek": "deepseek-chat", "groq": "gpt-4o", "openai": "gpt-4o", "ollama": "gpt-4o"}


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize("address", HOSTS)
async def test_the_provider_is_told_by_the_host(address: str, library: str, twin: str) -> None:
    """Or by the operator; never by the client. An unknown host has no price of OpenAI's.

    Where the request goes is recorded without user, password, path and query.
    """
    http = pytest.importorskip(library)
    provider, host, port = HOSTS[address]
    exporter = CaptureExporter()
    hosts = {"gateway.internal:8443": "openai"}
    settings = Settings(digest_key="k", seal_grace_s=0, provider_hosts=hosts)
    start(settings, exporter)
    model = PRICED.get(provider, "gpt-4o")
    answer = answer_of(Bill(CHAT, chat(100, 20), {}, None, model=model))
    transport = http.MockTransport(lambda _: http.Response(200, json=answer))
    url = address.replace("://", "://zquser:zqpassword@") + "/chat/completions?zqkey=zqvalue"
    with clew.run("desk"):
        if twin == "sync":
            with http.Client(transport=transport) as client:
                client.post(url, json={"model": model, "messages": []})
        else:
            async with http.AsyncClient(transport=transport) as client:
                await client.post(url, json={"model": model, "messages": []})
    clew.shutdown()
    (round_,) = exporter.by_name("chat")
    found = dict(round_.attributes or {})
    assert found["gen_ai.provider.name"] == provider
    assert (found["server.address"], found.get("server.port", 443)) == (host, port)
    sent = exporter.otlp_bytes()
    marks = (b"zquser", b"zqpassword", b"zqkey", b"zqvalue")
    assert not [mark for mark in marks if mark in sent]
    priced = provider in ("deepseek", "openai", "azure.ai.openai")
    assert (found[s.COST_STATUS] == "priced") == priced
