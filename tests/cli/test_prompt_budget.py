"""`clew prompt report` and `budget`: how prompts grow, and bounds that fail a build."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sample_messages
import sample_runs
from commands import Clew
from prompt_rows import digits, row
from recorded_calls import RUN, blocks_of, mapped, save

from clew.store.writer import Writer

# --- report ---------------------------------------------------------------------------------------


def test_a_report_without_spans_is_made_of_the_records(prompt: Clew, data_dir: Path) -> None:
    """A service that sends its spans elsewhere has its report all the same."""
    given = {"run_id": RUN, "trace_id": RUN.replace("-", ""), "agent_id": "x", "input_tokens": 60}
    first = mapped(1, ("a", "1"), ("b", "1"), round=1, cache_read_tokens=50, **given)
    second = mapped(2, ("a", "1"), ("b", "2"), round=2, cache_read_tokens=0, **given)
    save(data_dir, (first, None), (second, None))
    code, out, _ = prompt("report", RUN)
    assert 0 == code
    assert out.splitlines()[-1] == (
        "break      round 2: block b changed, 10 bytes before it are the same; "
        "50 cached tokens lost"
    )
    _, out, _ = prompt("report", RUN, "--json")
    (agent,) = json.loads(out)["agents"]
    assert (50, None, 2) == (agent["lost_tokens"], agent["lost_usd"], len(agent["rounds"]))
    assert 1 == prompt("report", RUN, "--tenant", "other")[0]


def test_a_report_of_a_stored_run(prompt: Clew, data_dir: Path) -> None:
    """With capture off: the spans are enough."""
    sample = sample_runs.triage()
    writer = Writer(data_dir / "clew.db")
    writer.write(sample_messages.spans_of(sample))
    writer.close()
    code, out, _ = prompt("report", sample.run_id[:8])
    assert 0 == code
    assert out.startswith("agent ")
    assert "ROUND" in out
    code, _, err = prompt("report", "0" * 32)
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
    prompt: Clew, data_dir: Path, tmp_path: Path, rule: dict[str, Any], code: int, word: str
) -> None:
    """By block or as a whole; a rule that measures nothing fails too, unless that is said."""
    save(data_dir, (row(1, blocks=blocks_of()), None))
    ended, out, err = prompt("budget", rules(tmp_path, rule))
    assert (code, "1 records were looked at\n") == (ended, err)
    assert word == out.splitlines()[1].split()[0]


def test_growth_is_measured_within_a_run(prompt: Clew, data_dir: Path, tmp_path: Path) -> None:
    """Over the first round of each agent of a run, in percent; calls outside of runs do not grow."""
    sizes = [(1, RUN, "x", 100), (2, RUN, "x", 130), (3, RUN, "y", 1000), (4, None, None, 9999)]
    for number, run, agent, size in sizes:
        save(
            data_dir,
            (row(number, run_id=run, agent_id=agent, round=number, system_bytes=size), None),
        )
    assert 0 == prompt("budget", rules(tmp_path, {"of": "system", "max_growth": 30}))[0]
    ended, out, _ = prompt("budget", rules(tmp_path, {"of": "system", "max_growth": 29}), "--json")
    assert 1 == ended
    found = json.loads(out)
    (verdict,) = found["verdicts"]
    assert (False, 4, "exceeded", 30.0, digits(2)) == (
        *(found["ok"], found["records"], verdict["verdict"], verdict["largest"]),
        verdict["request_id"],
    )


def test_a_budget_may_be_for_some_calls(prompt: Clew, data_dir: Path, tmp_path: Path) -> None:
    """Of an agent, a run, a tenant."""
    save(data_dir, (row(1), None), (row(2, agent="b", tenant="t", system_bytes=999), None))
    path = rules(tmp_path, {"of": "system", "max_bytes": 100})
    assert [1, 0, 1, 0] == [
        prompt("budget", path, *options)[0]
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
def test_a_rule_that_is_none_is_an_error(
    prompt: Clew, tmp_path: Path, text: str, said: str
) -> None:
    """It says where and what: a misspelled rule is no rule that holds."""
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    code, out, err = prompt("budget", str(path))
    assert (1, "") == (code, out)
    assert str(path) in err
    assert said in err


def test_a_rule_says_its_line(prompt: Clew, tmp_path: Path) -> None:
    """In a long file, the line is what one needs."""
    path = tmp_path / "rules.yaml"
    path.write_text("rules:\n  - of: system\n    max_bytes: 1\n\n  - of: nothing\n")
    _, _, err = prompt("budget", str(path))
    assert f"{path}:5: `of` is one of" in err


def test_a_budget_file_that_is_missing(prompt: Clew, tmp_path: Path) -> None:
    """Is said."""
    code, _, err = prompt("budget", str(tmp_path / "none.yaml"))
    assert (1, True) == (code, "cannot be read: No such file or directory" in err)
