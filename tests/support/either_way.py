"""What is done in one way in synchronous code and in another in asynchronous code."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any


async def settle(value: Any) -> Any:
    """Await what is awaitable."""
    return await value if inspect.isawaitable(value) else value


async def items(stream: Any) -> AsyncIterator[Any]:
    """Go through what can be iterated, in one way or the other."""
    if hasattr(stream, "__aiter__"):
        async for item in stream:
            yield item
    else:
        for item in stream:
            yield item
