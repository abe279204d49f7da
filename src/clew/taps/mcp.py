"""The tap on MCP clients: tool calls of a `ClientSession`, and what travels in `_meta`.

The SDK itself writes the trace context into each request's `_meta`, and its server reads it there,
so a server's spans hang under their caller (https://modelcontextprotocol.io, SEP-414). Here the
rules of the house are added: only `traceparent` and `tracestate` are written, never baggage; over
HTTP they reach loopback hosts and those that the operator named. Other entries of `_meta` stay.
"""

from __future__ import annotations

import contextvars
import importlib.util
import ipaddress
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlsplit

from clew import context
from clew._guard import guard, warn_once
from clew.exchange import TRACE_HEADERS
from clew.pipeline import runtime as _runtime
from clew.tools import ToolCall

_DISPATCHER = "mcp.shared.jsonrpc_dispatcher"
_REQUEST_TIMEOUT = (408, -32001)
"""Codes with which the SDK says that a request took too long (its first and second version)."""

_answering: contextvars.ContextVar[bool] = contextvars.ContextVar("clew_answering", default=False)
"""True while a server asks its client something: where that client is, the server cannot tell."""

_unguarded = False
"""True when an HTTP transport cannot be looked at: then nothing is written at all."""


async def _call_tool(
    wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record a tool call, unless it is being recorded further out under the same name."""
    name = args[0] if args else kwargs.get("name")
    if _runtime.get() is None or not isinstance(name, str):
        return await wrapped(*args, **kwargs)
    node = context.current_node()
    if isinstance(node, ToolCall) and node.name == name:
        result = await wrapped(*args, **kwargs)
        _judge(node, result)
        return result
    arguments = args[1] if len(args) > 1 else kwargs.get("arguments")
    async with ToolCall(name, arguments=arguments) as call:
        try:
            result = await wrapped(*args, **kwargs)
        except Exception as error:
            if _code_of(error) in _REQUEST_TIMEOUT:
                call.outcome = "timeout"
            raise
        _judge(call, result)
    return result


def _judge(call: ToolCall, result: Any) -> None:
    """Take note of what a tool's result says."""
    with guard("look at a tool's result"):
        # Snake case since the second version of the SDK.
        failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
        if call.outcome is None:
            if failed is True:
                call.outcome = "error"
            elif type(result).__name__ == "InputRequiredResult":
                call.outcome = "awaiting_input"
        if call.result_bytes is None:
            parts: list[Any] = getattr(result, "content", None) or []
            texts = [getattr(part, "text", None) for part in parts]
            if parts and all(isinstance(text, str) for text in texts):
                call.result_bytes = sum(len(str(text).encode()) for text in texts)


def _code_of(error: Exception) -> Any:
    """Return the JSON-RPC code of the SDK's exception."""
    return getattr(getattr(error, "error", None), "code", None)


async def _send(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Note whether a request is sent in answer to one."""
    token = _answering.set(kwargs.get("_related_request_id") is not None)
    try:
        return await wrapped(*args, **kwargs)
    finally:
        _answering.reset(token)


def _inject(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Write the trace context into `_meta`, and nothing else that a propagator may write."""
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    with guard("write the trace context into _meta"):
        meta: dict[str, Any] = args[0] if args else kwargs["meta"]
        meta.pop("baggage", None)
        carrier: dict[str, Any] = {}
        if not _unguarded and not _answering.get():
            wrapped(carrier)
        for name in ("traceparent", "tracestate"):
            if name in carrier:
                meta[name] = carrier[name]
    return None


def _over_http(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take the trace context out of a message that goes to a host which may not see it."""
    runtime = _runtime.get()
    message = kwargs.get("json")
    if runtime is not None and isinstance(message, dict):
        with guard("look at a message"):
            url = args[2] if len(args) > 2 else kwargs["url"]
            host = urlsplit(str(url)).hostname or ""
            kept = _is_loopback(host) or host in runtime.settings.propagate_to
            _strip(cast("dict[str, Any]", message), ("baggage",) if kept else TRACE_HEADERS)
    return wrapped(*args, **kwargs)


def _strip(message: dict[str, Any], names: Collection[str]) -> None:
    params: dict[str, Any] = message.get("params") or {}
    meta: Any = params.get("_meta")
    if not isinstance(meta, dict) or not any(name in meta for name in names):
        return
    entries = cast("dict[str, Any]", meta).items()
    kept = {name: value for name, value in entries if name not in names}
    params["_meta"] = kept
    if not kept:
        del params["_meta"]
    if not params:
        del message["params"]


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_TOOLS = (("ClientSession", "call_tool", _call_tool),)
_WIRE: Mapping[str, tuple[tuple[str, str, Any], ...]] = {
    _DISPATCHER: (
        ("", "inject_trace_context", _inject),
        ("JSONRPCDispatcher", "send_raw_request", _send),
    ),
    "mcp.client.streamable_http": (("", "stream_within_origin", _over_http),),
    "mcp.client.sse": (("", "request_within_origin", _over_http),),
}


def patches(module: ModuleType) -> tuple[tuple[str, str, Any], ...]:
    """Return what is wrapped in a module: class (none for a function), name, wrapper."""
    global _unguarded  # noqa: PLW0603 - what is true of the SDK is true in the whole process
    name = module.__name__
    if name == "mcp.client.session":
        return _TOOLS
    if importlib.util.find_spec(_DISPATCHER) is None:
        return ()  # the SDK's first version writes no trace context
    wanted = _WIRE[name]
    if name != _DISPATCHER and not hasattr(module, wanted[0][1]):
        _unguarded = True
        warn_once(
            f"guard {name}",
            "%s sends in a way that Clew does not know: no trace context is put into MCP's _meta.",
            name,
        )
        return ()
    return wanted
