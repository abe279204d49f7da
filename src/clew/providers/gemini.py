"""Gemini's generateContent.

https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/function-calling
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from clew.dialects.gemini_content import gemini_content
from clew.providers.base import ChatRequest, Image, Message, ToolRequest
from clew.providers.gather import Gatherer, OpenCall, entries, mapping, string
from clew.providers.http import HttpProvider
from clew.providers.messages import image_text, linked, object_of, present, system_text

_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_FOREIGN_CALL: Final = "skip_thought_signature_validator"
"""Stands where a call of another model has no signature, which Gemini 3 wants:
https://ai.google.dev/gemini-api/docs/thought-signatures"""


class GeminiProvider(HttpProvider):
    """The adapter `gemini`."""

    name = "gemini"
    semconv_name = "gcp.gemini"
    key_variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    default_base_url = "https://generativelanguage.googleapis.com/v1beta"
    dialect = gemini_content
    operation = "generate_content"

    def path(self, request: ChatRequest, *, stream: bool) -> str:
        """Return the endpoint, which names the model."""
        model = quote(request.model.removeprefix("models/"), safe="")
        action = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/models/{model}:{action}"

    def auth(self, key: str) -> dict[str, str]:
        """Return the key's header."""
        return {"x-goog-api-key": key}

    def body(self, request: ChatRequest, *, stream: bool) -> dict[str, Any]:
        """Return the body; system prompts, wherever they stand, are in `systemInstruction`."""
        body: dict[str, Any] = {"contents": _contents(request)}
        system = system_text(request.messages)
        if system:
            body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
        if request.tools:
            declared = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": tool.parameters,
                }
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
            if request.tool_choice is not None:
                body["toolConfig"] = {"functionCallingConfig": _mode(request.tool_choice)}
        config = present(
            maxOutputTokens=request.max_tokens,
            temperature=request.temperature,
            topP=request.top_p,
            stopSequences=list(request.stop) or None,
            seed=request.seed,
        )
        if config:
            body["generationConfig"] = config
        return body

    def gatherer(self) -> Gatherer:
        """Return what puts an answer together."""
        return ContentGatherer(self.name)


def _mode(choice: str) -> dict[str, Any]:
    mode = _MODES.get(choice)
    if mode is None:
        return {"mode": "ANY", "allowedFunctionNames": [choice]}
    return {"mode": mode}


def _contents(request: ChatRequest) -> list[dict[str, Any]]:
    """Return the turns; results that follow each other are one turn of the user."""
    wants_signatures = "gemini-3" in request.model
    turns: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for message in linked(request.messages, make_ids=False):
        if message.role == "system":
            continue
        if message.role == "tool":
            if not results:
                turns.append({"role": "user", "parts": results})
            results.append(_result(message))
            continue
        results = []
        if message.role == "user":
            turns.append({"role": "user", "parts": _parts(message)})
        elif said := _said(message, wants_signatures=wants_signatures):
            turns.append({"role": "model", "parts": said})
    return turns


def _parts(message: Message) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"text": message.content}]
    return [
        {"inlineData": {"mimeType": part.media_type, "data": image_text(part)}}
        if isinstance(part, Image)
        else {"text": part.text}
        for part in message.content
    ]


def _said(message: Message, *, wants_signatures: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": message.text}] if message.text else []
    calls = [_call(call) for call in message.tool_calls]
    if calls and wants_signatures and not any("thoughtSignature" in call for call in calls):
        calls[0]["thoughtSignature"] = _FOREIGN_CALL
    return parts + calls


def _call(call: ToolRequest) -> dict[str, Any]:
    part: dict[str, Any] = {
        "functionCall": present(id=call.id, name=call.name, args=object_of(call))
    }
    if call.signature is not None:
        part["thoughtSignature"] = call.signature
    return part


def _result(message: Message) -> dict[str, Any]:
    key = "error" if message.is_error else "output"
    response = present(
        id=message.tool_call_id, name=message.tool_name or "", response={key: message.text}
    )
    return {"functionResponse": response}


class ContentGatherer(Gatherer):
    """Puts the first candidate together, part by part."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._blocked: str | None = None

    def whole(self, body: dict[str, Any]) -> None:
        """Take a whole answer."""
        self.event(body)

    def event(self, event: dict[str, Any]) -> None:
        """Take a chunk."""
        self._blocked = self._blocked or (
            string(mapping(event.get("promptFeedback")).get("blockReason")) or None
        )
        for entry in entries(event.get("candidates")):
            candidate = mapping(entry)
            if candidate.get("index") in (None, 0):
                for part in entries(mapping(candidate.get("content")).get("parts")):
                    self._part(mapping(part))

    def _part(self, part: dict[str, Any]) -> None:
        if part.get("thought") is True:
            self.add_thinking(part.get("text"))
        else:
            self.add_text(part.get("text"))
        asked = part.get("functionCall")
        if isinstance(asked, dict):
            function = mapping(asked)
            name = string(function.get("name"))
            call = OpenCall(None, string(function.get("id")) or None, name)
            call.value = function.get("args") or {}
            call.signature = string(part.get("thoughtSignature")) or None
            self.calls.append(call)

    def finish_reason(self) -> tuple[str, str] | None:
        """Return why the prompt was refused, where it was."""
        return None if self._blocked is None else ("content_filter", self._blocked)
