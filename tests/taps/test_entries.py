"""SDKs beside openai and anthropic: each call is one round, however often it is sent."""

from __future__ import annotations

import importlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sdk_kits import ASK, GEMINI, KITS, MESSAGES, AnyPath, Asking, Kit, failure, opened, rounds

import clew
from clew import _guard
from clew.errors import ClewError, PolicyDenied
from clew.taps import entries
from clew.testing import CaptureExporter, Reply, ScriptedProvider, sse
from clew.typing import Proposal, Verdict

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    return KITS[request.param]


@pytest.fixture(params=["sync", "async"])
def asynchronous(request: pytest.FixtureRequest, kit: Kit) -> bool:
    if request.param == "sync" and kit is KITS["google-genai over aiohttp"]:
        pytest.skip("aiohttp is asynchronous")
    return request.param == "async"


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(formats=[AnyPath()]) as provider:  # type: ignore[abstract]
        yield provider


@pytest.fixture
async def asking(kit: Kit, asynchronous: bool, server: ScriptedProvider) -> AsyncIterator[Asking]:
    async with opened(kit, asynchronous, server) as client:
        yield Asking(kit=kit, asynchronous=asynchronous, client=client, server=server)


async def test_a_plain_call_is_one_round(exported: CaptureExporter, asking: Asking) -> None:
    """One round with the provider's counts, grouped where the SDK has a logical entry."""
    clew.instrument()
    asking.server.add(asking.kit.plain())
    with clew.run("triage"):
        answer = await asking.ask()
    assert "SECRET answer" in str(answer)
    (found,) = rounds(exported)
    assert found["gen_ai.usage.input_tokens"] == 100
    assert found["gen_ai.usage.output_tokens"] == 20
    assert found["gen_ai.response.finish_reasons"] == ("stop",)
    assert found["clew.attempt.grouped"] is asking.kit.grouped
    assert found["clew.round"] == 1
    assert b"SECRET" not in exported.otlp_bytes()
    sent = {name.lower() for name, _ in asking.server.requests[0].headers}
    assert not {"traceparent", "tracestate", "baggage"} & sent


async def test_a_stream_is_one_round(exported: CaptureExporter, asking: Asking) -> None:
    """The round ends with the stream."""
    clew.instrument()
    asking.server.add(asking.kit.streamed())
    with clew.run("triage"):
        chunks = await asking.stream()
    assert chunks
    (found,) = rounds(exported)
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.usage.input_tokens"] == 100
    assert found["gen_ai.usage.output_tokens"] == 20
    assert found["clew.attempt.grouped"] is asking.kit.grouped or asking.kit.module == "cohere"
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_retried_call_is_one_round(exported: CaptureExporter, asking: Asking) -> None:
    """Attempts that the SDK makes itself are told, not counted as rounds."""
    if not asking.kit.retries:
        pytest.skip("this SDK does not try again")
    clew.instrument()
    asking.server.add(failure(503), failure(503), asking.kit.plain())
    with clew.run("triage"):
        await asking.ask()
    (found,) = rounds(exported)
    assert found["clew.attempts"] == 3
    assert found["http.response.status_code"] == 200
    assert found["gen_ai.usage.input_tokens"] == 100
    assert "error.type" not in found


async def test_a_retried_stream_is_one_round(exported: CaptureExporter, asking: Asking) -> None:
    """The same for a streamed call, whose failed answers some SDKs leave unread."""
    if not asking.kit.retries or not asking.kit.stream_retries:
        pytest.skip("this SDK does not try again")
    clew.instrument()
    asking.server.add(failure(503), asking.kit.streamed())
    with clew.run("triage"):
        await asking.stream()
    (found,) = rounds(exported)
    assert found["clew.attempts"] == 2
    assert found["clew.stream.outcome"] == "complete"
    assert found["gen_ai.usage.input_tokens"] == 100


async def test_a_refused_call_is_one_failed_round(
    exported: CaptureExporter, asking: Asking
) -> None:
    """The SDK's own exception passes; the round is failed, and tells no text."""
    clew.instrument()
    asking.server.add(failure(400))
    with clew.run("triage"), pytest.raises(Exception, match="SECRET"):  # of the SDK
        await asking.ask()
    (found,) = rounds(exported)
    assert found["http.response.status_code"] == 400
    assert "error.type" in found
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_refused_stream_is_one_failed_round(
    exported: CaptureExporter, asking: Asking
) -> None:
    """The same for a stream that never begins."""
    clew.instrument()
    asking.server.add(failure(400))
    with clew.run("triage"), pytest.raises(Exception, match="SECRET"):  # of the SDK
        await asking.stream()
    (found,) = rounds(exported)
    assert found["http.response.status_code"] == 400
    assert "error.type" in found


async def test_one_client_alone(exported: CaptureExporter, asking: Asking) -> None:
    """The HTTP client inside the SDK's is found; other clients are not listened to."""
    asking.server.add(*[asking.kit.plain()] * 4)
    async with opened(asking.kit, asking.asynchronous, asking.server) as other:
        assert clew.instrument(asking.client) is asking.client
        clew.instrument(asking.client)
        await asking.ask()
        await asking.ask(other)
        assert [found["clew.attempt.grouped"] for found in rounds(exported)] == [asking.kit.grouped]
        clew.instrument()
        await asking.ask()
        assert len(rounds(exported)) == 2
        clew.uninstrument()
        await asking.ask()
        assert len(rounds(exported)) == 2


def test_every_entry_of_an_installed_sdk_is_there() -> None:
    """No class or method of the table is missing from the SDKs that are installed here."""
    missing = []
    for name, patches in entries.PATCHES.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for kind, method, _ in patches:
            if not hasattr(getattr(module, kind, None), method):
                missing.append((name, kind, method))
    assert missing == []


async def test_a_renamed_internal_degrades(
    exported: CaptureExporter,
    server: ScriptedProvider,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Without its logical entry an SDK's attempts are rounds of their own; one warning says so."""
    client_module = pytest.importorskip("mistralai.client")
    kit = KITS["mistralai"]
    name = "mistralai.client.basesdk"
    moved = {name: (("Gone", "do_request", entries.PATCHES[name][0][2]),)}
    from clew import patching

    monkeypatch.setattr(patching, "_MODULES", {**patching._MODULES, **moved})
    _guard.forget()
    clew.instrument()
    clew.instrument()
    told = [record for record in caplog.records if name in record.getMessage()]
    assert len(told) == 1
    server.add(failure(503), kit.plain())
    with kit.make(client_module, server.base_url, asynchronous=False) as client, clew.run("triage"):
        client.chat.complete(model="m", messages=MESSAGES)
    assert [found["clew.attempt.grouped"] for found in rounds(exported)] == [False, False]


def test_an_object_that_is_no_client_is_a_clear_error() -> None:
    """What cannot be instrumented is named, with what to give instead."""
    with pytest.raises(ClewError, match=r"builtins\.dict"):
        clew.instrument({})


def afc_replies() -> list[Any]:
    def asks(place: str, used: tuple[int, int]) -> Any:
        call = {"functionCall": {"name": "weather", "args": {"place": place}}}
        return {
            **GEMINI,
            "candidates": [
                {**GEMINI["candidates"][0], "content": {"role": "model", "parts": [call]}}
            ],
            "usageMetadata": {
                "promptTokenCount": used[0],
                "candidatesTokenCount": used[1],
                "totalTokenCount": sum(used),
            },
        }

    last = {
        **GEMINI,
        "usageMetadata": {
            "promptTokenCount": 30,
            "candidatesTokenCount": 7,
            "totalTokenCount": 37,
        },
    }
    return [asks("Rome", (10, 5)), asks("Oslo", (20, 6)), last]


@pytest.mark.parametrize("streaming", [False, True])
async def test_automatic_function_calling_hides_no_round(
    exported: CaptureExporter, server: ScriptedProvider, streaming: bool
) -> None:
    """One call of google-genai that runs tools itself is as many rounds as it sends requests."""
    genai = pytest.importorskip("google.genai")

    def weather(place: str) -> str:
        """Tell the weather of a place."""
        return f"SECRET weather of {place}"

    clew.instrument()
    for body in afc_replies():
        if streaming:
            server.add(Reply.verbatim(sse(body)))
        else:
            server.add(Reply.verbatim(json.dumps(body).encode(), content_type="application/json"))
    kit = KITS["google-genai over httpx"]
    async with opened(kit, asynchronous=False, server=server) as client:
        config = genai.types.GenerateContentConfig(tools=[weather])
        with clew.run("triage") as run:
            models = client.models
            if streaming:
                for _ in models.generate_content_stream(
                    model="gemini", contents=ASK, config=config
                ):
                    pass
            else:
                models.generate_content(model="gemini", contents=ASK, config=config)
            totals = run.totals
    found = rounds(exported)
    assert [one["clew.round"] for one in found] == [1, 2, 3]
    assert [one["gen_ai.usage.input_tokens"] for one in found] == [10, 20, 30]
    assert [one["gen_ai.usage.output_tokens"] for one in found] == [5, 6, 7]
    assert (totals.input_tokens, totals.output_tokens) == (60, 18)
    parents = {span.parent.span_id for span in exported.by_name("generate_content") if span.parent}
    assert len(parents) == 1


@dataclass
class Deny:
    """A gate that denies model calls, or their answers."""

    kinds: frozenset[str] = frozenset({"model_call"})
    asked: int = 0
    name = "house"
    mode: Any = "enforce"
    mandatory = True

    def check(self, proposal: Proposal) -> Verdict:
        self.asked += 1
        assert proposal.content is not None
        return Verdict(outcome="deny", reason="house_rule")


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_denial_leaves_every_sdk_as_itself(
    exported: CaptureExporter, asking: Asking, streaming: bool
) -> None:
    """No SDK retries, wraps or sends what a gate has denied, and there is no round."""
    clew.instrument()
    gate = Deny()
    with pytest.raises(PolicyDenied) as caught, clew.run("triage", gates=[gate]):
        await (asking.stream() if streaming else asking.ask())
    assert type(caught.value) is PolicyDenied
    assert (gate.asked, asking.server.requests, rounds(exported)) == (1, [], [])
    (decision,) = exported.by_name("decide")
    assert decision.attributes["clew.decision.id"] == caught.value.decision_id


async def test_a_denied_answer_leaves_every_sdk_as_itself(
    exported: CaptureExporter, asking: Asking
) -> None:
    """The caller gets the denial instead of the answer, which is asked for once."""
    clew.instrument()
    asking.server.add(asking.kit.plain())
    gate = Deny(frozenset({"model_output"}))
    with pytest.raises(PolicyDenied), clew.run("triage", gates=[gate]):
        await asking.ask()
    assert (gate.asked, len(asking.server.requests), len(rounds(exported))) == (1, 1, 1)
    assert b"SECRET" not in exported.otlp_bytes()
