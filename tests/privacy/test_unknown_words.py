"""Words that a provider made up: `_OTHER`, and a keyed digest by which equal ones are equal."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from typing import Any

import httpx
import pytest
from marks import mark, odd
from surroundings import Answers

import clew
from clew.testing import captured


def attributes_of(status: int, answer: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Return the attributes of a call that is answered so."""
    with (
        Answers() as server,
        captured(digest_key="a key", **options) as exporter,
        clew.run("a"),
    ):
        server.status = status
        server.pieces = [httpx.Response(200, json=answer).content]
        httpx.post(f"{server.base_url}/v1/chat/completions", json={"model": "m"})
        return dict(exporter.by_name("chat")[0].attributes or {})


def finished(*reasons: str) -> dict[str, Any]:
    choices = [{"index": at, "finish_reason": reason} for at, reason in enumerate(reasons)]
    return {"choices": choices}


def digests_in(found: dict[str, Any]) -> list[str]:
    """Return the keys of digests of words; the one of the span itself says nothing of them."""
    return [key for key in found if "digest" in key and key != "clew.span.digest"]


def test_an_unknown_finish_reason_is_a_digest() -> None:
    """Known reasons stand beside it as they are; equal unknown ones have equal digests."""
    found = attributes_of(200, finished("stop", mark("a"), mark("b"), mark("a")))
    assert ("stop", "_OTHER", "_OTHER", "_OTHER") == found["gen_ai.response.finish_reasons"]
    digests = found["clew.response.finish_reasons.digests"]
    assert "_OTHER" == digests[0]
    assert digests[1] == digests[3] != digests[2]
    assert found["clew.digest.key_id"]


def test_known_words_have_no_digest() -> None:
    """Nothing is added where nothing is unknown."""
    found = attributes_of(200, finished("stop", "length"))
    assert digests_in(found) == []
    refused = attributes_of(429, {"error": {"type": "rate_limit_error", "message": mark("m")}})
    assert "rate_limit_error" == refused["error.type"]
    assert digests_in(refused) == []


@pytest.mark.parametrize("status", [200, 400])
def test_an_error_type_that_is_no_identifier_is_a_digest(status: int) -> None:
    """The status, or `_OTHER`, stands for it; its text is nowhere."""
    found = attributes_of(status, {"error": {"type": odd("type"), "message": mark("message")}})
    assert ("400" if status == 400 else "_OTHER") == found["error.type"]
    assert 64 == len(found["clew.error.type.digest"])


def test_at_none_there_are_no_digests() -> None:
    """The level forbids them."""
    found = attributes_of(200, finished(mark("a")), capture="none")
    assert ("_OTHER",) == found["gen_ai.response.finish_reasons"]
    assert digests_in(found) == []
