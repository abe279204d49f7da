"""`clew prompt list`: which calls were recorded."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Clew
from prompt_rows import digits, row
from recorded_calls import RUN, save, whole

from clew.recording import switch
from clew.sources import wording


def test_an_empty_list_says_why(prompt: Clew, data_dir: Path) -> None:
    """Nothing yet, nothing that matches, recording off: three things, all on stderr."""
    off = "recording is off: `clew prompt capture on` switches it on\n"
    assert (0, "", f"no calls were recorded\n{off}") == prompt("list")
    switch.write(data_dir, enabled=True)
    assert (0, "", "no calls were recorded\n") == prompt("list")
    save(data_dir, whole())
    assert (0, "", "no record matches\n") == prompt("list", "--agent", "other")


def test_the_columns_of_the_list(prompt: Clew, data_dir: Path) -> None:
    """Newest first: id, process, time, trigger, outcome, tokens of the prompt, counts, model."""
    save(
        data_dir,
        whole(1, trigger="user_message"),
        (row(2, agent=None, kind="unknown", status="error", error_type="rate_limit",
             model="m", tool_count=None, history_length=None, attempts=3), None),
        (row(3, partial=True, outcome="closed", kind="unknown"), None),
    )  # fmt: skip
    code, out, err = prompt("list")
    assert (0, "") == (code, err)
    lines = [line.split() for line in out.splitlines()]
    assert [
        "ID",
        "PROCESS",
        "WHEN",
        "(UTC)",
        "TRIGGER",
        "OUTCOME",
        "~SYSTOK",
        "MSGS",
        "TOOLS",
        "MODEL",
    ] == lines[0]
    cells = [line.split("  ") for line in out.splitlines()[1:]]
    told = [[cell.strip() for cell in line if cell.strip()] for line in cells]
    assert [
        [digits(3), "triage", "2026-12-01 10:00:03", "ok, partial (closed)", "9", "3", "1",
         "gpt-4o-mini"],
        [digits(2), "unknown", "2026-12-01 10:00:02", "error rate_limit, 3 attempts", "9", wording.UNKNOWN,
         wording.UNKNOWN, "m"],
        [digits(1), "triage (channel)", "2026-12-01 10:00:01", "user_message", "ok", "9", "3",
         "1", "gpt-4o-mini"],
    ] == told  # fmt: skip


def test_ids_are_shown_as_short_as_they_resolve(prompt: Clew, data_dir: Path) -> None:
    """Eight digits, each of which `show` takes."""
    for start in ("ab", "ac"):
        save(data_dir, whole(1, request_id=start + "0" * 30))
    _, out, _ = prompt("list")
    for line in out.splitlines()[1:]:
        short = line.split()[0]
        assert 8 == len(short)
        assert 0 == prompt("show", short)[0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-c", "c-1"), [1]),
        (("-p", RUN), [2]),
        (("-m", "m-1"), [1, 3]),
        (("-m", "m-1", "--agent", "nobody"), [1, 3]),
        (("--agent", "b"), [3]),
        (("--model", "other"), [3]),
        (("--failed",), [2]),
        (("--tenant", "acme"), [1, 2]),
        (("--tenant", "none"), []),
        (("-l", "2"), [3, 2]),
        ((), [3, 2, 1]),
    ],
)
def test_filters(
    prompt: Clew, data_dir: Path, options: tuple[str, ...], expected: list[int]
) -> None:
    """By conversation, run, message (which wins), agent, model, failure, tenant; a limit."""
    save(
        data_dir,
        whole(1, conversation_id="c-1", message_id="m-1"),
        (row(2, run_id=RUN, status="error"), None),
        (row(3, message_id="m-1", agent="b", model="other", tenant="t2"), None),
    )
    code, out, _ = prompt("list", "--json", *options)
    assert 0 == code
    found = [int(each["request_id"], 16) for each in json.loads(out)["requests"]]
    assert sorted(expected) == sorted(found)
    if len(expected) < 3:
        assert found == sorted(found, reverse=True)


def test_the_list_as_json(prompt: Clew, data_dir: Path) -> None:
    """What the index knows, without paths; times as text; whether recording is on."""
    save(data_dir, whole(1), whole(2))
    _, out, _ = prompt("list", "--json", "-l", "1")
    found = json.loads(out)
    assert (False, True) == (found["capture_enabled"], found["next"] is not None)
    (one,) = found["requests"]
    assert ("1796119202000000000", 9, 1200) == tuple(
        one[key] for key in ("start_ns", "system_tokens", "input_tokens")
    )
    assert "path" not in one
    _, rest, _ = prompt("list", "--json", "-l", "1", "--after", found["next"])
    assert [digits(1)] == [each["request_id"] for each in json.loads(rest)["requests"]]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("-l", "0"), 2, "greater than or equal to 1"),
        (("-l", "10000000"), 2, "less than or equal to 1000"),
        (("--after", "-1"), 1, "is not one that a list gave"),
        (("-p", "nonsense"), 1, "'nonsense' is no run: give its uuid"),
    ],
)
def test_bad_bounds_are_refused(
    prompt: Clew, data_dir: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    """With a sentence, not with an empty list."""
    save(data_dir, whole())
    ended, out, err = prompt("list", *options)
    assert (code, "") == (ended, out)
    assert said in " ".join(err.split())
