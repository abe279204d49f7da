"""Results of Anthropic message batches.

https://docs.anthropic.com/en/api/retrieving-message-batch-results: JSON lines, one a request, in
any order. Each is a message of its own, with usage at the batch rates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from clew.dialects._errors import error_in
from clew.dialects._read import EMPTY, decode, loads, text
from clew.dialects.anthropic_messages import Message, message_facts
from clew.facts import ErrorFacts, ResponseFacts


class BatchResult(NamedTuple):
    """One result of a batch."""

    custom_id: str | None
    outcome: str | None
    """`succeeded`, `errored`, `canceled` or `expired`."""
    facts: ResponseFacts


class _Result(Struct):
    type: str | None = None
    message: Message | None = None
    error: msgspec.Raw = EMPTY


class _Line(Struct):
    custom_id: str | None = None
    result: _Result | None = None


_LINE: Final = msgspec.json.Decoder(_Line)


def batch_results(body: bytes) -> Iterator[BatchResult]:
    """Read the results of a batch; lines that cannot be read are passed over."""
    for line in body.splitlines():
        entry = decode(_LINE, line) if line.strip() else None
        if entry is None or entry.result is None:
            continue
        result = entry.result
        if result.message is not None:
            facts = message_facts(result.message)
        else:
            facts = ResponseFacts(error=_error(result))
        yield BatchResult(text(entry.custom_id), text(result.type), facts)


def _error(result: _Result) -> ErrorFacts:
    """The error stands inside an error response inside the result."""
    value = loads(result.error)
    inner = value.get("error") if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return error_in(inner if isinstance(inner, dict) else value)
