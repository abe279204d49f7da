"""An address of each dialect."""

from __future__ import annotations

from clew.dialects import recognise
from clew.typing import Route

ADDRESSES = {
    "openai_chat": ("api.openai.com", "/v1/chat/completions"),
    "openai_completions": ("api.openai.com", "/v1/completions"),
    "openai_responses": ("api.openai.com", "/v1/responses"),
    "openai_embeddings": ("api.openai.com", "/v1/embeddings"),
    "openai_media": ("api.openai.com", "/v1/audio/transcriptions"),
    "anthropic_messages": ("api.anthropic.com", "/v1/messages"),
    "anthropic_complete": ("api.anthropic.com", "/v1/complete"),
    "gemini_content": (
        "generativelanguage.googleapis.com",
        "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
    ),
    "gemini_interactions": ("generativelanguage.googleapis.com", "/v1beta/interactions"),
    "ollama": ("localhost:11434", "/api/chat"),
    "cohere_chat": ("api.cohere.com", "/v2/chat"),
    "cohere_chat_v1": ("api.cohere.com", "/v1/chat"),
    "cohere_generate": ("api.cohere.com", "/v1/generate"),
    "cohere_embed": ("api.cohere.com", "/v2/embed"),
    "rerank": ("api.voyageai.com", "/v1/rerank"),
    "bedrock_converse": ("bedrock-runtime.us-east-1.amazonaws.com", "/model/m/converse-stream"),
    "bedrock_invoke": (
        "bedrock-runtime.us-east-1.amazonaws.com",
        "/model/m/invoke-with-response-stream",
    ),
    "sagemaker": (
        "runtime.sagemaker.us-east-1.amazonaws.com",
        "/endpoints/e/invocations-response-stream",
    ),
    "watsonx_generation": ("us-south.ml.cloud.ibm.com", "/ml/v1/text/generation_stream"),
    "text_generation_inference": ("tgi.internal", "/generate_stream"),
    "llama_cpp_completion": ("llama.internal", "/completion"),
    "replicate_prediction": ("api.replicate.com", "/v1/models/a/b/predictions"),
    "aleph_alpha_complete": ("api.aleph-alpha.com", "/complete"),
    "writer_completion": ("api.writer.com", "/v1/completions"),
    "mistral_ocr": ("api.mistral.ai", "/v1/ocr"),
    "watsonx_vectors": ("us-south.ml.cloud.ibm.com", "/ml/v1/text/embeddings"),
    "unknown": ("api.openai.com", "/v1/threads"),
}


def usual_route(name: str) -> Route:
    """Return the route of a dialect's usual address."""
    route = recognise("POST", *ADDRESSES[name])
    assert route is not None
    assert route.dialect.name == name
    return route
