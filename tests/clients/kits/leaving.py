"""Streams that are left in the middle."""

from __future__ import annotations

import dataclasses
from typing import Any

from clew.testing import Reply

LONG = " ".join(f"zqmark{number}" for number in range(30))


def long_reply(kit: Any) -> Reply:
    """More than is read, and slow enough to be left in the middle."""
    return dataclasses.replace(kit.reply, text=LONG, event_delay=0.002)


def assert_stopped_early(kit: Any, found: Any, *outcomes: str) -> None:
    """The round ended with what was seen until then, and not as a fault of the provider."""
    assert not found.failed
    assert found.told("error.type", "http.response.status_code") == {
        "http.response.status_code": 200
    }
    assert found.told("clew.stream.outcome")["clew.stream.outcome"] in outcomes
    assert found.told("gen_ai.response.finish_reasons") == {}
    assert found.told("gen_ai.response.model") == kit.response_model
    status = found.told("clew.cost.status")["clew.cost.status"]
    if kit.counts_early:
        # The opening report counts the input; what it says of the output is not the end of it.
        assert found.usage["input"] == 100
        assert status in ("partial", "unpriced")
    else:
        assert found.usage == {}
        assert status == "unknown"
