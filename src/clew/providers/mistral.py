"""Mistral: the chat completions shape, with names and rules of its own.

https://docs.mistral.ai/api/endpoint/chat
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from clew.providers._openai_shape import ChatCompletions, ChatGatherer
from clew.providers.base import ChatRequest, Message, Thinking
from clew.providers.gather import Gatherer, entries, mapping, string
from clew.providers.messages import present

_ID: Final = re.compile(r"[A-Za-z0-9]{9}")


class MistralProvider(ChatCompletions):
    """The adapter `mistral`."""

    name = "mistral"
    semconv_name = "mistral_ai"
    key_variables = ("MISTRAL_API_KEY",)
    default_base_url = "https://api.mistral.ai/v1"

    def limits(self, request: ChatRequest) -> dict[str, Any]:
        """Return the sampling fields."""
        return present(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            random_seed=request.seed,
        )

    def tool_choice(self, choice: str) -> Any:
        """Return which tool is to be called; `any` is this provider's word for required."""
        return "any" if choice == "required" else super().tool_choice(choice)

    def call_id(self, call_id: str) -> str:
        """Return an id of nine letters and digits: others are refused."""
        if _ID.fullmatch(call_id):
            return call_id
        return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]

    def message(self, message: Message) -> dict[str, Any]:
        """Return one message; a tool's result carries the tool's name."""
        said = super().message(message)
        if message.role == "tool" and message.tool_name:
            said["name"] = message.tool_name
        return said

    def assistant(self, message: Message) -> dict[str, Any]:
        """Return a message with the thinking that came with it."""
        said = super().assistant(message)
        thoughts: list[dict[str, Any]] = [
            block.native
            for block in message.thinking
            if block.provider == self.name and block.native is not None
        ]
        if thoughts:
            text: list[dict[str, Any]] = (
                [{"type": "text", "text": message.text}] if message.text else []
            )
            said["content"] = thoughts + text
        return said

    def gatherer(self) -> Gatherer:
        """Return what puts an answer together."""
        return MistralGatherer(self.name)


class MistralGatherer(ChatGatherer):
    """Puts an answer together whose content may be a list with parts of thinking.

    https://docs.mistral.ai/capabilities/reasoning
    """

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._signature: str | None = None

    def part(self, part: dict[str, Any]) -> None:
        """Take one part, whole or a piece of one."""
        if part.get("type") != "thinking":
            super().part(part)
            return
        for entry in entries(part.get("thinking")):
            self.add_thinking(mapping(entry).get("text"))
        self._signature = string(part.get("signature")) or self._signature

    def blocks(self) -> list[Thinking]:
        """Return the thinking as one block that goes back."""
        thinking = self.thinking
        if not thinking:
            return []
        native: dict[str, Any] = {
            "type": "thinking",
            "thinking": [{"type": "text", "text": thinking}],
        }
        if self._signature is not None:
            native["signature"] = self._signature
        return [Thinking(text=thinking, provider=self.provider, native=native)]
