"""Ollama's own chat API: https://docs.ollama.com/api/chat.

The keyless server of this machine by default; with a key and `base_url="https://ollama.com"` the
hosted one. It has no way to demand a tool, so `tool_choice` is left out, but `none` offers none.
"""

from __future__ import annotations

from typing import Any

from clew.dialects.ollama import ollama
from clew.providers.base import ChatRequest, Image, Message
from clew.providers.gather import Gatherer, OpenCall, entries, mapping, string
from clew.providers.http import HttpProvider
from clew.providers.messages import image_text, linked, object_of, present
from clew.providers.reading import LinePayloads


class OllamaProvider(HttpProvider):
    """The adapter `ollama`."""

    name = "ollama"
    semconv_name = "ollama"
    key_variables = ()
    default_base_url = "http://localhost:11434"
    needs_key = False
    dialect = ollama
    frames = LinePayloads

    def path(self, request: ChatRequest, *, stream: bool) -> str:
        """Return the endpoint."""
        return "/api/chat"

    def auth(self, key: str) -> dict[str, str]:
        """Return the bearer token."""
        return {"authorization": f"Bearer {key}"}

    def body(self, request: ChatRequest, *, stream: bool) -> dict[str, Any]:
        """Return the body; the system prompt is the message of that role."""
        messages = linked(request.messages, make_ids=False)
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [_message(message) for message in messages],
            "stream": stream,
        }
        if request.tools and request.tool_choice != "none":
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in request.tools
            ]
        options = present(
            num_predict=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=list(request.stop) or None,
            seed=request.seed,
        )
        if options:
            body["options"] = options
        return body

    def gatherer(self) -> Gatherer:
        """Return what puts an answer together."""
        return LineGatherer(self.name)


def _message(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        return said | present(tool_name=message.tool_name, tool_call_id=message.tool_call_id)
    if message.role == "assistant":
        own = [block.text for block in message.thinking if block.provider == OllamaProvider.name]
        thinking = "".join(own)
        if thinking:
            said["thinking"] = thinking
        if message.tool_calls:
            said["tool_calls"] = [
                present(
                    id=call.id,
                    function={"name": call.name, "arguments": object_of(call)},
                )
                for call in message.tool_calls
            ]
        return said
    images = [image_text(part) for part in message.content if isinstance(part, Image)]
    return said | {"images": images} if images else said


class LineGatherer(Gatherer):
    """Puts an answer together, line by line."""

    def whole(self, body: dict[str, Any]) -> None:
        """Take a whole answer."""
        self.event(body)

    def event(self, event: dict[str, Any]) -> None:
        """Take one line."""
        message = mapping(event.get("message"))
        self.add_thinking(message.get("thinking"))
        self.add_text(message.get("content"))
        for entry in entries(message.get("tool_calls")):
            asked = mapping(entry)
            function = mapping(asked.get("function"))
            name = string(function.get("name"))
            call = OpenCall(None, string(asked.get("id")) or None, name)
            call.value = function.get("arguments") or {}
            self.calls.append(call)
