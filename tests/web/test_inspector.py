"""The prompt inspector's pages and twins, without a browser."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_calls as calls
import sample_runs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clew import semconv
from clew.recording import switch
from clew.sources.wording import UNKNOWN
from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import (
    PromptRecord,
    PromptRow,
    RecordedBlock,
    RecordedError,
    RecordedResponse,
    SystemPrompt,
)
from clew.web import parts, prompt_words
from clew.web.guard import HEADERS
from clew.web.inspector import INDEX_LIMIT
from clew.web.server import Running, start

Call = tuple[PromptRow, PromptRecord | None]


class Shop:
    """A server with a folder of records."""

    def __init__(self, running: Running, folder: Path) -> None:
        self.running = running
        self.folder = folder
        self.http = httpx.Client(base_url=running.address, timeout=20, trust_env=False)

    def save(self, *records: Call) -> None:
        store = RecordStore(self.folder)
        store.save(records)
        store.close()

    def page(self, path: str, status: int = 200, **asked: Any) -> str:
        answer = self.http.get(path, params=asked, follow_redirects=True)
        assert status == answer.status_code
        return words(answer.text)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with start(port=0, store_path=tmp_path / "clew.db") as running:
        found = Shop(running, tmp_path)
        yield found
        found.http.close()


def words(page: str) -> str:
    """The text of a page, without its markup."""
    collected: list[str] = []

    class Collector(HTMLParser):
        def handle_data(self, data: str) -> None:
            collected.append(data)

    Collector().feed(page)
    return " ".join(" ".join(collected).split())


def index(page: str) -> list[str]:
    """Request ids of the index column, top to bottom."""
    column = page.split('<nav class="index"')[1].split("</nav>", maxsplit=1)[0]
    return re.findall(r'<a href="/prompts/([0-9a-f]{32})[^/]', column)


# --- what it opens over ---------------------------------------------------------------------------


def test_the_newest_call_is_chosen(shop: Shop) -> None:
    """Over a run, a conversation or a message the newest is shown; an explicit id wins."""
    made = [
        calls.call(),
        calls.call(),
        calls.call(
            run_id="88888888-0000-4000-8000-000000000008",
            message_id="other",
            conversation_id="elsewhere",
        ),
    ]
    shop.save(*made)
    first, second, third = (each[0].request_id for each in made)
    for asked, expected in (
        ({}, [third, second, first]),
        ({"run": calls.RUN}, [second, first]),
        ({"message": "msg-81"}, [second, first]),
        ({"conversation": "conv-81"}, [second, first]),
        ({"message": "other", "run": calls.RUN}, [third]),
    ):
        page = shop.http.get("/prompts", params=asked).text
        assert expected == index(page)
        assert f"<code>clew prompt show {expected[0][:8]}</code>" in page
        chosen = shop.http.get(
            "/prompts", params={**asked, "request": first}, follow_redirects=True
        )
        assert f"clew prompt show {first[:8]}" in chosen.text
    # A call that is opened by itself stands among those of its run.
    assert [second, first] == index(shop.http.get(f"/prompts/{first}").text)


def test_a_span_of_the_timeline_leads_to_its_call(shop: Shop) -> None:
    """A round's details have a link to its prompt; other spans have none."""
    run = sample_runs.triage(calls.RUN)
    run.spans[0].attributes[semconv.MESSAGE_ID] = "msg-81"
    httpx.post(
        f"{shop.running.address}/v1/traces",
        content=sample_runs.protobuf(run),
        headers={"content-type": "application/x-protobuf"},
        trust_env=False,
    ).raise_for_status()
    span = next(each for each in run.spans if each.name.startswith("chat"))
    head = shop.http.get(f"/runs/{calls.RUN}").text
    assert 'href="/prompts?message=msg-81"' in head
    assert 'href="/prompts?conversation=conv-81"' in head
    row, record = calls.call(span_id=span.span_id)
    shop.save((row, record))
    page = shop.http.get(f"/runs/{calls.RUN}/spans/{span.span_id}").text
    assert f'href="/prompts/{row.request_id}?run={calls.RUN}"' in page
    root = shop.http.get(f"/runs/{calls.RUN}/spans/{run.spans[0].span_id}").text
    assert "/prompts/" not in root.split("<main")[1]
    moved = shop.http.get(f"/runs/{calls.RUN}/spans/{span.span_id}/prompt")
    assert (303, f"/prompts/{row.request_id}?run={calls.RUN}") == (
        moved.status_code, moved.headers["location"],
    )  # fmt: skip
    shop.page(f"/runs/{calls.RUN}/spans/{run.spans[0].span_id}/prompt", 404)
    # And back: closing the inspector returns to that span.
    back = shop.http.get(f"/prompts/{row.request_id}").text
    assert f"/runs/{calls.RUN}?span={span.span_id}#s-{span.span_id}" in back


def test_nothing_recorded_says_whether_capture_is_on(shop: Shop) -> None:
    """An empty index tells "off" from "nothing yet" from "no match"."""
    assert "Capture is off" in shop.page("/prompts")
    switch.write(shop.folder, enabled=True)
    assert "Capture is on" in shop.page("/prompts")
    shop.save(calls.call())
    assert "No call matches" in shop.page("/prompts", message="nobody's")


# --- header and index -----------------------------------------------------------------------------


def test_the_header_says_what_is_known(shop: Shop) -> None:
    """Kind, model, trigger, parent, message, time, length, usage, both handles."""
    row, record = calls.call(
        parent="99999999-0000-4000-8000-000000000009", hop=1, tenant="acme", attempts=2
    )
    shop.save((row, record))
    shown = shop.page(f"/prompts/{row.request_id}")
    for expected in (
        "gpt-5-mini channel captured: full capture off", "Trigger user_message", "Agent nova",
        "Parent 99999999", "Message msg-81", "Took 2.13 s", "fallback 1", "Attempts 2",
        "Answered by gpt-5-mini-2026-08-07", "2.1k in · 87 out · 1.0k cached · $0.0043",
        f"clew prompt show {row.request_id[:8]}",
        str(shop.folder / "prompts" / "2026-12-01" / f"{row.request_id}.json"),
    ):  # fmt: skip
        assert expected in shown
    switch.write(shop.folder, enabled=True)
    assert "capture off" not in shop.page(f"/prompts/{row.request_id}")


def test_both_handles_resolve(shop: Shop) -> None:
    """The short id names one record though another begins alike, and the path is a file."""
    one, other = calls.call(), calls.call()
    twin = replace(other[0], request_id=one[0].request_id[:10] + "f" * 22)
    shop.save(one, (twin, replace(other[1], request_id=twin.request_id)))
    page = shop.http.get(f"/prompts/{one[0].request_id}").text
    command, path = re.findall(r'data-copy="([^"]+)"', page)
    short = command.removeprefix("clew prompt show ")
    assert 11 == len(short)
    assert (
        one[0].request_id == shop.http.get(f"/api/prompts/{short}").json()["record"]["request_id"]
    )
    assert Path(path).is_file()


def test_usage_that_was_not_reported_is_no_zero(shop: Shop) -> None:
    """Usage is left out when it is unknown, and shown when it is zero."""
    unknown = calls.call(
        input_tokens=None, output_tokens=None, cache_read_tokens=None,
        cache_write_tokens=None, cost_usd=None,
    )  # fmt: skip
    zero = calls.call(input_tokens=0, output_tokens=0, cache_read_tokens=None,
                      cache_write_tokens=None, cost_usd=0.0)  # fmt: skip
    shop.save(unknown, zero)
    assert "Usage not reported" in shop.page(f"/prompts/{unknown[0].request_id}")
    assert "Usage 0 in · 0 out · $0" in shop.page(f"/prompts/{zero[0].request_id}")


def test_the_index_tells_calls_apart(shop: Shop) -> None:
    """Each entry has its round, time, system tokens, messages, tools, and whether it failed."""
    fine = calls.call(round=3, tools=(), messages=[])
    failed = calls.call(response=calls.broken())
    shop.save(fine, failed)
    column = words(shop.http.get("/prompts").text.split('<nav class="index"')[1].split("</nav>")[0])
    assert "2 calls all calls" in column
    assert "round 3 nova" in column
    assert "0 messages 0 tools" in column
    assert "~1.3k system 3 messages 3 tools" in column
    assert "rate_limit_exceeded" in column


def test_older_calls_are_a_page_away(shop: Shop) -> None:
    """An index that is full leads to the calls before; each entry can be compared with this one."""
    made = [calls.call() for _ in range(INDEX_LIMIT + 2)]
    shop.save(*made)
    page = shop.http.get("/prompts", params={"run": calls.RUN}).text
    assert INDEX_LIMIT == len(index(page))
    newest = made[-1][0].request_id
    assert f'href="/prompts/{made[-2][0].request_id}/diff/{newest}"' in page
    (more,) = re.findall(r'<a href="([^"]+)" rel="next">Older calls', page)
    page = shop.http.get(more.replace("&amp;", "&")).text
    assert [made[1][0].request_id, made[0][0].request_id] == index(page)
    assert f"clew prompt show {made[1][0].request_id[:8]}" in page
    assert "Older calls" not in page
    assert 400 == shop.http.get("/prompts?after=nonsense").status_code
    moved = shop.http.get("/prompts", params={"request": "../x?y"})
    assert "/prompts/..%2Fx%3Fy" == moved.headers["location"]


# --- reading column -------------------------------------------------------------------------------


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


# --- comparison -----------------------------------------------------------------------------------


def test_two_calls_are_compared_by_block(shop: Shop) -> None:
    """An insertion is one addition; text is compared by line, long equal stretches are folded."""
    longer = (*calls.KNOWLEDGE[:4], calls.KNOWLEDGE[4] + "A third order came.\n")
    extra = ("extra", "working", "volatile", "store", "\nSomething new.\n")
    after = (*calls.PROMPT[:2], extra, calls.SKILLS, longer, *calls.PROMPT[4:-1])
    one = calls.call()
    two = calls.call(
        after, model="gpt-5", tools=calls.TOOLS[1:], parameters={"temperature": 0.9},
        messages=[*calls.HISTORY, {"role": "user", "parts": [{"type": "text", "content": "And?"}]}],
    )  # fmt: skip
    shop.save(one, two)
    path = f"/prompts/{one[0].request_id}/diff/{two[0].request_id}"
    shown = shop.page(path)
    for expected in (
        "1 changed 1 added 1 removed 6 same", "model gpt-5-mini gpt-5",
        "parameter temperature 0.2 0.9", "changed knowledge_synthesis 1419 → 1439 bytes",
        "22 equal lines", "new: A third order came.", "added extra 16 bytes",
        "removed tomorrow 32 bytes", "search_orders removed", "3 equal messages at the beginning",
        "nothing further", "4 user",
    ):  # fmt: skip
        assert expected in shown
    twin = shop.http.get(f"/api{path}").json()
    assert [("extra", "added"), ("knowledge_synthesis", "changed"), ("tomorrow", "removed")] == [
        (each["id"], each["what"]) for each in twin["system"]["changes"]
    ]
    assert {"same": 3, "before": 3, "after": 4} == twin["messages"]
    assert False is twin["identical"]
    assert "customer has ordered" not in str(twin)
    same = shop.page(f"/prompts/{one[0].request_id}/diff/{one[0].request_id}")
    assert "identical" in same


def test_reordered_blocks_are_told_from_changed_ones(shop: Shop) -> None:
    """A block that moved is reordered, once."""
    after = (calls.CONTRACT, calls.IDENTITY, *calls.PROMPT[2:])
    one, two = calls.call(), calls.call(after)
    shop.save(one, two)
    shown = shop.page(f"/prompts/{one[0].request_id}/diff/{two[0].request_id}")
    assert "1 reordered 7 same" in shown


def test_prompts_without_maps_are_compared_whole(shop: Shop) -> None:
    """Two different unmapped prompts are no identical ones."""
    made = [
        calls.call(system=SystemPrompt(text=text, bytes=7, chars=7, digest=calls.digest(text)))
        for text in ("One way", "Another", "One way")
    ]
    shop.save(*made)
    one, two, three = (each[0].request_id for each in made)
    shown = shop.page(f"/prompts/{one}/diff/{two}")
    assert "System prompts differ; at least one has no map." in shown
    assert "gone: One way" in shown
    assert "new: Another" in shown
    assert "identical" in shop.page(f"/prompts/{one}/diff/{three}")


def test_without_content_digests_tell_what_changed(shop: Shop) -> None:
    """At level metadata the same blocks are found changed, without a word of them."""
    after = (*calls.PROMPT[:-2], (*calls.STATUS[:4], "\n## Status\n\nIt is 11:00.\n"), calls.FUTURE)
    one, _ = calls.call(level="metadata")
    two, _ = calls.call(after, level="metadata")
    other_key, _ = calls.call(after, level="metadata", digest_key="ff" * 8)
    shop.save((one, None), (two, None), (other_key, None))
    shown = shop.page(f"/prompts/{one.request_id}/diff/{two.request_id}")
    assert "1 changed 7 same" in shown
    assert "The text was kept out at the capture level." in shown
    shown = shop.page(f"/prompts/{one.request_id}/diff/{other_key.request_id}")
    assert "8 unknown" in shown


# --- the twin of the list -------------------------------------------------------------------------


def test_the_list_has_a_twin(shop: Shop) -> None:
    """`limit` is 100 unless given, from 1 to 1,000; a message wins over other filters."""
    made = [calls.call(), calls.call(message_id="m2", agent="other")]
    shop.save(*made)
    found = shop.http.get("/api/prompts").json()
    assert False is found["capture_enabled"]
    assert [each[0].request_id for each in reversed(made)] == [
        each["request_id"] for each in found["requests"]
    ]
    assert "path" not in found["requests"][0]
    for limit, status in (("1", 200), ("1000", 200), ("0", 400), ("1001", 400), ("-1", 400)):
        assert status == shop.http.get("/api/prompts", params={"limit": limit}).status_code
    assert 400 == shop.http.get("/api/prompts", params={"run": "nonsense"}).status_code
    assert 400 == shop.http.get("/api/prompts", params={"status": "great"}).status_code
    both = shop.http.get("/api/prompts", params={"message": "m2", "agent": "nova"}).json()
    assert [made[1][0].request_id] == [each["request_id"] for each in both["requests"]]
    for name in ("message", "conversation"):
        assert [] == shop.http.get("/api/prompts", params={name: ""}).json()["requests"]
    assert 400 == shop.http.get("/api/prompts", params={"run": ""}).status_code
    assert 2 == len(shop.http.get("/api/prompts", params={"agent": ""}).json()["requests"])
    page = shop.http.get("/api/prompts", params={"limit": 1}).json()
    rest = shop.http.get("/api/prompts", params={"limit": 1, "after": page["next"]}).json()
    assert made[0][0].request_id == rest["requests"][0]["request_id"]
    assert None is rest["next"]


def test_a_scope_hides_what_is_outside_of_it(tmp_path: Path) -> None:
    """What may not be read does not exist: not in lists, not by id, not by span."""
    from starlette.applications import Starlette
    from starlette.testclient import TestClient
    from starlette.types import Receive, Send
    from starlette.types import Scope as Connection

    from clew.store.access import AccessLog
    from clew.store.prompt_index import PromptReader
    from clew.web.access import CONTENT, READ, Visit, begin, principal
    from clew.web.inspector import Inspector
    from clew.web.views import Views, environment

    ours, theirs = calls.call(tenant="acme"), calls.call(tenant="evil")
    store = RecordStore(tmp_path)
    store.save([ours, theirs])
    store.close()
    reader = PromptReader(tmp_path)
    inner = Starlette(routes=Inspector(reader, Views(environment())).routes())

    who = principal("svc", kind="service", rights=frozenset({READ, CONTENT}), tenant="acme")
    visit = Visit(principal=who, digest_of=str, log=AccessLog(tmp_path))

    async def app(scope: Connection, receive: Receive, send: Send) -> None:
        begin(scope.setdefault("state", {}), visit)
        await inner(scope, receive, send)

    client = TestClient(app)
    listed = client.get("/api/prompts").json()["requests"]
    assert [ours[0].request_id] == [each["request_id"] for each in listed]
    hidden = theirs[0].request_id
    for path in (f"/prompts/{hidden}", f"/prompts/{ours[0].request_id}/diff/{hidden}",
                 f"/runs/{theirs[0].run_id}/spans/{theirs[0].span_id}/prompt"):  # fmt: skip
        assert 404 == client.get(path, follow_redirects=False).status_code
    reader.close()


HOSTILE = "<img src=x onerror=alert(1)>'\"&{{7*7}}</script></pre>\u202e"


def test_everything_is_escaped(shop: Shop) -> None:
    """Markup in any text, name, layer or id is text; nothing inline appears."""
    block = (HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    tool = replace(calls.TOOLS[0], name=HOSTILE, description=HOSTILE, schema={HOSTILE: HOSTILE},
                   type=HOSTILE)  # fmt: skip
    names = ("model", "provider", "agent", "kind", "trigger", "message_id", "conversation_id",
             "answered", "finish_reason", "tenant", "operation", "level_")  # fmt: skip
    one = calls.call(
        (block,), tools=(tool,), parameters={HOSTILE: HOSTILE},
        messages=[{"role": HOSTILE, "name": HOSTILE, "parts": [{"type": HOSTILE, "content": 1}]}],
        response=RecordedResponse(text=HOSTILE, error=RecordedError(type=HOSTILE, code=HOSTILE)),
        **dict.fromkeys(names[:-1], HOSTILE), parent=calls.RUN,
    )  # fmt: skip
    two = calls.call()
    shop.save(one, two)
    for path in (f"/prompts/{one[0].request_id}", "/prompts",
                 f"/prompts/{two[0].request_id}/diff/{one[0].request_id}"):  # fmt: skip
        answer = shop.http.get(path)
        assert 200 == answer.status_code
        assert HEADERS == {name: answer.headers[name] for name in HEADERS}
        seen: list[tuple[str, dict[str, str | None]]] = []

        class Tags(HTMLParser):
            def handle_starttag(
                self, tag: str, attrs: list[tuple[str, str | None]], seen: Any = seen
            ) -> None:
                seen.append((tag, dict(attrs)))

        Tags().feed(answer.text)
        assert "img" not in {tag for tag, _ in seen}
        for tag, attributes in seen:
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            assert tag != "script" or (attributes["src"] or "").startswith("/static/")
        assert "49" not in re.findall(r"&amp;(.{2,8})", answer.text)[0]


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, UNKNOWN), (0, "0"), (999, "999"), (1000, "1.0k"), (53_240, "53.2k"),
     (1_200_000, "1200.0k")],
)  # fmt: skip
def test_tokens_in_words(value: int | None, expected: str) -> None:
    """Below a thousand as they are, else thousands with one decimal."""
    assert expected == prompt_words.tokens(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, UNKNOWN), (0.0, "$0"), (0.00001, "< $0.0001"), (0.00431, "$0.0043"),
     (0.01, "$0.010"), (1.2345, "$1.234")],
)  # fmt: skip
def test_cost_in_words(value: float | None, expected: str) -> None:
    """Four decimals below a cent, else three; nothing that was paid reads as zero."""
    assert expected == prompt_words.cost(value)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, UNKNOWN), (0.0, "0.0 %"), (0.1234, "12.3 %"), (1.0, "100.0 %")]
)
def test_shares_in_words(value: float | None, expected: str) -> None:
    """One decimal."""
    assert expected == prompt_words.share(value)
