"""The tap on MCP: tool calls are tool spans, and what travels in `_meta`, and where to."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan
from taken_off import check_taken_off

import clew
from clew.settings import Settings
from clew.testing import CaptureExporter

pytest.importorskip("mcp.shared.jsonrpc_dispatcher")
import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

SERVER = """
import asyncio, json, sys
import clew
from clew.testing import CaptureExporter
from mcp.server.mcpserver import Context, MCPServer

exporter = CaptureExporter()
clew.configure("server", span_exporters=[exporter])
clew.instrument()
server = MCPServer("test")

@server.tool()
async def look(ctx: Context) -> str:
    return json.dumps(dict(ctx.request_context.meta or {}))

@server.tool()
async def fail() -> str:
    raise ValueError("SECRET")

@server.tool()
async def wait() -> str:
    await asyncio.sleep(30)
    return "late"

@server.tool()
async def report() -> str:
    from clew.pipeline import runtime
    runtime.get().worker.flush(5)
    return json.dumps([
        [span.name, format(span.context.trace_id, "032x"), format(span.parent.span_id, "016x")]
        for span in exporter.spans if span.parent
    ])

kind, port = sys.argv[1], int(sys.argv[2])
if kind == "stdio":
    server.run("stdio")
else:
    import uvicorn
    app = server.sse_app() if kind == "sse" else server.streamable_http_app()
    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print(self.servers[0].sockets[0].getsockname()[1], flush=True)
    Server(uvicorn.Config(app, port=port, log_level="critical")).run()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


@pytest.fixture(params=["stdio", "http", "sse"])
def transport(request: pytest.FixtureRequest, script: Path) -> Iterator[Any]:
    """Give an async context manager of the streams of a server in another process."""
    if request.param == "stdio":
        parameters = StdioServerParameters(
            command=sys.executable, args=[str(script), "stdio", "0"], env={"PATH": ""}
        )
        with Path("/dev/null").open("w") as quiet:
            yield stdio_client(parameters, errlog=quiet)
        return
    import subprocess

    with subprocess.Popen(
        [sys.executable, str(script), request.param, "0"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        url = f"http://127.0.0.1:{port}"
        try:
            if request.param == "sse":
                yield sse_client(f"{url}/sse")
            else:
                yield streamable_http_client(f"{url}/mcp")
        finally:
            process.terminate()


@asynccontextmanager
async def connected(transport: Any) -> AsyncIterator[ClientSession]:
    async with transport as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield session


def text(result: Any) -> Any:
    return json.loads(result.content[0].text)


def tools(exported: CaptureExporter) -> list[ReadableSpan]:
    return list(exported.by_name("execute_tool"))


async def test_a_tool_call_is_a_tool_span(exported: CaptureExporter, transport: Any) -> None:
    """Calls are tool spans of the run, whose server spans hang under their own caller."""
    clew.instrument()
    token = context.attach(baggage.set_baggage("user.id", "SECRET"))
    async with connected(transport) as session:
        await session.list_tools()
        with clew.run("triage") as run:
            first = text(await session.call_tool("look", {}, meta={"mine": "kept"}))
            with clew.tool("outer"):
                second = text(await session.call_tool("look", {}))
            report = text(await session.call_tool("report", {}))
    context.detach(token)
    assert first["mine"] == "kept"
    assert "baggage" not in {*first, *second}
    looks = [one for one in tools(exported) if one.name == "execute_tool look"]
    attributes = [dict(one.attributes or {}) for one in looks]
    assert [one["clew.tool.outcome"] for one in attributes] == ["ok", "ok"]
    assert [one["gen_ai.tool.name"] for one in attributes] == ["look", "look"]
    (outer,) = exported.by_name("execute_tool outer")
    parents = [one.parent.span_id for one in looks if one.parent]
    assert parents == [run.span.get_span_context().span_id, outer.context.span_id]
    sent = [one for one in exported.spans if one.name.startswith("MCP send tools/call")]
    by_parent = {one.parent.span_id: one.context.span_id for one in sent if one.parent}
    ours = [by_parent[one.context.span_id] for one in looks]
    served = [one for one in report if one[0].startswith("tools/call")]
    assert [trace for _, trace, _ in served] == [run.trace_id] * 2
    assert [int(parent, 16) for _, _, parent in served] == ours
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_tool_that_fails(exported: CaptureExporter, transport: Any) -> None:
    """What the server calls an error is one, without its text; the caller gets the result."""
    clew.instrument()
    async with connected(transport) as session:
        with clew.run("triage"):
            result = await session.call_tool("fail", {})
    assert result.is_error
    (span,) = tools(exported)
    found = dict(span.attributes or {})
    assert (found["clew.tool.outcome"], found["error.type"]) == ("error", "error")
    assert found["clew.tool.result.bytes"] == len(result.content[0].text)
    assert b"SECRET" not in exported.otlp_bytes()


async def test_a_tool_that_takes_too_long(exported: CaptureExporter, script: Path) -> None:
    """The SDK's timeout passes on and is told as such."""
    from mcp.shared.exceptions import MCPError

    clew.instrument()
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(script), "stdio", "0"], env={"PATH": ""}
    )
    async with connected(stdio_client(parameters)) as session:
        with clew.run("triage"), pytest.raises(MCPError):
            await session.call_tool("wait", {}, read_timeout_seconds=0.2)
    (span,) = tools(exported)
    assert (span.attributes or {})["clew.tool.outcome"] == "timeout"


async def test_a_tool_that_is_recorded_already(exported: CaptureExporter, script: Path) -> None:
    """A tool span of the same name around the call is the tool span; it learns the outcome."""
    clew.instrument()
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(script), "stdio", "0"], env={"PATH": ""}
    )
    async with connected(stdio_client(parameters)) as session:
        with clew.run("triage"), clew.tool("fail", call_id="call_1"):
            await session.call_tool("fail", {})
    (span,) = tools(exported)
    found = dict(span.attributes or {})
    assert (found["clew.tool.outcome"], found["gen_ai.tool.call.id"]) == ("error", "call_1")


class Remote:
    """An MCP server on a host elsewhere, as far as the client can tell."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def answer(self, request: Any) -> Any:
        if request.method != "POST":
            return httpx2.Response(405)
        message = json.loads(request.content)
        self.messages.append(message)
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "remote", "version": "1"},
            },
            "tools/call": {"content": [{"type": "text", "text": "ok"}]},
            "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
        }
        if "id" not in message:
            return httpx2.Response(202)
        body = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        return httpx2.Response(200, json=body)

    def transport(self) -> Any:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer))
        return streamable_http_client("http://mcp.example.com/mcp", http_client=client)

    def params(self, method: str) -> Any:
        return [one.get("params") for one in self.messages if one["method"] == method]


async def test_trace_context_stays_in_the_house(exported: CaptureExporter) -> None:
    """A host elsewhere sees none, whoever put it there; other entries and no params are kept."""
    clew.instrument()
    remote = Remote()
    token = context.attach(baggage.set_baggage("user.id", "SECRET"))
    async with connected(remote.transport()) as session:
        with clew.run("triage"):
            await session.list_tools()
            await session.call_tool("look", {"a": 1})
            mine: Any = {"mine": "kept", "traceparent": "SECRET", "progressToken": "p"}
            await session.call_tool("look", {"a": 1}, meta=mine)
    context.detach(token)
    first, second = remote.params("tools/call")
    assert first == {"name": "look", "arguments": {"a": 1}}
    assert second["_meta"] == {"mine": "kept", "progressToken": "p"}
    assert remote.params("tools/list") == [None]
    assert "SECRET" not in json.dumps(remote.messages)
    assert len(tools(exported)) == 2


async def test_trace_context_goes_where_the_operator_lets_it() -> None:
    """A host on the list sees the trace context; nobody sees baggage."""
    settings = Settings.from_environment(propagate_to=frozenset({"mcp.example.com"}))
    clew.configure("x", settings=settings, span_exporters=[CaptureExporter()])
    clew.instrument()
    remote = Remote()
    token = context.attach(baggage.set_baggage("user.id", "SECRET"))
    async with connected(remote.transport()) as session:
        with clew.run("triage") as run:
            await session.call_tool("look", {})
    context.detach(token)
    (sent,) = remote.params("tools/call")
    assert list(sent["_meta"]) == ["traceparent"]
    assert run.trace_id in sent["_meta"]["traceparent"]


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://mcp.example.com/messages", {"mine": 1}),
        ("http://localhost:1/messages", {"mine": 1, "traceparent": "t"}),
        ("http://[::1]:1/messages", {"mine": 1, "traceparent": "t"}),
        ("http://127.0.0.9/messages", {"mine": 1, "traceparent": "t"}),
    ],
)
async def test_the_older_transport_obeys_too(
    exported: CaptureExporter, url: str, kept: Any
) -> None:
    """Messages posted by the SSE transport lose what their host may not see."""
    import mcp.client.sse

    clew.instrument()
    sent: list[Any] = []

    def answer(request: Any) -> Any:
        sent.append(json.loads(request.content))
        return httpx2.Response(202)

    meta = {"mine": 1, "traceparent": "t", "baggage": "SECRET"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        await mcp.client.sse.request_within_origin(client, "POST", url, json=message)
    assert sent[0]["params"]["_meta"] == kept


async def test_without_configuration_nothing_changes() -> None:
    """Instrumented but not configured, the SDK does what it does."""
    clew.instrument()
    remote = Remote()
    token = context.attach(baggage.set_baggage("mine", "1"))
    async with connected(remote.transport()) as session:
        await session.call_tool("look", {})
    context.detach(token)
    (sent,) = remote.params("tools/call")
    assert sent["_meta"]["baggage"] == "mine=1"


def test_taking_the_tap_off_restores_everything() -> None:
    """After `uninstrument` the SDK is as it came."""
    import mcp.client.sse
    import mcp.client.streamable_http
    import mcp.shared.jsonrpc_dispatcher

    check_taken_off(
        (ClientSession, "call_tool"),
        (mcp.client.sse, "request_within_origin"),
        (mcp.client.streamable_http, "stream_within_origin"),
        (mcp.shared.jsonrpc_dispatcher, "inject_trace_context"),
    )


async def test_a_transport_that_cannot_be_looked_at_gets_nothing(
    exported: CaptureExporter, monkeypatch: pytest.MonkeyPatch, script: Path
) -> None:
    """When the SDK's HTTP transport has changed, no trace context is written at all."""
    import mcp.client.sse

    from clew.taps import mcp as tap

    monkeypatch.setattr(tap, "_unguarded", False)
    monkeypatch.delattr(mcp.client.sse, "request_within_origin")
    clew.instrument()
    parameters = StdioServerParameters(
        command=sys.executable, args=[str(script), "stdio", "0"], env={"PATH": ""}
    )
    async with connected(stdio_client(parameters)) as session:
        with clew.run("triage"):
            meta = text(await session.call_tool("look", {}))
    assert meta == {}
