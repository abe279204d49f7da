"""Model endpoints by path, as data: which dialect speaks there and which operation it is."""

from __future__ import annotations

from typing import Final, NamedTuple

from clew.dialects.anthropic_messages import anthropic_messages
from clew.dialects.bedrock_converse import bedrock_converse
from clew.dialects.bedrock_invoke import bedrock_invoke
from clew.dialects.by_paths import BY_PATHS
from clew.dialects.cohere_chat import cohere_chat, cohere_chat_v1
from clew.dialects.gemini_content import gemini_content
from clew.dialects.gemini_interactions import gemini_interactions
from clew.dialects.ollama import ollama
from clew.dialects.openai_chat import openai_chat, openai_completions
from clew.dialects.openai_embeddings import openai_embeddings
from clew.dialects.openai_media import openai_media
from clew.dialects.openai_responses import openai_responses
from clew.dialects.sagemaker import sagemaker
from clew.typing import Dialect


class Endpoint(NamedTuple):
    """What a path's last segment stands for, if the segment before it is one of `after`."""

    after: str
    """Segments, separated by blanks. `vN` is any version, `*` anything, `/` nothing at all,
    `deployments/*` and the like anything below that segment."""
    dialect: Dialect
    operation: str
    stream: bool = False
    only: str = ""
    """Providers, separated by blanks: only on hosts known to be theirs."""
    provider: str | None = None
    """The provider that only this path belongs to."""
    model: str | None = None
    """The segment after which the model stands in the path."""


_OPENAI: Final = "vN / openai deployments/*"
"""Where the segments of OpenAI's API that are common words may stand on any host."""

ENDPOINTS: Final[dict[str, tuple[Endpoint, ...]]] = {
    # OpenAI and its many speakers
    "completions": (
        Endpoint("chat agents", openai_chat, "chat"),
        Endpoint("prompts/*", openai_chat, "chat", only="portkey"),
        Endpoint(_OPENAI, BY_PATHS["writer_completion"], "text_completion", only="writer"),
        Endpoint(_OPENAI + " fim engines/*", openai_completions, "text_completion"),
    ),
    "responses": (
        Endpoint(_OPENAI, openai_responses, "chat"),
        Endpoint("*", openai_responses, "chat", only="openai x_ai deepseek openrouter"),
    ),
    "compact": (Endpoint("responses", openai_responses, "compaction"),),
    "input_tokens": (Endpoint("responses", openai_responses, "count_tokens"),),
    "embeddings": (
        Endpoint("api", ollama, "embeddings"),
        Endpoint("text", BY_PATHS["watsonx_vectors"], "embeddings", only="ibm.watsonx.ai"),
        Endpoint(_OPENAI + " models engines/*", openai_embeddings, "embeddings"),
    ),
    "moderations": (
        Endpoint(_OPENAI, openai_embeddings, "moderation"),
        Endpoint("chat", openai_embeddings, "moderation", only="mistral_ai"),
    ),
    "generations": (Endpoint("images", openai_media, "image_generation"),),
    "edits": (Endpoint("images", openai_media, "image_generation"),),
    "variations": (Endpoint("images", openai_media, "image_generation"),),
    # https://openrouter.ai/docs/api/api-reference/images
    "images": (Endpoint("vN", openai_media, "image_generation", only="openrouter"),),
    "transcriptions": (Endpoint("audio", openai_media, "transcription"),),
    "translations": (Endpoint("audio", openai_media, "transcription"),),
    "speech": (Endpoint("audio", openai_media, "speech"),),
    # Anthropic
    "messages": (Endpoint("vN", anthropic_messages, "chat"),),
    "count_tokens": (Endpoint("messages", anthropic_messages, "count_tokens"),),
    "complete": (
        Endpoint("vN", BY_PATHS["anthropic_complete"], "text_completion", only="anthropic"),
        Endpoint("/", BY_PATHS["aleph_alpha_complete"], "text_completion", only="aleph_alpha"),
    ),
    # Gemini, besides `model:action`
    "interactions": (Endpoint("vN", gemini_interactions, "chat"),),
    "cachedContents": (Endpoint("*", gemini_content, "create_cache"),),
    # Ollama, Cohere, Writer
    "chat": (
        Endpoint("api", ollama, "chat"),
        Endpoint("v1", openai_chat, "chat", only="writer"),
        Endpoint("text", openai_chat, "chat", only="ibm.watsonx.ai"),
        Endpoint("v2", cohere_chat, "chat"),
        Endpoint("v1", cohere_chat_v1, "chat", only="cohere azure.ai.inference"),
    ),
    "generate": (
        Endpoint("api", ollama, "text_completion"),
        Endpoint("v1", BY_PATHS["cohere_generate"], "text_completion", only="cohere"),
        Endpoint("/", BY_PATHS["text_generation_inference"], "text_completion"),
    ),
    "generate_stream": (
        Endpoint("/", BY_PATHS["text_generation_inference"], "text_completion", stream=True),
    ),
    "embed": (
        Endpoint("api", ollama, "embeddings"),
        Endpoint("v1 v2", BY_PATHS["cohere_embed"], "embeddings"),
    ),
    "rerank": (
        Endpoint("text", BY_PATHS["watsonx_vectors"], "rerank", only="ibm.watsonx.ai"),
        Endpoint("vN / inference", BY_PATHS["rerank"], "rerank"),
    ),
    # Amazon
    "converse": (
        Endpoint("model/*", bedrock_converse, "chat", provider="aws.bedrock", model="model"),
    ),
    "converse-stream": (
        Endpoint(
            "model/*",
            bedrock_converse,
            "chat",
            stream=True,
            provider="aws.bedrock",
            model="model",
        ),
    ),
    "count-tokens": (
        Endpoint(
            "model/*", bedrock_converse, "count_tokens", provider="aws.bedrock", model="model"
        ),
    ),
    "invoke": (
        Endpoint(
            "model/*", bedrock_invoke, "text_completion", provider="aws.bedrock", model="model"
        ),
    ),
    "invoke-with-response-stream": (
        Endpoint(
            "model/*",
            bedrock_invoke,
            "text_completion",
            stream=True,
            provider="aws.bedrock",
            model="model",
        ),
    ),
    "invocations": (
        Endpoint("serving-endpoints/*", openai_chat, "chat", model="serving-endpoints"),
        Endpoint("endpoints/*", sagemaker, "text_completion", model="endpoints"),
    ),
    "invocations-response-stream": (
        Endpoint("endpoints/*", sagemaker, "text_completion", stream=True, model="endpoints"),
    ),
    # The others
    "ocr": (Endpoint("vN", BY_PATHS["mistral_ocr"], "ocr"),),
    "text": (
        Endpoint(
            "generation", BY_PATHS["watsonx_generation"], "text_completion", only="ibm.watsonx.ai"
        ),
    ),
    "text_stream": (
        Endpoint(
            "generation",
            BY_PATHS["watsonx_generation"],
            "text_completion",
            stream=True,
            only="ibm.watsonx.ai",
        ),
    ),
    "generation": (
        Endpoint("text", BY_PATHS["watsonx_generation"], "text_completion", only="ibm.watsonx.ai"),
    ),
    "generation_stream": (
        Endpoint(
            "text",
            BY_PATHS["watsonx_generation"],
            "text_completion",
            stream=True,
            only="ibm.watsonx.ai",
        ),
    ),
    "chat_stream": (Endpoint("text", openai_chat, "chat", stream=True, only="ibm.watsonx.ai"),),
    "inference:complete": (Endpoint("cortex", openai_chat, "chat"),),
    "predictions": (
        Endpoint("*", BY_PATHS["replicate_prediction"], "text_completion", only="replicate"),
    ),
    "completion": (Endpoint("/", BY_PATHS["llama_cpp_completion"], "text_completion"),),
    "": (
        Endpoint("*", BY_PATHS["text_generation_inference"], "text_completion", only="huggingface"),
    ),
}
"""Endpoints by the path's last segment; the first that fits counts."""


class Action(NamedTuple):
    """What `{model}:{action}` stands for on Google's APIs."""

    dialect: Dialect
    operation: str
    stream: bool = False


ACTIONS: Final[dict[str, Action]] = {
    "generateContent": Action(gemini_content, "generate_content"),
    "streamGenerateContent": Action(gemini_content, "generate_content", stream=True),
    "embedContent": Action(gemini_content, "embeddings"),
    "batchEmbedContents": Action(gemini_content, "embeddings"),
    "countTokens": Action(gemini_content, "count_tokens"),
}
"""Google's own models. `predict` is for vectors where the model's name says so."""

PARTNERS: Final[dict[str, Dialect]] = {
    "anthropic": anthropic_messages,
    "mistralai": openai_chat,
    "meta": openai_chat,
    "ai21": openai_chat,
}
"""Publishers on Vertex AI whose own wire format goes through `rawPredict`."""
