"""The logical entries of SDKs: the one method that sends a request, and sends it again.

What is sent inside one call of such a method is one round, however many attempts it took. An SDK
that is not in the table, or whose internals have moved, is not grouped: each attempt is then a
round of its own, and nothing else is lost.

What a gate has denied leaves the SDK through its entry as `PolicyDenied`, and nothing was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.attempts import LogicalCall, is_sent_again
from clew.governance.passages import Refusal
from clew.pipeline import runtime as _runtime


def _entry(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _runtime.active is None or is_sent_again(instance):
        return wrapped(*args, **kwargs)
    call = LogicalCall(instance)
    error: BaseException | None = None
    try:
        return wrapped(*args, **kwargs)
    except Refusal as refusal:
        error = refusal.error
        raise error from None
    except BaseException as raised:
        error = raised
        raise
    finally:
        call.finish(error)


async def _aentry(
    wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if _runtime.active is None or is_sent_again(instance):
        return await wrapped(*args, **kwargs)
    call = LogicalCall(instance)
    error: BaseException | None = None
    try:
        return await wrapped(*args, **kwargs)
    except Refusal as refusal:
        error = refusal.error
        raise error from None
    except BaseException as raised:
        error = raised
        raise
    finally:
        call.finish(error)


Patches = tuple[tuple[str, str, Any], ...]

_STAINLESS: Patches = (
    ("SyncAPIClient", "request", _entry),
    ("AsyncAPIClient", "request", _aentry),
)
_SPEAKEASY: Patches = (
    ("BaseSDK", "do_request", _entry),
    ("BaseSDK", "do_request_async", _aentry),
)

PATCHES: Mapping[str, Patches] = {
    "openai._base_client": _STAINLESS,
    "anthropic._base_client": _STAINLESS,
    "groq._base_client": _STAINLESS,
    "cerebras.cloud.sdk._base_client": _STAINLESS,
    "together._base_client": _STAINLESS,
    "writerai._base_client": _STAINLESS,
    "mistralai.client.basesdk": _SPEAKEASY,
    "mistralai.azure.client.basesdk": _SPEAKEASY,
    "mistralai.gcp.client.basesdk": _SPEAKEASY,
    "mistralai.basesdk": _SPEAKEASY,
    "openrouter.basesdk": _SPEAKEASY,
    "google.genai._api_client": (
        ("BaseApiClient", "_request", _entry),
        ("BaseApiClient", "_async_request", _aentry),
    ),
    "cohere.core.http_client": (
        ("HttpClient", "request", _entry),
        ("AsyncHttpClient", "request", _aentry),
    ),
    "botocore.client": (("BaseClient", "_make_api_call", _entry),),
    "aiobotocore.client": (("AioBaseClient", "_make_api_call", _aentry),),
}
"""What is wrapped in which module: class, method, wrapper."""
