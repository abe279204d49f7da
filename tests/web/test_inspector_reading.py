"""The inspector's reading column: prompt, tools, messages and answers, whole or said to be gone."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re

import pytest
import sample_calls as calls
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from page_text import words
from shop import Shop

from clew.sources.wording import UNKNOWN
from clew.store.prompt_records import RecordedBlock, RecordedError, RecordedResponse, SystemPrompt
from clew.web import parts, prompt_words


def test_blocks_are_cut_by_bytes(shop: Shop) -> None:
    """Umlauts, Greek, Chinese and emoji before a block do not move it."""
    row, record = calls.call()
    shop.save((row, record))
    page = shop.http.get(f"/prompts/{row.request_id}").text
    texts = re.findall(r"<pre>\n(.*?)</pre>", page, re.DOTALL)
    expected = [each[4] for each in calls.PROMPT if each[4].strip()]
    assert [words(each) for each in expected] == [words(each) for each in texts[: len(expected)]]
    shown = words(page)
    assert "identity_context identity · epoch · file" in shown
    assert "1 blank block not listed; counted in the shares." in shown
    found = parts.parts_of(row, record)
    assert 1.0 == pytest.approx(sum(each.share.part for each in found.blocks))
    for each in found.blocks:
        if not each.blank:
            assert prompt_words.share(each.share.part) in shown


def test_unknown_words_do_not_break_anything(shop: Shop) -> None:
    """A layer, stability or source of a newer Clew is shown as it is, in a colour of its own."""
    row, record = calls.call()
    shop.save((row, record))
    page = shop.http.get(f"/prompts/{row.request_id}").text
    assert "tomorrow dreams · lunar · oracle" in words(page)
    assert '<section class="block l-other"' in page


def test_a_prompt_without_a_map_is_whole(shop: Shop) -> None:
    """It says that there is no map, and shows all of the text."""
    text = "Just a text. Grüße!"
    row, record = calls.call(system=SystemPrompt(text=text, bytes=21, chars=19))
    shop.save((row, record))
    shown = shop.page(f"/prompts/{row.request_id}")
    assert f"This prompt has no map: it is shown whole. {text}" in shown


def test_no_system_prompt_and_no_history_say_so(shop: Shop) -> None:
    """Empty is said, and so is what could not be read."""
    empty = calls.call(system=SystemPrompt(), messages=[], tools=())
    unread = calls.call(messages=None)
    shop.save(empty, unread)
    shown = shop.page(f"/prompts/{empty[0].request_id}")
    assert "System prompt none" in shown
    assert "The history is empty." in shown
    assert "Tool definitions 0 tools" in shown
    shown = shop.page(f"/prompts/{unread[0].request_id}")
    assert f"{UNKNOWN} messages" in shown
    assert "The history could not be read." in shown


@pytest.mark.parametrize(("start", "end"), [(0, 10_000), (-1, 5), (9, 3), (11, 14), (5, 10**9)])
def test_a_range_that_does_not_fit_is_a_placeholder(shop: Shop, start: int, end: int) -> None:
    """Ranges past the end or inside a character never break the page; the rest is shown."""
    text = "Grüße und 🚲 Ende"
    size = len(text.encode())
    bad = RecordedBlock(
        id="bad", layer="contract", stability="static", source="file", start=start, end=end, chars=1
    )
    good = replace(bad, id="good", start=0, end=size)
    row, record = calls.call(
        system=SystemPrompt(text=text, bytes=size, chars=len(text), blocks=(bad, good))
    )
    shop.save((row, record))
    shown = shop.page(f"/prompts/{row.request_id}")
    assert f"Bytes {start} to {end} are no stretch of this text." in shown
    assert "The map does not cover this text exactly." in shown
    assert text in shown


@given(st.text(max_size=40), st.integers(-3, 200), st.integers(-3, 200))
def test_cutting_never_fails(text: str, start: int, end: int) -> None:
    """Any range of any text gives either exactly those bytes, or nothing."""
    data = text.encode("utf-8", "surrogatepass")
    found = parts.cut(data, start, end)
    if found is not None:
        assert data[start:end] == found.encode("utf-8", "surrogatepass")


def test_tools_messages_and_answers_are_whole(shop: Shop) -> None:
    """Schemas, every kind of part, arguments, thinking, finish reason, parameters."""
    history = [
        *calls.HISTORY,
        {
            "role": "user",
            "parts": [{"type": "blob", "modality": "image", "mime_type": "image/png"}],
        },
        {"role": "user", "parts": []},
        {"role": "critic", "name": "kim", "parts": "plain"},
        "not even a message",
        {"role": "user", "unheard_of": 1},
    ]
    row, record = calls.call(messages=history, response=calls.asking())
    shop.save((row, record))
    shown = shop.page(f"/prompts/{row.request_id}")
    for expected in (
        "refund_payment 228 chars", "Pay money back. Needs an approval.", '"required": [',
        "calls track_parcel call_1", '"parcel": "EE-81"', "result of call_1 In Tallinn.",
        "thinking I should look the order up.", '"mime_type": "image/png"',
        "This message is empty.", "critic kim", "plain", '"not even a message"', '"unheard_of": 1',
        "calls search_orders call_2", '"customer": "Öz"', "tool call · 912 bytes",
        '"temperature": 0.2',
    ):  # fmt: skip
        assert expected in shown


def test_an_answer_that_is_only_an_error_is_shown(shop: Shop) -> None:
    """Type, code and status; so is an empty answer, and one in parts of other kinds."""
    error = calls.call(response=calls.broken())
    both = calls.call(
        response=RecordedResponse(
            text="Half a", error=RecordedError(type="stream_cut_off"), outcome="failed"
        ),
        outcome="failed", partial=True,
    )  # fmt: skip
    empty = calls.call(response=RecordedResponse())
    foreign = calls.call(response=RecordedResponse(body={"answer": 42}, choices=({"a": 1},)))
    shop.save(error, both, empty, foreign)
    shown = shop.page(f"/prompts/{error[0].request_id}")
    assert "rate_limit_exceeded 429 HTTP 429 Nothing but the error came back." in shown
    shown = shop.page(f"/prompts/{both[0].request_id}")
    assert "stream failed" in shown
    assert "stream_cut_off Half a" in shown
    assert "Nothing came back." in shop.page(f"/prompts/{empty[0].request_id}")
    shown = shop.page(f"/prompts/{foreign[0].request_id}")
    assert '"answer": 42' in shown
    assert "answer 1" in shown


def test_below_capture_there_is_the_row(shop: Shop) -> None:
    """Sizes, map, tools and tokens without any text; the page says which level kept it out."""
    row, _ = calls.call(level="metadata")
    shop.save((row, None))
    page = shop.http.get(f"/prompts/{row.request_id}").text
    shown = words(page)
    assert "captured: metadata" in shown
    assert "The text was kept out at capture level metadata; sizes and the map are known." in shown
    assert "working_memory working · volatile · synthesis" in shown
    assert "refund_payment 228 chars" in shown
    assert "no payload file at this capture level" in shown
    assert "<pre" not in page
    assert "Tallinn" not in page


def test_a_payload_that_is_gone_is_missing(shop: Shop) -> None:
    """A swept payload is 404, a damaged one 503: different things, said apart."""
    gone, damaged = calls.call(), calls.call()
    shop.save(gone, damaged)
    folder = shop.folder / "prompts" / "2026-12-01"
    (folder / f"{gone[0].request_id}.json").unlink()
    (folder / f"{damaged[0].request_id}.json").write_text("{")
    assert "The payload of this call is gone" in shop.page(f"/prompts/{gone[0].request_id}", 404)
    assert "is damaged" in shop.page(f"/prompts/{damaged[0].request_id}", 503)


@pytest.mark.parametrize("reference", ["%", "_", "0%", "..%2Fclew.db", "f" * 32, "*"])
def test_a_reference_is_taken_literally(shop: Shop, reference: str) -> None:
    """Patterns and paths name nothing; a beginning that several share is 409, as page and twin."""
    one, two = calls.call(), calls.call()
    shop.save(one, two)
    assert 404 == shop.http.get(f"/api/prompts/{reference}").status_code
    answer = shop.http.get("/api/prompts/0000")
    assert 409 == answer.status_code
    assert "several records begin with '0000'" in answer.json()["error"]["message"]
    shop.page("/prompts/0000", 409)


def test_half_a_surrogate_pair_does_not_break_a_page(shop: Shop) -> None:
    """What no page can hold is replaced, wherever it stands."""
    found = parts.message_part({"role": "user", "parts": "\ud83d"}, 1)
    assert "\ud83d" == found.pieces[0].text
    from clew.web.views import Views, environment

    page = Views(environment()).page("error.html", status=1, phrase="\ud83d", message="", twin=None)
    assert b"1 ?" in page.body
