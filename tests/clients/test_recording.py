"""Recording through every SDK: what was sent and came back is on the disk, and nobody notices."""

from __future__ import annotations

import hmac
import json
from pathlib import Path
from typing import Any

import pytest
from kits.base import MARK
from kits.comparing import plain, streamed

from clew import _guard
from clew.store.prompt_index import PromptReader
from clew.store.prompt_records import EVERYTHING, PromptFilter, PromptRecord, PromptRow
from clew.store.records import Page

PLACE = f"{MARK} system"


def recorded(folder: Path) -> list[tuple[PromptRow, PromptRecord]]:
    reader = PromptReader(folder)
    try:
        rows = reader.records(PromptFilter(), Page(), EVERYTHING).records
        return [(row, reader.record(row)) for row in rows]
    finally:
        reader.close()


async def is_recorded(compare: Any, scenario: Any, folder: Path) -> None:
    """Make a call without and with recording: equal for the caller, and whole on the disk."""
    key = "a key of the tests"
    settings = {
        "capture": "full", "prompt_capture": True, "data_dir": folder, "digest_key": key,
    }  # fmt: skip
    found = await compare(scenario, settings=settings)
    assert found.error is None
    # Another call was made, to see whether the connection was given back.
    _, (row, record) = recorded(folder)
    told = found.round.attributes
    assert row.span_id == f"{found.round.context.span_id:016x}"
    assert (row.status, row.partial, row.attempts) == ("ok", False, 1)
    assert record.system.text == PLACE
    # Whatever field it was sent in, the digest is that of the text on the wire.
    assert PLACE.encode() in found.requests[0][3]
    assert record.system.digest == hmac.digest(key.encode(), PLACE.encode(), "sha256").hex()
    assert record.messages is not None
    assert MARK in json.dumps(record.messages)
    assert row.request_bytes == told.get("clew.request.bytes")
    # What Cohere's models say before they call tools is a plan, not an answer.
    assert MARK in (record.response.text or record.response.thinking or "")
    assert [(call.name, call.arguments) for call in record.response.tool_calls] == [
        ("find", {"place": f"{MARK} argument"})
    ]
    assert record.usage is not None
    assert record.usage.input_tokens == told["gen_ai.usage.input_tokens"]
    assert record.usage.output_tokens == told["gen_ai.usage.output_tokens"]
    assert dict(_guard.failures) == {}


@pytest.mark.kits("stainless")
@pytest.mark.parametrize("scenario", [plain, streamed])
async def test_openai_and_anthropic_are_recorded(compare: Any, scenario: Any, tmp_path: Path):
    """System prompt, messages, answer, tokens; the caller and the server see no difference."""
    await is_recorded(compare, scenario, tmp_path / "data")


@pytest.mark.kits("sdks")
@pytest.mark.parametrize("scenario", [plain, streamed])
async def test_the_other_sdks_are_recorded(compare: Any, scenario: Any, tmp_path: Path):
    """The same for each of the others."""
    await is_recorded(compare, scenario, tmp_path / "data")


LATER = {"role": "user", "content": f"{MARK} said later"}


async def is_as_it_was_sent(
    kit: Any, compare: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change what a call was given while its answer streams: the record is of what was sent."""
    arguments = type(kit).arguments
    given: dict[str, Any] = {}
    monkeypatch.setattr(type(kit), "arguments", lambda _, **more: {**given, **more})

    async def scenario(session: Any) -> Any:
        given.clear()
        given.update(arguments(kit))
        stream = await kit.stream(session.client)
        read = await session.read(stream, limit=1)
        given["messages"][0]["content"] = LATER["content"]
        given["messages"].append(LATER)
        read += await session.read(stream)
        given.update(arguments(kit))
        return read

    settings = {"capture": "full", "prompt_capture": True, "data_dir": folder}
    found = await compare(scenario, settings=settings)
    assert found.error is None
    _, (row, record) = recorded(folder)
    assert row.model == kit.model
    assert record.system.text == PLACE
    assert "later" not in json.dumps(record.messages)
    sent = json.loads(found.requests[0][3])
    assert "later" not in json.dumps(sent)
    assert dict(_guard.failures) == {}


@pytest.mark.kits("stainless")
async def test_what_openai_and_anthropic_were_given_may_change(
    kit: Any, compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An application that goes on with its list of messages changes nothing that is recorded."""
    await is_as_it_was_sent(kit, compare, tmp_path / "data", monkeypatch)


@pytest.mark.kits("sdks", having="lists")
async def test_what_the_other_sdks_were_given_may_change(
    kit: Any, compare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same for each of the others."""
    await is_as_it_was_sent(kit, compare, tmp_path / "data", monkeypatch)
