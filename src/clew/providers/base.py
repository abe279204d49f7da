"""What all providers have in common: what is asked, what is answered, and the interface.

Everything here is plain data that `msgspec` reads and writes, so that a conversation can be kept
and continued elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from msgspec import Struct, field

from clew.facts import Usage

if TYPE_CHECKING:
    from clew.providers.streams import AsyncChatStream, ChatStream
    from clew.rounds import Hops

Role = Literal["system", "user", "assistant", "tool"]

CAPTURE_RAW: Final = "_capture_raw"
"""The directive's name among options that are kept outside of a request."""


class Text(Struct, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A piece of text in a message."""

    text: str


class Image(Struct, frozen=True, kw_only=True, tag_field="type", tag="image"):
    """An image in a message of the user."""

    data: bytes
    media_type: str = "image/png"


class Thinking(Struct, frozen=True, kw_only=True):
    """A block of the model's reasoning."""

    text: str = ""
    provider: str | None = None
    """The adapter that it came through; `native` goes back to that one alone."""
    native: dict[str, Any] | None = None
    """The block as the provider wants it back, where it does (signed or encrypted)."""


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A tool call that the model asks for."""

    id: str | None = None
    """None where the provider gives none."""
    name: str = ""
    arguments: dict[str, Any] | None = None
    """The arguments; None when the model wrote something that is no JSON object."""
    arguments_text: str = ""
    """What the model wrote."""
    signature: str | None = None
    """Gemini's signature of the thought that led to the call; goes back with it."""


class Message(Struct, frozen=True, kw_only=True):
    """One message of a conversation.

    `Message.system(...)`, `.user(...)` and `.result(...)` are short forms; the assistant's comes
    from `ChatResponse.message`.
    """

    role: Role
    content: str | tuple[Text | Image, ...] = ""
    tool_calls: tuple[ToolRequest, ...] = ()
    """Of an assistant's message: what the model asked for."""
    thinking: tuple[Thinking, ...] = ()
    """Of an assistant's message."""
    tool_call_id: str | None = None
    """Of a tool's message: the call that it answers."""
    tool_name: str | None = None
    is_error: bool = False
    """Of a tool's message: whether the call failed."""

    @classmethod
    def system(cls, text: str) -> Message:
        """Return a system prompt, or a part of it."""
        # A plain `str`, whatever text it is: a conversation can be written as JSON by msgspec.
        return cls(role="system", content=str(text))

    @classmethod
    def user(cls, content: str | tuple[Text | Image, ...]) -> Message:
        """Return a message of the user."""
        return cls(role="user", content=content)

    @classmethod
    def result(cls, call: ToolRequest, text: str, *, is_error: bool = False) -> Message:
        """Return the result of a tool call."""
        return cls(
            role="tool",
            content=text,
            tool_call_id=call.id,
            tool_name=call.name,
            is_error=is_error,
        )

    @property
    def text(self) -> str:
        """The text of the message, its parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join([part.text for part in self.content if isinstance(part, Text)])


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool that the model may ask for."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=_no_parameters)
    """JSON Schema of an object."""


_OPTIONS: Final = (
    "tool_choice", "max_tokens", "temperature", "top_p", "stop", "seed", "extra", "timeout",
)  # fmt: skip


class ChatRequest(Struct, frozen=True, kw_only=True):
    """One question to a model. What is None is left to the provider."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str | None = None
    """`auto`, `none`, `required`, or the name of the one tool to be called."""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    extra: dict[str, Any] = {}
    """Fields of the provider's own, merged into the body; names that begin with `_` stay here."""
    timeout: float | None = None
    """Seconds that one attempt may wait for the provider."""
    capture_raw: bool = False
    """Whether the decoded answer is kept under `ChatResponse.metadata["_raw"]`. Only `True` counts,
    and it is never sent."""

    def options(self) -> dict[str, Any]:
        """Return what was set besides model, messages and tools, to be kept elsewhere."""
        kept: dict[str, Any] = {
            name: value for name in _OPTIONS if (value := getattr(self, name)) not in (None, (), {})
        }
        if self.capture_raw is True:
            kept[CAPTURE_RAW] = True
        return kept

    @classmethod
    def from_options(
        cls,
        options: Mapping[str, Any],
        *,
        model: str,
        messages: tuple[Message, ...],
        tools: tuple[ToolSpec, ...] = (),
    ) -> ChatRequest:
        """Return a request with options that were kept elsewhere; of raw capture only `True`."""
        known: dict[str, Any] = {name: options[name] for name in _OPTIONS if name in options}
        if "stop" in known:
            known["stop"] = tuple(known["stop"])
        capture = options.get(CAPTURE_RAW) is True
        return cls(model=model, messages=messages, tools=tools, capture_raw=capture, **known)


class ChatResponse(Struct, frozen=True, kw_only=True):
    """An answer. What is None the provider did not say."""

    text: str = ""
    thinking: str | None = None
    thinking_blocks: tuple[Thinking, ...] = ()
    tool_calls: tuple[ToolRequest, ...] = ()
    finish_reason: str | None = None
    """In the convention's words: `stop`, `length`, `content_filter`, `tool_call`, `error`."""
    finish_reason_raw: str | None = None
    """In the provider's words."""
    usage: Usage | None = None
    model: str | None = None
    """The model that answered."""
    id: str | None = None
    provider: str = ""
    """Name of the adapter that answered."""
    hop: int = 0
    """Place of that adapter in the fallback chain; 0 is the first choice."""
    metadata: dict[str, Any] | None = None
    """What the provider says besides; `_raw` holds the decoded answer, if it was asked for."""

    @property
    def message(self) -> Message:
        """The answer as a message, to be put behind the others."""
        return Message(
            role="assistant",
            content=self.text,
            tool_calls=self.tool_calls,
            thinking=self.thinking_blocks,
        )


class StreamEvent(Struct, frozen=True, kw_only=True):
    """One event of a streamed answer: pieces of text and thinking, whole tool calls, the end."""

    kind: Literal["text", "thinking", "tool_call", "end"]
    text: str = ""
    tool_call: ToolRequest | None = None
    response: ChatResponse | None = None
    """Of the last event: the whole answer."""


class Provider(ABC):
    """A model provider, as the loop and the playground know it.

    `hops` is handed down by a chain of providers: the round's place in it.
    """

    name: str
    """Name of the adapter."""
    semconv_name: str
    """`gen_ai.provider.name`."""
    default_max_tokens: int | None = None
    """Output tokens that the adapter asks for where a request sets no maximum; None: it asks for
    none."""

    @property
    def identity(self) -> str:
        """What tells this provider from another of its kind."""
        return self.name

    @abstractmethod
    def chat(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatResponse:
        """Ask, and wait for the whole answer.

        Raises:
            ProviderError: there is no answer.
        """

    @abstractmethod
    def stream(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatStream:
        """Return the answer as a stream; the request is sent when it is first read or opened.

        Reading raises `ProviderError` when there is no answer, or it breaks off.
        """

    @abstractmethod
    async def achat(self, request: ChatRequest, *, hops: Hops | None = None) -> ChatResponse:
        """Do as `chat` does."""

    @abstractmethod
    def astream(self, request: ChatRequest, *, hops: Hops | None = None) -> AsyncChatStream:
        """Do as `stream` does."""

    @abstractmethod
    def wire_body(self, request: ChatRequest, *, stream: bool = False) -> bytes:
        """Return the bytes of the body that would be sent; nothing is.

        Raises:
            ProviderError: the request holds something that JSON cannot say.
        """

    def close(self) -> None:  # noqa: B027 - a provider need not hold any
        """Close the connections of `chat` and `stream`."""

    async def aclose(self) -> None:  # noqa: B027
        """Close the connections of `achat` and `astream`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()
        self.close()
