"""OpenAI chat completions, and everybody who speaks their shape.

https://platform.openai.com/docs/api-reference/chat. Groq, Mistral, DeepSeek, xAI, OpenRouter,
Together, Fireworks, Perplexity, vLLM, llama.cpp, LiteLLM and others differ in extra fields only.
Legacy completions (https://platform.openai.com/docs/api-reference/completions) have the same
fields with `prompt` for `messages` and `text` for `message`.
"""

from __future__ import annotations

from typing import Final

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._openai_chat_stream import ChatReader
from clew.dialects._openai_shape import REQUEST, RESPONSE, ChatRequest, Choice, tool_calls
from clew.dialects._openai_usage import usage_of
from clew.dialects._read import decode, is_empty, number, text
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts
from clew.typing import Route

_NO_REQUEST: Final = RequestFacts()
_OUTPUT_TYPES: Final = {"text": "text", "json_object": "json", "json_schema": "json"}


def _tool_names(request: ChatRequest) -> tuple[str, ...] | None:
    names: list[str] = []
    for tool in request.tools or ():
        named = tool.function or tool.custom
        name = (named.name if named is not None else None) or tool.name or tool.type
        if name:
            names.append(name)
    names.extend([function.name for function in request.functions or () if function.name])
    return tuple(names) if request.tools or request.functions else None


def _output_type(request: ChatRequest) -> str | None:
    if request.modalities and "audio" in request.modalities:
        return "speech"
    if request.response_format is None:
        return None
    return _OUTPUT_TYPES.get(request.response_format.type or "")


def read_request(body: bytes, route: Route) -> RequestFacts:
    """Read a request in the chat completions shape."""
    request = decode(REQUEST, body)
    if request is None:
        return _NO_REQUEST if route.model is None else RequestFacts(model=route.model)
    messages = request.messages
    effort = request.reasoning_effort
    if effort is None and request.reasoning is not None:
        effort = request.reasoning.effort
    return RequestFacts(
        model=text(request.model) or text(request.model_id) or route.model,
        stream=bool(request.stream) or route.stream,
        max_tokens=request.max_completion_tokens
        if request.max_completion_tokens is not None
        else request.max_tokens,
        temperature=number(request.temperature),
        top_p=number(request.top_p),
        top_k=number(request.top_k),
        frequency_penalty=number(request.frequency_penalty),
        presence_penalty=number(request.presence_penalty),
        seed=request.seed if request.seed is not None else request.random_seed,
        choice_count=request.n,
        reasoning_level=effort,
        service_tier=request.service_tier,
        output_type=_output_type(request),
        messages=None if messages is None else len(messages),
        tools=_tool_names(request),
        tool_result_ids=tuple(
            [message.tool_call_id for message in messages or () if message.tool_call_id]
        ),
    )


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response in the chat completions shape."""
    response = decode(RESPONSE, answer.body)
    if response is None:
        return ResponseFacts()
    choices = response.choices or []
    if len(choices) > 1:
        choices.sort(key=lambda choice: choice.index or 0)
    words = tuple([text(choice.finish_reason) for choice in choices])
    usage = response.usage
    if usage is None and response.x_groq is not None:
        usage = response.x_groq.usage
    return ResponseFacts(
        id=text(response.id),
        model=text(response.model) or text(response.model_id),
        finish_reasons=finish_reasons(words),
        finish_reasons_raw=words,
        tool_calls=tuple([call for choice in choices for call in tool_calls(choice.message)]),
        usage=usage_of(usage, answer.route.provider),
        error=error_of(response.error) or _choice_error(choices),
        service_tier=text(response.service_tier),
        system_fingerprint=text(response.system_fingerprint),
        served_provider=text(response.provider),
    )


def _choice_error(choices: list[Choice]) -> ErrorFacts | None:
    """OpenRouter reports a failing upstream in the choice."""
    return next((error_of(choice.error) for choice in choices if not is_empty(choice.error)), None)


openai_chat: Final = WireDialect("openai_chat", read_request, read_response, ChatReader)
openai_completions: Final = WireDialect(
    "openai_completions", read_request, read_response, ChatReader
)
