"""Streamed answers under output guardrails: held back by window, released, redacted, stopped."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pytest
from governed import Kit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saying import MARK, SECRET, Govern, Saying, decisions, no_keys, saying

import clew
from clew.errors import ApprovalRequired, ConfigurationError, PolicyDenied
from clew.gates.guardrail import OutputGuardrail, redact
from clew.governance import passages
from clew.governance.governor import governor_of
from clew.governance.windows import Window
from clew.pipeline import runtime
from clew.testing import Reply, ScriptedProvider
from clew.testing.loopback import Connection, LoopbackServer, ReceivedRequest
from clew.typing import Proposal, Verdict

OUTPUT = frozenset({"model_output"})
WORDS = ("one two three four ", "five six seven ", "eight nine ten ")


@pytest.fixture
def server() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(
        lambda _: Reply(text=(*WORDS, SECRET[:5], SECRET[5:], " end"))
    ) as running:
        yield running


async def read(kit: Kit, into: list[str], **more: Any) -> None:
    """Read a stream, and keep what has come if it does not come to its end."""
    stream = await kit.ask(stream=True, **more)
    if kit.asynchronous:
        async for event in stream:
            into.append(kit._delta(event))  # noqa: PERF401
    else:
        for event in stream:
            into.append(kit._delta(event))  # noqa: PERF401


# --- the window itself ---------------------------------------------------------------------------


def event(text: str) -> bytes:
    return (
        b"data: %s\n\n"
        % json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode()
    )


def window(*gates: Any) -> Window:
    current = runtime.get()
    assert current is not None
    proposal = Proposal(kind="model_output", number=1)
    return Window(governor_of(current), proposal, gates, "openai_chat", sse=True)


def texts(body: bytes) -> str:
    """Return the text in a body of server-sent events."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    return "".join(json.loads(line)["choices"][0]["delta"]["content"] for line in lines)


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(place % (len(text) + 1) for place in cuts)})
    return [text[begin:end] for begin, end in pairwise(places)]


KEYED = st.lists(
    st.sampled_from([SECRET, SECRET[:6], SECRET[6:], " some words ", "x" * 30, "é\n"]), max_size=12
).map("".join)
CUTS = st.lists(st.integers(0, 1000), max_size=25)
FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FEW
@given(text=KEYED, cuts=CUTS, width=st.integers(1, 60), more=st.integers(0, 30))
def test_a_redaction_does_not_depend_on_the_events(
    govern: Govern, text: str, cuts: list[int], width: int, more: int
) -> None:
    """Whatever the events and the window, the text is that of a redaction of the whole."""
    if runtime.get() is None:
        govern()
        with clew.run("first", gates=[Saying()]):
            pass
    looking = window(OutputGuardrail(no_keys, window=width, overlap=len(SECRET) + more))
    out = b""
    for piece in pieces(text, cuts):
        out += passages.look(looking, looking.feed(event(piece)))
        assert SECRET not in texts(out)
        assert text.replace(SECRET, "[gone]").startswith(texts(out))
    out += passages.look(looking, looking.end())
    assert texts(out) == text.replace(SECRET, "[gone]")


@FEW
@given(text=KEYED, cuts=CUTS, bytes_cuts=CUTS, width=st.integers(1, 60))
def test_nothing_found_is_nothing_changed(
    govern: Govern, text: str, cuts: list[int], bytes_cuts: list[int], width: int
) -> None:
    """The bytes that come out are those that went in, however they were cut."""
    if runtime.get() is None:
        govern()
        with clew.run("first", gates=[Saying()]):
            pass
    body = b": ping\n\n" + b"".join(map(event, pieces(text, cuts))) + b"data: [DONE]\n\n"
    looking = window(OutputGuardrail(lambda _: None, window=width, overlap=10))
    places = sorted({0, len(body), *(place % (len(body) + 1) for place in bytes_cuts)})
    out = b"".join(
        passages.look(looking, looking.feed(body[begin:end])) for begin, end in pairwise(places)
    )
    assert out + passages.look(looking, looking.end()) == body


@FEW
@given(text=KEYED, cuts=CUTS, width=st.integers(1, 60), more=st.integers(0, 30))
def test_nothing_of_what_is_denied_is_released(
    govern: Govern, text: str, cuts: list[int], width: int, more: int
) -> None:
    """What had gone on ends before the finding, and is counted."""
    if runtime.get() is None:
        govern()
        with clew.run("first", gates=[Saying()]):
            pass
    looking = window(OutputGuardrail(saying("deny"), window=width, overlap=len(SECRET) + more))
    out = b""
    stopped = False
    try:
        for piece in pieces(text, cuts):
            out += passages.look(looking, looking.feed(event(piece)))
        out += passages.look(looking, looking.end())
    except PolicyDenied:
        stopped = True
    assert stopped == (SECRET in text)
    before = text.partition(SECRET)[0]
    assert (before if stopped else text).startswith(texts(out))
    assert looking.released == len(texts(out))


def test_how_much_is_held_back(govern: Govern) -> None:
    """Never more than window and overlap, in events of one character."""
    govern()
    with clew.run("first", gates=[Saying()]):
        pass
    seen: list[str] = []
    looking = window(OutputGuardrail(seen.append, window=10, overlap=4))
    out = b""
    held = []
    for number in range(30):
        out += passages.look(looking, looking.feed(event(chr(97 + number % 26))))
        held.append(number + 1 - len(texts(out)))
    out += passages.look(looking, looking.end())
    assert seen == ["abcdefghij", "ghijklmnopqrst", "qrstuvwxyzabcd", "abcd"]
    assert max(held) == 13
    assert len(texts(out)) == 30


def test_a_growing_match_is_not_cut(govern: Govern) -> None:
    """What a pattern takes of the next window belongs to the match, and is not let go before."""
    import re

    govern()
    with clew.run("first", gates=[Saying()]):
        pass
    key = re.compile(r"sk-\w+")
    guard = OutputGuardrail(
        lambda text: redact(key.sub("[key]", text)) if key.search(text) else None,
        window=8,
        overlap=20,
    )
    looking = window(guard)
    out = b"".join(
        passages.look(looking, looking.feed(event(each)))
        for each in "my key is sk-1234567890, he said"
    )
    assert texts(out + passages.look(looking, looking.end())) == "my key is [key], he said"


# --- through the SDKs ----------------------------------------------------------------------------


async def test_a_denial_in_the_middle(govern: Govern, kit: Kit) -> None:
    """What was looked at has come, nothing of the rest does; the decision says how much it was."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=16, policy_version="4"))
    came: list[str] = []
    with pytest.raises(PolicyDenied) as caught, clew.run("triage") as run:
        await read(kit, came)
    assert type(caught.value) is PolicyDenied
    assert "".join(came) == "".join(WORDS[:2])
    (found,) = decisions(exported)
    assert {key: found[key] for key in ("outcome", "reason", "executed", "released_chars")} == {
        "outcome": "deny",
        "reason": "found",
        "executed": False,
        "released_chars": len("".join(WORDS[:2])),
    }
    assert (found["id"], found["policy_version"]) == (caught.value.decision_id, "4")
    (decision,) = exported.by_name("decide")
    assert decision.attributes["clew.run.id"] == str(run.run_id)
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] in ("closed", "complete")
    assert "error.type" not in span.attributes
    (ended,) = exported.by_name("invoke_agent")
    assert ended.attributes["clew.run.termination_reason"] == "policy_denied"
    assert MARK.encode() not in exported.otlp_bytes()


async def test_a_denial_before_the_first_text(govern: Govern, kit: Kit) -> None:
    """It comes out of the call itself, and nothing was released."""
    exported = govern(OutputGuardrail(saying("deny")))
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.ask(stream=True)
    (found,) = decisions(exported)
    assert (found["outcome"], found["released_chars"]) == ("deny", 0)


async def test_a_redaction(govern: Govern, kit: Kit) -> None:
    """The round has the provider's counts, the caller the changed text, whatever the window."""
    for width in (1, 8, 512, None):
        exported = govern(OutputGuardrail(no_keys, window=width, overlap=16))
        came: list[str] = []
        more = {"stream_options": {"include_usage": True}} if kit.openai else {}
        if width is None:  # held back as a whole, and that cannot be changed
            with pytest.raises(PolicyDenied, match="redact_not_possible"), clew.run("triage"):
                await read(kit, came, **more)
            clew.shutdown()
            continue
        with clew.run("triage") as run:
            await read(kit, came, **more)
            assert "".join(came) == "".join((*WORDS, "[gone]", " end"))
            assert (run.totals.input_tokens, run.totals.output_tokens) == (12, 7)
        (found,) = decisions(exported)
        assert (found["outcome"], found["reason"], found["executed"]) == ("redact", "found", True)
        assert found["released_chars"] == len("".join(came))
        (span,) = exported.by_name("chat")
        assert span.attributes["clew.stream.outcome"] == "complete"
        assert MARK.encode() not in exported.otlp_bytes()
        clew.shutdown()


async def test_an_approval_is_required(govern: Govern, kit: Kit) -> None:
    """The stream ends with it, and it names the run."""
    exported = govern(OutputGuardrail(saying("require_approval"), window=8, overlap=16))
    came: list[str] = []
    with pytest.raises(ApprovalRequired) as caught, clew.run("triage") as run:
        await read(kit, came)
    assert caught.value.reference is not None
    assert clew.resume(caught.value.reference).run_id == run.run_id
    assert "".join(came) == "".join(WORDS[:2])
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("require_approval", False)


async def test_asking_once_more(govern: Govern, kit: Kit, server: ScriptedProvider) -> None:
    """While nothing was released the model is asked again, unseen by the caller."""
    exported = govern(OutputGuardrail(saying("retry")))
    server.replace(Reply(text=("x ", SECRET)), Reply(text="fine"), Reply(text="never"))
    came: list[str] = []
    with clew.run("triage") as run:
        await read(kit, came)
        assert "".join(came) == "fine"
        assert run.totals.rounds == 2
    assert [found["outcome"] for found in decisions(exported)] == ["retry", "allow"]
    assert len(server.requests) == 2


async def test_asking_once_more_is_too_late(govern: Govern, kit: Kit) -> None:
    """When text has gone on, a wish to ask again ends the stream."""
    exported = govern(OutputGuardrail(saying("retry"), window=8, overlap=16))
    with pytest.raises(PolicyDenied, match="found"), clew.run("triage"):
        await read(kit, [])
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("deny", False)


async def test_observing(govern: Govern, kit: Kit, server: ScriptedProvider) -> None:
    """The bytes pass as they came; what was found is a decision that is not enforced."""
    whole = Saying(Verdict(outcome="redact", reason="all"), kinds=OUTPUT, mode="observe")
    exported = govern(OutputGuardrail(saying("deny"), mode="observe", window=8, overlap=16), whole)
    came: list[str] = []
    with clew.run("triage"):
        await read(kit, came)
    assert "".join(came) == "".join((*WORDS, SECRET, " end"))
    found = {each["gate"]: each for each in decisions(exported)}
    assert (found["guardrail_output"]["outcome"], found["guardrail_output"]["reason"]) == (
        "deny",
        "found",
    )
    assert {each["enforced"] for each in found.values()} == {False}
    assert {each["executed"] for each in found.values()} == {True}
    assert ["released_chars" in each for each in found.values()] == [False, False]
    (asked,) = whole.asked
    assert asked.content is not None
    assert SECRET[5:].encode() in (asked.content() or b"")


async def test_an_observer_beside_an_enforced_one(govern: Govern, kit: Kit) -> None:
    """Both look, one stops."""
    exported = govern(
        OutputGuardrail(saying("deny"), window=8, overlap=16),
        OutputGuardrail(no_keys, mode="observe", name="second", window=8),
    )
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await read(kit, [])
    found = {each["gate"]: each["outcome"] for each in decisions(exported)}
    assert found == {"guardrail_output": "deny", "second": "allow"}


async def test_the_second_sees_what_the_first_has_made(govern: Govern, kit: Kit) -> None:
    """Guardrails of a stream work one after the other, as those of a whole answer do."""
    seen: list[str] = []
    govern(
        OutputGuardrail(no_keys, window=8, overlap=16),
        OutputGuardrail(seen.append, name="second", window=4, overlap=2),
    )
    came: list[str] = []
    with clew.run("triage"):
        await read(kit, came)
    assert "[gone]" in "".join(came)
    assert SECRET not in "".join(seen)


@pytest.mark.parametrize("mandatory", [True, False])
async def test_a_guardrail_that_crashes(govern: Govern, kit: Kit, mandatory: bool) -> None:
    """A mandatory one denies, an optional one lets the text pass; both say so."""

    def look(text: str) -> Verdict | None:
        if SECRET in text:
            raise RuntimeError(text)
        return None

    guardrail = OutputGuardrail(look, mandatory=mandatory, window=8, overlap=16)
    exported = govern(guardrail, faults={"ask the gate OutputGuardrail"})
    came: list[str] = []
    if mandatory:
        with pytest.raises(PolicyDenied, match="gate_error"), clew.run("triage"):
            await read(kit, came)
        assert "".join(came) == "".join(WORDS[:2])
    else:
        with clew.run("triage"):
            await read(kit, came)
        assert "".join(came) == "".join((*WORDS, SECRET, " end"))
    (found,) = decisions(exported)
    assert (found["outcome"], found["reason"]) == ("deny" if mandatory else "allow", "gate_error")
    assert MARK.encode() not in exported.otlp_bytes()


async def test_closing_early(govern: Govern, kit: Kit) -> None:
    """A caller that stops reading leaves a decision on what had been looked at."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=4))
    with clew.run("triage"):
        stream = await kit.ask(stream=True)
        if kit.asynchronous:
            async for part in stream:
                if kit._delta(part):
                    break
            await stream.close()
        else:
            for part in stream:
                if kit._delta(part):
                    break
            stream.close()
    (found,) = decisions(exported)
    assert (found["outcome"], found["executed"]) == ("allow", True)
    assert found["released_chars"] > 0
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] == "closed"


async def test_dropping_a_stream(govern: Govern, kit: Kit) -> None:
    """So does one that drops the stream; the round is abandoned."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=4))
    with clew.run("triage"):
        stream = await kit.ask(stream=True)
        _ = await anext(aiter(stream)) if kit.asynchronous else next(iter(stream))
        del stream, _
        gc.collect()
        for _ in range(12):
            await asyncio.sleep(0)
        gc.collect()
    (found,) = decisions(exported)
    assert found["outcome"] == "allow"
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] in ("abandoned", "closed")


@pytest.mark.parametrize("reset", [False, True])
async def test_an_error_in_the_middle(
    govern: Govern, kit: Kit, server: ScriptedProvider, reset: bool
) -> None:
    """The caller gets the text before it, looked at, and the error that it would have got."""
    reply = Reply(text=WORDS * 2, cut_after=5, reset=reset)
    results = []
    for gates in ((), (OutputGuardrail(saying("deny")),)):
        exported = govern(*gates)
        server.replace(reply, reply, reply)
        came: list[str] = []
        with pytest.raises(Exception) as caught, clew.run("triage"):  # noqa: PT011
            await read(kit, came)
        results.append((type(caught.value), "".join(came)))
        (span,) = exported.by_name("chat")
        assert span.attributes["clew.stream.outcome"] == "failed"
        clew.shutdown()
    assert results[0] == results[1]
    assert [found["outcome"] for found in decisions(exported)] == ["allow"]


async def test_a_finding_before_an_error(
    govern: Govern, kit: Kit, server: ScriptedProvider
) -> None:
    """What was held back when the connection broke is looked at, and denied."""
    govern(OutputGuardrail(saying("deny")))
    server.replace(Reply(text=("a ", SECRET, " b", " c", " d"), cut_after=5))
    came: list[str] = []
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await read(kit, came)
    assert came == []


@pytest.mark.parametrize("name", ["openai-async", "anthropic-async"])
async def test_cancelling_in_the_middle(
    govern: Govern, server: ScriptedProvider, name: str
) -> None:
    """A task that is cancelled while it waits for text leaves a decision, and its round."""
    exported = govern(OutputGuardrail(saying("deny"), window=8, overlap=4))
    server.replace(Reply(text=WORDS * 2, hang_after=5))
    kit = Kit(name, server)
    came: list[str] = []

    async def work() -> None:
        with clew.run("triage"):
            await read(kit, came)

    task = asyncio.create_task(work())
    for _ in range(500):
        if came:
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await kit.close()
    assert "".join(came).startswith(WORDS[0])
    (found,) = decisions(exported)
    assert (found["outcome"], found["released_chars"]) == ("allow", len("".join(came)))
    (span,) = exported.by_name("chat")
    assert span.attributes["clew.stream.outcome"] == "cancelled"


async def test_a_gate_without_a_window_sees_the_whole(govern: Govern, kit: Kit) -> None:
    """A gate of your own that knows no windows is asked once, before anything was released."""
    gate = Saying(Verdict(outcome="deny", reason="no"), kinds=OUTPUT)
    govern(gate, OutputGuardrail(saying("allow")))
    with pytest.raises(PolicyDenied), clew.run("triage"):
        await kit.ask(stream=True)
    (asked,) = gate.asked
    assert asked.content is not None
    assert b" end" in (asked.content() or b"")


async def test_an_asynchronous_function(govern: Govern, server: ScriptedProvider) -> None:
    """It is awaited for each part of a stream in asynchronous code; elsewhere it is a crash."""

    async def look(text: str) -> Verdict | None:
        await asyncio.sleep(0)
        return no_keys(text)

    exported = govern(OutputGuardrail(alook=look), faults={"ask the gate OutputGuardrail"})
    slow, quick = Kit("openai-async", server), Kit("openai-sync", server)
    came: list[str] = []
    await read(slow, came)
    assert "".join(came).endswith("[gone] end")
    with pytest.raises(PolicyDenied, match="gate_error"):
        await read(quick, [])
    await slow.close()
    await quick.close()
    assert [found["outcome"] for found in decisions(exported)] == ["redact", "deny"]


# --- wire formats --------------------------------------------------------------------------------


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
