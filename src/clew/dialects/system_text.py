"""The system text of a request, as the model gets it: bytes in, text out.

Nothing else of the content is decoded, and this only while a segmented prompt is registered
(`clew.prompts.registry`). Where a provider takes the text in parts (content parts, several leading
system or developer messages, instructions and leading messages), the parts are put together in
their order with nothing between them. A system message further on is part of the conversation.

Where any of it does not have the form that it should have, nothing is known: half a system text
might pass for a whole one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from clew.dialects._read import EMPTY, is_empty

_SYSTEM: Final = frozenset(("system", "developer", "SYSTEM"))


class _Part(Struct, gc=False):
    text: str | None = None


class _Message(Struct, gc=False):
    role: str | None = None
    content: msgspec.Raw = EMPTY
    message: msgspec.Raw = EMPTY


class _Chat(Struct):
    messages: list[_Message] | None = None


class _Settings(Struct):
    """What is given beside the messages, under each provider's own name."""

    system: msgspec.Raw = EMPTY
    instructions: msgspec.Raw = EMPTY
    preamble: msgspec.Raw = EMPTY
    system_instruction: msgspec.Raw = EMPTY
    camel: msgspec.Raw = msgspec.field(name="systemInstruction", default=EMPTY)
    input: msgspec.Raw = EMPTY
    messages: msgspec.Raw = EMPTY
    chat_history: msgspec.Raw = EMPTY


class _Content(Struct):
    parts: list[_Part] | _Part | None = None


class _Prediction(Struct):
    system_prompt: msgspec.Raw = EMPTY


_CHAT: Final = msgspec.json.Decoder(_Chat)
_SETTINGS: Final = msgspec.json.Decoder(_Settings)
_MESSAGES: Final = msgspec.json.Decoder(list[_Message])
_TEXT: Final = msgspec.json.Decoder(str)
_PARTS: Final = msgspec.json.Decoder(list[_Part])
_CONTENT: Final = msgspec.json.Decoder(_Content)
_PREDICTION: Final = msgspec.json.Decoder(_Prediction)


def system_text(dialect: str, body: bytes) -> str | None:
    """Return the system text of a request body; None where it has none, or cannot be read."""
    reader = _READERS.get(dialect)
    if reader is None:
        return None
    try:
        return "".join(reader(body)) or None
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def _texts(raw: msgspec.Raw) -> Iterable[str]:
    """Return the texts of a value that is a string or a list of parts."""
    if is_empty(raw):
        return ()
    if _begins(raw, b"["):
        return [part.text for part in _PARTS.decode(raw) if part.text]
    return (_TEXT.decode(raw),)


def _leading(messages: Iterable[_Message]) -> Iterable[str]:
    """Return the texts of the system and developer messages that a conversation begins with."""
    texts: list[str] = []
    for message in messages:
        if message.role not in _SYSTEM:
            break
        texts += _texts(message.message if message.content is EMPTY else message.content)
    return texts


def _listed(raw: msgspec.Raw) -> Iterable[str]:
    return _leading(_MESSAGES.decode(raw)) if _begins(raw, b"[") else ()


def _begins(raw: msgspec.Raw, with_: bytes) -> bool:
    return bytes(memoryview(raw)[:1]) == with_  # pyright: ignore[reportArgumentType]


def _chat(body: bytes) -> Iterable[str]:
    return _leading(_CHAT.decode(body).messages or ())


def _beside(body: bytes) -> Iterable[str]:
    return _texts(_SETTINGS.decode(body).system)


def _ollama(body: bytes) -> Iterable[str]:
    given = _SETTINGS.decode(body)
    return (*_texts(given.system), *_listed(given.messages))


def _responses(body: bytes) -> Iterable[str]:
    given = _SETTINGS.decode(body)
    return (*_texts(given.instructions), *_listed(given.input))


def _cohere_v1(body: bytes) -> Iterable[str]:
    given = _SETTINGS.decode(body)
    return (*_texts(given.preamble), *_listed(given.chat_history))


def _gemini(body: bytes) -> Iterable[str]:
    given = _SETTINGS.decode(body)
    raw = given.system_instruction if is_empty(given.camel) else given.camel
    if not _begins(raw, b"{"):
        return _texts(raw)
    parts = _CONTENT.decode(raw).parts
    listed = parts if isinstance(parts, list) else (parts,)
    return [part.text for part in listed if part is not None and part.text]


def _invoke(body: bytes) -> Iterable[str]:
    given = _SETTINGS.decode(body)
    return _listed(given.messages) if is_empty(given.system) else _texts(given.system)


def _prediction(body: bytes) -> Iterable[str]:
    given = _SETTINGS.decode(body).input
    return () if is_empty(given) else _texts(_PREDICTION.decode(given).system_prompt)


_READERS: Final[dict[str, Callable[[bytes], Iterable[str]]]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _beside,
    "gemini_content": _gemini,
    "gemini_interactions": _gemini,
    "ollama": _ollama,
    "cohere_chat": _chat,
    "cohere_chat_v1": _cohere_v1,
    "bedrock_converse": _beside,
    "bedrock_invoke": _invoke,
    "sagemaker": _chat,
    "replicate_prediction": _prediction,
}
"""What reads the system text of which dialect; the others have none."""
