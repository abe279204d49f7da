"""Formats that take one text and give one: the older families of Bedrock and SageMaker.

https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html,
https://huggingface.co/docs/text-generation-inference/reference/api_reference
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from clew.content.openai import message_of
from clew.content.shapes import (
    Content,
    Message,
    Pieces,
    Reader,
    listed,
    mapping,
    message,
    objects,
    text,
    text_of,
)

_PROMPTS = ("prompt", "inputText", "inputs")
_LISTS = ("results", "outputs", "generations", "completions", "list")
"""Where several answers stand: Titan, Mistral, Cohere, AI21, and a body that is a list."""


class _Answer(NamedTuple):
    text: Any
    reason: Any


def _input(given: Any) -> Iterator[Message]:
    for each in listed(given):
        if isinstance(each, str):
            yield message("user", text(each))
        else:  # a conversation
            for item in objects(listed(each)):
                yield message_of(item)


def _request(data: dict[str, Any]) -> Content:
    found = [one for name in _PROMPTS if name in data for one in _input(data[name])]
    return Content(input_messages=found or None)


def _of(data: dict[str, Any]) -> _Answer:
    """Return what one answer says: Llama, Titan, Claude, Mistral and Cohere, AI21, and TGI."""
    reasons = ("stop_reason", "completionReason", "finish_reason")
    reason: Any = next((data[key] for key in reasons if isinstance(data.get(key), str)), None)
    reason = reason or mapping(data.get("finishReason")).get("reason")
    reason = reason or mapping(data.get("details")).get("finish_reason")
    words = ("generation", "outputText", "completion", "generated_text", "text")
    said: Any = next((data[key] for key in words if isinstance(data.get(key), str)), None)
    return _Answer(mapping(data.get("data")).get("text") if said is None else said, reason)


def _answers(data: dict[str, Any]) -> list[_Answer]:
    for name in _LISTS:
        if isinstance(data.get(name), list):
            return [
                _Answer(each, None) if isinstance(each, str) else _of(mapping(each))
                for each in listed(data[name])
            ]
    return [_of(data)]


def _response(data: dict[str, Any]) -> list[Message]:
    return [
        message("assistant", text(answer.text), finish_reason=answer.reason)
        for answer in _answers(data)
        if text_of(answer.text)
    ]


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    places: dict[int, Pieces] = {}
    for event in events:
        token = mapping(event.get("token"))
        # An event with a token has the whole text beside the last one.
        found = [_Answer(token.get("text"), _of(event).reason)] if token else _answers(event)
        for place, answer in enumerate(found):
            pieces = places.setdefault(place, Pieces())
            if token.get("special") is not True:
                pieces.add("text", "text", "content", answer.text)
            pieces.finish_reason = answer.reason or pieces.finish_reason
    return [pieces.message() for pieces in places.values() if pieces.parts]


TEXTS = Reader(_request, _response, _events)
