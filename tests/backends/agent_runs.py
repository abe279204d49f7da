"""An agent of the demo, run in this process as a service would run it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import anthropic
import openai
import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan

import clew
from clew.settings import Settings
from clew.testing import CaptureExporter, ScriptedProvider
from clew.testing import demo as story


def exporter(base_url: str) -> OTLPSpanExporter:
    """Return an exporter of spans that minds no proxy."""
    session = requests.Session()
    session.trust_env = False
    return OTLPSpanExporter(f"{base_url}/v1/traces", session=session)


def reader(base_url: str) -> PeriodicExportingMetricReader:
    """Return a reader that exports metrics twice a second."""
    session = requests.Session()
    session.trust_env = False
    metrics = OTLPMetricExporter(f"{base_url}/v1/metrics", session=session)
    return PeriodicExportingMetricReader(metrics, export_interval_millis=500)


def run_demo(base_url: str, **options: Any) -> tuple[uuid.UUID, Sequence[ReadableSpan]]:
    """Run the demo's agent and export it; return its id and the spans as they were exported."""
    kept = CaptureExporter()
    with (
        ScriptedProvider(story.DESK_REPLIES) as one,
        ScriptedProvider(story.CARRIER_REPLIES) as two,
        openai.OpenAI(
            base_url=one.openai_base_url,
            api_key="scripted",
            http_client=openai.DefaultHttpxClient(trust_env=False),
        ) as desk,
        anthropic.Anthropic(
            base_url=two.base_url,
            api_key="scripted",
            http_client=anthropic.DefaultHttpxClient(trust_env=False),
        ) as carrier,
    ):
        hosts = {
            "{}:{}".format(*one.address): "openai",
            "{}:{}".format(*two.address): "anthropic",
        }
        settings = Settings.from_environment(
            service_name="support-desk",
            provider_hosts=hosts,
            digest_key="a key for tests",
            seal_grace_s=0.05,
            **options,
        )
        clew.configure(settings=settings, span_exporters=[kept, exporter(base_url)])
        clew.instrument()
        try:
            outcome = story.answer_customer(
                story.OpenAIModel(
                    client=desk, name=story.DESK_MODEL, limits={"max_completion_tokens": 400}
                ),
                story.AnthropicModel(client=carrier, name=story.CARRIER_MODEL),
            )
        finally:
            clew.uninstrument()
            clew.shutdown()
    ours = [each for each in kept.spans if _trace_id(each) == outcome.run_id.int]
    return outcome.run_id, ours


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.trace_id if context else 0


def eventually(ask: Callable[[], Any], expected: Any = None, seconds: float = 60) -> Any:
    """Ask until the answer is what is expected (or anything true), and return the last answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            answer = ask()
        except clew.ClewError:
            answer = None
        if (answer == expected if expected is not None else answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)
