"""A service that goes through everything that the dashboards and the rules look at."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import agent_runs
import httpx
import openai
from opentelemetry import trace

import clew
from clew.accounts import Limit
from clew.actors import Actor
from clew.gates.budget import BudgetGate
from clew.providers.base import ChatRequest, Message
from clew.providers.fallback import FallbackProvider
from clew.providers.openai import OpenAIProvider
from clew.settings import Settings
from clew.testing import Reply, ScriptedProvider

MODEL = "gpt-4o-mini"
REASON = "not_for_this_agent"


@contextmanager
def service(
    base_url: str, provider: ScriptedProvider, name: str = "busy", **options: Any
) -> Iterator[None]:
    """Configure Clew as a service would be, with its spans and metrics going to one place."""
    settings = Settings.from_environment(
        service_name=name,
        provider_hosts={"{}:{}".format(*provider.address): "openai"},
        metric_readers=(agent_runs.reader(base_url),),
        metric_tenants=frozenset({"acme"}),
        metric_reasons=frozenset({REASON}),
        export_delay_ms=50,
        seal_grace_s=0.05,
        digest_key="a key for tests",
        **options,
    )
    clew.configure(settings=settings, span_exporters=[agent_runs.exporter(base_url)])
    clew.instrument()
    try:
        yield
    finally:
        clew.uninstrument()
        clew.shutdown()


def answer(request: Any) -> Reply:
    """Fail for models whose name says so; without usage, for one."""
    model = json.loads(request.content())["model"]
    if model == "fails":
        return Reply.failure(500)
    if model == "tells-nothing":
        return Reply(text="Hello", usage=None)
    return Reply(text="Hello")


def everything(base_url: str, seconds: float, name: str = "busy", **options: Any) -> None:
    """Be a service that does one of each again and again, for a while."""
    with (
        ScriptedProvider(answer) as provider,
        service(base_url, provider, name, gates=(budget(),), **options),
        openai.OpenAI(
            base_url=provider.openai_base_url,
            api_key="scripted",
            max_retries=1,
            http_client=openai.DefaultHttpxClient(trust_env=False),
        ) as client,
        httpx.Client(trust_env=False) as plain,
    ):
        deadline = time.monotonic() + seconds
        while True:
            once(provider, client, plain)
            if time.monotonic() > deadline:
                return


def once(provider: ScriptedProvider, client: openai.OpenAI, plain: httpx.Client) -> None:
    """Do one of each."""

    @clew.tool(effect="read_only")
    def look_up(order: str) -> str:
        return order

    def ask(model: str, **more: Any) -> Any:
        return client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Hello"}], **more
        )

    with clew.run("desk", tenant="acme", actor=Actor(id="ada")):
        ask(MODEL)
        for _ in ask(MODEL, stream=True):
            pass
        ask("a-model-of-our-own")
        ask("tells-nothing")
        look_up("20417")
        with trace.get_tracer("the application").start_as_current_span("lookup") as span:
            span.set_attribute("customer", "a name that nobody may see")
        clew.decide("tool", "allow", subject="look_up")
        clew.decide("tool", "deny", reason=REASON, subject="refund", policy="refunds")
        clew.decide("guardrail_output", "redact", enforced=False, reason=REASON)
        clew.decide("approval", "require_approval", subject="refund")
        chain = FallbackProvider(
            OpenAIProvider(base_url=provider.openai_base_url, api_key="x", http_client=plain, retries=0),
            OpenAIProvider(
                base_url=provider.openai_base_url.replace("127.0.0.1", "localhost"),
                api_key="x", http_client=plain, retries=0,
            ),
        )  # fmt: skip
        with contextlib.suppress(Exception):
            chain.chat(ChatRequest(model="fails", messages=(Message(role="user", content="Hi"),)))
    with contextlib.suppress(openai.APIError), clew.run("desk"):
        ask("fails")


def budget() -> BudgetGate:
    """Return a budget that everybody shares."""
    return BudgetGate(
        Limit(per="everything", period="day", tokens=2_000_000, cost_usd=100.0),
        price_unknown="allow",
    )
