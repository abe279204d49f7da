"""Amazon's formats, with a marker word in each place that content can stand."""

from __future__ import annotations

import base64
import itertools

from anthropic_formats import CLAUDE, CLAUDE_ANSWER, CLAUDE_EVENTS
from marks import ARGUMENTS, DATA_URL, SCHEMA, mark
from openai_formats import OPENAI_ANSWER, OPENAI_CHAT, OPENAI_EVENTS
from wire_format import Format, frames

CONVERSE_BLOCKS = [
    {"reasoningContent": {"reasoningText": {"text": mark("reasoning")}}},
    {"text": mark("completion")},
    {"toolUse": {"toolUseId": "tooluse_2", "name": mark("chosen-tool"), "input": ARGUMENTS}},
]
CONVERSE_USAGE = {"inputTokens": 12, "outputTokens": 7, "totalTokens": 19}
CONVERSE = {
    "system": [{"text": mark("system")}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"text": mark("prompt")},
                {
                    "document": {
                        "name": mark("file"),
                        "format": "txt",
                        "source": {"bytes": DATA_URL[22:]},
                    }
                },
            ],
        }
    ],
    "toolConfig": {
        "tools": [
            {
                "toolSpec": {
                    "name": "find",
                    "description": mark("tool"),
                    "inputSchema": {"json": SCHEMA},
                }
            }
        ]
    },
    "requestMetadata": {"k": mark("metadata")},
}

AMAZON_FORMATS = (
    Format(
        name="bedrock_converse",
        path="/model/anthropic.claude-haiku-4-5/converse",
        stream_path="/model/anthropic.claude-haiku-4-5/converse-stream",
        request=CONVERSE,
        answer={
            "output": {"message": {"role": "assistant", "content": CONVERSE_BLOCKS}},
            "stopReason": mark("finish"),
            "usage": CONVERSE_USAGE,
        },
        events=frames(
            ("messageStart", {"role": "assistant"}),
            (
                "contentBlockStart",
                {
                    "contentBlockIndex": 0,
                    "start": {"toolUse": {"toolUseId": "t2", "name": mark("chosen-tool")}},
                },
            ),
            (
                "contentBlockDelta",
                {"contentBlockIndex": 1, "delta": {"text": mark("completion")}},
            ),
            ("messageStop", {"stopReason": mark("finish")}),
            ("metadata", {"usage": CONVERSE_USAGE}),
        ),
        stream_type="application/vnd.amazon.eventstream",
    ),
    Format(
        name="bedrock_invoke",
        path="/model/anthropic.claude-haiku-4-5/invoke",
        stream_path="/model/anthropic.claude-haiku-4-5/invoke-with-response-stream",
        request={**CLAUDE, "anthropic_version": "bedrock-2023-05-31"},
        answer=CLAUDE_ANSWER,
        events=frames(
            *(
                ("chunk", {"bytes": base64.b64encode(event.split(b"data: ")[1]).decode()})
                for event in CLAUDE_EVENTS
            )
        ),
        stream_type="application/vnd.amazon.eventstream",
    ),
    Format(
        name="sagemaker",
        path="/endpoints/mine/invocations",
        stream_path="/endpoints/mine/invocations-response-stream",
        request=OPENAI_CHAT,
        answer=OPENAI_ANSWER,
        # Cut anywhere: an event may begin in one part and end in another.
        events=frames(
            *(("PayloadPart", event[:9]) for event in OPENAI_EVENTS[:1]),
            *(
                ("PayloadPart", event[9:] + following[:9])
                for event, following in itertools.pairwise(OPENAI_EVENTS)
            ),
        ),
        stream_type="application/vnd.amazon.eventstream",
    ),
)
