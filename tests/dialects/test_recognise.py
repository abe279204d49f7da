"""Which requests are model calls, of what, and whose."""

from __future__ import annotations

import pytest

from clew.dialects import recognise
from clew.dialects.endpoints import ENDPOINTS
from clew.dialects.hosts import HOSTS, host_of
from clew.semconv import OPERATIONS
from clew.typing import Dialect

OPENAI = "api.openai.com"
ANY = "gateway.internal:8080"


@pytest.mark.parametrize(
    ("host", "path", "dialect", "operation", "provider", "model", "stream"),
    [
        # the same path on the provider's host, on a gateway and on a local server
        (OPENAI, "/v1/chat/completions", "openai_chat", "chat", "openai", None, False),
        (ANY, "/v1/chat/completions", "openai_chat", "chat", None, None, False),
        (ANY, "/chat/completions", "openai_chat", "chat", None, None, False),
        (ANY, "/tenant/7/openai/chat/completions/", "openai_chat", "chat", None, None, False),
        ("127.0.0.1:8000", "/v1/chat/completions", "openai_chat", "chat", None, None, False),
        ("localhost:11434", "/v1/chat/completions", "openai_chat", "chat", "ollama", None, False),
        # OpenAI's own
        (OPENAI, "/v1/completions", "openai_completions", "text_completion", "openai", None, False),
        (OPENAI, "/v1/responses", "openai_responses", "chat", "openai", None, False),
        (OPENAI, "/v1/responses/compact", "openai_responses", "compaction", "openai", None, False),
        (OPENAI, "/v1/responses/input_tokens", "openai_responses", "count_tokens", "openai", None, False),
        (OPENAI, "/v1/embeddings", "openai_embeddings", "embeddings", "openai", None, False),
        (OPENAI, "/v1/moderations", "openai_embeddings", "moderation", "openai", None, False),
        (OPENAI, "/v1/images/generations", "openai_media", "image_generation", "openai", None, False),
        (OPENAI, "/v1/images/edits", "openai_media", "image_generation", "openai", None, False),
        (OPENAI, "/v1/audio/transcriptions", "openai_media", "transcription", "openai", None, False),
        (OPENAI, "/v1/audio/translations", "openai_media", "transcription", "openai", None, False),
        (OPENAI, "/v1/audio/speech", "openai_media", "speech", "openai", None, False),
        (ANY, "/responses", "openai_responses", "chat", None, None, False),
        (ANY, "/v1/embeddings", "openai_embeddings", "embeddings", None, None, False),
        # Azure
        ("r.openai.azure.com", "/openai/deployments/my%20gpt/chat/completions", "openai_chat", "chat", "azure.ai.openai", "my gpt", False),
        ("r.openai.azure.com", "//openai/deployments/d/embeddings", "openai_embeddings", "embeddings", "azure.ai.openai", "d", False),
        ("r.openai.azure.com", "/openai/responses", "openai_responses", "chat", "azure.ai.openai", None, False),
        ("r.openai.azure.com", "/openai/deployments/d/audio/speech", "openai_media", "speech", "azure.ai.openai", "d", False),
        ("apim.internal", "/openai/deployments/d/chat/completions", "openai_chat", "chat", "azure.ai.openai", "d", False),
        ("r.services.ai.azure.com", "/models/chat/completions", "openai_chat", "chat", "azure.ai.inference", None, False),
        ("r.services.ai.azure.com", "/openai/v1/responses", "openai_responses", "chat", "azure.ai.openai", None, False),
        ("r.services.ai.azure.com", "/anthropic/v1/messages", "anthropic_messages", "chat", "azure.ai.inference", None, False),
        # Anthropic
        ("api.anthropic.com", "/v1/messages", "anthropic_messages", "chat", "anthropic", None, False),
        (ANY, "/anthropic/v1/messages", "anthropic_messages", "chat", None, None, False),
        ("api.anthropic.com", "/v1/messages/count_tokens", "anthropic_messages", "count_tokens", "anthropic", None, False),
        ("api.anthropic.com", "/v1/complete", "anthropic_complete", "text_completion", "anthropic", None, False),
        # Gemini and Vertex
        ("generativelanguage.googleapis.com", "/v1beta/models/gemini-2.5-flash:generateContent", "gemini_content", "generate_content", "gcp.gemini", "gemini-2.5-flash", False),
        ("generativelanguage.googleapis.com", "/v1beta/models/gemini-2.5-flash%3AstreamGenerateContent", "gemini_content", "generate_content", "gcp.gemini", "gemini-2.5-flash", True),
        ("generativelanguage.googleapis.com", "/v1beta/models/e:batchEmbedContents", "gemini_content", "embeddings", "gcp.gemini", "e", False),
        ("generativelanguage.googleapis.com", "/v1beta/models/m:countTokens", "gemini_content", "count_tokens", "gcp.gemini", "m", False),
        ("generativelanguage.googleapis.com", "/v1beta/cachedContents", "gemini_content", "create_cache", "gcp.gemini", None, False),
        ("generativelanguage.googleapis.com", "/v1beta/interactions", "gemini_interactions", "chat", "gcp.gemini", None, False),
        ("generativelanguage.googleapis.com", "/v1beta/openai/chat/completions", "openai_chat", "chat", "gcp.gemini", None, False),
        (ANY, "/v1beta/models/gemini-2.5-flash:generateContent", "gemini_content", "generate_content", None, "gemini-2.5-flash", False),
        (ANY, "/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:generateContent", "gemini_content", "generate_content", "gcp.vertex_ai", "gemini-2.5-pro", False),
        ("us-east5-aiplatform.googleapis.com", "/v1/projects/p/locations/us-east5/publishers/anthropic/models/claude-sonnet-4@20250514:streamRawPredict", "anthropic_messages", "chat", "gcp.vertex_ai", "claude-sonnet-4@20250514", True),
        ("aiplatform.googleapis.com", "/v1/projects/p/locations/l/publishers/anthropic/models/count-tokens:rawPredict", "anthropic_messages", "count_tokens", "gcp.vertex_ai", None, False),
        ("aiplatform.googleapis.com", "/v1/projects/p/locations/l/publishers/google/models/text-embedding-005:predict", "gemini_content", "embeddings", "gcp.vertex_ai", "text-embedding-005", False),
        ("aiplatform.googleapis.com", "/v1/projects/p/locations/l/endpoints/openapi/chat/completions", "openai_chat", "chat", "gcp.vertex_ai", None, False),
        # Ollama, Cohere, Writer
        ("localhost:11434", "/api/chat", "ollama", "chat", "ollama", None, False),
        ("127.0.0.1:5000", "/api/chat", "ollama", "chat", None, None, False),
        ("localhost:11434", "/api/generate", "ollama", "text_completion", "ollama", None, False),
        ("localhost:11434", "/api/embed", "ollama", "embeddings", "ollama", None, False),
        ("localhost:11434", "/api/embeddings", "ollama", "embeddings", "ollama", None, False),
        ("api.cohere.com", "/v2/chat", "cohere_chat", "chat", "cohere", None, False),
        ("api.cohere.com", "/v1/chat", "cohere_chat_v1", "chat", "cohere", None, False),
        ("api.writer.com", "/v1/chat", "openai_chat", "chat", "writer", None, False),
        ("api.cohere.com", "/v2/embed", "cohere_embed", "embeddings", "cohere", None, False),
        ("api.cohere.com", "/v2/rerank", "rerank", "rerank", "cohere", None, False),
        (ANY, "/v1/rerank", "rerank", "rerank", None, None, False),
        # Amazon
        ("bedrock-runtime.eu-west-1.amazonaws.com", "/model/us.amazon.nova-lite-v1%3A0/converse", "bedrock_converse", "chat", "aws.bedrock", "us.amazon.nova-lite-v1:0", False),
        ("vpce-1-2.bedrock-runtime.us-east-1.vpce.amazonaws.com", "/model/m/converse-stream", "bedrock_converse", "chat", "aws.bedrock", "m", True),
        ("localhost:4566", "/model/m/invoke", "bedrock_invoke", "text_completion", "aws.bedrock", "m", False),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/model/amazon.titan-embed-text-v2%3A0/invoke", "bedrock_invoke", "embeddings", "aws.bedrock", "amazon.titan-embed-text-v2:0", False),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.m/invoke-with-response-stream", "bedrock_invoke", "text_completion", "aws.bedrock", "arn:aws:bedrock:us-east-1:1:inference-profile/us.m", True),
        ("bedrock-runtime.us-east-1.amazonaws.com", "/openai/v1/chat/completions", "openai_chat", "chat", "aws.bedrock", None, False),
        ("runtime.sagemaker.us-east-1.amazonaws.com", "/endpoints/e/invocations", "sagemaker", "text_completion", "aws.sagemaker", "e", False),
        ("runtime.sagemaker.us-east-1.amazonaws.com", "/endpoints/e/invocations-response-stream", "sagemaker", "text_completion", "aws.sagemaker", "e", True),
        # the others
        ("api.mistral.ai", "/v1/fim/completions", "openai_completions", "text_completion", "mistral_ai", None, False),
        ("api.mistral.ai", "/v1/agents/completions", "openai_chat", "chat", "mistral_ai", None, False),
        ("api.mistral.ai", "/v1/ocr", "mistral_ocr", "ocr", "mistral_ai", None, False),
        ("api.groq.com", "/openai/v1/chat/completions", "openai_chat", "chat", "groq", None, False),
        ("api.deepseek.com", "/chat/completions", "openai_chat", "chat", "deepseek", None, False),
        ("api.x.ai", "/v1/chat/completions", "openai_chat", "chat", "x_ai", None, False),
        ("openrouter.ai", "/api/v1/images", "openai_media", "image_generation", "openrouter", None, False),
        ("openrouter.ai", "/api/v1/chat/completions", "openai_chat", "chat", "openrouter", None, False),
        ("api.together.xyz", "/v1/chat/completions", "openai_chat", "chat", "together", None, False),
        ("api.fireworks.ai", "/inference/v1/chat/completions", "openai_chat", "chat", "fireworks", None, False),
        ("api.perplexity.ai", "/chat/completions", "openai_chat", "chat", "perplexity", None, False),
        ("us-south.ml.cloud.ibm.com", "/ml/v1/text/chat", "openai_chat", "chat", "ibm.watsonx.ai", None, False),
        ("us-south.ml.cloud.ibm.com", "/ml/v1/text/chat_stream", "openai_chat", "chat", "ibm.watsonx.ai", None, True),
        ("us-south.ml.cloud.ibm.com", "/ml/v1/text/generation", "watsonx_generation", "text_completion", "ibm.watsonx.ai", None, False),
        ("a.snowflakecomputing.com", "/api/v2/cortex/inference:complete", "openai_chat", "chat", "snowflake", None, False),
        ("api.replicate.com", "/v1/models/meta/llama/predictions", "replicate_prediction", "text_completion", "replicate", "meta/llama", False),
        ("api.replicate.com", "/v1/predictions", "replicate_prediction", "text_completion", "replicate", None, False),
        ("w.cloud.databricks.com", "/serving-endpoints/dbrx/invocations", "openai_chat", "chat", "databricks", "dbrx", False),
        ("x.us-east-1.aws.endpoints.huggingface.cloud", "/", "text_generation_inference", "text_completion", "huggingface", None, False),
        (ANY, "/generate_stream", "text_generation_inference", "text_completion", None, None, True),
        (ANY, "/completion", "llama_cpp_completion", "text_completion", None, None, False),
        ("api.portkey.ai", "/v1/prompts/p-1/completions", "openai_chat", "chat", "portkey", None, False),
    ],
)  # fmt: skip
def test_endpoints(
    host: str,
    path: str,
    dialect: str,
    operation: str,
    provider: str | None,
    model: str | None,
    stream: bool,
):
    """The path tells the dialect, the operation, often the model; the host tells whose it is."""
    route = recognise("POST", host, path)
    assert route is not None
    found = (route.dialect.name, route.operation, route.provider, route.model, route.stream)
    assert found == (dialect, operation, provider, model, stream)


@pytest.mark.parametrize(
    ("method", "host", "path"),
    [
        ("GET", ANY, "/v1/chat/completions"),
        ("POST", ANY, "/"),
        ("POST", ANY, ""),
        ("POST", ANY, "/v1/users"),
        ("POST", ANY, "/search"),
        ("POST", ANY, "/surveys/7/responses"),
        ("POST", ANY, "/room/7/messages"),
        ("POST", ANY, "/rooms/7/chat"),
        ("POST", ANY, "/text/generation"),
        ("POST", ANY, "/ml/predictions"),
        ("POST", ANY, "/complete"),
        ("POST", ANY, "/project/embeddings"),
        ("POST", ANY, "/models/x:predict"),
        ("POST", ANY, "/a:b"),
        ("POST", ANY, "/%zz%3A"),
        ("POST", "hooks.slack.com", "/services/T/B/x"),
        ("PUT", "storage.googleapis.com", "/bucket/key"),
        ("POST", "a.snowflakecomputing.com", "/queries/v1/query-request"),
        ("POST", "us-central1-aiplatform.googleapis.com", "/v1/projects/p/locations/l/pipelineJobs"),
        ("POST", "s3.us-east-1.amazonaws.com", "/model/converse"),
        ("GET", "huggingface.co", "/api/models"),
        ("POST", ANY, "/api/v1/images"),
        ("POST", "openrouter.ai", "/api/v1/presets/mine/chat/completions"),
        ("POST", "openrouter.ai", "/api/v1/presets/mine/responses"),
    ],
)  # fmt: skip
def test_other_requests(method: str, host: str, path: str):
    """Everything else a process calls is no model call."""
    assert recognise(method, host, path) is None


@pytest.mark.parametrize(
    ("method", "host", "path", "provider"),
    [
        ("GET", OPENAI, "/v1/models", "openai"),
        ("GET", OPENAI, "/v1/responses/resp_1", "openai"),
        ("POST", OPENAI, "/v1/threads/t/runs", "openai"),
        ("DELETE", "api.anthropic.com", "/v1/files/f", "anthropic"),
        ("POST", "api.anthropic.com", "/v1/messages/batches", "anthropic"),
        ("POST", "generativelanguage.googleapis.com", "/v1beta/models/veo:predictLongRunning", "gcp.gemini"),
        ("GET", "127.0.0.1:11434", "/api/tags", "ollama"),
    ],
)  # fmt: skip
def test_unknown_paths_of_model_providers(method: str, host: str, path: str, provider: str):
    """They are named as unknown, with status and timing only."""
    route = recognise(method, host, path)
    assert route is not None
    assert (route.dialect.name, route.operation, route.provider) == ("unknown", "unknown", provider)


def test_the_operator_names_hosts():
    """An operator's own name wins, with and without the port, also over a known host's."""
    hosts = {"gateway.internal": "openai", "llm.internal:9000": "groq", OPENAI: "acme"}
    path = "/v1/chat/completions"

    def provider(host: str) -> str | None:
        route = recognise("POST", host, path, hosts=hosts)
        assert route is not None
        return route.provider

    assert provider("gateway.internal") == "openai"
    assert provider("GATEWAY.internal:8080") == "openai"
    assert provider("llm.internal:9000") == "groq"
    assert provider("llm.internal:9001") is None
    assert provider(OPENAI) == "acme"
    assert recognise("POST", "gateway.internal", "/other", hosts=hosts) is None


def test_hosts():
    """Ports and letter case do not matter, except where the port tells the server."""
    assert host_of("API.OpenAI.com:443").provider == "openai"
    assert host_of("localhost:11434").provider == "ollama"
    assert host_of("localhost:8000").provider is None
    assert host_of("[::1]:11434").provider == "ollama"
    assert host_of("[2001:db8::1]").provider is None
    assert host_of("").provider is None
    assert host_of("api.openai.com.evil.example").provider is None
    assert host_of("evil-openai.azure.com.example").provider is None


def test_tables_are_sound():
    """Operations are the convention's or ours; dialects keep the protocol."""
    for endpoints in ENDPOINTS.values():
        for endpoint in endpoints:
            assert endpoint.operation in OPERATIONS
            dialect: Dialect = endpoint.dialect
            assert dialect.name
    assert all(name == name.lower() for name in HOSTS)
