"""`clew prompt`: recorded calls on the command line."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_runs
from msgspec.structs import replace
from prompt_rows import DAY, SYSTEM, block, digits, record, row

from clew.cli import main
from clew.recording import switch
from clew.sources import wording
from clew.store import otlp_protobuf
from clew.store.prompt_index import RecordStore
from clew.store.prompt_records import (
    Attempt,
    PromptRecord,
    PromptRow,
    RecordedError,
    RecordedResponse,
    ToolDefinition,
)
from clew.store.writer import Writer

Clew = Callable[..., tuple[int, str, str]]
RUN = "6fa459ea-ee8a-4ca4-894e-db77e160355e"


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder that every command uses."""
    folder = tmp_path / "data"
    monkeypatch.setenv("CLEW_DATA_DIR", str(folder))
    return folder


@pytest.fixture
def clew(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> Clew:
    """Run a command in this process: exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(("prompt", *arguments))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def save(data_dir: Path, *pairs: tuple[PromptRow, PromptRecord | None]) -> None:
    store = RecordStore(data_dir)
    store.save(pairs)
    store.close()


def whole(number: int = 1, **more: Any) -> tuple[PromptRow, PromptRecord]:
    one = row(number, **more)
    return one, record(one)


# --- list ---------------------------------------------------------------------------------------


def test_an_empty_list_says_why(clew: Clew, data_dir: Path) -> None:
    """Nothing yet, nothing that matches, recording off: three things, all on stderr."""
    off = "recording is off: `clew prompt capture on` switches it on\n"
    assert (0, "", f"no calls were recorded\n{off}") == clew("list")
    switch.write(data_dir, enabled=True)
    assert (0, "", "no calls were recorded\n") == clew("list")
    save(data_dir, whole())
    assert (0, "", "no record matches\n") == clew("list", "--agent", "other")


def test_the_columns_of_the_list(clew: Clew, data_dir: Path) -> None:
    """Newest first: id, process, time, trigger, outcome, tokens of the prompt, counts, model."""
    save(
        data_dir,
        whole(1, trigger="user_message"),
        (row(2, agent=None, kind="unknown", status="error", error_type="rate_limit",
             model="m", tool_count=None, history_length=None, attempts=3), None),
        (row(3, partial=True, outcome="closed", kind="unknown"), None),
    )  # fmt: skip
    code, out, err = clew("list")
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


def test_ids_are_shown_as_short_as_they_resolve(clew: Clew, data_dir: Path) -> None:
    """Eight digits, each of which `show` takes."""
    for start in ("ab", "ac"):
        save(data_dir, whole(1, request_id=start + "0" * 30))
    _, out, _ = clew("list")
    for line in out.splitlines()[1:]:
        short = line.split()[0]
        assert 8 == len(short)
        assert 0 == clew("show", short)[0]


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
def test_filters(clew: Clew, data_dir: Path, options: tuple[str, ...], expected: list[int]) -> None:
    """By conversation, run, message (which wins), agent, model, failure, tenant; a limit."""
    save(
        data_dir,
        whole(1, conversation_id="c-1", message_id="m-1"),
        (row(2, run_id=RUN, status="error"), None),
        (row(3, message_id="m-1", agent="b", model="other", tenant="t2"), None),
    )
    code, out, _ = clew("list", "--json", *options)
    assert 0 == code
    found = [int(each["request_id"], 16) for each in json.loads(out)["requests"]]
    assert sorted(expected) == sorted(found)
    if len(expected) < 3:
        assert found == sorted(found, reverse=True)


def test_the_list_as_json(clew: Clew, data_dir: Path) -> None:
    """What the index knows, without paths; times as text; whether recording is on."""
    save(data_dir, whole(1), whole(2))
    _, out, _ = clew("list", "--json", "-l", "1")
    found = json.loads(out)
    assert (False, True) == (found["capture_enabled"], found["next"] is not None)
    (one,) = found["requests"]
    assert ("1796119202000000000", 9, 1200) == tuple(
        one[key] for key in ("start_ns", "system_tokens", "input_tokens")
    )
    assert "path" not in one
    _, rest, _ = clew("list", "--json", "-l", "1", "--after", found["next"])
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
    clew: Clew, data_dir: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    """With a sentence, not with an empty list."""
    save(data_dir, whole())
    ended, out, err = clew("list", *options)
    assert (code, "") == (ended, out)
    assert said in " ".join(err.split())


# --- show ---------------------------------------------------------------------------------------

SHOWN = """\
request    00000000000000000000000000000001
process    triage (channel)
tenant     acme
model      openai / gpt-4o-mini
trigger    user_message
message    m-1
parent     6fa459ea-ee8a-4ca4-894e-db77e160355e
started    2026-12-01 10:00:01 UTC
duration   1.23 s
outcome    ok
usage      1\u202f200 in, 1\u202f000 from cache, 30 out, $0.00123
level      full

── template:clerk  contract · static · template  25 chars  ~7 tokens  75.0% ──
You are a clerk. Grüße!



── tone  identity · static · template  9 chars  ~3 tokens  25.0% ─────────────
Be brief.

── tools (1)  83 chars ───────────────────────────────────────────────────────
lookup  83 chars
    Look an order up.
    {"type": "object", "properties": {"id": {"type": "string"}}}

── messages (3) ──────────────────────────────────────────────────────────────
[
  {
    "role": "user",
    "parts": [
      {
        "type": "text",
        "content": "Where is order 7?"
      }
    ]
  }
]

── parameters ────────────────────────────────────────────────────────────────
{
  "temperature": 0.5
}

── response  finish reason tool_call ─────────────────────────────────────────
One moment.
calls lookup {"id": "7"}
"""


def blocks_of() -> tuple[Any, ...]:
    return (
        block("template:clerk", 0, 27, 25),
        block("tone", 27, len(SYSTEM.encode()), 9, layer="identity"),
    )


def test_a_call_is_shown_whole(clew: Clew, data_dir: Path) -> None:
    """Header, each block with its share, tools, messages, parameters, response; the file's path."""
    one = row(
        1, trigger="user_message", message_id="m-1", parent=RUN, blocks=blocks_of(),
    )  # fmt: skip
    save(data_dir, (one, record(one)))
    code, out, err = clew("show", digits(1))
    assert (0, SHOWN) == (code, out)
    path = data_dir / "prompts" / "2026-12-01" / f"{digits(1)}.json"
    assert f"payload: {path}\n" == err
    assert path.is_file()


def test_the_prompt_alone_is_byte_for_byte(
    data_dir: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """`--raw` adds nothing and changes nothing: no newline at the end, control characters too."""
    one = row()
    text = "a\r\nb\x1b[31m\tü\u2028c"
    kept = record(one)
    save(data_dir, (one, replace(kept, system=replace(kept.system, text=text, blocks=()))))
    subprocess.run(
        [sys.executable, "-c", "from clew.cli import main; main()", "prompt", "show", digits(1),
         "--raw"], check=True, timeout=60,
    )  # fmt: skip
    assert text.encode() == capfdbinary.readouterr().out


def test_control_characters_do_not_reach_the_terminal(clew: Clew, data_dir: Path) -> None:
    """Whatever was recorded: in the prompt, in names, in what the model said."""
    one = row(1, model="gpt\x1b[0m")
    kept = record(one)
    evil = "\x1b]0;title\x07 \u202e"
    save(
        data_dir,
        (
            one,
            replace(
                kept,
                system=replace(kept.system, text=evil, blocks=()),
                messages=[{"role": evil, "parts": []}],
                tools=(ToolDefinition(name=evil, description=evil, schema={evil: 1}),),
                response=RecordedResponse(text=evil, thinking=evil, error=RecordedError(type=evil)),
            ),
        ),
    )
    for arguments in (("show", digits(1)), ("show", digits(1), "--json"), ("list",)):
        _, out, _ = clew(*arguments)
        assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_failures_are_shown_with_what_is_known(clew: Clew, data_dir: Path) -> None:
    """The type of the error, the status, every attempt; a response that is only an error."""
    one = row(1, status="error", error_type="rate_limit", attempts=2)
    failed = RecordedResponse(error=RecordedError(type="rate_limit", code="slow", status=429))
    attempts = (
        Attempt(number=1, start_ms=0.0, duration_ms=12.4, status=500, error="server_error"),
        Attempt(number=2, start_ms=512.0, duration_ms=9.0, status=429, error="rate_limit"),
    )
    save(data_dir, (one, record(one, response=failed, attempts=attempts, usage=None)))
    _, out, _ = clew("show", digits(1))
    assert "outcome    error rate_limit, 2 attempts\n" in out
    assert "usage      none reported\n" in out
    assert out.endswith(
        "error rate_limit (code slow) HTTP 429\n"
        "attempt 1 500 server_error after 0 ms, 12 ms\n"
        "attempt 2 429 rate_limit after 512 ms, 9 ms\n"
    )


def test_a_call_without_content_is_shown_with_its_sizes(clew: Clew, data_dir: Path) -> None:
    """Blocks with their sizes and shares, and why there is no text."""
    one = row(1, level="metadata", blocks=blocks_of())
    save(data_dir, (one, None))
    code, out, err = clew("show", digits(1))
    assert (0, "") == (code, err)
    kept_out = "kept out at capture level metadata"
    assert f"── tone  identity · static · template  9 chars  ~3 tokens  25.0%  {kept_out}" in out
    assert f"── messages (3)  {kept_out}" in out
    code, out, err = clew("show", digits(1), "--raw")
    assert (3, "") == (code, out)
    assert "kept out at capture level metadata" in err


def test_a_prompt_without_a_map_is_shown_whole(clew: Clew, data_dir: Path) -> None:
    """Under one line that says so; a call without a prompt says that."""
    one = row()
    kept = record(one)
    save(data_dir, (one, replace(kept, system=replace(kept.system, blocks=()))))
    none = row(2, system_bytes=0, system_chars=0)
    save(data_dir, (none, record(none)))
    _, out, _ = clew("show", digits(1))
    assert f"── system prompt  no map  34 chars  ~9 tokens {'─' * 32}\n{SYSTEM}\n" in out
    _, out, _ = clew("show", digits(2))
    assert "── system prompt  none ──" in out


def test_a_block_that_is_out_of_range_is_no_crash(clew: Clew, data_dir: Path) -> None:
    """A range past the end, or in the middle of a character, shows a placeholder."""
    blocks = (block("cut", 0, 20, 20), block("end", 20, 999, 5))
    one = row(1, blocks=blocks)
    kept = record(one)
    save(data_dir, (one, replace(kept, system=replace(kept.system, blocks=blocks))))
    code, out, _ = clew("show", digits(1))
    assert 0 == code
    assert 2 == out.count("\ufffd")


def test_missing_ambiguous_and_unreadable_are_different(clew: Clew, data_dir: Path) -> None:
    """In what is said and in the exit code, for each command that takes a record."""
    nothing = clew("show", "ab")
    assert (3, "") == nothing[:2]
    assert f"nothing was recorded in {data_dir}" in nothing[2]
    one, two = (whole(1, request_id=start + "0" * 30) for start in ("ab", "ac"))
    save(data_dir, one, two)
    for command in (("show",), ("diff", "ab")):
        code, _, err = clew(*command, "a")
        assert 4 == code
        assert "several records begin with 'a'" in err
        code, _, err = clew(*command, "ad")
        assert 3 == code
        assert "there is no record 'ad'" in err
        code, _, err = clew(*command, " ")
        assert 1 == code
        assert "give the id of a record" in err
    (data_dir / "prompts" / "2026-12-01" / f"{two[0].request_id}.json").write_text("{")
    for command in (("show",), ("diff", "ab")):
        code, _, err = clew(*command, "ac")
        assert 1 == code
        assert "is damaged" in err
    (data_dir / "prompts" / "2026-12-01" / f"{two[0].request_id}.json").unlink()
    code, _, err = clew("show", "ac")
    assert 3 == code
    assert "is gone: it was swept" in err


def test_records_of_another_tenant_are_unknown(clew: Clew, data_dir: Path) -> None:
    """Asked for as one tenant, another's record does not exist."""
    save(data_dir, whole(1), whole(2, tenant="other"))
    assert 0 == clew("show", digits(1), "--tenant", "acme")[0]
    code, out, err = clew("show", digits(2), "--tenant", "acme")
    assert (3, "") == (code, out)
    assert "there is no record" in err


def test_a_call_as_json(clew: Clew, data_dir: Path) -> None:
    """What the payload file has, and the index."""
    save(data_dir, whole())
    _, out, _ = clew("show", digits(1), "--json")
    found = json.loads(out)
    path = data_dir / "prompts" / "2026-12-01" / f"{digits(1)}.json"
    assert json.loads(path.read_text()) == found["record"]
    assert digits(1) == found["index"]["request_id"]


def test_on_a_terminal_it_is_styled(data_dir: Path) -> None:
    """Rich on a terminal, plain when piped."""
    save(data_dir, whole())
    command = [sys.executable, "-c", "from clew.cli import main; main()", "prompt"]
    for arguments, word in ((("show", digits(1)), b"tone"), (("list",), b"triage")):
        main_end, other_end = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140"}
        done = subprocess.Popen(
            [*command, *arguments], stdout=other_end, stderr=subprocess.DEVNULL, env=environment
        )
        os.close(other_end)
        shown = b""
        try:
            while piece := os.read(main_end, 65536):
                shown += piece
        except OSError:
            pass
        os.close(main_end)
        assert 0 == done.wait(60)
        assert word in shown
        assert b"\x1b[" in shown
        piped = subprocess.run(
            [*command, *arguments], capture_output=True, check=True, timeout=60, env=environment
        )
        assert b"\x1b[" not in piped.stdout


# --- diff ---------------------------------------------------------------------------------------


def mapped(number: int, *blocks: tuple[str, str], **more: Any) -> PromptRow:
    """Return a row with blocks of these names and digests, ten bytes each."""
    found = tuple(
        block(name, 10 * at, 10 * at + 10, 8, digest=digest)
        for at, (name, digest) in enumerate(blocks)
    )
    size = 10 * len(blocks)
    given = {"digest_key": "k", "system_digest": repr(blocks), "level": "metadata", **more}
    return row(number, blocks=found, system_bytes=size, system_chars=size, **given)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a1 b1 c1", "a1 b1 c1", []),
        ("a1 b1 c1", "a1 b2 c1", ["changed    b  8 → 8 chars"]),
        ("a1 b1 c1", "a1 x1 b1 c1", ["added      x  8 chars"]),
        ("a1 b1 c1", "a1 c1", ["removed    b  8 chars"]),
        ("a1 b1 c1", "c1 a1 b1", ["reordered  c  block 3 → 1"]),
        ("a1 a2", "a1 a3 a2", ["added      a #2  8 chars"]),
    ],
)
def test_prompts_are_compared_by_block(
    clew: Clew, data_dir: Path, before: str, after: str, expected: list[str]
) -> None:
    """By id and occurrence: one inserted block is one line, and nothing behind it has moved."""
    rows = [
        mapped(number, *((each[0], each[1:]) for each in blocks.split()), history_length=0)
        for number, blocks in ((1, before), (2, after))
    ]
    save(data_dir, *((each, None) for each in rows))
    code, out, _ = clew("diff", digits(1), digits(2))
    assert 0 == code
    assert (expected or ["identical"]) == out.splitlines()


def test_identical_calls_are_identical(clew: Clew, data_dir: Path) -> None:
    """All of it was compared, and nothing differs."""
    given = {"system_digest": "d", "digest_key": "k", "tools": record().tools}
    one, two = (row(number, **given) for number in (1, 2))
    save(data_dir, (one, record(one)), (two, record(two)))
    assert (0, "identical\n", "") == clew("diff", digits(1), digits(2))
    _, out, _ = clew("diff", digits(1), digits(2), "--json")
    assert json.loads(out)["identical"] is True


def test_unmapped_prompts_are_compared_as_a_whole(clew: Clew, data_dir: Path) -> None:
    """Two different texts without a map are not the same, though no block says so."""
    one, two = (
        row(number, system_digest=str(number), digest_key="k", level="metadata")
        for number in (1, 2)
    )
    save(data_dir, (one, None), (two, None))
    _, out, _ = clew("diff", digits(1), digits(2))
    assert "changed    (whole prompt)  34 → 34 chars, one of them has no map\n" == out


def test_prompts_of_different_keys_are_compared_by_their_text(clew: Clew, data_dir: Path) -> None:
    """Where the texts are there; without them, nothing is claimed."""
    one, two = (row(number, system_digest="x", digest_key=str(number)) for number in (1, 2))
    other = record(two)
    changed = replace(other.system, text=SYSTEM.replace("brief", "quick"))
    save(data_dir, (one, record(one)), (two, replace(other, system=changed)))
    _, out, _ = clew("diff", digits(1), digits(2))
    assert "changed    tone" in out
    assert "template:clerk" not in out
    bare = [
        row(number, system_digest="x", digest_key=str(number), level="metadata")
        for number in (3, 4)
    ]
    save(data_dir, *((each, None) for each in bare))
    _, out, _ = clew("diff", digits(3), digits(4))
    assert "unknown    whether prompts of equal size are the same" in out


def test_tools_messages_model_and_parameters_are_compared(clew: Clew, data_dir: Path) -> None:
    """Not the prompt alone."""
    given = {"system_digest": "d", "digest_key": "k"}
    one = row(1, **given)
    two = row(2, **given, history_length=5, model="gpt-4o")
    old = ToolDefinition(name="old", chars=10)
    new = ToolDefinition(name="new", chars=20)
    grown = replace(record().tools[0], chars=99)
    more = [*(record().messages or []), {"role": "assistant", "parts": []}]
    save(
        data_dir,
        (one, record(one, tools=(old, record().tools[0]))),
        (two, record(two, tools=(grown, new), messages=more, parameters={"temperature": 1.0})),
    )
    _, out, _ = clew("diff", digits(1), digits(2))
    assert {
        "removed    tool old  10 chars",
        "added      tool new  20 chars",
        "changed    tool lookup  83 → 99 chars",
        "changed    model  gpt-4o-mini → gpt-4o",
        "changed    parameter temperature  0.5 → 1.0",
        "changed    messages  1 → 2: 1 more behind 1 that are the same",
    } == set(out.splitlines())
    _, out, _ = clew("diff", digits(1), digits(2), "--json")
    found = json.loads(out)
    assert (False, "identical") == (found["identical"], found["system"]["outcome"])


# --- capture --------------------------------------------------------------------------------------


def test_recording_is_switched_on_and_off(clew: Clew, data_dir: Path) -> None:
    """For the whole folder; the days stay where none are given."""
    code, out, err = clew("capture", "on", "--retain", "30")
    assert (0, "recording is on; records are kept for 30 days\n") == (code, out)
    assert "there is no content: services need CLEW_CAPTURE=redacted or full" in err
    assert switch.Switch(enabled=True, retention_days=30) == switch.read(data_dir)
    assert "recording is off; records are kept for 30 days\n" == clew("capture", "off")[1]
    assert switch.Switch(enabled=False, retention_days=30) == switch.read(data_dir)
    assert "recording is off; records are kept for 30 days\n" == clew("capture")[1]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *((word, True) for word in ("on", "true", "enable", "ON")),
        *((word, False) for word in ("off", "false", "disable")),
    ],
)
def test_words_for_on_and_off(clew: Clew, data_dir: Path, word: str, expected: bool) -> None:
    """Three each."""
    switch.write(data_dir, enabled=not expected)
    assert 0 == clew("capture", word)[0]
    assert expected == switch.read(data_dir).enabled


@pytest.mark.parametrize("word", ["maybe", "1", "yes", ""])
def test_any_other_word_is_an_error(clew: Clew, data_dir: Path, word: str) -> None:
    """And changes nothing."""
    code, out, err = clew("capture", word)
    assert (2, "") == (code, out)
    assert "say on or off" in err
    assert not switch.path_of(data_dir).exists()


@pytest.mark.parametrize("days", ["0", "-1"])
def test_days_that_are_none_leave_what_holds(clew: Clew, data_dir: Path, days: str) -> None:
    """Never for ever."""
    switch.write(data_dir, enabled=True, retention_days=14)
    assert 0 == clew("capture", "on", "--retain", days)[0]
    assert 14 == switch.read(data_dir).retention_days


def test_settings_that_force_it_are_said(
    clew: Clew, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch is set, and the answer is what holds."""
    monkeypatch.setenv("CLEW_PROMPT_CAPTURE", "off")
    _, out, err = clew("capture", "on")
    assert "recording is off" in out
    assert "the settings of this environment force it off" in err
    assert switch.read(data_dir).enabled
    monkeypatch.setenv("CLEW_PROMPT_RETENTION_DAYS", "3")
    _, out, _ = clew("capture", "--json")
    assert {
        "capture_enabled": False,
        "forced": True,
        "level": "metadata",
        "retention_days": 3,
        "max_bytes": 1024**3,
    } == json.loads(out)


# --- sweep ----------------------------------------------------------------------------------------


def test_a_sweep_says_what_it_removed(clew: Clew, data_dir: Path) -> None:
    """Or would remove; as text and as JSON."""
    now = time.time_ns()
    old, young = row(1, start_ns=now - 9 * DAY), row(2, start_ns=now)
    save(data_dir, (old, record(old)), (young, record(young)))
    size = (next((data_dir / "prompts").glob(f"*/{digits(1)}.json"))).stat().st_size
    kept = (next((data_dir / "prompts").glob(f"*/{digits(2)}.json"))).stat().st_size
    lines = [
        f"would remove 1 rows and 1 payloads ({size} bytes)",
        "       1  older than 7 days",
        f"    kept  1 rows, {kept} bytes",
    ]
    assert (0, "\n".join(lines) + "\n", "") == clew("sweep", "--dry-run")
    _, out, _ = clew("sweep", "--json")
    found = json.loads(out)
    assert (False, 1, 1, 1) == tuple(
        found[key] for key in ("dry_run", "rows", "files", "kept_rows")
    )
    assert "removed 0 rows" in clew("sweep")[1]
    _, out, _ = clew("sweep", "--max-bytes", "0")
    assert "       1  beyond 0 bytes\n" in out
    assert 2 == clew("sweep", "--keep-days", "0")[0]


# --- report ---------------------------------------------------------------------------------------


def test_a_report_without_spans_is_made_of_the_records(clew: Clew, data_dir: Path) -> None:
    """A service that sends its spans elsewhere has its report all the same."""
    given = {"run_id": RUN, "trace_id": RUN.replace("-", ""), "agent_id": "x", "input_tokens": 60}
    first = mapped(1, ("a", "1"), ("b", "1"), round=1, cache_read_tokens=50, **given)
    second = mapped(2, ("a", "1"), ("b", "2"), round=2, cache_read_tokens=0, **given)
    save(data_dir, (first, None), (second, None))
    code, out, _ = clew("report", RUN)
    assert 0 == code
    assert out.splitlines()[-1] == (
        "break      round 2: block b changed, 10 bytes before it are the same; "
        "50 cached tokens lost"
    )
    _, out, _ = clew("report", RUN, "--json")
    (agent,) = json.loads(out)["agents"]
    assert (50, None, 2) == (agent["lost_tokens"], agent["lost_usd"], len(agent["rounds"]))
    assert 1 == clew("report", RUN, "--tenant", "other")[0]


def test_a_report_of_a_stored_run(clew: Clew, data_dir: Path) -> None:
    """With capture off: the spans are enough."""
    sample = sample_runs.triage()
    writer = Writer(data_dir / "clew.db")
    writer.write(otlp_protobuf.decode(sample_runs.protobuf(sample)).spans)
    writer.close()
    code, out, _ = clew("report", sample.run_id[:8])
    assert 0 == code
    assert out.startswith("agent ")
    assert "ROUND" in out
    code, _, err = clew("report", "0" * 32)
    assert 1 == code
    assert "there is no run" in err


# --- budget ---------------------------------------------------------------------------------------


def rules(tmp_path: Path, *given: dict[str, Any]) -> str:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"rules": list(given)}))
    return str(path)


@pytest.mark.parametrize(
    ("rule", "code", "word"),
    [
        ({"of": "system", "max_bytes": 36}, 0, "ok"),
        ({"of": "system", "max_bytes": 35}, 1, "exceeded"),
        ({"of": "system", "max_chars": 34}, 0, "ok"),
        ({"of": "system", "max_tokens": 8}, 1, "exceeded"),
        ({"of": "block tone", "max_bytes": 9}, 0, "ok"),
        ({"of": "block tone", "max_chars": 8}, 1, "exceeded"),
        ({"of": "block template:*", "max_tokens": 6}, 1, "exceeded"),
        ({"of": "block nonsuch", "max_tokens": 6}, 1, "unmatched"),
        ({"of": "block nonsuch", "max_tokens": 6, "optional": True}, 0, "ok"),
        ({"of": "system", "max_bytes": 1, "agent": "other"}, 1, "unmatched"),
        ({"of": "system", "max_bytes": 1, "agent": "triage"}, 1, "exceeded"),
        ({"of": "tools", "max_chars": 60}, 0, "ok"),
        ({"of": "tools", "max_tokens": 14}, 1, "exceeded"),
        ({"of": "request", "max_bytes": 10}, 1, "unmatched"),
        ({"of": "history", "max_messages": 2}, 1, "exceeded"),
    ],
)
def test_a_bound_that_is_exceeded_fails_a_build(
    clew: Clew, data_dir: Path, tmp_path: Path, rule: dict[str, Any], code: int, word: str
) -> None:
    """By block or as a whole; a rule that measures nothing fails too, unless that is said."""
    save(data_dir, (row(1, blocks=blocks_of()), None))
    ended, out, err = clew("budget", rules(tmp_path, rule))
    assert (code, "1 records were looked at\n") == (ended, err)
    assert word == out.splitlines()[1].split()[0]


def test_growth_is_measured_within_a_run(clew: Clew, data_dir: Path, tmp_path: Path) -> None:
    """Over the first round of each agent of a run, in percent; calls outside of runs do not grow."""
    sizes = [(1, RUN, "x", 100), (2, RUN, "x", 130), (3, RUN, "y", 1000), (4, None, None, 9999)]
    for number, run, agent, size in sizes:
        save(
            data_dir,
            (row(number, run_id=run, agent_id=agent, round=number, system_bytes=size), None),
        )
    assert 0 == clew("budget", rules(tmp_path, {"of": "system", "max_growth": 30}))[0]
    ended, out, _ = clew("budget", rules(tmp_path, {"of": "system", "max_growth": 29}), "--json")
    assert 1 == ended
    found = json.loads(out)
    (verdict,) = found["verdicts"]
    assert (False, 4, "exceeded", 30.0, digits(2)) == (
        *(found["ok"], found["records"], verdict["verdict"], verdict["largest"]),
        verdict["request_id"],
    )


def test_a_budget_may_be_for_some_calls(clew: Clew, data_dir: Path, tmp_path: Path) -> None:
    """Of an agent, a run, a tenant."""
    save(data_dir, (row(1), None), (row(2, agent="b", tenant="t", system_bytes=999), None))
    path = rules(tmp_path, {"of": "system", "max_bytes": 100})
    assert [1, 0, 1, 0] == [
        clew("budget", path, *options)[0]
        for options in ((), ("--agent", "triage"), ("--tenant", "t"), ("--tenant", "acme"))
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: []", "write `rules:`, with a list of rules"),
        ("[]", "write `rules:`"),
        ("rules: [7]", "a rule is a mapping"),
        ("rules:\n  - of: system\n", "there is no bound, such as max_tokens"),
        ("rules:\n  - of: sistem\n    max_bytes: 1\n", "not 'sistem'"),
        ("rules:\n  - of: block\n    max_bytes: 1\n", "not 'block'"),
        ("rules:\n  - of: system x\n    max_bytes: 1\n", "not 'system x'"),
        ("rules:\n  - of: system\n    max_messages: 1\n", "'max_messages' is none of max_tokens"),
        ("rules:\n  - of: system\n    bytes: 1\n", "'bytes' is none of max_tokens"),
        ("rules:\n  - of: system\n    max_bytes: -1\n", "max_bytes is a number from 0, not -1"),
        ("rules:\n  - of: system\n    max_bytes: true\n", "not True"),
        ("rules:\n  - of: system\n    max_bytes: many\n", "not 'many'"),
        ("rules:\n  - of: system\n    agent: 7\n    max_bytes: 1\n", "`agent` is a name"),
        ("rules: x: y", "no YAML"),
        ("more: 1\nrules:\n  - of: system\n    max_bytes: 1\n", "and nothing else"),
    ],
)
def test_a_rule_that_is_none_is_an_error(clew: Clew, tmp_path: Path, text: str, said: str) -> None:
    """It says where and what: a misspelled rule is no rule that holds."""
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    code, out, err = clew("budget", str(path))
    assert (1, "") == (code, out)
    assert str(path) in err
    assert said in err


def test_a_rule_says_its_line(clew: Clew, tmp_path: Path) -> None:
    """In a long file, the line is what one needs."""
    path = tmp_path / "rules.yaml"
    path.write_text("rules:\n  - of: system\n    max_bytes: 1\n\n  - of: nothing\n")
    _, _, err = clew("budget", str(path))
    assert f"{path}:5: `of` is one of" in err


def test_a_budget_file_that_is_missing(clew: Clew, tmp_path: Path) -> None:
    """Is said."""
    code, _, err = clew("budget", str(tmp_path / "none.yaml"))
    assert (1, True) == (code, "cannot be read: No such file or directory" in err)


def test_the_server_sweeps_whether_or_not_anything_is_recorded(
    clew: Clew, data_dir: Path, tmp_path: Path
) -> None:
    """At start, with recording off; it stops with the server."""
    now = time.time_ns()
    old, young = row(1, start_ns=now - 90 * DAY), row(2, start_ns=now)
    save(data_dir, (old, record(old)), (young, record(young)))
    log = tmp_path / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-c", "from clew.cli import main; main()", "serve", "--port", "0"],
            stdout=out,
            stderr=out,
        )
        try:
            for _ in range(300):
                if len(list(data_dir.glob("prompts/*/*.json"))) == 1:
                    break
                time.sleep(0.05)
        finally:
            server.terminate()
            assert 0 == server.wait(20), log.read_text()
    listed = json.loads(clew("list", "--json")[1])["requests"]
    assert [digits(2)] == [each["request_id"] for each in listed]
