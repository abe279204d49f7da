"""The logical entry of the SDKs that share one generated base client (openai, anthropic, ...).

Their `SyncAPIClient.request` and `AsyncAPIClient.request` send one request for each attempt; what
is sent inside one call of `request` is one round. An SDK without them is not grouped: each
attempt is then a round of its own.
"""

from __future__ import annotations

from typing import Any

from clew.exchange import LogicalCall
from clew.pipeline import runtime as _runtime

MODULES = (
    "openai._base_client",
    "anthropic._base_client",
    "groq._base_client",
    "cerebras.cloud.sdk._base_client",
    "together._base_client",
)
"""Modules with a base client of this kind."""


def _request(wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.get() is None:
        return wrapped(*args, **kwargs)
    call = LogicalCall()
    error: BaseException | None = None
    try:
        return wrapped(*args, **kwargs)
    except BaseException as raised:
        error = raised
        raise
    finally:
        call.finish(error)


async def _arequest(
    wrapped: Any, _instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if _runtime.get() is None:
        return await wrapped(*args, **kwargs)
    call = LogicalCall()
    error: BaseException | None = None
    try:
        return await wrapped(*args, **kwargs)
    except BaseException as raised:
        error = raised
        raise
    finally:
        call.finish(error)


PATCHES: tuple[tuple[str, str, Any], ...] = (
    ("SyncAPIClient", "request", _request),
    ("AsyncAPIClient", "request", _arequest),
)
