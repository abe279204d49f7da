"""`clew play`: a configuration in the terminal, dry and live."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import clew
from clew.cli import main, play
from clew.pipeline import runtime
from clew.testing import Reply, ScriptedProvider
from clew.web.server import start

EXAMPLE = Path(__file__).parents[2] / "docs" / "play-example.yaml"
ANSWER = "Hello! 2028 is a leap year, so there is a day more to say hello."


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Return what runs `clew play` in this process; no viewer is looked for."""
    monkeypatch.setattr(play, "VIEWER", "http://127.0.0.1:9")

    def execute(*arguments: str | Path) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(["play", *map(str, arguments)])
        assert runtime.get() is None
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return execute


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a configuration."""

    def write(text: str = "", **values: Any) -> Path:
        path = tmp_path / "play.yaml"
        members = {"provider": "scripted", "model": "small", **values}
        lines = [f"{name}: {json.dumps(value)}" for name, value in members.items()]
        path.write_text("\n".join([*lines, text]))
        return path

    return write


def timeless(text: str) -> list[str]:
    return re.sub(r"[\d.,]+ ms", "N ms", text).splitlines()


# --- the example ---------------------------------------------------------------------------------


def test_the_example_live(run: Callable[..., Done]):
    """Through a pipe each step is a plain line; the answer stands at the end."""
    done = run(EXAMPLE, "hello")
    assert (done.code, done.err) == (0, "")
    assert timeless(done.out) == [
        "context   1  about 132 of 7,746 tokens (model 8,192)",
        "request   1  2 messages, tools: is_leap_year",
        "answer    1  openai scripted-small, N ms, 12 in, 7 out, tool_call",
        "             says: I look it up.",
        "             asks for is_leap_year",
        'tool      1  is_leap_year({"year": 2028}) ok, N ms',
        "             = true",
        "context   2  about 182 of 7,746 tokens (model 8,192)",
        "request   2  4 messages, tools: is_leap_year",
        "answer    2  openai scripted-small, N ms, 12 in, 7 out, stop",
        f"             says: {ANSWER}",
        "end          completed: 2 rounds, 1 tool calls, 24 tokens in, 14 out",
        "",
        ANSWER,
    ]


def test_the_example_dry(run: Callable[..., Done]):
    """What would be sent, in parts and as it would leave; the forced sources are in it."""
    done = run(
        EXAMPLE, "hello", "--dry-run", "--force-snippet", "formal", "--force-skill", "small-talk"
    )
    assert (done.code, done.err) == (0, "")
    body = json.loads(done.out.splitlines()[-1])
    front = "You greet people. Before you do, find out whether 2028 is a leap year, and tell them."
    assert [(each["role"], each["content"]) for each in body["messages"][:2]] == [
        ("system", f"{front}\n\nTone:\nBe friendly, and brief."),
        ("system", "Write as one writes to a stranger."),
    ]
    asked = body["messages"][2]["content"]
    assert asked.endswith("\n\nhello")
    assert "Ask how somebody is" in asked
    assert body["tools"][0]["function"]["name"] == "is_leap_year"
    assert "answer" not in done.out


def test_dry_and_live_send_the_same(run: Callable[..., Done], written: Callable[..., Path]):
    """The body of the dry run is what an OpenAI-compatible server receives."""
    with ScriptedProvider([Reply(text="Hi.")]) as server:
        path = written(provider="openai", base_url=server.openai_base_url, prompt="Own.")
        dry = run(path, "hello", "--dry-run", "--json", "--prompt", "Mine.")
        live = run(path, "hello", "--json", "--prompt", "Mine.")
        (request,) = server.requests
    assert dry.json["wire"].encode() == request.body
    assert request.json()["messages"][0] == {"role": "system", "content": "Mine."}
    assert live.json["text"] == "Hi."


def test_the_example_in_json(run: Callable[..., Done]):
    """One document: how it ended, the totals, and every step."""
    found = run(EXAMPLE, "hello", "--json", "--force-snippet", "nobody").json
    assert (found["status"], found["reason"], found["text"]) == ("completed", "completed", ANSWER)
    assert (found["rounds"], found["truncated"], found["waiting"]) == (2, False, None)
    assert (found["totals"]["input_tokens"], found["totals"]["cost_usd"]) == (24, None)
    assert found["dropped"] == ["snippet#nobody gone"]
    kinds = ["dropped", "context", "request", "llm", "tool", "context", "request", "llm"]
    assert [step["kind"] for step in found["steps"]] == kinds
    dry = run(EXAMPLE, "hello", "--json", "--dry-run").json
    assert [step["kind"] for step in dry["steps"]] == ["context", "assembled"]
    assert (dry["tools"], dry["reason"]) == (["is_leap_year"], None)
    assert dry["context"]["contextLength"] == 8192


def test_on_a_terminal_it_has_colours():
    """And shows that the model is asked; no control characters of the model's reach it."""
    here, there = pty.openpty()
    command = [sys.executable, "-c", "from clew.cli import main; main()"]
    with subprocess.Popen(
        [*command, "play", str(EXAMPLE), "hello"],
        stdout=there,
        stderr=there,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as process:
        os.close(there)
        pieces: list[bytes] = []
        while True:
            try:
                piece = os.read(here, 65536)
            except OSError:
                break
            if not piece:
                break
            pieces.append(piece)
        os.close(here)
        assert process.wait(60) == 0
    text = b"".join(pieces).decode()
    assert "\x1b[36mtool      1\x1b[0m" in text
    assert "the model is asked" in text
    assert ANSWER in text


# --- rights --------------------------------------------------------------------------------------


def test_who_may_play(run: Callable[..., Done], written: Callable[..., Path]):
    """The owner, an administrator, a service with the scope; nobody else."""
    actors = [
        {"id": "root", "admin": True},
        {"id": "bot", "kind": "service", "scopes": ["configuration:use"]},
        {"id": "idle", "kind": "service", "scopes": ["agent:read"]},
        {"id": "bob"},
    ]
    path = written(owner="ann", actors=actors)
    codes = {
        name: run(path, "hello", "--as", name).code
        for name in ("ann", "root", "bot", "idle", "bob", "eve", "0", "")
    }
    assert codes == {
        "ann": 0,
        "root": 0,
        "bot": 0,
        "idle": 1,
        "bob": 1,
        "eve": 1,
        "0": 1,
        "": 1,
    }
    refused = run(path, "hello", "--as", "eve", "--dry-run")
    assert (refused.code, refused.out) == (1, "")
    assert "'eve' may not use the configuration 'default'" in refused.err


def test_who_owns_the_file_owns_the_configuration(
    run: Callable[..., Done], written: Callable[..., Path]
):
    """Where it names no owner."""
    path = written()
    assert run(path, "hello", "--as", path.owner()).code == 0
    assert run(path, "hello", "--as", "somebody-else").code == 1


@pytest.mark.parametrize(
    ("switch", "name", "refusal"),
    [
        ("full", "admin", None),
        ("full", "me", "actor_not_permitted"),
        (None, "admin", "above_maximum"),
    ],
)
def test_raw_answers_need_switch_and_right(
    run: Callable[..., Done],
    written: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    switch: str | None,
    name: str,
    refusal: str | None,
):
    """Else the run is the same without them, and the reason is told."""
    if switch is not None:
        monkeypatch.setenv("CLEW_CAPTURE_MAX", switch)
    path = written(owner="me", actors=[{"id": "admin", "admin": True}])
    done = run(path, "hello", "--as", name, "--raw", "--json")
    (step,) = [step for step in done.json["steps"] if step["kind"] == "llm"]
    assert ("raw" in step) is (refusal is None)
    told = "" if refusal is None else f"raw answers are not kept ({refusal})"
    assert told in done.err
    shown = run(path, "hello", "--as", name, "--raw")
    assert ('"object": "chat.completion"' in shown.out) is (refusal is None)


# --- how it ends ---------------------------------------------------------------------------------


def test_a_provider_that_fails(run: Callable[..., Done], written: Callable[..., Path]):
    """Exit code 1; class and status are told, and nothing of the provider's prose."""
    done = run(written(replies=[{"status": 400}]), "hello")
    assert done.code == 1
    assert "answer    1  clew.providers.errors.ProviderError after" in done.out
    assert "end          failed (provider_failed): 1 rounds" in done.out
    assert "openai answered 400 (invalid_request_error)" in done.out


def test_a_question_that_would_be_denied(run: Callable[..., Done], written: Callable[..., Path]):
    """The context gate holds the prompt's data back from a host without a zone; dry says it too."""
    path = written(prompt="P", data_class="system_diagnostics")
    live = run(path, "hello")
    assert (live.code, "failed (policy_denied): 0 rounds" in live.out) == (1, True)
    dry = run(path, "hello", "--dry-run", "--json")
    assert dry.code == 1
    assert (dry.json["wire"], dry.json["gate"]) == (None, "context")
    assert "nothing would be sent: policy_denied by the gate context (system_diag" in dry.err


def test_a_rule_file_counts(run: Callable[..., Done], written: Callable[..., Path], tmp_path: Path):
    """Beside the configuration."""
    (tmp_path / "rules.yaml").write_text("rules:\n  - deny: no_small_ones\n    model: small\n")
    done = run(written(rules="rules.yaml"), "hello", "--json")
    assert (done.json["reason"], done.code) == ("policy_denied", 1)


def test_the_next_provider_is_asked(run: Callable[..., Done], written: Callable[..., Path]):
    """A chain, with the model that each one has."""
    with ScriptedProvider(lambda request: Reply(text=request.json()["model"])) as server:
        path = written(
            provider="openai",
            base_url="http://127.0.0.1:9/v1",
            fallback=[{"provider": "openai", "model": "other", "base_url": server.openai_base_url}],
        )
        assert run(path, "hello", "--json").json["text"] == "other"


def test_the_key_comes_from_the_environment(
    run: Callable[..., Done], written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    """By the variable's name; it is never in the file."""
    with ScriptedProvider([Reply(text="Hi.")]) as server:
        path = written(provider="openai", base_url=server.openai_base_url, api_key_env="PLAY_KEY")
        refused = run(path, "hello")
        assert (refused.code, "PLAY_KEY is not set" in refused.err) == (1, True)
        monkeypatch.setenv("PLAY_KEY", "SECRET-KEY")
        assert run(path, "hello").code == 0
        assert dict(server.requests[0].headers)["authorization"] == "Bearer SECRET-KEY"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"provider": "nobody"}, "provider 'nobody' is not known"),
        ({"colour": "red"}, "colour: is unknown"),
        ({"tools": ["find"]}, "names the tools 'find'"),
        ({"functions": [{"name": "f", "function": "no.module:f"}]}, "cannot be imported"),
        ({"functions": [{"name": "f", "function": "string:digits"}]}, "is no function"),
        ({"functions": [{"name": "f", "function": "calendar"}]}, "cannot be imported"),
        ({"library": "nowhere"}, "nowhere"),
        ({"rules": "nowhere.yaml"}, "the rule file"),
        ({"data_class": "secret"}, "data_class"),
    ],
)
def test_a_configuration_that_is_wrong(
    run: Callable[..., Done], written: Callable[..., Path], values: dict[str, Any], said: str
):
    """Is refused with one sentence, before anything is sent."""
    done = run(written(**values), "hello")
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_wrong_usage(run: Callable[..., Done], written: Callable[..., Path], tmp_path: Path):
    """A question, or a run to go on with; input that is JSON."""
    path = written()
    assert run(path).code == 2
    assert run(path, "hello", "--resume", "x").code == 2
    assert run(path, "hello", "--input", "x").code == 2
    assert run(tmp_path / "nowhere.yaml", "hello").code == 1
    missing = run(path, "--resume", tmp_path / "nowhere.json")
    assert (missing.code, "cannot be read" in missing.err) == (1, True)


# --- runs that wait ------------------------------------------------------------------------------

PAY: dict[str, Any] = {
    "name": "pay",
    "function": "calendar:isleap",
    "parameters": {"type": "object", "properties": {"year": {"type": "integer"}}},
    "effect": "idempotent_write",
}
REPLIES = [
    {"tool_calls": [{"name": "pay", "arguments": {"year": 2027}}]},
    {"text": "Paid, {question}."},
]


def test_a_call_that_waits_for_an_approval(
    run: Callable[..., Done],
    written: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
):
    """The state is kept for its owner alone; the command says how to go on, and that works."""
    path = written(
        owner="ann", tools=["pay"], functions=[{**PAY, "approval": True}], replies=REPLIES
    )
    waits = run(path, "now", "--as", "ann", "--json")
    waiting = waits.json["waiting"]
    assert (waits.code, waits.json["status"]) == (0, "waiting_for_approval")
    assert (waiting["for"], waiting["tools"]) == ("approval", ["pay"])
    state = Path(waiting["state"])
    assert state.stat().st_mode & 0o777 == 0o600
    assert f"clew approvals approve {waiting['approval_id']}" in waits.err
    with pytest.raises(SystemExit):
        main(["approvals", "approve", waiting["approval_id"], "--as", "bob"])
    capsys.readouterr()
    done = run(path, "--resume", state, "--as", "ann", "--json").json
    assert (done["status"], done["text"]) == ("completed", "Paid, now.")
    assert (done["run_id"], done["rounds"]) == (waits.json["run_id"], 2)
    first = done["steps"][0]
    assert (first["kind"], first["approved"], first["decidedBy"]) == ("approval", True, "bob")
    (tool,) = [step for step in done["steps"] if step["kind"] == "tool"]
    assert (tool["toolResult"], tool["toolIsError"]) == ("false", False)


def test_a_call_that_waits_for_input(run: Callable[..., Done], written: Callable[..., Path]):
    """What a person gives is put over the model's arguments."""
    schema = {
        "type": "object",
        "properties": {"year": {"type": "integer", "minimum": 1}},
        "required": ["year"],
    }
    path = written(tools=["pay"], functions=[{**PAY, "input_schema": schema}], replies=REPLIES)
    waits = run(path, "now", "--json").json
    ((key, wanted),) = waits["waiting"]["inputs"].items()
    assert (waits["status"], wanted) == ("waiting_for_input", schema)
    state = waits["waiting"]["state"]
    refused = run(path, "--resume", state, "--input", json.dumps({key: {"year": 0}}))
    assert (refused.code, "outside of its bounds" in refused.err) == (1, True)
    done = run(path, "--resume", state, "--input", json.dumps({key: {"year": 2028}}), "--json")
    (tool,) = [step for step in done.json["steps"] if step["kind"] == "tool"]
    assert (tool["toolArguments"], tool["toolResult"]) == ({"year": 2028}, "true")


# --- the viewer ----------------------------------------------------------------------------------


def test_a_viewer_that_is_up_gets_the_run(
    run: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, store_file: Path
):
    """And the address of its timeline is told."""
    import httpx

    with start(port=0, store_path=store_file) as server:
        monkeypatch.setattr(play, "VIEWER", server.address)
        done = run(EXAMPLE, "hello", "--json").json
        assert done["address"] == f"{server.address}/runs/{done['run_id']}"
        answer = httpx.get(f"{server.address}/api/runs/{done['run_id']}", trust_env=False)
        assert answer.status_code == 200
        found = answer.json()
    assert found["run"]["status"] == "completed"
    assert clew.current_run() is None
