"""cohere, ollama and the AWS SDKs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import boto3
import cohere
import ollama
from aiobotocore.session import get_session
from botocore.config import Config

from clew.testing import ScriptedProvider
from surfaces.base import AGENTS, ASK, AUDIO, JOBS, SOCKETS, VERDICTS, Surface, below

# --- cohere -------------------------------------------------------------------------------------------


def _cohere(kind: str, server: ScriptedProvider, asynchronous: bool) -> Any:
    made = getattr(cohere, f"Async{kind}" if asynchronous else kind)
    return made("key", base_url=server.base_url, timeout=5, **(
        {"max_retries": 0} if kind == "ClientV2" else {}
    ))  # fmt: skip


def _cohere_names(client: Any, asynchronous: bool) -> Iterator[str]:
    # The version of the API that a client is for stands below it, too.
    skip = {"v2"} if "V2" in type(client).__name__ else set[str]()
    found = below(client, packages=("cohere",), skip=skip)
    # Methods that are there to say that they are gone.
    return (name for name in found if name not in _GONE)


_GONE = {
    "batch_detokenize", "batch_generate", "batch_tokenize", "cancel_embed_job", "codebook",
    "create_cluster_job", "create_connector", "create_custom_model", "create_dataset",
    "create_embed_job", "delete_connector", "delete_dataset", "detect_language",
    "generate_feedback", "generate_preference_feedback", "get_cluster_job", "get_connector",
    "get_custom_model", "get_custom_model_by_name", "get_custom_model_metrics", "get_dataset",
    "get_dataset_usage", "get_embed_job", "list_cluster_jobs", "list_connectors",
    "list_custom_models", "list_datasets", "list_embed_jobs", "loglikelihood",
    "oauth_authorize_connector", "update_connector", "wait_for_cluster_job",
    "wait_for_custom_model", "wait_for_dataset", "wait_for_embed_job",
}  # fmt: skip
_EMBED = {"model": "m", "input_type": "search_query", "texts": ["zqmark"]}
_RERANK = {"model": "m", "query": "zqmark", "documents": ["a"]}
_SPOKEN = {"model": "m", "language": "en", "file": AUDIO}
_COHERE_UNHEARD = {
    JOBS: ("batches", "embed_jobs", "finetuning"),
    VERDICTS: ("classify",),
    "deprecated by the provider": ("summarize",),
}
_COHERE_NO_MODEL = (
    "check_api_key",
    "connectors",
    "datasets",
    "detokenize",
    "fetch_tokenizer",
    "models",
    "tokenize",
    "utils",
    "wait",
)
COHERE = Surface(
    sdk="cohere, version 2 of the API",
    client=functools.partial(_cohere, "ClientV2"),
    names=_cohere_names,
    listened={
        "audio.transcriptions.create": ("transcription", _SPOKEN),
        "chat": ("chat", {"model": "m", "messages": ASK}),
        "chat_stream": ("chat", {"model": "m", "messages": ASK}),
        "embed": ("embeddings", _EMBED),
        "embed_stream": ("embeddings", {"texts": ["zqmark"], "model": "m"}),
        "generate": ("text_completion", {"prompt": "zqmark"}),
        "generate_stream": ("text_completion", {"prompt": "zqmark"}),
        "rerank": ("rerank", _RERANK),
    },
    unheard={**_COHERE_UNHEARD, "documents are parsed, in a format of its own": ("parse",)},
    no_model=_COHERE_NO_MODEL,
    only={"embed_stream": False},
    provider="cohere",
)
COHERE_V1 = Surface(
    sdk="cohere, version 1 of the API",
    client=functools.partial(_cohere, "Client"),
    names=_cohere_names,
    listened={
        "audio.transcriptions.create": ("transcription", _SPOKEN),
        "chat": ("chat", {"model": "m", "message": "zqmark"}),
        "chat_stream": ("chat", {"model": "m", "message": "zqmark"}),
        "embed": ("embeddings", _EMBED),
        "embed_stream": ("embeddings", {"texts": ["zqmark"], "model": "m"}),
        "generate": ("text_completion", {"prompt": "zqmark"}),
        "generate_stream": ("text_completion", {"prompt": "zqmark"}),
        "rerank": ("rerank", _RERANK),
        "v2.chat": ("chat", {"model": "m", "messages": ASK}),
        "v2.chat_stream": ("chat", {"model": "m", "messages": ASK}),
        "v2.embed": ("embeddings", _EMBED),
        "v2.rerank": ("rerank", _RERANK),
    },
    unheard={**_COHERE_UNHEARD, "documents are parsed, in a format of its own": ("v2.parse",)},
    no_model=_COHERE_NO_MODEL,
    only={"embed_stream": False},
    provider="cohere",
)

# --- ollama -------------------------------------------------------------------------------------------


def _ollama(server: ScriptedProvider, asynchronous: bool) -> Any:
    return (ollama.AsyncClient if asynchronous else ollama.Client)(host=server.base_url, timeout=5)


OLLAMA = Surface(
    sdk="ollama",
    client=_ollama,
    names=lambda client, _: below(client, packages=("ollama",), skip={"close"}),
    listened={
        "chat": ("chat", {"model": "m", "messages": ASK}),
        "embed": ("embeddings", {"model": "m", "input": "zqmark"}),
        "embeddings": ("embeddings", {"model": "m", "prompt": "zqmark"}),
        "generate": ("text_completion", {"model": "m", "prompt": "zqmark"}),
    },
    unheard={VERDICTS: ("systemone",)},
    no_model=(
        "copy",
        "create",
        "create_blob",
        "delete",
        "list",
        "ps",
        "pull",
        "push",
        "show",
        "web_fetch",
        "web_search",
    ),
)

# --- Amazon -------------------------------------------------------------------------------------------


def _amazon(service: str, server: ScriptedProvider, asynchronous: bool) -> Any:
    session = get_session() if asynchronous else boto3.Session()
    made = (session.create_client if asynchronous else session.client)(
        service,
        region_name="eu-west-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="key",
        endpoint_url=server.base_url,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=5),
    )
    return made.__aenter__() if asynchronous else made


def _operations(client: Any, asynchronous: bool) -> Iterator[str]:
    return iter(sorted(client.meta.method_to_api_mapping))


_TURNS = [{"role": "user", "content": [{"text": "zqmark"}]}]
_INVOKE = {"modelId": "m", "body": b'{"prompt": "zqmark"}'}
_ENDPOINT = {"EndpointName": "e", "Body": b'{"inputs": "zqmark"}'}
BEDROCK = Surface(
    sdk="boto3 and aiobotocore, bedrock-runtime",
    client=functools.partial(_amazon, "bedrock-runtime"),
    names=_operations,
    listened={
        "converse": ("chat", {"modelId": "m", "messages": _TURNS}),
        "converse_stream": ("chat", {"modelId": "m", "messages": _TURNS}),
        "count_tokens": (
            "count_tokens",
            {"modelId": "m", "input": {"converse": {"messages": _TURNS}}},
        ),
        "invoke_model": ("text_completion", _INVOKE),
        "invoke_model_with_response_stream": ("text_completion", _INVOKE),
    },
    unheard={
        SOCKETS: ("invoke_model_with_bidirectional_stream",),
        JOBS: ("start_async_invoke",),
        VERDICTS: ("apply_guardrail", "invoke_guardrail_checks"),
    },
    no_model=("get_async_invoke", "list_async_invokes"),
)
SAGEMAKER = Surface(
    sdk="boto3 and aiobotocore, sagemaker-runtime",
    client=functools.partial(_amazon, "sagemaker-runtime"),
    names=_operations,
    listened={
        "invoke_endpoint": ("text_completion", _ENDPOINT),
        "invoke_endpoint_with_response_stream": ("text_completion", _ENDPOINT),
    },
    unheard={JOBS: ("invoke_endpoint_async",)},
    no_model=(),
)
BEDROCK_AGENTS = Surface(
    sdk="boto3 and aiobotocore, bedrock-agent-runtime",
    client=functools.partial(_amazon, "bedrock-agent-runtime"),
    names=_operations,
    listened={},
    unheard={
        AGENTS: (
            "agentic_retrieve_stream",
            "invoke_agent",
            "invoke_flow",
            "invoke_inline_agent",
            "retrieve_and_generate",
            "retrieve_and_generate_stream",
            "start_flow_execution",
        ),
        VERDICTS: ("generate_query", "optimize_prompt", "rerank", "retrieve"),
    },
    no_model=(
        "check_ingested_document_acl",
        "create_invocation",
        "create_session",
        "delete_agent_memory",
        "delete_session",
        "end_session",
        "get_agent_memory",
        "get_document_content",
        "get_execution_flow_snapshot",
        "get_flow_execution",
        "get_ingested_document_acl",
        "get_invocation_step",
        "get_session",
        "list_flow_execution_events",
        "list_flow_executions",
        "list_invocation_steps",
        "list_invocations",
        "list_sessions",
        "list_tags_for_resource",
        "put_invocation_step",
        "stop_flow_execution",
        "tag_resource",
        "untag_resource",
        "update_session",
    ),
)
