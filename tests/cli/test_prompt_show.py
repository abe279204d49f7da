"""`clew prompt show`: one recorded call, as a person and as a program reads it."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Clew
from msgspec.structs import replace
from prompt_rows import SYSTEM, block, digits, record, row
from recorded_calls import RUN, blocks_of, save, whole

from clew.store.prompt_records import Attempt, RecordedError, RecordedResponse, ToolDefinition

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


def test_a_call_is_shown_whole(prompt: Clew, data_dir: Path) -> None:
    """Header, each block with its share, tools, messages, parameters, response; the file's path."""
    one = row(
        1, trigger="user_message", message_id="m-1", parent=RUN, blocks=blocks_of(),
    )  # fmt: skip
    save(data_dir, (one, record(one)))
    code, out, err = prompt("show", digits(1))
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


def test_control_characters_do_not_reach_the_terminal(prompt: Clew, data_dir: Path) -> None:
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
        _, out, _ = prompt(*arguments)
        assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_failures_are_shown_with_what_is_known(prompt: Clew, data_dir: Path) -> None:
    """The type of the error, the status, every attempt; a response that is only an error."""
    one = row(1, status="error", error_type="rate_limit", attempts=2)
    failed = RecordedResponse(error=RecordedError(type="rate_limit", code="slow", status=429))
    attempts = (
        Attempt(number=1, start_ms=0.0, duration_ms=12.4, status=500, error="server_error"),
        Attempt(number=2, start_ms=512.0, duration_ms=9.0, status=429, error="rate_limit"),
    )
    save(data_dir, (one, record(one, response=failed, attempts=attempts, usage=None)))
    _, out, _ = prompt("show", digits(1))
    assert "outcome    error rate_limit, 2 attempts\n" in out
    assert "usage      none reported\n" in out
    assert out.endswith(
        "error rate_limit (code slow) HTTP 429\n"
        "attempt 1 500 server_error after 0 ms, 12 ms\n"
        "attempt 2 429 rate_limit after 512 ms, 9 ms\n"
    )


def test_a_call_without_content_is_shown_with_its_sizes(prompt: Clew, data_dir: Path) -> None:
    """Blocks with their sizes and shares, and why there is no text."""
    one = row(1, level="metadata", blocks=blocks_of())
    save(data_dir, (one, None))
    code, out, err = prompt("show", digits(1))
    assert (0, "") == (code, err)
    kept_out = "kept out at capture level metadata"
    assert f"── tone  identity · static · template  9 chars  ~3 tokens  25.0%  {kept_out}" in out
    assert f"── messages (3)  {kept_out}" in out
    code, out, err = prompt("show", digits(1), "--raw")
    assert (3, "") == (code, out)
    assert "kept out at capture level metadata" in err


def test_a_prompt_without_a_map_is_shown_whole(prompt: Clew, data_dir: Path) -> None:
    """Under one line that says so; a call without a prompt says that."""
    one = row()
    kept = record(one)
    save(data_dir, (one, replace(kept, system=replace(kept.system, blocks=()))))
    none = row(2, system_bytes=0, system_chars=0)
    save(data_dir, (none, record(none)))
    _, out, _ = prompt("show", digits(1))
    assert f"── system prompt  no map  34 chars  ~9 tokens {'─' * 32}\n{SYSTEM}\n" in out
    _, out, _ = prompt("show", digits(2))
    assert "── system prompt  none ──" in out


def test_a_block_that_is_out_of_range_is_no_crash(prompt: Clew, data_dir: Path) -> None:
    """A range past the end, or in the middle of a character, shows a placeholder."""
    blocks = (block("cut", 0, 20, 20), block("end", 20, 999, 5))
    one = row(1, blocks=blocks)
    kept = record(one)
    save(data_dir, (one, replace(kept, system=replace(kept.system, blocks=blocks))))
    code, out, _ = prompt("show", digits(1))
    assert 0 == code
    assert 2 == out.count("\ufffd")


def test_missing_ambiguous_and_unreadable_are_different(prompt: Clew, data_dir: Path) -> None:
    """In what is said and in the exit code, for each command that takes a record."""
    nothing = prompt("show", "ab")
    assert (3, "") == nothing[:2]
    assert f"nothing was recorded in {data_dir}" in nothing[2]
    one, two = (whole(1, request_id=start + "0" * 30) for start in ("ab", "ac"))
    save(data_dir, one, two)
    for command in (("show",), ("diff", "ab")):
        code, _, err = prompt(*command, "a")
        assert 4 == code
        assert "several records begin with 'a'" in err
        code, _, err = prompt(*command, "ad")
        assert 3 == code
        assert "there is no record 'ad'" in err
        code, _, err = prompt(*command, " ")
        assert 1 == code
        assert "give the id of a record" in err
    (data_dir / "prompts" / "2026-12-01" / f"{two[0].request_id}.json").write_text("{")
    for command in (("show",), ("diff", "ab")):
        code, _, err = prompt(*command, "ac")
        assert 1 == code
        assert "is damaged" in err
    (data_dir / "prompts" / "2026-12-01" / f"{two[0].request_id}.json").unlink()
    code, _, err = prompt("show", "ac")
    assert 3 == code
    assert "is gone: it was swept" in err


def test_records_of_another_tenant_are_unknown(prompt: Clew, data_dir: Path) -> None:
    """Asked for as one tenant, another's record does not exist."""
    save(data_dir, whole(1), whole(2, tenant="other"))
    assert 0 == prompt("show", digits(1), "--tenant", "acme")[0]
    code, out, err = prompt("show", digits(2), "--tenant", "acme")
    assert (3, "") == (code, out)
    assert "there is no record" in err


def test_a_call_as_json(prompt: Clew, data_dir: Path) -> None:
    """What the payload file has, and the index."""
    save(data_dir, whole())
    _, out, _ = prompt("show", digits(1), "--json")
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
