"""Chains of providers: who is asked next, and who is left out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pair import ASK, BUSY, Clock

from clew.providers import (
    Choice,
    Circuits,
    FallbackError,
    FallbackProvider,
    ProviderError,
    provider,
)
from clew.providers.fallback import Attempt
from clew.testing import Reply, ScriptedError


async def test_the_first_choice_answers(pair: Any):
    """Nobody else is asked."""
    pair.script([Reply(text="one")], [Reply(text="two")])
    answer = await pair.ask(FallbackProvider(pair.one, pair.second))
    assert (answer.text, answer.provider, answer.model, answer.hop) == ("one", "openai", "small", 0)
    assert pair.asked == (1, 0)


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_the_next_one_answers(pair: Any, status: int):
    """After a failure that another may not have; the answer says who gave it."""
    pair.script([Reply.failure(status)], [Reply(text="two")])
    answer = await pair.ask(FallbackProvider(pair.one, pair.second))
    assert (answer.text, answer.provider, answer.model, answer.hop) == (
        "two",
        "anthropic",
        "large",
        1,
    )
    assert pair.servers[1].requests[0].json()["model"] == "large"


async def test_a_provider_that_is_not_there(pair: Any):
    """A refused connection moves on, too."""
    pair.script([], [Reply(text="two")])
    nobody = provider("groq", api_key="k", base_url="http://127.0.0.1:9", retries=0)
    async with nobody:
        assert (await pair.ask(FallbackProvider(nobody, pair.second))).text == "two"


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_what_nobody_else_would_mend_is_raised_at_once(pair: Any, status: int):
    """The error is the provider's own."""
    pair.script([Reply.failure(status)], [Reply(text="two")])
    with pytest.raises(ProviderError) as caught:
        await pair.ask(FallbackProvider(pair.one, pair.second))
    assert not isinstance(caught.value, FallbackError)
    assert (caught.value.status, pair.asked) == (status, (1, 0))


async def test_a_chain_that_is_exhausted(pair: Any):
    """The error knows every try; its text has no prose of theirs."""
    pair.script([BUSY], [Reply.failure(429, "SECRET", retry_after=9)])
    with pytest.raises(FallbackError) as caught:
        await pair.ask(FallbackProvider(pair.one, pair.second))
    error = caught.value
    assert error.attempts == (
        Attempt(provider="openai", model="small", failure_class="server_error", status=503),
        Attempt(provider="anthropic", model="large", failure_class="rate_limit", status=429),
    )
    assert (error.failure_class, error.status, error.retry_after) == ("rate_limit", 429, 9)
    assert str(error) == (
        "anthropic was the last of 2 providers that failed: "
        "openai server_error, anthropic rate_limit"
    )


async def test_a_chain_of_itself_alone(pair: Any):
    """Itself again, missing and inactive choices are passed over; its own error is raised."""
    chain = FallbackProvider(
        pair.one,
        pair.one,
        Choice(provider=pair.one, model="small"),
        Choice(provider=pair.two, active=False),
        "gone",
        "off",
        find={"off": Choice(provider=pair.two, active=False)}.get,
    )
    pair.script([BUSY, Reply(text="no")], [Reply(text="no")])
    with pytest.raises(ProviderError) as caught:
        await pair.ask(chain)
    assert not isinstance(caught.value, FallbackError)
    assert (caught.value.failure_class, pair.asked) == ("server_error", (1, 0))


async def test_choices_by_name(pair: Any):
    """A name is looked up for each call; what is called alike is tried once."""
    known: dict[str, Choice] = {}
    chain = FallbackProvider(Choice(provider=pair.one, name="a"), "b", "a", "b", find=known.get)
    pair.script([BUSY, BUSY], [Reply(text="two")])
    with pytest.raises(ProviderError):
        await pair.ask(chain)
    known["b"] = Choice(provider=pair.two, name="b")
    known["a"] = Choice(provider=pair.one, name="a", model="other")
    answer = await pair.ask(chain)
    assert (answer.text, answer.model, answer.hop) == ("two", "small", 1)


async def test_a_chain_is_shallow(pair: Any):
    """Of a choice that is a chain only its first counts."""
    inner = FallbackProvider(Choice(provider=pair.one, model="other"), pair.second)
    chain = FallbackProvider(pair.one, inner)
    pair.script([BUSY, BUSY], [Reply(text="no")])
    with pytest.raises(FallbackError) as caught:
        await pair.ask(chain)
    assert [one.model for one in caught.value.attempts] == ["small", "other"]
    assert pair.asked == (2, 0)


@pytest.mark.parametrize("streamed", [True], ids=["streamed"])
async def test_no_other_provider_after_the_first_text(pair: Any):
    """What was given cannot be taken back: the failure is raised."""
    pair.script([Reply(text=("a", "b"), cut_after=2)], [Reply(text="two")])
    with pytest.raises(ProviderError) as caught:
        await pair.ask(FallbackProvider(pair.one, pair.second))
    assert (caught.value.failure_class, pair.asked) == ("connection", (1, 0))


@pytest.mark.parametrize("streamed", [True], ids=["streamed"])
@pytest.mark.parametrize("how", ["error", "cut"])
async def test_another_provider_before_the_first_text(pair: Any, how: str):
    """A stream that has begun without a text may still be another's."""
    reply = Reply(text="a", cut_after=1)
    if how == "error":
        reply = Reply(text="a", error=ScriptedError(), error_after=1)
    pair.script([reply], [Reply(text="two")])
    assert (await pair.ask(FallbackProvider(pair.one, pair.second))).text == "two"


async def test_retries_come_first(pair: Any):
    """Each provider of a chain is retried as it is alone."""
    pair.script([BUSY, BUSY], [Reply(text="two")])
    url = pair.servers[0].openai_base_url
    async with provider("openai", api_key="k", base_url=url, retries=1) as one:
        assert (await pair.ask(FallbackProvider(one, pair.second))).text == "two"
    assert pair.asked == (2, 1)


@pytest.mark.parametrize("mode", ["async"])
async def test_a_task_that_is_cancelled(pair: Any):
    """Nobody else is asked then."""
    pair.script([Reply.silence()], [Reply(text="no")])
    task = asyncio.create_task(pair.ask(FallbackProvider(pair.one, pair.second)))
    for _ in range(200):
        if pair.asked == (1, 0):
            break
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 2)
    assert pair.asked == (1, 0)


async def test_closing_a_chain_closes_its_providers(pair: Any):
    """Of both kinds."""
    pair.script([Reply(text="one")], [])
    async with FallbackProvider(pair.one, pair.second) as chain:
        await pair.ask(chain)
    assert pair.one._made is None
    assert pair.one._made_async == {}


async def test_the_bytes_that_would_be_sent(pair: Any):
    """They are the first choice's, with its model."""
    pair.script([Reply(text="one")], [])
    chain = FallbackProvider(Choice(provider=pair.one, model="other"), pair.second)
    await pair.ask(chain)
    told = chain.wire_body(ASK, stream=pair.streamed)
    assert pair.servers[0].requests[0].body == told
    assert b'"other"' in told


# --- circuits -------------------------------------------------------------------------------------


def failure(failure_class: str) -> ProviderError:
    return ProviderError(failure_class, "failed", provider="openai")


def test_a_circuit_opens_after_five_failures_in_a_row():
    """For half a minute; then one call may try, and another only half a minute later."""
    clock = Clock()
    circuits = Circuits(clock=clock)
    for _ in range(4):
        circuits.settle("a", "m", failure("server_error"))
    assert circuits.allows("a", "m")
    circuits.settle("a", "m", None)
    for failure_class in ("connection", "rate_limit", "server_error", "connection"):
        circuits.settle("a", "m", failure(failure_class))
    assert circuits.allows("a", "m")
    circuits.settle("a", "m", failure("connection"))
    assert [circuits.allows("a", "m"), circuits.allows("a", "n"), circuits.allows("b", "m")] == [
        False,
        True,
        True,
    ]
    clock.now = 29.9
    assert not circuits.allows("a", "m")
    clock.now = 30.0
    assert [circuits.allows("a", "m"), circuits.allows("a", "m")] == [True, False]
    circuits.settle("a", "m", failure("connection"))
    clock.now = 59.9
    assert not circuits.allows("a", "m")
    clock.now = 60.0
    assert circuits.allows("a", "m")
    circuits.settle("a", "m", None)
    assert [circuits.allows("a", "m"), circuits.allows("a", "m")] == [True, True]


def test_failures_of_the_caller_open_no_circuit():
    """A refused request or key says nothing about the provider."""
    circuits = Circuits()
    for failure_class in ("auth", "configuration", "client_error", "unknown") * 5:
        circuits.settle("a", "m", failure(failure_class))
    assert circuits.allows("a", "m")


async def test_an_open_circuit_is_passed_over(pair: Any):
    """The provider is not asked until its time has come."""
    clock = Clock()
    chain = FallbackProvider(pair.one, pair.second, circuits=Circuits(clock=clock))
    pair.script([BUSY] * 5, [Reply(text="two")] * 6)
    for _ in range(6):
        assert (await pair.ask(chain)).hop == 1
    assert pair.asked == (5, 6)
    pair.servers[0].replace(Reply(text="one"), Reply(text="one"))
    clock.now = 30.0
    assert [(await pair.ask(chain)).hop, (await pair.ask(chain)).hop] == [0, 0]


async def test_when_every_circuit_is_open(pair: Any):
    """Nothing is sent, and the error says so."""
    clock = Clock()
    chain = FallbackProvider(pair.one, pair.second, circuits=Circuits(threshold=1, clock=clock))
    alone = FallbackProvider(pair.one, circuits=chain.circuits)
    pair.script([BUSY], [BUSY])
    with pytest.raises(FallbackError):
        await pair.ask(chain)
    with pytest.raises(FallbackError) as caught:
        await pair.ask(chain)
    assert [one.failure_class for one in caught.value.attempts] == ["circuit_open"] * 2
    with pytest.raises(ProviderError) as caught_alone:
        await pair.ask(alone)
    assert caught_alone.value.failure_class == "circuit_open"
    assert not isinstance(caught_alone.value, FallbackError)
    assert pair.asked == (1, 1)


@pytest.mark.parametrize("streamed", [True], ids=["streamed"])
async def test_streams_that_break_off_later_count_too(pair: Any):
    """A circuit looks at how a stream ends, not at how it begins."""
    chain = FallbackProvider(pair.one, pair.second, circuits=Circuits(threshold=2, clock=Clock()))
    pair.script([Reply(text=("a", "b"), cut_after=2)] * 3, [Reply(text="two")])
    for _ in range(2):
        with pytest.raises(ProviderError):
            await pair.ask(chain)
    assert (await pair.ask(chain)).text == "two"
    assert pair.asked == (2, 1)
