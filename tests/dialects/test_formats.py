"""Answers in the providers' documented formats that recordings show little of, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from wire_reading import (
    GEMINI_STREAM,
    INTERACTIONS,
    MESSAGES,
    OLLAMA,
    RESPONSES,
    facts_of,
    nameless,
    route_of,
    stream_of,
)

from clew.dialects.anthropic_batches import BatchResult, batch_results
from clew.dialects.finish_reasons import FINISH_REASONS, finish_reason
from clew.facts import ErrorFacts, ResponseFacts, ToolCall, Usage
from clew.semconv import FINISH_REASONS as CONVENTION

pytestmark = pytest.mark.usefixtures("no_faults")


# --- finish reasons ----------------------------------------------------------------------------------


def test_the_table_speaks_the_convention():
    """Every word maps to one of the convention's; unknown ones to its catch-all."""
    assert set(FINISH_REASONS.values()) == set(CONVENTION)
    assert finish_reason("MAX_TOKENS") == "length"
    assert finish_reason("model_context_window_exceeded") == "length"
    assert finish_reason("pause_turn") == "stop"
    assert finish_reason("refusal") == "content_filter"
    assert finish_reason("RECITATION") == "content_filter"
    assert finish_reason("content_filtered") == "content_filter"
    assert finish_reason("TOOL_CALL") == "tool_call"
    assert finish_reason("MALFORMED_FUNCTION_CALL") == "error"
    assert finish_reason("compaction") == "compaction"
    assert finish_reason("FINISH_REASON_UNSPECIFIED") == "_OTHER"
    assert finish_reason("quux") == "_OTHER"
    assert finish_reason("") is None
    assert finish_reason(None) is None


# --- Responses ---------------------------------------------------------------------------------------


def test_items_that_the_client_has_to_carry_out():
    """Functions, custom tools, computer, shell and patch calls; not what the provider did itself."""
    output = [
        {"type": "reasoning", "id": "rs"},
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f"},
        {"type": "custom_tool_call", "id": "ct", "call_id": "c2", "name": "g", "input": "x"},
        {"type": "computer_call", "id": "cu", "call_id": "c3", "action": {}},
        {"type": "local_shell_call", "id": "ls", "call_id": "c4"},
        {"type": "apply_patch_call", "id": "ap", "call_id": "c5"},
        {"type": "shell_call", "id": "sh", "call_id": "c6"},
        {"type": "shell_call_output", "call_id": "c6", "output": []},
        {"type": "tool_search_call", "id": "ts", "call_id": "c7", "execution": "client"},
        {"type": "tool_search_call", "id": "tt", "call_id": "c8", "execution": "server"},
        {"type": "web_search_call", "id": "ws"},
        {"type": "mcp_call", "id": "mc", "name": "h"},
        {"type": "code_interpreter_call", "id": "ci"},
    ]
    facts = facts_of(RESPONSES, {"id": "r", "status": "completed", "output": output})
    assert facts.tool_calls == (
        ToolCall("c1", "f"),
        ToolCall("c2", "g"),
        ToolCall("c3", "computer"),
        ToolCall("c4", "local_shell"),
        ToolCall("c5", "apply_patch"),
        ToolCall("c7", "tool_search"),
    )
    assert facts.finish_reasons == ("tool_call",)


def test_searches_of_xai_are_its_own():
    """XAI reports its searches as custom tool calls."""
    output = [{"type": "custom_tool_call", "call_id": "c", "name": "x_keyword_search"}]
    body = {"id": "r", "status": "completed", "output": output}
    assert facts_of(("api.x.ai", "/v1/responses"), body).tool_calls == ()


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        ({"status": "completed"}, ("stop",)),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            ("length",),
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            ("content_filter",),
        ),
        ({"status": "incomplete", "incomplete_details": None}, ("_OTHER",)),
        ({"status": "failed"}, ("error",)),
        ({"status": "queued"}, ()),
        ({"status": "in_progress"}, ()),
    ],
)
def test_reasons_are_derived_from_the_status(body: dict[str, Any], reasons: tuple[str, ...]):
    """This API has none of its own, so the provider's words stay empty."""
    facts = facts_of(RESPONSES, {"id": "r"} | body)
    assert (facts.finish_reasons, facts.finish_reasons_raw) == (reasons, ())


def test_tool_calls_of_a_response_that_is_cut_off():
    """Without the closing event, the items added so far are known."""
    added = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ""}
    reader = stream_of(
        RESPONSES,
        nameless(
            {
                "type": "response.created",
                "response": {"id": "r", "model": "m", "status": "in_progress"},
            },
            {"type": "response.output_item.added", "output_index": 0, "item": added},
            {"type": "response.function_call_arguments.delta", "delta": "{"},
        ),
    )
    assert reader.result() == ResponseFacts(
        id="r", model="m", tool_calls=(ToolCall("c1", "f"),), complete=False
    )
    assert reader.started


@pytest.mark.parametrize(
    "kind",
    [
        "output_text", "refusal", "reasoning_text", "reasoning_summary_text", "audio",
        "audio.transcript", "custom_tool_call_input", "mcp_call_arguments", "code_interpreter_call_code",
    ],
)  # fmt: skip
def test_deltas_of_every_kind_are_output(kind: str):
    """Each counts as an event and as the start of output."""
    reader = stream_of(RESPONSES, nameless(*[{"type": f"response.{kind}.delta", "delta": "x"}] * 3))
    assert (reader.started, reader.chunks) == (True, 3)


# --- Anthropic ---------------------------------------------------------------------------------------


def test_reasons_of_anthropic():
    """Each word of the documentation, in the convention's."""
    words = {
        "end_turn": "stop",
        "max_tokens": "length",
        "stop_sequence": "stop",
        "tool_use": "tool_call",
        "pause_turn": "stop",
        "refusal": "content_filter",
        "model_context_window_exceeded": "length",
    }
    for word, reason in words.items():
        facts = facts_of(
            MESSAGES, {"id": "m", "type": "message", "stop_reason": word, "content": []}
        )
        assert (facts.finish_reasons, facts.finish_reasons_raw) == ((reason,), (word,))


def test_results_of_a_batch():
    """Each line is a message of its own, or the reason why there is none."""
    message = {
        "id": "m",
        "type": "message",
        "model": "claude",
        "content": [],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "output_tokens": 2},
    }
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "SECRET"}}
    lines: list[Any] = [
        {"custom_id": "a", "result": {"type": "succeeded", "message": message}},
        {"custom_id": "b", "result": {"type": "errored", "error": error}},
        {"custom_id": "c", "result": {"type": "expired"}},
        "odd",
    ]
    body = "\n".join(json.dumps(line) for line in lines) + "\n\n{"
    assert list(batch_results(body.encode())) == [
        BatchResult(
            "a",
            "succeeded",
            ResponseFacts(
                id="m",
                model="claude",
                finish_reasons=("stop",),
                finish_reasons_raw=("end_turn",),
                usage=Usage(input_tokens=5, output_tokens=2),
            ),
        ),
        BatchResult("b", "errored", ResponseFacts(error=ErrorFacts("invalid_request_error"))),
        BatchResult("c", "expired", ResponseFacts(error=ErrorFacts())),
    ]


# --- Gemini ------------------------------------------------------------------------------------------


def test_calls_of_gemini():
    """Function calls with and without ids; code and searches are the provider's own."""
    parts = [
        {"functionCall": {"id": "g1", "name": "f", "args": {}}},
        {"functionCall": {"name": "g"}},
        {"executableCode": {"code": "1"}},
        {"toolCall": {"id": "x", "toolType": "GOOGLE_SEARCH_WEB"}},
    ]
    body = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    assert facts_of(GEMINI_STREAM, body).tool_calls == (ToolCall("g1", "f"), ToolCall(None, "g"))


def test_a_blocked_prompt_has_no_candidates():
    """No choice, no reason; the tokens of the prompt count."""
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 5}}
    facts = facts_of(GEMINI_STREAM, body)
    assert (facts.finish_reasons, facts.usage) == ((), Usage(input_tokens=5))
    assert stream_of(GEMINI_STREAM, nameless(body)).result().complete


def test_candidates_in_index_order():
    """Two candidates, the second one first."""
    body = {
        "candidates": [
            {"index": 1, "finishReason": "MAX_TOKENS"},
            {"index": 0, "finishReason": "STOP"},
        ]
    }
    assert facts_of(GEMINI_STREAM, body).finish_reasons_raw == ("STOP", "MAX_TOKENS")


def test_an_error_inside_a_gemini_stream():
    """Also as the only object of an array."""
    error = {"error": {"code": 503, "status": "UNAVAILABLE", "message": "SECRET"}}
    expected = ErrorFacts("UNAVAILABLE", 503)
    assert stream_of(GEMINI_STREAM, nameless(error)).result().error == expected
    array = b"[" + json.dumps(error, indent=2).encode() + b"\n]\n"
    assert stream_of(GEMINI_STREAM, [array], "application/json").result().error == expected
    assert stream_of(GEMINI_STREAM, [array[1:-3]], "application/json").result().error == expected


def test_interactions_with_calls():
    """Steps now, outputs before; whole and streamed."""
    step = {"type": "function_call", "id": "i1", "name": "f", "arguments": {}}
    usage = {"total_input_tokens": 5, "total_output_tokens": 2, "total_tokens": 7}
    whole = {"id": "int", "model": "m", "status": "requires_action", "usage": usage}
    expected = ResponseFacts(
        id="int",
        model="m",
        finish_reasons=("tool_call",),
        tool_calls=(ToolCall("i1", "f"),),
        usage=Usage(input_tokens=5, output_tokens=2),
    )
    assert facts_of(INTERACTIONS, whole | {"steps": [{"type": "thought"}, step]}) == expected
    assert facts_of(INTERACTIONS, whole | {"outputs": [step]}) == expected
    events = [
        {
            "event_type": "interaction.created",
            "interaction": {"id": "int", "status": "in_progress"},
        },
        {"event_type": "step.start", "index": 0, "step": {"type": "thought"}},
        {
            "event_type": "step.delta",
            "index": 0,
            "delta": {"type": "thought_signature", "signature": "x"},
        },
        {"event_type": "step.start", "index": 1, "step": step},
        {
            "event_type": "step.delta",
            "index": 1,
            "delta": {"type": "arguments_delta", "arguments": "{}"},
        },
        {"event_type": "step.stop", "index": 1},
        {"event_type": "interaction.completed", "interaction": whole},
    ]
    reader = stream_of(INTERACTIONS, nameless(*events))
    assert (reader.result(), reader.chunks, reader.started) == (expected, 7, True)
    older = [
        {"event_type": "interaction.start", "interaction": {"id": "int", "model": "m"}},
        {"event_type": "content.start", "index": 0, "content": {"type": "function_call"}},
        {"event_type": "content.delta", "index": 0, "delta": step},
        {"event_type": "content.stop", "index": 0},
        {"event_type": "interaction.complete", "interaction": whole},
    ]
    assert stream_of(INTERACTIONS, nameless(*older)).result() == expected


# --- the others --------------------------------------------------------------------------------------


def test_calls_of_ollama():
    """Whole calls in a line of their own, with and without ids."""
    lines = [
        {"model": "m", "message": {"content": "", "thinking": "hm"}, "done": False},
        {"model": "m", "message": {"content": "", "tool_calls": [{"function": {"name": "f"}}]}, "done": False},
        {"model": "m", "message": {"tool_calls": [{"id": "o", "function": {"name": "g"}}]}, "done": False},
        {"model": "m", "message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2},
    ]  # fmt: skip
    pieces = [json.dumps(line).encode() + b"\n" for line in lines]
    reader = stream_of(OLLAMA, pieces, "application/x-ndjson")
    assert reader.result() == ResponseFacts(
        model="m",
        finish_reasons=("stop",),
        finish_reasons_raw=("stop",),
        tool_calls=(ToolCall(None, "f"), ToolCall("o", "g")),
        usage=Usage(input_tokens=5, output_tokens=2),
    )
    error = stream_of(OLLAMA, [b'{"error":"SECRET"}\n'], "application/x-ndjson").result()
    assert (error.error, error.complete) == (ErrorFacts(), False)


def test_images_and_sound_report_usage():
    """Plain and streamed."""
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"image_tokens": 40, "text_tokens": 10},
        "output_tokens": 200,
        "total_tokens": 250,
    }
    expected = Usage(input_tokens=50, output_tokens=200, input_image_tokens=40)
    images = ("api.openai.com", "/v1/images/generations")
    assert facts_of(images, {"data": [{"b64_json": "x"}], "usage": usage}).usage == expected
    reader = stream_of(
        images,
        nameless(
            {"type": "image_generation.partial_image", "b64_json": "x"},
            {"type": "image_generation.completed", "b64_json": "x", "usage": usage},
        ),
    )
    assert (reader.result(), reader.started) == (ResponseFacts(usage=expected), True)
    transcripts = ("api.openai.com", "/v1/audio/transcriptions")
    usage = {"input_tokens": 14, "input_token_details": {"audio_tokens": 14}, "output_tokens": 45}
    reader = stream_of(
        transcripts,
        nameless(
            {"type": "transcript.text.delta", "delta": "x"},
            {"type": "transcript.text.done", "text": "x", "usage": usage},
        ),
    )
    assert reader.result().usage == Usage(input_tokens=14, output_tokens=45, input_audio_tokens=14)
    assert (
        facts_of(transcripts, {"text": "x", "usage": {"type": "duration", "seconds": 3}}).usage
        is None
    )
    route = route_of(("api.openai.com", "/v1/audio/speech"))
    assert route.dialect.response(b"ID3\x04\x00", 200, route) == ResponseFacts()


def test_text_generation_inference():
    """Whole as an object or in a list, streamed with the details at the end."""
    address = ("tgi.internal", "/generate")
    body = {"generated_text": "x", "details": {"finish_reason": "length", "generated_tokens": 2}}
    expected = ResponseFacts(
        finish_reasons=("length",), finish_reasons_raw=("length",), usage=Usage(output_tokens=2)
    )
    assert facts_of(address, body) == expected
    assert facts_of(address, [body]) == expected
    reader = stream_of(
        ("tgi.internal", "/generate_stream"),
        nameless(
            {"index": 1, "token": {"id": 5, "text": "x"}, "generated_text": None, "details": None},
            {"index": 2, "token": {"id": 6, "text": "y"}, **body},
        ),
    )
    assert (reader.result(), reader.started, reader.chunks) == (expected, True, 2)


def test_watsonx_streams():
    """Output counts are cumulative; the input count comes once, then 0."""

    def event(text: str, given: int, made: int, word: str) -> dict[str, Any]:
        result = {"generated_text": text, "input_token_count": given, "generated_token_count": made}
        return {"model_id": "w", "results": [result | {"stop_reason": word}]}

    reader = stream_of(
        ("us-south.ml.cloud.ibm.com", "/ml/v1/text/generation_stream"),
        nameless(
            event("", 8, 0, "not_finished"),
            event("a", 0, 1, "not_finished"),
            event("b", 0, 2, "not_finished"),
            event("", 0, 3, "max_tokens"),
        ),
    )
    assert reader.result() == ResponseFacts(
        model="w",
        finish_reasons=("length",),
        finish_reasons_raw=("max_tokens",),
        usage=Usage(input_tokens=8, output_tokens=3),
    )


def test_a_finished_prediction_of_replicate():
    """Token counts come with its metrics."""
    body = {
        "id": "p",
        "model": "meta/llama",
        "status": "succeeded",
        "output": ["x"],
        "metrics": {"input_token_count": 5, "output_token_count": 2},
    }
    facts = facts_of(("api.replicate.com", "/v1/models/meta/llama/predictions"), body)
    assert facts == ResponseFacts(
        id="p", model="meta/llama", usage=Usage(input_tokens=5, output_tokens=2)
    )


def test_a_llama_cpp_server():
    """Its own completion endpoint."""
    address = ("llama.internal", "/completion")
    last = {
        "content": "",
        "stop": True,
        "stop_type": "limit",
        "tokens_predicted": 2,
        "tokens_evaluated": 5,
    }
    reader = stream_of(address, nameless({"content": "x", "stop": False}, last))
    facts = reader.result()
    assert (facts.finish_reasons_raw, facts.usage) == (
        ("limit",),
        Usage(input_tokens=5, output_tokens=2),
    )
    assert (facts.complete, reader.started) == (True, True)


def test_a_gateway_names_the_provider_it_used():
    """OpenRouter's `provider`, plain and streamed."""
    address = ("openrouter.ai", "/api/v1/chat/completions")
    assert (
        facts_of(address, {"id": "g", "provider": "Groq", "choices": []}).served_provider == "Groq"
    )
    reader = stream_of(address, nameless({"id": "g", "provider": "Groq", "choices": []}))
    assert reader.result().served_provider == "Groq"


def test_an_unknown_endpoint_counts_and_says_nothing():
    """Status and timing only, an error's type and code apart."""
    route = route_of(("api.openai.com", "/v1/threads/t/runs"))
    assert (
        route.dialect.response(b'{"id": "x", "usage": {"total_tokens": 5}}', 200, route)
        == ResponseFacts()
    )
    error = route.dialect.response(b'{"error": {"type": "t", "code": "c"}}', 404, route)
    assert error == ResponseFacts(error=ErrorFacts("t", "c"))
    reader = route.dialect.stream(route, "text/event-stream")
    reader.feed(b"data: {}\n\n")
    reader.feed(b"")
    assert (reader.result(), reader.chunks) == (ResponseFacts(), 1)
