"""Answers that a cache gives again cost nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from bill_answers import (
    CHAT,
    MESSAGES,
    RESPONSES,
    Bill,
    chat,
)
from billing import PER, Answering

import clew
from clew import semconv as s
from clew.testing import CaptureExporter


class Caching(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Gives each request's answer again, and says so as a cache in the client or a gateway does."""

    def __init__(self, says: str) -> None:
        self.says = says
        self.sync, self.asynchronous = httpx.HTTPTransport(), httpx.AsyncHTTPTransport()
        self.kept: dict[bytes, tuple[httpx.Headers, bytes]] = {}

    def again(self, request: httpx.Request) -> httpx.Response | None:
        if request.content not in self.kept:
            return None
        headers, body = self.kept[request.content]
        more: dict[str, Any] = {}
        if self.says.startswith("extension "):
            more = {"extensions": {self.says.split()[1]: True}}
        else:
            name, _, value = self.says.partition(": ")
            headers = httpx.Headers({**headers, name: value})
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(body), **more)

    def keep(self, request: httpx.Request, response: httpx.Response, body: bytes) -> httpx.Response:
        headers = httpx.Headers({"content-type": response.headers["content-type"]})
        self.kept[request.content] = (headers, body)
        if ": " in self.says:
            headers = httpx.Headers({**headers, self.says.partition(": ")[0]: "MISS"})
        return httpx.Response(
            200, headers=headers, stream=httpx.ByteStream(body), extensions={"from_cache": False}
        )

    def close(self) -> None:
        self.sync.close()

    async def aclose(self) -> None:
        await self.asynchronous.aclose()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        found = self.again(request)
        if found is not None:
            return found
        response = self.sync.handle_request(request)
        return self.keep(request, response, response.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        found = self.again(request)
        if found is not None:
            return found
        response = await self.asynchronous.handle_async_request(request)
        return self.keep(request, response, await response.aread())


@pytest.mark.parametrize("twin", ["sync", "async"])
@pytest.mark.parametrize("how", ["plain", "streamed"])
@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
@pytest.mark.parametrize(
    "says",
    [
        "extension hishel_from_cache", "extension from_cache", "cf-aig-cache-status: HIT",
        "x-portkey-cache-status: SEMANTIC HIT", "helicone-cache: HIT",
    ],
)  # fmt: skip
async def test_an_answer_from_a_cache_is_not_billed_again(
    says: str, path: str, how: str, twin: str, exporter: CaptureExporter, server: Answering
) -> None:
    """The second of two equal calls is marked, costs nothing and has no tokens; the run has one."""
    usage = chat(100, 20) if path == CHAT else {"input_tokens": 100, "output_tokens": 20}
    bill = Bill(path, usage, {}, None)
    server.gives(bill, how)
    body = {"model": "model-x", "messages": [], "stream": how == "streamed"}
    url = server.base_url + path
    with clew.run("desk"):
        if twin == "sync":
            with httpx.Client(transport=Caching(says)) as client:
                for _ in range(2):
                    with client.stream("POST", url, json=body) as response:  # noqa: ASYNC212
                        assert b"".join(response.iter_raw()) == server.body
        else:
            async with httpx.AsyncClient(transport=Caching(says)) as client:
                for _ in range(2):
                    async with client.stream("POST", url, json=body) as response:
                        assert (
                            b"".join([each async for each in response.aiter_raw()]) == server.body
                        )
    clew.shutdown()
    first, second = [dict(each.attributes or {}) for each in exporter.by_name("chat")]
    assert s.RESPONSE_CACHED not in first
    assert (first[s.USAGE_INPUT], first[s.USAGE_OUTPUT]) == (100, 20)
    assert first[s.COST_USD] == pytest.approx(100 * 2 * PER + 20 * 8 * PER)
    assert second[s.RESPONSE_CACHED] is True
    assert (second[s.USAGE_INPUT], second[s.USAGE_OUTPUT]) == (0, 0)
    assert (second[s.COST_USD], second[s.COST_STATUS]) == (0, "priced")
    (root,) = exporter.by_name("invoke_agent")
    stated = dict(root.attributes or {})
    assert (stated["clew.run.rounds"], stated["clew.run.rounds_without_usage"]) == (2, 0)
    assert (stated["clew.run.usage.input_tokens"], stated["clew.run.usage.output_tokens"]) == (
        100,
        20,
    )
    assert stated["clew.run.cost.usd"] == first[s.COST_USD]
    assert stated["clew.run.cost.status"] == "priced"
