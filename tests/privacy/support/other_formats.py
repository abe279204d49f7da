"""Formats of Ollama, Cohere and text-generation-inference, marked like the others."""

from __future__ import annotations

from marks import ARGUMENTS, DATA_URL, SCHEMA, mark, odd
from openai_formats import CHOSEN, TOOL
from wire_format import Format, ndjson, sse

OLLAMA_MESSAGE = {
    "role": "assistant",
    "content": mark("completion"),
    "thinking": mark("reasoning"),
    "tool_calls": [{"function": {"name": mark("chosen-tool"), "arguments": ARGUMENTS}}],
}
OLLAMA_ANSWER = {
    "model": odd("response-model"),
    "message": OLLAMA_MESSAGE,
    "done": True,
    "done_reason": mark("finish"),
    "prompt_eval_count": 12,
    "eval_count": 7,
}
COHERE_MESSAGE = {
    "role": "assistant",
    "content": [{"type": "text", "text": mark("completion")}],
    "tool_plan": mark("plan"),
    "tool_calls": [CHOSEN],
    "citations": [{"text": mark("citation"), "sources": [{"document": {"t": mark("source")}}]}],
}
COHERE_USAGE = {"tokens": {"input_tokens": 12, "output_tokens": 7}}
COHERE_V1_ANSWER = {
    "response_id": odd("response-id"),
    "generation_id": "g1",
    "text": mark("completion"),
    "tool_calls": [{"name": mark("chosen-tool"), "parameters": ARGUMENTS}],
    "citations": [{"text": mark("citation"), "document_ids": [mark("source")]}],
    "chat_history": [{"role": "USER", "message": mark("history")}],
    "finish_reason": mark("finish"),
    "meta": {"billed_units": {"input_tokens": 12, "output_tokens": 7}},
}

OTHER_FORMATS = (
    Format(
        name="ollama",
        path="/api/chat",
        request={
            "model": "llama3",
            "messages": [
                {"role": "system", "content": mark("system")},
                {"role": "user", "content": mark("prompt"), "images": [DATA_URL[22:]]},
                {"role": "tool", "tool_name": "find", "content": mark("result")},
            ],
            "tools": [TOOL],
            "format": SCHEMA,
        },
        answer=OLLAMA_ANSWER,
        events=ndjson({**OLLAMA_ANSWER, "done": False}, OLLAMA_ANSWER),
        stream_type="application/x-ndjson",
    ),
    Format(
        name="cohere_chat",
        path="/v2/chat",
        request={
            "model": "command-r",
            "messages": [
                {"role": "system", "content": mark("system")},
                {"role": "user", "content": mark("prompt")},
            ],
            "documents": [{"data": {"title": mark("file"), "text": mark("document")}}],
            "tools": [TOOL],
        },
        answer={
            "id": odd("response-id"),
            "finish_reason": mark("finish"),
            "message": COHERE_MESSAGE,
            "usage": COHERE_USAGE,
        },
        events=sse(
            {"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}},
            {
                "type": "content-delta",
                "index": 0,
                "delta": {"message": {"content": {"text": mark("completion")}}},
            },
            {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": CHOSEN}}},
            {
                "type": "message-end",
                "delta": {"finish_reason": mark("finish"), "usage": COHERE_USAGE},
            },
        ),
    ),
    Format(
        name="cohere_chat_v1",
        path="/v1/chat",
        provider="cohere",
        request={
            "model": "command-r",
            "preamble": mark("system"),
            "message": mark("prompt"),
            "chat_history": [
                {"role": "USER", "message": mark("history")},
                {"role": "CHATBOT", "message": mark("said-before"), "user_name": mark("user")},
            ],
            "tools": [
                {
                    "name": "find",
                    "description": mark("tool"),
                    "parameter_definitions": SCHEMA["properties"],
                }
            ],
            "tool_results": [
                {
                    "call": {"name": "find", "parameters": ARGUMENTS},
                    "outputs": [{"answer": mark("result")}],
                }
            ],
            "documents": [{"title": mark("file"), "text": mark("document")}],
        },
        answer=COHERE_V1_ANSWER,
        events=ndjson(
            {"event_type": "stream-start", "generation_id": "g1"},
            {"event_type": "text-generation", "text": mark("completion")},
            {"event_type": "tool-calls-generation", "tool_calls": COHERE_V1_ANSWER["tool_calls"]},
            {
                "event_type": "stream-end",
                "finish_reason": mark("finish"),
                "response": COHERE_V1_ANSWER,
            },
        ),
        stream_type="application/stream+json",
    ),
    Format(
        name="rerank",
        path="/v2/rerank",
        request={"model": "rerank-v4", "query": mark("prompt"), "documents": [mark("document")]},
        answer={
            "results": [{"index": 0, "document": {"text": mark("document")}}],
            "meta": {"billed_units": {"search_units": 1}},
        },
    ),
    Format(
        name="text_generation_inference",
        path="/generate",
        stream_path="/generate_stream",
        request={"inputs": mark("prompt"), "parameters": {"stop": [mark("stop")]}},
        answer={
            "generated_text": mark("completion"),
            "details": {"finish_reason": mark("finish"), "generated_tokens": 7},
        },
        events=sse(
            {"token": {"text": mark("completion")}, "generated_text": None},
            {"token": {"text": mark("x")}, "generated_text": mark("completion")},
        ),
    ),
)
