"""What can go wrong: classes of failure, retries and the waits between them."""

from __future__ import annotations

import asyncio
import email.utils
import time
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clew.errors import ClewError
from clew.facts import ErrorFacts
from clew.providers import PROVIDERS, ChatRequest, Message, ProviderError, provider
from clew.providers import errors as classes
from clew.providers.calls import retry_after, retry_delay
from clew.semconv import FAILURE_CLASSES
from clew.testing import Reply

HELLO = ChatRequest(model="small", messages=(Message.user("SECRET"),))
BUSY = Reply.failure(503, "SECRET", retry_after_ms=1)

STATUSES = [
    (400, "client_error", 1),
    (401, "auth", 1),
    (403, "client_error", 1),
    (404, "client_error", 1),
    (408, "connection", 4),
    (413, "client_error", 1),
    (422, "client_error", 1),
    (429, "rate_limit", 4),
    (500, "server_error", 4),
    (503, "server_error", 4),
    (529, "server_error", 4),
]


@pytest.mark.parametrize(("status", "failure_class", "attempts"), STATUSES)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_status_of_failure(
    kit: Any, status: int, failure_class: str, attempts: int, streamed: bool
):
    """Each has its class; three retries where another attempt may help, none elsewhere."""
    kit.server.add(*[Reply.failure(status, "SECRET", retry_after_ms=1)] * 4)
    with pytest.raises(ProviderError) as caught:
        await kit.answer(HELLO, streamed=streamed)
    error = caught.value
    assert isinstance(error, ClewError)
    assert (error.failure_class, error.status) == (failure_class, status)
    assert (error.provider, error.model) == (kit.name, "small")
    assert error.raw is None
    assert "SECRET" not in str(error) + repr(error) + repr(vars(error))
    assert len(kit.server.requests) == attempts


TYPES = {
    "openai": ("requests", "rate_limit_exceeded"),
    "anthropic": ("rate_limit_error", None),
    "gemini": ("RESOURCE_EXHAUSTED", 429),
    "openrouter": ("requests", "rate_limit_exceeded"),
    "mistral": ("service_tier_capacity_exceeded", "3505"),
    "groq": ("requests", "rate_limit_exceeded"),
    "ollama": (None, None),
}


async def test_the_providers_own_words(kit: Any):
    """Type and code are told as the provider has them; its prose is not."""
    kit.server.add(Reply.failure(429, "SECRET"))
    async with kit.another(retries=0) as one:
        with pytest.raises(ProviderError) as caught:
            await kit.chat(by=one)
    assert (caught.value.type, caught.value.code) == TYPES[kit.name]
    word = TYPES[kit.name][0]
    assert str(caught.value) == f"{kit.name} answered 429" + (f" ({word})" if word else "")


@pytest.mark.parametrize("name", ["openai"])
async def test_words_that_are_prose_are_not_told(kit: Any):
    """A type or code that is no identifier may quote anything."""
    kit.server.add(Reply.failure(400, type="your SECRET is bad", code="SECRET SECRET"))
    with pytest.raises(ProviderError) as caught:
        await kit.chat()
    assert "SECRET" not in str(caught.value) + repr(vars(caught.value))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_retry_that_succeeds(kit: Any, streamed: bool):
    """The caller sees the answer alone, and every attempt is the same request."""
    kit.server.add(BUSY, Reply.failure(429, retry_after_ms=1), Reply(text="at last"))
    answer = await kit.answer(HELLO, streamed=streamed)
    assert answer.text == "at last"
    assert len({(one.path, one.body) for one in kit.server.requests}) == 1
    assert len(kit.server.requests) == 3


@pytest.mark.parametrize(("given_", "attempts"), [(-1, 1), (0, 1), (1, 2), (99, 11)])
async def test_how_often_is_a_choice_within_bounds(kit: Any, given_: int, attempts: int):
    """From none to ten retries."""
    kit.server.add(*[BUSY] * 12)
    async with kit.another(retries=given_) as one:
        with pytest.raises(ProviderError):
            await kit.chat(by=one)
    assert len(kit.server.requests) == attempts


def test_the_waits_double_up_to_half_a_minute():
    """0.1 s after the first attempt, then twice as long each time."""
    assert [retry_delay(attempt) for attempt in range(11)] == [
        0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["openai"])
async def test_without_a_word_the_wait_is_our_own(kit: Any):
    """Two retries take 0.3 s."""
    kit.server.add(Reply.failure(500), Reply.failure(500), Reply(text="x"))
    started = time.monotonic()
    await kit.chat()
    assert 0.3 <= time.monotonic() - started < 3


@pytest.mark.parametrize("name", ["openai"])
async def test_the_providers_wait_is_kept(kit: Any):
    """`retry-after` in seconds, longer and shorter than ours."""
    kit.server.add(Reply.failure(429, retry_after=0.5), Reply(text="x"))
    started = time.monotonic()
    await kit.chat()
    assert 0.5 <= time.monotonic() - started < 4
    kit.server.add(*[Reply.failure(429, retry_after=0)] * 3, Reply(text="x"))
    started = time.monotonic()
    await kit.chat()
    assert time.monotonic() - started < 0.6


async def test_a_wait_that_is_too_long_is_the_callers_affair(kit: Any):
    """Nothing is retried sooner than the provider says; the error tells how long that is."""
    kit.server.add(Reply.failure(429, retry_after=3600))
    with pytest.raises(ProviderError) as caught:
        await kit.chat()
    assert caught.value.retry_after == 3600
    assert len(kit.server.requests) == 1


async def test_a_provider_that_forbids_retries(kit: Any):
    """`x-should-retry: false` is obeyed."""
    kit.server.add(Reply.failure(500, headers={"x-should-retry": "false"}), Reply(text="x"))
    with pytest.raises(ProviderError):
        await kit.chat()
    assert len(kit.server.requests) == 1


def test_every_form_of_retry_after():
    """Milliseconds, seconds, a date; what is none of them is not there."""
    now = 1_800_000_000.0
    date = email.utils.formatdate(now + 5, usegmt=True)
    past = email.utils.formatdate(now - 5, usegmt=True)
    found = [
        retry_after(headers, now)
        for headers in (
            {"retry-after-ms": "250", "retry-after": "9"},
            {"retry-after": "2"},
            {"retry-after": "-2"},
            {"retry-after": date},
            {"retry-after": past},
            {"retry-after": "soon"},
            {"retry-after": "inf"},
            {"retry-after-ms": "x", "retry-after": "3"},
            {},
        )
    ]
    assert found == [0.25, 2.0, 0.0, 5.0, 0.0, None, None, 3.0, None]


@given(st.text(max_size=30))
def test_any_retry_after_is_a_wait_or_none(value: str):
    """Nothing that a server writes there raises."""
    wait = retry_after({"retry-after": value}, 0.0)
    assert wait is None or 0 <= wait < float("inf")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_server_that_is_not_there(kit: Any, streamed: bool):
    """A refused connection is retried and then a failure of its own class."""
    async with kit.another(base_url="http://127.0.0.1:9", retries=1) as one:
        ask = kit.events if streamed else kit.chat
        with pytest.raises(ProviderError) as caught:
            await ask(by=one)
    assert caught.value.failure_class == "connection"
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_server_that_does_not_answer(kit: Any, streamed: bool):
    """The request's own limit of time ends an attempt."""
    kit.server.add(Reply.silence())
    async with kit.another(retries=0) as one:
        ask = kit.events if streamed else kit.chat
        with pytest.raises(ProviderError) as caught:
            await ask(replace(HELLO, timeout=0.2), by=one)
    assert caught.value.failure_class == "connection"
    assert isinstance(caught.value.__cause__, httpx.ReadTimeout)


async def test_an_answer_that_is_cut_off(kit: Any):
    """Half a body is a broken connection, and another attempt may do better."""
    kit.server.add(Reply(text="x" * 100, cut_after=1), Reply(text="whole"))
    assert (await kit.chat()).text == "whole"


async def test_a_redirection_is_no_answer(kit: Any):
    """It is not followed: the key would go elsewhere."""
    headers = {"location": "http://127.0.0.1:9/"}
    kit.server.add(Reply(raw=(b"",), status=307, headers=headers))
    with pytest.raises(ProviderError) as caught:
        await kit.chat()
    assert (caught.value.failure_class, caught.value.status) == ("unknown", 307)


@pytest.mark.parametrize("name", ["openai"])
async def test_a_key_that_no_header_can_carry(kit: Any):
    """It is an error of configuration, and does not show the key."""
    async with kit.another(api_key="SECRET\nKEY") as one:
        with pytest.raises(ProviderError) as caught:
            await kit.chat(by=one)
    assert caught.value.failure_class == "configuration"
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("name", ["openai"])
async def test_a_client_of_the_callers_own(kit: Any, library: Any):
    """Either library's clients serve, fail in the same classes, and stay open."""
    kit.server.add(Reply(text="x"), Reply(text="y"))
    base_url = f"{kit.server.base_url}/v1"
    with library.Client() as client:
        async with library.AsyncClient() as async_client:
            async with kit.another(http_client=client, async_http_client=async_client) as one:
                assert (await kit.chat(by=one)).text == "x"
                assert (await kit.events(by=one))[-1].response.text == "y"
            assert not client.is_closed
            assert not async_client.is_closed
            nobody = kit.another(
                base_url="http://127.0.0.1:9",
                retries=0,
                http_client=client,
                async_http_client=async_client,
            )
            with pytest.raises(ProviderError) as caught:
                await kit.chat(by=nobody)
    assert caught.value.failure_class == "connection"
    assert base_url


@pytest.mark.parametrize("name", ["openai"])
async def test_a_fault_of_the_callers_own_passes(kit: Any):
    """What the HTTP client did not raise is nobody's failure class."""

    def handle(_: Any) -> Any:
        raise LookupError("mine")

    transport = httpx.MockTransport(handle)
    client, async_client = httpx.Client(transport=transport), httpx.AsyncClient(transport=transport)
    with client:
        async with async_client:
            one = kit.another(http_client=client, async_http_client=async_client)
            with pytest.raises(LookupError, match="mine"):
                await kit.chat(by=one)
            with pytest.raises(LookupError, match="mine"):
                await kit.events(by=one)


async def test_a_task_that_is_cancelled(kit: Any):
    """Cancellation passes at once, whether an answer or a retry is awaited."""
    for reply in (Reply.silence(), Reply.failure(429, retry_after=20)):
        kit.server.replace(reply)
        task = asyncio.create_task(kit.provider.achat(HELLO))
        for _ in range(100):
            if kit.server.left == 0:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 2)


def test_one_adapter_on_several_loops():
    """Connections belong to a loop; an adapter does not."""
    from clew.testing import ScriptedProvider

    with ScriptedProvider([Reply(text="a"), Reply(text="b")]) as server:
        one = provider("openai", api_key="k", base_url=server.openai_base_url)

        async def ask() -> str:
            try:
                return (await one.achat(HELLO)).text
            finally:
                await one.aclose()

        assert [asyncio.run(ask()), asyncio.run(ask())] == ["a", "b"]


WORDS = [
    ("overloaded_error", None, "server_error"),
    ("api_error", None, "server_error"),
    ("rate_limit_error", None, "rate_limit"),
    ("authentication_error", None, "auth"),
    ("invalid_request_error", None, "client_error"),
    ("UNAVAILABLE", 503, "server_error"),
    ("RESOURCE_EXHAUSTED", None, "rate_limit"),
    (None, 429, "rate_limit"),
    (None, "502", "server_error"),
    (None, "3505", "unknown"),
    (None, "rate_limit_exceeded", "rate_limit"),
    ("generate_error", None, "unknown"),
    (None, None, "server_error"),
]


@pytest.mark.parametrize(("kind", "code", "expected"), WORDS)
def test_an_error_within_a_good_status(kind: str | None, code: Any, expected: str):
    """Its class is told by whole words, never by a piece of one."""
    assert classes.of_answer(200, ErrorFacts(kind, code)) == expected


@given(
    st.one_of(st.none(), st.integers(0, 999)),
    st.one_of(st.none(), st.text(max_size=20)),
    st.one_of(st.none(), st.text(max_size=20), st.integers()),
)
def test_every_answer_has_a_class(status: int | None, kind: str | None, code: Any):
    """Whatever is answered, it is one of the eight."""
    assert classes.of_answer(status, ErrorFacts(kind, code)) in FAILURE_CLASSES


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_every_exception_of_the_clients_has_a_class(library: Any):
    """Of both libraries, those that a later version may add included."""
    found = {
        name: classes.of_exception(kind.__new__(kind))
        for name, kind in vars(library).items()
        if isinstance(kind, type) and issubclass(kind, Exception) and name[0].isupper()
    }
    assert set(found.values()) <= {"connection", "configuration", "unknown"}
    assert {name for name, kind in found.items() if kind == "configuration"} == {
        "UnsupportedProtocol", "InvalidURL", "LocalProtocolError",
    }  # fmt: skip
    assert {"ConnectError", "ReadTimeout", "RemoteProtocolError", "ReadError"} <= {
        name for name, kind in found.items() if kind == "connection"
    }


def test_errors_are_for_every_adapter():
    """The words of all seven are proved above."""
    assert set(TYPES) == set(PROVIDERS)
