"""Bringing messages into the form that a provider's wire format can say."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from clew.providers.base import Image, Message, ToolRequest


def system_text(messages: Iterable[Message]) -> list[str]:
    """Return the system prompts that have text, in order."""
    return [message.text for message in messages if message.role == "system" and message.text]


def linked(messages: Iterable[Message], *, make_ids: bool = True) -> list[Message]:
    """Let every tool result name the call that it answers.

    A conversation may have come from a provider that gives its calls no ids. Results without an id
    answer the open calls of their name, then any, in order.

    Args:
        messages: the conversation.
        make_ids: whether calls without an id get one.
    """
    done: list[Message] = []
    waiting: list[ToolRequest] = []
    made = 0
    for message in messages:
        if message.role == "assistant":
            calls: list[ToolRequest] = []
            for call in message.tool_calls:
                made += 1
                missing = make_ids and call.id is None
                calls.append(replace(call, id=f"call_{made}") if missing else call)
            waiting = list(calls)
            done.append(replace(message, tool_calls=tuple(calls)) if calls else message)
        elif message.role == "tool":
            done.append(_answer(message, waiting))
        else:
            done.append(message)
    return done


def _answer(message: Message, waiting: list[ToolRequest]) -> Message:
    if message.tool_call_id is not None:
        fitting = [call for call in waiting if call.id == message.tool_call_id]
    else:
        fitting = [call for call in waiting if call.name == message.tool_name] or waiting[:1]
    if not fitting:
        return message
    waiting.remove(fitting[0])
    return replace(
        message,
        tool_call_id=message.tool_call_id or fitting[0].id,
        tool_name=message.tool_name or fitting[0].name,
    )


def object_of(call: ToolRequest) -> dict[str, Any]:
    """Return a call's arguments as an object; text that is none is put into one.

    https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/fine-grained-tool-streaming
    """
    return {"INVALID_JSON": call.arguments_text} if call.arguments is None else call.arguments


def image_text(image: Image) -> str:
    """Return an image's bytes as base64."""
    return base64.b64encode(image.data).decode("ascii")


def merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body with further fields, objects merged; names that begin with `_` are left out."""
    result = dict(body)
    for name, value in extra.items():
        if name.startswith("_"):
            continue
        known = result.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            result[name] = merged(cast("dict[str, Any]", known), cast("dict[str, Any]", value))
        else:
            result[name] = value
    return result


def present(**fields: Any) -> dict[str, Any]:
    """Return the fields that are set."""
    return {name: value for name, value in fields.items() if value is not None}
