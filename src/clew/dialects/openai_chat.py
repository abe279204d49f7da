"""OpenAI chat completions, and everybody who speaks their shape.

https://platform.openai.com/docs/api-reference/chat. Groq, Mistral, DeepSeek, xAI, OpenRouter,
Together, Fireworks, Perplexity, vLLM, llama.cpp, LiteLLM and others differ in extra fields only.
Legacy completions (https://platform.openai.com/docs/api-reference/completions) have the same
fields with `prompt` for `messages` and `text` for `message`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from clew.dialects._dialect import Answer, WireDialect
from clew.dialects._errors import error_of
from clew.dialects._openai_chat_stream import ChatReader
from clew.dialects._openai_shape import (
    REQUEST,
    RESPONSE,
    ChatRequest,
    Choice,
    tool_calls,
)
from clew.dialects._openai_usage import usage_of
from clew.dialects._read import EMPTY, decode, is_empty
from clew.dialects.finish_reasons import finish_reasons
from clew.facts import ErrorFacts, RequestFacts, ResponseFacts, ToolCall
from clew.typing import Route

_NO_REQUEST: Final = RequestFacts()
_RESULT_OF: Final = attrgetter("tool_call_id")
_NAME_OF: Final = attrgetter("function.name")
_OUTPUT_TYPES: Final = {"text": "text", "json_object": "json", "json_schema": "json"}


def _tool_names(request: ChatRequest) -> tuple[str, ...] | None:
    if request.tools and request.functions is None:
        try:
            given = tuple(map(_NAME_OF, request.tools))
        except AttributeError:  # a tool that is no function
            given = ()
        if given and all(given):
            return given
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
    messages, limit = request.messages, request.max_completion_tokens
    none_offered = request.tools is None and request.functions is None
    facts = RequestFacts(
        model=request.model or request.model_id or route.model,
        stream=request.stream is True or route.stream,
        max_tokens=request.max_tokens if limit is None else limit,
        temperature=request.temperature,
        messages=None if messages is None else len(messages),
        tools=None if none_offered else _tool_names(request),
        # Without a loop of our own: a conversation is long, and few of its messages are results.
        tool_result_ids=tuple(filter(None, map(_RESULT_OF, messages))) if messages else (),
    )
    if (
        request.top_p is None
        and request.top_k is None
        and request.frequency_penalty is None
        and request.presence_penalty is None
        and request.seed is None
        and request.random_seed is None
        and request.n is None
        and request.reasoning_effort is None
        and request.reasoning is None
        and request.service_tier is None
        and request.response_format is None
        and request.modalities is None
    ):
        return facts
    return _with_rare_fields(facts, request)


def _with_rare_fields(facts: RequestFacts, request: ChatRequest) -> RequestFacts:
    effort = request.reasoning_effort
    if effort is None and request.reasoning is not None:
        effort = request.reasoning.effort
    return replace(
        facts,
        top_p=request.top_p,
        top_k=request.top_k,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        seed=request.random_seed if request.seed is None else request.seed,
        choice_count=request.n,
        reasoning_level=effort,
        service_tier=request.service_tier,
        output_type=_output_type(request),
    )


def read_response(answer: Answer) -> ResponseFacts:
    """Read a whole response in the chat completions shape."""
    response = decode(RESPONSE, answer.body)
    if response is None:
        return ResponseFacts()
    choices = response.choices
    words: tuple[str | None, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    error = None if response.error is EMPTY else error_of(response.error)
    if choices:
        choice = choices[0]
        words = (choice.finish_reason,)
        if len(choices) > 1:
            choices.sort(key=_index)
            words = tuple([choice.finish_reason for choice in choices])
            calls = tuple([call for choice in choices for call in tool_calls(choice.message)])
            error = error or _choice_error(choices)
        else:
            message = choice.message
            if message is not None and (message.tool_calls or message.function_call):
                calls = tuple(tool_calls(message))
            if choice.error is not EMPTY:
                error = error or _choice_error(choices)
    usage = response.usage
    if usage is None and response.x_groq is not None:
        usage = response.x_groq.usage
    return ResponseFacts(
        id=response.id or None,
        model=response.model or response.model_id or None,
        finish_reasons=finish_reasons(words),
        finish_reasons_raw=words,
        tool_calls=calls,
        usage=usage_of(usage, answer.route.provider),
        error=error,
        service_tier=response.service_tier or None,
        system_fingerprint=response.system_fingerprint or None,
        served_provider=response.provider or None,
    )


def _index(choice: Choice) -> int:
    return choice.index or 0


def _choice_error(choices: list[Choice]) -> ErrorFacts | None:
    """OpenRouter reports a failing upstream in the choice."""
    for choice in choices:
        if choice.error is not EMPTY and not is_empty(choice.error):
            return error_of(choice.error)
    return None


openai_chat: Final = WireDialect(
    "openai_chat",
    read_request,
    read_response,
    ChatReader,
    names_errors=True,
    conversation="messages",
)
openai_completions: Final = WireDialect(
    "openai_completions", read_request, read_response, ChatReader, names_errors=True
)
