"""The prompt inspector's pages and twins, without a browser: what they open over, and for whom."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import re
from pathlib import Path

import sample_calls as calls
import sample_messages
import sample_runs
from msgspec.structs import replace
from page_text import tags, words
from shop import Shop

from clew import semconv
from clew.recording import switch
from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import RecordedError, RecordedResponse
from clew.web.guard import HEADERS
from clew.web.inspector import INDEX_LIMIT


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
    sample_messages.send(shop.running.address, run)
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
        seen = tags(answer.text)
        assert "img" not in {tag for tag, _ in seen}
        for tag, attributes in seen:
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            assert tag != "script" or (attributes["src"] or "").startswith("/static/")
        assert "49" not in re.findall(r"&amp;(.{2,8})", answer.text)[0]
