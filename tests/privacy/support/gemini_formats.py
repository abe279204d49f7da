"""Gemini's formats, with a marker word in each place that content can stand."""

from __future__ import annotations

import json

from marks import ARGUMENTS, DATA_URL, SCHEMA, mark, odd
from wire_format import Format, sse

GEMINI_PARTS = [
    {"text": mark("completion"), "thought": True, "thoughtSignature": mark("signature")},
    {"text": mark("completion")},
    {"functionCall": {"name": mark("chosen-tool"), "args": ARGUMENTS}},
]
GEMINI_ANSWER = {
    "candidates": [
        {"content": {"role": "model", "parts": GEMINI_PARTS}, "finishReason": mark("finish")}
    ],
    "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 7, "totalTokenCount": 19},
    "modelVersion": odd("response-model"),
    "responseId": odd("response-id"),
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": mark("system")}]},
    "contents": [
        {
            "role": "user",
            "parts": [
                {"text": mark("prompt")},
                {"inlineData": {"mimeType": "image/png", "data": DATA_URL[22:]}},
                {"fileData": {"mimeType": "image/png", "fileUri": f"gs://{mark('file')}"}},
            ],
        },
        {"role": "model", "parts": [{"functionCall": {"name": "find", "args": ARGUMENTS}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "find", "response": {"r": mark("result")}}}],
        },
    ],
    "tools": [
        {
            "functionDeclarations": [
                {"name": "find", "description": mark("tool"), "parameters": SCHEMA}
            ]
        }
    ],
    "generationConfig": {"stopSequences": [mark("stop")], "responseSchema": SCHEMA},
}

GEMINI_FORMATS = (
    Format(
        name="gemini_content",
        path="/v1beta/models/gemini-2.5-flash:generateContent",
        stream_path="/v1beta/models/gemini-2.5-flash:streamGenerateContent",
        request=GEMINI,
        answer=GEMINI_ANSWER,
        events=sse(GEMINI_ANSWER),
    ),
    Format(
        name="gemini_interactions",
        path="/v1beta/interactions",
        request={
            "model": "gemini-2.5-flash",
            "input": [
                {
                    "type": "user_input",
                    "content": [
                        {"type": "text", "text": mark("prompt")},
                        {"type": "image", "mime_type": "image/png", "data": DATA_URL[22:]},
                        {"type": "document", "uri": f"gs://{mark('file')}"},
                    ],
                },
                {"type": "function_call", "id": "c1", "name": "find", "arguments": ARGUMENTS},
                {"type": "function_result", "call_id": "c1", "result": {"r": mark("result")}},
            ],
            "system_instruction": mark("system"),
            "tools": [
                {
                    "type": "function",
                    "name": "find",
                    "description": mark("tool"),
                    "parameters": SCHEMA,
                }
            ],
        },
        answer={
            "id": odd("response-id"),
            "model": odd("response-model"),
            "status": mark("finish"),
            "outputs": [
                {"type": "text", "text": mark("completion")},
                {"type": "function_call", "name": mark("chosen-tool"), "arguments": ARGUMENTS},
            ],
        },
        events=sse(
            {
                "event_type": "interaction.created",
                "interaction": {"id": "v1_1", "status": "in_progress"},
            },
            {
                "event_type": "step.delta",
                "index": 0,
                "delta": {
                    "type": "thought_summary",
                    "content": {"type": "text", "text": mark("reasoning")},
                },
            },
            {"event_type": "step.start", "index": 1, "step": {"type": "model_output"}},
            {
                "event_type": "step.delta",
                "index": 1,
                "delta": {"type": "text", "text": mark("completion")},
            },
            {
                "event_type": "step.start",
                "index": 2,
                "step": {"type": "function_call", "id": "c2", "name": mark("chosen-tool")},
            },
            {
                "event_type": "step.delta",
                "index": 2,
                "delta": {"type": "arguments_delta", "arguments": json.dumps(ARGUMENTS)},
            },
            {
                "event_type": "interaction.completed",
                "interaction": {"id": "v1_1", "status": mark("finish")},
            },
            "[DONE]",
        ),
    ),
)
