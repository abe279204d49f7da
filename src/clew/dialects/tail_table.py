"""Wire formats that need no code: where each fact stands, as data.

A path names keys from the outside in, `.` between them; lists on the way are followed into each
of their entries, so a path may find several values. Counts that are found more than once are
added up in a whole response; in a stream the largest counts (they are cumulative, and the
events in between say 0).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Paths(NamedTuple):
    """Where the facts of one format stand. An empty path: nowhere."""

    name: str
    # request
    request_model: str = "model"
    stream: str = "stream"
    messages: str = ""
    max_tokens: str = "max_tokens"
    temperature: str = "temperature"
    top_p: str = "top_p"
    top_k: str = "top_k"
    seed: str = "seed"
    frequency_penalty: str = "frequency_penalty"
    presence_penalty: str = "presence_penalty"
    dimensions: str = ""
    # response
    id: str = "id"
    model: str = "model"
    choice: str = ""
    """What stands once for each choice."""
    finish_reason: str = ""
    """Seen from the choice."""
    input_tokens: str = ""
    output_tokens: str = ""
    total_is_input: str = ""
    """A total where there is no output: all of it is input."""
    output: str = ""
    """Generated output, for the first chunk of a stream."""
    error: str = "error"
    # stream
    lines: bool = False
    """JSON lines rather than server-sent events."""
    not_finished: frozenset[str] = frozenset()
    """Finish reasons that mean: not yet."""


_PARAMETERS: Final[dict[str, Any]] = {
    "max_tokens": "parameters.max_new_tokens",
    "temperature": "parameters.temperature",
    "top_p": "parameters.top_p",
    "top_k": "parameters.top_k",
    "seed": "parameters.seed",
}
_WATSONX_PARAMETERS: Final[dict[str, Any]] = {**_PARAMETERS, "seed": "parameters.random_seed"}

TABLE: Final = (
    # https://docs.anthropic.com/en/api/complete
    Paths(
        "anthropic_complete",
        max_tokens="max_tokens_to_sample",
        choice="completion",
        finish_reason="stop_reason",
        output="completion",
    ),
    # https://docs.aleph-alpha.com/api/complete
    Paths(
        "aleph_alpha_complete",
        max_tokens="maximum_tokens",
        model="model_version",
        choice="completions",
        finish_reason="finish_reason",
        input_tokens="num_tokens_prompt_total",
        output_tokens="num_tokens_generated",
        output="completions.completion",
    ),
    # https://cloud.ibm.com/apidocs/watsonx-ai#text-generation
    Paths(
        "watsonx_generation",
        request_model="model_id",
        model="model_id",
        choice="results",
        finish_reason="stop_reason",
        input_tokens="results.input_token_count",
        output_tokens="results.generated_token_count",
        output="results.generated_text",
        error="errors",
        not_finished=frozenset(("not_finished",)),
        **_WATSONX_PARAMETERS,
    ),
    # https://cloud.ibm.com/apidocs/watsonx-ai#text-embeddings, #text-rerank
    Paths(
        "watsonx_vectors",
        request_model="model_id",
        model="model_id",
        input_tokens="input_token_count",
        error="errors",
    ),
    # https://huggingface.co/docs/text-generation-inference/reference/api_reference; also
    # SageMaker containers of it, which answer without `details` unless asked.
    Paths(
        "text_generation_inference",
        id="",
        choice="generated_text",
        finish_reason="details.finish_reason",
        input_tokens="details.input_length",
        output_tokens="details.generated_tokens",
        output="token.text",
        **_PARAMETERS,
    ),
    # https://replicate.com/docs/reference/http#predictions.create: `stream` asks for an address
    # to read a stream from, the answer itself is none.
    Paths(
        "replicate_prediction",
        request_model="version",
        stream="",
        max_tokens="input.max_tokens",
        temperature="input.temperature",
        top_p="input.top_p",
        top_k="input.top_k",
        seed="input.seed",
        input_tokens="metrics.input_token_count",
        output_tokens="metrics.output_token_count",
    ),
    # https://dev.writer.com/api-reference/completion-api/text-generation
    Paths("writer_completion", output="value"),
    # https://docs.cohere.com/reference/generate
    Paths(
        "cohere_generate",
        top_p="p",
        top_k="k",
        choice="generations",
        finish_reason="finish_reason",
        input_tokens="meta.billed_units.input_tokens",
        output_tokens="meta.billed_units.output_tokens",
        output="text",
        lines=True,
    ),
    # https://docs.cohere.com/reference/embed
    Paths(
        "cohere_embed",
        dimensions="output_dimension",
        input_tokens="meta.billed_units.input_tokens",
    ),
    # https://docs.cohere.com/reference/rerank (searches are billed, not tokens),
    # https://docs.voyageai.com/reference/reranker-api, https://jina.ai/reranker
    Paths(
        "rerank",
        input_tokens="meta.billed_units.input_tokens",
        total_is_input="usage.total_tokens",
    ),
    # https://docs.mistral.ai/api/endpoint/ocr: billed by page
    Paths("mistral_ocr"),
    # https://github.com/ggml-org/llama.cpp/tree/master/tools/server#post-completion
    Paths(
        "llama_cpp_completion",
        max_tokens="n_predict",
        choice="content",
        finish_reason="stop_type",
        input_tokens="tokens_evaluated",
        output_tokens="tokens_predicted",
        output="content",
        not_finished=frozenset(("none",)),
    ),
    # https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters.html: the text models
    # of Amazon, Meta, Mistral, Cohere, AI21 and Anthropic, whose fields do not overlap.
    Paths(
        "bedrock_text",
        model="",
        input_tokens="inputTextTokenCount|prompt_token_count|meta.billed_units.input_tokens",
        output_tokens="results.tokenCount|totalOutputTextTokenCount|generation_token_count"
        "|meta.billed_units.output_tokens",
        id="id|response_id",
        choice="results|generations|outputs|completions|generation|completion|text|outputText",
        finish_reason="completionReason|finish_reason|stop_reason|finishReason.reason",
        output="outputText|generation|outputs.text|text|generations.text|completion",
        max_tokens="textGenerationConfig.maxTokenCount|max_gen_len|max_tokens"
        "|max_tokens_to_sample|maxTokens",
        temperature="textGenerationConfig.temperature|temperature",
        top_p="textGenerationConfig.topP|top_p|p|topP",
        top_k="top_k|k",
        dimensions="dimensions|output_dimension",
    ),
)
"""All formats of the table."""
