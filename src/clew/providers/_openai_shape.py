"""The chat completions shape, which openai, openrouter, mistral and groq share.

https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from typing import Any

from clew.dialects.openai_chat import openai_chat
from clew.providers.base import ChatRequest, Image, Message, Thinking, ToolRequest
from clew.providers.gather import Gatherer, OpenCall, entries, mapping, string
from clew.providers.http import HttpProvider
from clew.providers.messages import image_text, linked, present


class ChatCompletions(HttpProvider):
    """An adapter for this shape; the fields that differ are methods."""

    dialect = openai_chat

    def path(self, request: ChatRequest, *, stream: bool) -> str:
        """Return the endpoint."""
        return "/chat/completions"

    def auth(self, key: str) -> dict[str, str]:
        """Return the bearer token."""
        return {"authorization": f"Bearer {key}"}

    def body(self, request: ChatRequest, *, stream: bool) -> dict[str, Any]:
        """Return the body; the system prompt is the message of that role."""
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [self.message(message) for message in linked(request.messages)],
        }
        if request.tools:
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
            if request.tool_choice is not None:
                body["tool_choice"] = self.tool_choice(request.tool_choice)
        body |= self.limits(request)
        if request.stop:
            body["stop"] = list(request.stop)
        if stream:
            body |= self.stream_fields()
        return body

    def limits(self, request: ChatRequest) -> dict[str, Any]:
        """Return the fields that bound and shape the sampling."""
        return present(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
        )

    def stream_fields(self) -> dict[str, Any]:
        """Return the fields that ask for a stream."""
        return {"stream": True}

    def tool_choice(self, choice: str) -> Any:
        """Return which tool is to be called."""
        if choice in ("auto", "none", "required"):
            return choice
        return {"type": "function", "function": {"name": choice}}

    def message(self, message: Message) -> dict[str, Any]:
        """Return one message."""
        if message.role == "assistant":
            return self.assistant(message)
        if message.role == "tool":
            return {
                "role": "tool",
                "tool_call_id": self.call_id(message.tool_call_id or ""),
                "content": message.text,
            }
        return {"role": message.role, "content": _content(message)}

    def assistant(self, message: Message) -> dict[str, Any]:
        """Return a message of the assistant."""
        said: dict[str, Any] = {"role": "assistant", "content": message.text}
        if message.tool_calls:
            said["content"] = message.text or None
            said["tool_calls"] = [self.call(call) for call in message.tool_calls]
        return said

    def call(self, call: ToolRequest) -> dict[str, Any]:
        """Return a tool call as the model asked for it."""
        return {
            "id": self.call_id(call.id or ""),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_text or "{}"},
        }

    def call_id(self, call_id: str) -> str:
        """Return an id in a form that the provider takes."""
        return call_id

    def gatherer(self) -> Gatherer:
        """Return what puts an answer together."""
        return ChatGatherer(self.name)


def _content(message: Message) -> Any:
    if isinstance(message.content, str):
        return message.content
    return [
        {
            "type": "image_url",
            "image_url": {"url": f"data:{part.media_type};base64,{image_text(part)}"},
        }
        if isinstance(part, Image)
        else {"type": "text", "text": part.text}
        for part in message.content
    ]


class ChatGatherer(Gatherer):
    """Puts an answer together: `message` of a whole one, `delta` of a chunk."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._details: list[dict[str, Any]] = []
        """OpenRouter's blocks of reasoning."""

    def whole(self, body: dict[str, Any]) -> None:
        """Take a whole answer; only the first choice counts."""
        self._choices(body, "message", "delta")

    def event(self, event: dict[str, Any]) -> None:
        """Take a chunk; only the first choice counts."""
        self._choices(event, "delta", "message")

    def _choices(self, body: dict[str, Any], *names: str) -> None:
        """Take the message under the first of the names; some servers send both."""
        for entry in entries(body.get("choices")):
            choice = mapping(entry)
            if choice.get("index") in (None, 0):
                found = next((choice[name] for name in names if choice.get(name)), None)
                self._message(mapping(found))

    def _message(self, message: dict[str, Any]) -> None:
        reasoning = string(message.get("reasoning")) or string(message.get("reasoning_content"))
        details = [mapping(detail) for detail in entries(message.get("reasoning_details"))]
        for detail in details:
            self._detail(detail)
            if not reasoning:
                self.add_thinking(detail.get("text") or detail.get("summary"))
        self.add_thinking(reasoning)
        content = message.get("content")
        if isinstance(content, str):
            self.add_text(content)
        for entry in entries(content):
            self.part(mapping(entry))
        self.add_text(message.get("refusal"))
        for entry in entries(message.get("tool_calls")):
            self._call(mapping(entry))
        # The form before tools; some servers send it empty.
        self._call({"index": 0, "function": message.get("function_call")})

    def part(self, part: dict[str, Any]) -> None:
        """Take one part of a content that is a list."""
        self.add_text(part.get("text"))

    def _detail(self, detail: dict[str, Any]) -> None:
        """Add to a block of reasoning: a stream sends it in pieces of the same index."""
        last = self._details[-1] if self._details else {}
        place = (detail.get("index"), detail.get("type"))
        if not last or None in place or place != (last.get("index"), last.get("type")):
            self._details.append(dict(detail))
            return
        for name, value in detail.items():
            if name in ("text", "summary", "data") and isinstance(last.get(name), str):
                last[name] += string(value)
            elif value is not None:
                last[name] = value

    def _call(self, piece: dict[str, Any]) -> None:
        function = mapping(piece.get("function"))
        index, call_id = piece.get("index"), string(piece.get("id")) or None
        name, arguments = string(function.get("name")), function.get("arguments")
        call = next((one for one in reversed(self.calls) if index in (None, one.key)), None)
        if call is None and not (call_id or name):
            return
        # Some servers give every parallel call the index 0, or none: then the id tells them apart,
        # and in a whole message each entry is a call.
        other = call is not None and call_id and call.id and call_id != call.id
        if call is None or other or (index is None and name and call_id is None):
            call = OpenCall(index, call_id, name)
            self.calls.append(call)
        else:
            call.id = call.id or call_id
            if name and name != call.name:
                call.name += name
        if isinstance(arguments, str):
            call.written.append(arguments)
        elif arguments is not None:
            call.value = arguments

    def blocks(self) -> list[Thinking]:
        """Return the blocks that go back as they came, else the thinking as one block."""
        if not self._details:
            return super().blocks()
        return [
            Thinking(
                text=string(detail.get("text")) or string(detail.get("summary")),
                provider=self.provider,
                native=dict(detail),
            )
            for detail in self._details
        ]
