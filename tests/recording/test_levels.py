"""What is recorded at which level, and who switches recording on."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

from recorded import Start, Wire, send
from recorder_kit import BODY, MARK, URL, bytes_of, own_threads
from wires import ANSWER, CHAT_ANSWER

import clew
from clew.prompts import Prompt


def test_nothing_is_recorded_unless_somebody_wants_it(start: Start) -> None:
    """By default there is no recorder, no thread, no file: not even the folder."""
    before = own_threads()
    session = start(prompt_capture=None)
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert session.runtime.recorder is None
    assert [] == session.rows()
    assert not session.folder.exists()
    assert own_threads() - before == set()


def test_at_none_there_is_no_row(start: Start) -> None:
    """The level of a run or a block keeps its calls out; others are recorded."""
    session = start()
    with clew.run("a", capture="none"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    with clew.capture("none"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert [None] == [row.agent for row in session.rows()]


def test_at_metadata_there_are_sizes_and_tokens_and_no_content(start: Start) -> None:
    """A row with block map, sizes, tokens; no payload file; no word of the content anywhere."""
    session = start(capture="metadata")
    prompt = Prompt.of(identity=f"You are {MARK}.", tone="Grüße.")
    body = {**BODY, "messages": [{"role": "system", "content": str(prompt)}, BODY["messages"][1]]}
    wire = Wire(CHAT_ANSWER)
    with clew.run("triage", tenant="acme"):
        send(URL, wire, json=body)
    row, record = session.only()
    size = len(prompt.encode())
    assert ("metadata", None, 0) == (row.level, row.path, row.payload_bytes)
    assert (size, len(prompt), 1, 1) == (
        *(row.system_bytes, row.system_chars, row.history_length, row.tool_count),
    )
    assert [("identity", 0), ("tone", 19)] == [(each.id, each.start) for each in row.blocks]
    assert size == row.blocks[-1].end
    assert (100, 20, 64, 8) == (
        *(row.input_tokens, row.output_tokens, row.cache_read_tokens, row.reasoning_tokens),
    )
    assert row.cost_usd is not None
    assert len(wire.bodies[0]) == row.request_bytes
    assert (None, None, ()) == (record.system.text, record.messages, record.response.tool_calls)
    clew.shutdown()
    everything = bytes_of(session.folder)
    assert b"triage" in everything
    assert [] == [word for word in (MARK, "example.org", ANSWER[:9]) if word.encode() in everything]


def test_at_redacted_secrets_are_masked_in_the_file_too(start: Start) -> None:
    """Content is there, without what looks like a secret, every text capped."""
    session = start(capture="redacted")
    long = "word " * 1000
    body = {**BODY, "messages": [*BODY["messages"], {"role": "user", "content": long}]}
    send(URL, Wire(CHAT_ANSWER), json=body)
    _, record = session.only()
    assert record.messages is not None
    asked = [message["parts"][0]["content"] for message in record.messages]
    assert f"Ask {MARK} at ***" == asked[0]
    assert f"{long[:2000]}…[cut: 5000 characters]" == asked[1]
    clew.shutdown()
    assert b"example.org" not in bytes_of(session.folder)


def test_a_secret_in_the_seam_of_two_blocks_is_masked(start: Start) -> None:
    """What is only seen in the whole prompt is masked there, and the map is given up."""
    session = start(capture="redacted")
    first, second = "The key: sk-abcdefgh", "ijklmnopqrstuvwxyz123456"
    prompt = Prompt.concat(first, second)
    message = {"role": "system", "content": str(prompt)}
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "messages": [message]})
    row, record = session.only()
    assert ("The key: ***", ()) == (record.system.text, record.system.blocks)
    assert len(prompt.encode()) == row.system_bytes


def test_a_masked_prompt_keeps_its_blocks_in_place(start: Start) -> None:
    """The offsets in the file are into the text in the file; the row has those of the original."""
    session = start(capture="redacted")
    prompt = Prompt.of(contact="Write to a@example.org.", tone="Grüße.")
    message = {"role": "system", "content": str(prompt)}
    send(URL, Wire(CHAT_ANSWER), json={**BODY, "messages": [message]})
    row, record = session.only()
    assert record.system.text is not None
    data = record.system.text.encode()
    texts = [data[block.start : block.end].decode() for block in record.system.blocks]
    assert ["Write to ***.", "\n\nGrüße."] == texts
    whole = prompt.encode()
    assert ["Write to a@example.org.", "\n\nGrüße."] == [
        whole[block.start : block.end].decode() for block in row.blocks
    ]


def test_content_to_store_is_a_place_for_content(start: Start) -> None:
    """Naming the store switches recording on; nothing goes onto spans by it."""
    session = start(prompt_capture=None, content_to=frozenset({"store"}))
    with clew.run("a"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    _, record = session.only()
    assert f"You are {MARK}." == record.system.text
    keys = {key for span in session.exporter.spans for key in span.attributes or {}}
    assert not {key for key in keys if key.startswith(("gen_ai.input", "gen_ai.system"))}


def test_off_wins_over_a_place(start: Start) -> None:
    """Forced off is off, whatever else is said."""
    session = start(prompt_capture=False, content_to=frozenset({"store", "spans"}))
    send(URL, Wire(CHAT_ANSWER), json=BODY)
    assert [] == session.rows()


def test_spans_and_store_at_once(start: Start) -> None:
    """Both places get the content of a call."""
    session = start(content_to=frozenset({"spans"}))
    with clew.run("a"):
        send(URL, Wire(CHAT_ANSWER), json=BODY)
    _, record = session.only()
    assert ANSWER == record.response.text
    (span,) = session.exporter.by_name("chat")
    assert ANSWER in str((span.attributes or {})["gen_ai.output.messages"])
