"""What a mapping finds in the arguments and results of a callable, and what it leaves alone."""

from __future__ import annotations

import enum
from typing import Any

import anthropic
import cohere.v2.client as cohere_client
import groq
import openai
import openrouter.types as openrouter_types
import pytest
from callable_kit import Provider, answer, complete, rounds
from mistralai.client import types as mistral_types

import clew
from clew import _guard, semconv
from clew.errors import ClewError
from clew.testing import CaptureExporter


def test_arguments_by_position_and_by_default(exported: CaptureExporter) -> None:
    """Arguments are found however they are given."""

    def complete(messages: Any, model: str = "acme-1", *, temperature: float = 0.5) -> Any:
        return answer()

    wrapped = clew.instrument(
        complete, facts={"model": "model", "messages": "messages", "temperature": "temperature"}
    )
    wrapped(["a"])
    wrapped(["a"], "acme-2", temperature=1)
    first, second = rounds(exported)
    assert (first["gen_ai.request.model"], first["gen_ai.request.temperature"]) == ("acme-1", 0.5)
    assert (second["gen_ai.request.model"], second["gen_ai.request.temperature"]) == ("acme-2", 1)


NO_VALUES = [
    openai.NOT_GIVEN,
    openai.omit,
    anthropic.NOT_GIVEN,
    groq.omit,
    mistral_types.UNSET,
    openrouter_types.UNSET,
    cohere_client.OMIT,
    None,
]


@pytest.mark.parametrize("nothing", NO_VALUES, ids=lambda value: type(value).__module__)
async def test_what_is_not_given_is_absent(
    exported: CaptureExporter, nothing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What an SDK has for "not given" is no value; a zero and an empty list are values."""
    names = ("model", "max_tokens", "temperature", "top_p", "seed", "choice_count", "tools")
    places = {name: name for name in (*names, "messages")}

    def complete(**given: Any) -> Any:
        return answer()

    async def acomplete(**given: Any) -> Any:
        return answer()

    clew.instrument(complete, facts=places)(**dict.fromkeys(places, nothing))
    await clew.instrument(acomplete, facts=places)(**dict.fromkeys(places, nothing))
    zeros = {"temperature": 0, "max_tokens": 0, "seed": 0, "tools": [], "messages": ()}
    clew.instrument(complete, facts=places)(**zeros)
    keys = {each for each in semconv.RULES if ".request." in each}
    *without, with_zeros = (
        {key: one[key] for key in keys & one.keys()} for one in rounds(exported)
    )
    assert without == [{}, {}]
    assert with_zeros == {
        "gen_ai.request.temperature": 0,
        "gen_ai.request.max_tokens": 0,
        "gen_ai.request.seed": 0,
        "clew.request.tools": 0,
        "clew.request.messages": 0,
    }
    assert not caplog.records


def test_what_can_be_read_once_is_left_to_the_callable(exported: CaptureExporter) -> None:
    """Tools and messages that come one by one are not read by Clew."""

    def complete(messages: Any, tools: Any) -> Any:
        assert (list(messages), list(tools)) == (["hello"], ["find"])
        return answer()

    wrapped = clew.instrument(complete, facts={"messages": "messages", "tools": "tools"})
    wrapped(iter(["hello"]), (name for name in ["find"]))
    (found,) = rounds(exported)
    assert not {"clew.request.messages", "clew.request.tools"} & found.keys()


class Reason(enum.Enum):
    DONE = "max_tokens"


ODD = [
    ({"finish_reason": lambda _: Reason.DONE}, "finish_reasons", ("length",)),
    ({"finish_reason": lambda _: ["stop", None]}, "finish_reasons", ("stop", "_OTHER")),
    ({"input_tokens": lambda _: "many"}, "input_tokens", None),
    ({"input_tokens": lambda _: -1}, "input_tokens", None),
    ({"input_tokens": lambda _: True}, "input_tokens", None),
    ({"input_tokens": lambda _: 0}, "input_tokens", 0),
    ({"input_tokens": "usage.0.deep"}, "input_tokens", None),
    ({"model": lambda _: 7}, "request.model", None),
]


@pytest.mark.parametrize(("facts", "key", "value"), ODD)
def test_values_of_any_kind(
    exported: CaptureExporter, facts: dict[str, Any], key: str, value: Any
) -> None:
    """A value that is none of the fact's kind is unknown, and nothing breaks."""
    clew.instrument(complete, facts={**facts, "output_tokens": "usage.output"})("m")
    (found,) = rounds(exported)
    names = {
        "finish_reasons": "gen_ai.response.finish_reasons",
        "input_tokens": "gen_ai.usage.input_tokens",
        "request.model": "gen_ai.request.model",
    }
    assert found.get(names[key]) == value
    assert found["gen_ai.usage.output_tokens"] == 20


def test_a_place_that_raises(exported: CaptureExporter, caplog: pytest.LogCaptureFixture) -> None:
    """The fact is unknown, the call goes on, and the user is told once, without content."""
    _guard.forget()
    wrapped = clew.instrument(
        complete,
        facts={"model": "model", "input_tokens": lambda result: result["SECRET"]},
    )
    for _ in range(2):
        assert wrapped("acme-1").text == "SECRET"
    assert [found["gen_ai.request.model"] for found in rounds(exported)] == ["acme-1"] * 2
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert "'input_tokens'" in messages[0]
    assert "SECRET" not in messages[0]


BAD: list[tuple[Any, Any, str]] = [
    (lambda: 0, {"modell": "model"}, "'modell' is no fact"),
    (lambda: 0, {"model": 7}, "'model' is 7"),
    (lambda: 0, {"model": ""}, "'model' is ''"),
    (7, {"model": "model"}, "int"),
    (Provider, {"model": "model"}, "Provider has no method '__call__'"),
    (Provider, {"gone": {"model": "model"}}, "Provider has no method 'gone'"),
]


@pytest.mark.parametrize(("target", "facts", "message"), BAD)
def test_what_is_not_understood_is_a_clear_error(target: Any, facts: Any, message: str) -> None:
    """A mistake in the mapping is named where it is made."""
    with pytest.raises(ClewError, match=message):
        clew.instrument(target, facts=facts)
