"""Bodies that Amazon hands on as they are: Bedrock's InvokeModel and SageMaker's endpoints.

The body's own fields tell whose format it is.
https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html,
https://docs.aws.amazon.com/sagemaker/latest/dg/jumpstart-foundation-models-use-sdk-invoke.html
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clew.content.anthropic import MESSAGES
from clew.content.cohere_v1 import COHERE_V1
from clew.content.openai import CHAT
from clew.content.others import CONVERSE
from clew.content.shapes import Content, Message, Reader, mapping, objects
from clew.content.texts_only import TEXTS

_CONVERSE_EVENTS = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop"}
)


def _asked(data: dict[str, Any]) -> Reader:
    if "messages" in data:
        if "anthropic_version" in data:
            return MESSAGES
        return CONVERSE if "inferenceConfig" in data or "schemaVersion" in data else CHAT
    return COHERE_V1 if "message" in data else TEXTS


def _answered(data: dict[str, Any]) -> Reader:
    if any("message" in choice for choice in objects(data.get("choices"))):
        return CHAT
    if "output" in data:
        return CONVERSE
    if "type" in data and "content" in data:
        return MESSAGES
    return COHERE_V1 if "generation_id" in data or "chat_history" in data else TEXTS


def _request(data: dict[str, Any]) -> Content:
    return _asked(data).request(data)


def _response(data: dict[str, Any]) -> list[Message]:
    return _answered(data).response(data)


def _events(events: Iterable[dict[str, Any]]) -> list[Message]:
    """Read chunks: all of a stream are of the family of the first that tells it."""
    chunks = list(events)
    for chunk in chunks:
        if isinstance(chunk.get("type"), str):
            return MESSAGES.events(chunks)
        if isinstance(chunk.get("event_type"), str):
            return COHERE_V1.events(chunks)
        if any("delta" in choice for choice in objects(chunk.get("choices"))):
            return CHAT.events(chunks)
        if not _CONVERSE_EVENTS.isdisjoint(chunk):
            return CONVERSE.events(
                mapping(inner) for each in chunks for inner in each.values() if mapping(inner)
            )
    return TEXTS.events(chunks)


INVOKE = Reader(_request, _response, _events)
SAGEMAKER = INVOKE
"""Containers with a chat template speak as OpenAI's chat does, the others take and give texts."""
