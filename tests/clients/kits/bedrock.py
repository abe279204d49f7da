"""boto3 and aiobotocore: Bedrock's Converse and InvokeModel.

A client of aioboto3 is one of aiobotocore's.
"""

from __future__ import annotations

import functools
import json
from typing import Any, ClassVar

import boto3
import pytest
from botocore.config import Config
from either_way import settle

from clew.facts import Usage
from clew.testing import ScriptedProvider
from kits.base import API_KEY, MARK, TOOL_PARAMETERS, Kit


@functools.cache
def _session(asynchronous: bool) -> Any:
    if not asynchronous:
        return boto3.Session()
    from aiobotocore.session import get_session

    return get_session()


class _Bedrock(Kit):
    provider = "Amazon Bedrock"
    model = "eu.anthropic.claude-haiku-4-5-20251001-v1:0"
    can = frozenset({"retries", "stream retries", "bounded retries", "eager", "stream errors"})
    volatile = frozenset({"amz-sdk-invocation-id", "x-amz-date", "authorization"})
    usage = Usage(input_tokens=100, output_tokens=40, cache_read_tokens=30, cache_write_tokens=20)
    counted: ClassVar[Any] = {
        "input": 100,
        "output": 40,
        "cache_read.input": 30,
        "cache_write.input": 20,
    }
    errors: ClassVar[Any] = {
        400: "ValidationException",
        401: "UnrecognizedClientException",
        404: "ResourceNotFoundException",
        429: "ThrottlingException",
        500: "InternalServerException",
    }

    def __init__(self, *, asynchronous: bool) -> None:
        super().__init__(asynchronous=asynchronous)
        self.sdk = "aiobotocore" if asynchronous else "boto3"  # type: ignore[misc]
        self.http = "aiohttp" if asynchronous else "urllib3"  # type: ignore[misc]

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        if self.asynchronous:
            return ()
        # What boto3's own response says when it is dropped, with and without Clew.
        said = ("unclosed:ResourceWarning", "socket:pytest.PytestUnraisableExceptionWarning")
        return (pytest.mark.filterwarnings(*(f"ignore:.*{each}" for each in said)),)

    @property
    def takes_credentials(self) -> bool:
        return not self.asynchronous  # aiohttp: they and the signature are one header

    @property
    def name(self) -> str:
        return f"{self.sdk} {self.api}"

    def client(self, server: ScriptedProvider, *, timeout: float = 10, retries: int = 0) -> Any:
        session = _session(self.asynchronous)
        made = (session.create_client if self.asynchronous else session.client)(
            "bedrock-runtime",
            region_name="eu-west-1",
            aws_access_key_id=f"{MARK}-key-id",
            aws_secret_access_key=API_KEY,
            endpoint_url=server.base_url,
            config=Config(
                retries={"total_max_attempts": retries + 1, "mode": "standard"},
                read_timeout=timeout,
                connect_timeout=2,
                max_pool_connections=1,
            ),
        )
        return made.__aenter__() if self.asynchronous else made

    async def close_stream(self, stream: Any) -> None:
        await settle(stream.close())


class Converse(_Bedrock):
    """`converse` and `converse_stream`."""

    api = "Converse"
    can = _Bedrock.can | {"lists"}
    names_model = False

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return a request with content everywhere."""
        use = {"toolUseId": "tooluse_1", "name": "find", "input": {"place": MARK}}
        result = {"toolUseId": "tooluse_1", "content": [{"text": f"{MARK} result"}]}
        spec = {
            "name": "find",
            "description": f"{MARK} tool",
            "inputSchema": {"json": TOOL_PARAMETERS},
        }
        return {
            "modelId": self.model,
            "system": [{"text": f"{MARK} system"}],
            "messages": [
                {"role": "user", "content": [{"text": f"{MARK} prompt"}]},
                {"role": "assistant", "content": [{"toolUse": use}]},
                {"role": "user", "content": [{"toolResult": result}]},
            ],
            "toolConfig": {"tools": [{"toolSpec": spec}]},
            "inferenceConfig": {"maxTokens": 64},
            **more,
        }

    @property
    def notices_cuts(self) -> bool:
        return self.asynchronous

    async def ask(self, client: Any, **more: Any) -> Any:
        return await settle(client.converse(**self.arguments(**more)))

    async def stream(self, client: Any, **more: Any) -> Any:
        return (await settle(client.converse_stream(**self.arguments(**more))))["stream"]


async def _lines(kit: Any, client: Any) -> Any:
    answer = await settle(client.invoke_model(**kit.arguments()))
    return b"".join([line async for line in kit.chunks(answer["body"].iter_lines())])


async def _pieces(kit: Any, client: Any) -> Any:
    answer = await settle(client.invoke_model(**kit.arguments()))
    read = b""
    while piece := await settle(answer["body"].read(64)):
        read += piece
    return read


class Invoke(_Bedrock):
    """`invoke_model` and `invoke_model_with_response_stream`, of an Anthropic model."""

    api = "InvokeModel"
    can = _Bedrock.can | {"invoke"}
    counts_early = True
    plain_variants: ClassVar[Any] = {"body by lines": _lines, "body in pieces": _pieces}

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return a request with content everywhere."""
        asked = {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {"place": MARK}}
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": f"{MARK} result"}
        body = {
            "anthropic_version": "bedrock-2023-05-31",
            "max_tokens": 64,
            "system": f"{MARK} system",
            "messages": [
                {"role": "user", "content": f"{MARK} prompt"},
                {"role": "assistant", "content": [asked]},
                {"role": "user", "content": [result]},
            ],
            "tools": [{"name": "find", "input_schema": TOOL_PARAMETERS}],
            **more,
        }
        return {"modelId": self.model, "body": json.dumps(body).encode()}

    async def ask(self, client: Any, **more: Any) -> Any:
        answer = await settle(client.invoke_model(**self.arguments(**more)))
        return json.loads(await settle(answer["body"].read()))

    async def stream(self, client: Any, **more: Any) -> Any:
        answer = await settle(client.invoke_model_with_response_stream(**self.arguments(**more)))
        return answer["body"]
