"""The command line as a whole: what it imports, how it fails, and its store commands."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_messages
import sample_runs
from commands import Clew
from sample_messages import spans_of

import clew as clew_package
from clew.cli import COMMANDS
from clew.cli.output import clean
from clew.store.database import connect
from clew.store.writer import Writer

RUN = "import sys; from clew.cli import main; main(sys.argv[1:])"


def fill(data_dir: Path, *runs: sample_runs.Sample) -> None:
    writer = Writer(data_dir / "clew.db")
    writer.write(spans_of(*runs))
    writer.close()


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


# --- the frame ------------------------------------------------------------------------------------


def test_help_lists_every_command(clew: Clew) -> None:
    """`clew --help` shows each command with its line; so does `clew` alone, as wrong usage."""
    code, out, _ = clew("--help")
    assert 0 == code
    for command in COMMANDS:
        assert re.search(rf"^  {command.name}\s+{re.escape(command.help)}$", out, re.MULTILINE)
    assert 2 == clew()[0]


@pytest.mark.parametrize("command", [each.name for each in COMMANDS])
def test_every_command_has_help(clew: Clew, command: str) -> None:
    """Each line of the table names a function that exists and is documented."""
    code, out, _ = clew(command, "--help")
    assert 0 == code
    assert f"Usage: clew {command}" in out


def test_the_page_about_the_viewer_names_every_option(clew: Clew) -> None:
    """Each option of `clew serve` is explained in its page."""
    page = (Path(__file__).parents[2] / "docs" / "viewer.md").read_text()
    options = set(re.findall(r"--[a-z-]+", clew("serve", "--help")[1])) - {"--help"}
    assert len(options) > 3
    assert {each for each in options if f"`{each}`" not in page} == set()


def test_help_imports_little() -> None:
    """`clew --help` takes under 250 ms of CPU and loads neither rich nor any command."""
    script = (
        "import sys, time\nfrom clew.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = ('rich', 'sqlite3', 'pydantic', 'opentelemetry', 'httpx', 'starlette', 'msgspec')\n"
        "loaded = sorted(each for each in heavy if each in sys.modules)\n"
        "print(loaded, time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    loaded, _, seconds = done.stderr.strip().rpartition(" ")
    assert "[]" == loaded
    assert float(seconds) < 0.25


def test_a_command_imports_only_its_own_needs(data_dir: Path) -> None:
    """Reading the store loads no web framework, no protobuf and no exporter."""
    fill(data_dir, sample_runs.triage())
    script = (
        "import sys\nfrom clew.cli import main\n"
        "try: main(['runs'])\nexcept SystemExit: pass\n"
        "heavy = ('google.protobuf', 'starlette', 'httpx', 'opentelemetry', 'rich')\n"
        "print([each for each in heavy if each in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert "[]" == done.stderr.strip()


def test_the_version_is_printed(clew: Clew) -> None:
    """`--version` names the program and the attribute contract."""
    code, out, _ = clew("--version")
    assert 0 == code
    assert re.fullmatch(r"clew \S+ \(attribute contract \d+\)\n", out)


def test_wrong_usage_is_exit_code_2(clew: Clew) -> None:
    """Unknown commands and options are told on stderr."""
    for arguments in (("nope",), ("runs", "--nope"), ("show",), ("runs", "--limit", "0")):
        code, out, err = clew(*arguments)
        assert (2, "") == (code, out)
        assert err


def test_a_missing_extra_is_one_sentence() -> None:
    """Without typer the command says what to install, without a traceback."""
    without_packages = [sys.executable, "-S", "-c"]
    home = str(Path(clew_package.__file__).parents[1])
    script = f"import sys; sys.path.insert(0, {home!r}); from clew.cli import main; main(['runs'])"
    done = subprocess.run(
        [*without_packages, script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (2, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
    assert "pip install 'clew[cli]'" in done.stderr


def test_an_error_is_one_sentence_and_exit_code_1(clew: Clew) -> None:
    """Errors of Clew have no traceback and leave stdout empty."""
    code, out, err = clew("runs")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert err.startswith("clew: there is no store")


# --- runs and show ----------------------------------------------------------------------------------


def test_runs_are_listed(clew: Clew, data_dir: Path) -> None:
    """Through a pipe the table is plain text with whole ids; `--json` is the twin of the page."""
    start = sample_runs.START_NS
    runs = (sample_runs.triage(base_ns=start), sample_runs.failed(base_ns=start + 1))
    fill(data_dir, *runs)
    code, out, err = clew("runs")
    lines = out.splitlines()
    assert (0, "", 3) == (code, err, len(lines))
    assert [runs[1].run_id, runs[0].run_id] == [line.split()[0] for line in lines[1:]]
    assert "$0.0319" in lines[2]
    assert "no usage" in lines[1]
    assert "\x1b" not in out
    listed = json.loads(clew("runs", "--json")[1])
    assert [runs[1].run_id, runs[0].run_id] == [each["run_id"] for each in listed["runs"]]
    assert listed["runs"][1]["tokens"]["cache_read"] == 5200


def test_runs_are_filtered_and_paged(clew: Clew, data_dir: Path) -> None:
    """Filters narrow the list; the rest is offered on stderr, the cursor in JSON."""
    start = sample_runs.START_NS
    runs = [sample_runs.running(base_ns=start + each) for each in range(3)]
    fill(data_dir, *runs, sample_runs.foreign())
    first = json.loads(clew("runs", "--json", "--limit", "2")[1])
    second = json.loads(clew("runs", "--json", "--limit", "2", "--after", first["next"])[1])
    assert [each.run_id for each in reversed(runs)] == [
        each["run_id"] for each in first["runs"] + second["runs"]
    ]
    assert "--after" in clew("runs", "--limit", "2")[2]
    assert "no run matches\n" == clew("runs", "--status", "failed")[2]
    assert 4 == len(json.loads(clew("runs", "--json", "--everything")[1])["runs"])
    code, _, err = clew("runs", "--status", "fine")
    assert (1, True) == (code, "status must be one of" in err)


@pytest.mark.parametrize("form", ["dashed", "hex", "prefix", "upper"])
def test_a_run_is_shown_by_any_form_of_its_id(clew: Clew, data_dir: Path, form: str) -> None:
    """Every span is a line, in order, indented below its parent."""
    run = sample_runs.triage()
    fill(data_dir, run)
    reference = {
        "dashed": run.run_id, "hex": run.trace_id, "prefix": run.run_id[:10],
        "upper": run.run_id.upper(),
    }[form]  # fmt: skip
    code, out, err = clew("show", reference)
    assert (0, "") == (code, err)
    lines = out.split("\n\n")[1].splitlines()
    assert [each.name for each in run.spans] == [
        next(span.name for span in run.spans if line[17:].strip().startswith(span.name + " ")
             or line[17:].strip() == span.name) for line in lines
    ]  # fmt: skip
    assert [str(number) for number in range(1, len(lines) + 1)] == [
        each.split()[0] for each in lines
    ]
    assert "decide tool  deny  refund_payment · trust_zone" in out
    assert "9\u202f150 tokens (5\u202f200 cache read, 1\u202f024 cache write)" in out
    record = json.loads(clew("show", reference, "--json")[1])
    assert [each.span_id for each in run.spans] == [each["span_id"] for each in record["spans"]]


def test_missing_ambiguous_and_unreadable_are_three_errors(clew: Clew, data_dir: Path) -> None:
    """Each says what it is, and all leave stdout empty."""
    unreadable = clew("show", "aaaa")
    fill(
        data_dir,
        sample_runs.running("aaaa1111-0000-4000-8000-000000000001"),
        sample_runs.running("aaaa2222-0000-4000-8000-000000000002"),
    )
    missing = clew("show", "bbbb")
    ambiguous = clew("show", "aaaa")
    for (code, out, err), message in (
        (unreadable, "there is no store"),
        (missing, "there is no run 'bbbb'"),
        (ambiguous, "several runs begin with 'aaaa': aaaa1111-"),
    ):
        assert (1, "") == (code, out)
        assert message in err


@pytest.mark.parametrize("fault", ["newer", "not a database", "damaged"])
def test_an_unreadable_store_is_told(clew: Clew, data_dir: Path, fault: str) -> None:
    """Whatever is wrong with the file, the command says so in one sentence."""
    fill(data_dir, sample_runs.triage())
    path = data_dir / "clew.db"
    if fault == "newer":
        connection = connect(path)
        connection.execute("INSERT INTO migrations VALUES (999, 'future', 0)")
        connection.close()
    elif fault == "damaged":
        path.write_bytes(path.read_bytes()[:4096] + b"\xa5" * 40_000)
    else:
        path.write_text("hello" * 2000)
    for arguments in (("runs",), ("show", "a"), ("import", str(path))):
        code, out, err = clew(*arguments)
        assert (1, "", 1) == (code, out, err.count("\n"))
    assert fault in clew("runs")[2].replace("a newer", "newer")


def test_control_characters_do_not_reach_the_terminal(clew: Clew, data_dir: Path) -> None:
    """Names and values that could drive a terminal are shown harmlessly, in every form."""
    hostile = "\x1b]0;owned\x07\x1b[2J\u202e\r\nforged line\x9b31m"
    run = sample_runs.Sample(service=hostile)
    root = run.root(hostile, 0, 10)
    root.name = hostile
    run.tool(hostile, 1, 2, root, hostile)
    run.decide(hostile, hostile, 3, root, hostile, hostile)
    fill(data_dir, run)
    for arguments in (
        ("runs",),
        ("show", run.run_id),
        ("runs", "--json"),
        ("show", run.run_id, "--json"),
    ):
        out = clew(*arguments)[1]
        assert not set(out) & set("\x1b\x07\x9b\r\x00")
        if "--json" not in arguments:
            assert "\u202e" not in out
            assert not [line for line in out.splitlines() if line.startswith("forged")]
    assert "\\x1b[2J" == clean("\x1b[2J")


def test_a_terminal_gets_colour_and_a_tree(data_dir: Path) -> None:
    """On a terminal rich draws; the words are the same."""
    run = sample_runs.triage()
    fill(data_dir, run)
    for arguments, words in (
        (["runs"], [run.run_id[:8], "triage", "completed"]),
        (["show", run.run_id], [run.run_id, "├── ", "refund_payment", "✕ deny"]),
    ):
        shown = on_terminal(arguments)
        assert "\x1b[" in shown
        for word in words:
            assert word in shown


def on_terminal(arguments: list[str]) -> str:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments],
        stdout=theirs, stdin=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "50"},
    )  # fmt: skip
    os.close(theirs)
    collected = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        collected += piece
    os.close(ours)
    assert 0 == child.wait(30)
    return collected.decode()


# --- import ------------------------------------------------------------------------------------------


def test_a_file_is_imported_once(clew: Clew, data_dir: Path, tmp_path: Path) -> None:
    """Spans are stored; a second time they are known; the ids of the runs are the output."""
    runs = [sample_runs.triage(), sample_runs.suspended()]
    file = tmp_path / "runs.jsonl"
    file.write_bytes(b"\n".join(sample_messages.otlp_json(run) for run in runs))
    spans = sum(len(run.spans) for run in runs)
    code, out, err = clew("import", str(file))
    assert (0, [run.run_id for run in runs]) == (code, out.split())
    assert f"stored {spans} spans of 2 traces" in err
    again = json.loads(clew("import", str(file), "--json")[1])
    assert {
        "stored": 0, "identical_copies": spans, "conflicting_copies": 0, "rejected": 0,
        "runs": [run.run_id for run in runs],
    } == again  # fmt: skip


def test_what_show_exports_can_be_imported(
    clew: Clew, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clew show --otlp` writes one document that loses nothing on its way into another store."""
    run = sample_runs.suspended()
    fill(data_dir, run)
    file = tmp_path / "run.json"
    file.write_text(clew("show", run.run_id, "--otlp")[1])
    before = clew("show", run.run_id, "--json")[1]
    assert {"resourceSpans"} == set(json.loads(file.read_text()))
    assert before == clew("show", run.run_id, "--json", "--source", str(file))[1]
    monkeypatch.setenv("CLEW_DATA_DIR", str(tmp_path / "other"))
    assert 0 == clew("import", str(file))[0]
    assert before == clew("show", run.run_id, "--json")[1]


def test_a_broken_line_keeps_what_came_before(clew: Clew, data_dir: Path, tmp_path: Path) -> None:
    """The line is named, and the spans before it are stored."""
    run = sample_runs.triage()
    file = tmp_path / "runs.jsonl"
    file.write_bytes(
        sample_messages.otlp_json(run) + b"\nbroken\n" + sample_messages.otlp_json(run)
    )
    code, out, err = clew("import", str(file))
    assert (1, "") == (code, out)
    assert "line 2" in err
    assert f"({len(run.spans)} spans before it are stored)" in err
    assert 0 == clew("show", run.run_id)[0]


@pytest.mark.parametrize("content", [b"", b"hello", b'{"resourceSpans": 1}', b"\x00\xff" * 50])
def test_a_file_that_is_no_otlp_leaves_nothing(
    clew: Clew, data_dir: Path, tmp_path: Path, content: bytes
) -> None:
    """A bad file is one sentence, and no store is made for it."""
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    code, out, err = clew("import", str(file))
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert not data_dir.exists()
    assert 1 == clew("import", str(tmp_path / "missing"))[0]


# --- serve -------------------------------------------------------------------------------------------


@pytest.fixture
def serving(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """A `clew serve` of its own, and what it printed."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "serve", "--port", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "CLEW_DATA_DIR": str(data_dir)},
    ) as child:  # fmt: skip
        assert child.stdout
        printed = ""
        while not printed.endswith("}\n"):
            line = child.stdout.readline()
            if not line:
                break
            printed += line
        yield child, json.loads(printed)
        if child.poll() is None:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_stores_until_it_is_stopped(
    serving: tuple[subprocess.Popen[str], Any], clew: Clew, number: signal.Signals
) -> None:
    """It prints its address, takes spans, ends cleanly on a signal, and has lost nothing."""
    child, printed = serving
    run = sample_runs.triage()
    answer = httpx.post(
        f"{printed['address']}/v1/traces",
        content=sample_messages.protobuf(run),
        headers={"content-type": "application/x-protobuf"},
        trust_env=False,
    )
    assert 200 == answer.status_code
    child.send_signal(number)
    assert 0 == child.wait(20)
    assert child.stderr
    assert "Traceback" not in child.stderr.read()
    assert len(run.spans) == len(json.loads(clew("show", run.run_id, "--json")[1])["spans"])


def test_a_second_serve_is_refused(
    serving: tuple[subprocess.Popen[str], Any], data_dir: Path, tmp_path: Path
) -> None:
    """The same store, or the same port, is a clear error; the first one goes on."""
    _, printed = serving
    same_store = process("serve", "--port", "0", CLEW_DATA_DIR=str(data_dir))
    port = printed["address"].rpartition(":")[2]
    same_port = process("serve", "--port", port, CLEW_DATA_DIR=str(tmp_path / "other"))
    for done, message in ((same_store, "already served"), (same_port, f"port {port}")):
        assert (1, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
        assert message in done.stderr
    assert 200 == httpx.get(printed["address"], trust_env=False).status_code


def test_import_works_beside_serve(
    serving: tuple[subprocess.Popen[str], Any], clew: Clew, tmp_path: Path
) -> None:
    """Another program may store spans while a server runs, and the server shows them."""
    _, printed = serving
    run = sample_runs.triage()
    file = tmp_path / "run.json"
    file.write_bytes(sample_messages.otlp_json(run))
    assert 0 == clew("import", str(file))[0]
    assert 200 == httpx.get(f"{printed['address']}/runs/{run.run_id}", trust_env=False).status_code


def test_what_was_accepted_survives_a_kill(
    serving: tuple[subprocess.Popen[str], Any], clew: Clew
) -> None:
    """A message that was answered with 200 is there after SIGKILL; the store opens again."""
    child, printed = serving
    runs = [sample_runs.triage() for _ in range(5)]
    for run in runs:
        httpx.post(
            f"{printed['address']}/v1/traces",
            content=sample_messages.protobuf(run),
            headers={"content-type": "application/x-protobuf"},
            trust_env=False,
        ).raise_for_status()
    child.kill()
    child.wait(20)
    time.sleep(0.05)
    listed = json.loads(clew("runs", "--json")[1])["runs"]
    assert {run.run_id for run in runs} == {each["run_id"] for each in listed}
