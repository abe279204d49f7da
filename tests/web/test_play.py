"""The playground: the same run as in the terminal, for those who may, into the served store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import clew
from clew.actors import Actor
from clew.cli.play import scripted
from clew.errors import ConfigurationError
from clew.testing import Reply, ScriptedProvider
from clew.web.access import Principal
from clew.web.play import Playground
from clew.web.server import start

EXAMPLE = Path(__file__).parents[2] / "docs" / "play-example.yaml"
ANSWER = "Hello! 2028 is a leap year, so there is a day more to say hello."
JSON = {"accept": "application/json"}


class Known:
    """Knows who it is by the header alone."""

    def __init__(self, **actors: Actor) -> None:
        self._actors = actors

    def of_headers(self, headers: Any) -> Principal | None:
        actor = self._actors.get(headers.get("x-me", ""))
        return None if actor is None else Principal(actor=actor, tenant="acme")

    def of_token(self, token: str) -> Principal | None:
        return None


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., httpx.Client]]:
    """Return what serves configurations, and gives a client."""
    with ExitStack() as stack:

        def served(*paths: Path, authenticator: Any = None) -> httpx.Client:
            running = stack.enter_context(
                start(
                    port=0,
                    store_path=tmp_path / "data" / "clew.db",
                    authenticator=authenticator,
                    playground=Playground(paths, scripted=scripted),
                )
            )
            client = httpx.Client(base_url=running.address, timeout=20, trust_env=False)
            return stack.enter_context(client)

        yield served
    clew.uninstrument()


def written(folder: Path, name: str = "one", **values: Any) -> Path:
    path = folder / f"{name}.yaml"
    members = {"identifier": name, "provider": "scripted", "model": "small", **values}
    path.write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in members.items()))
    return path


def token(client: httpx.Client, **headers: str) -> str:
    (found,) = re.findall(
        r'name="token" value="([^"]+)"', client.get("/play", headers=headers).text
    )
    return found


def play(client: httpx.Client, **sent: Any) -> httpx.Response:
    headers = {**JSON, **sent.pop("headers", {})}
    me = {key: value for key, value in headers.items() if key == "x-me"}
    data = {"token": token(client, **me), "configuration": "greeter", "question": "hello", **sent}
    return client.post("/play", data=data, headers=headers)


def test_the_page_shows_the_run(serve: Callable[..., httpx.Client]):
    """Every step, the answer, and the way to the timeline."""
    client = serve(EXAMPLE)
    answer = play(client, headers={"accept": "text/html"}, action="run")
    assert answer.status_code == 200
    page = re.sub(r"\s+", " ", answer.text)
    assert "completed: 2 rounds, 1 tool calls, 24 tokens in, 14 out" in page
    assert f"<bdi>{ANSWER}</bdi>" in page
    assert "is_leap_year({&#34;year&#34;: 2028}) ok" in page
    words = re.findall(r'<span class="word">([^<]+)</span>', page)
    expected = ["context", "request", "answer", "tool", "context", "request", "answer"]
    assert words == expected
    (run,) = re.findall(r'href="(/runs/[0-9a-f-]+)"', page)
    timeline = client.get(run, headers={"accept": "text/html"})
    assert (timeline.status_code, "execute_tool is_leap_year" in timeline.text) == (200, True)


def test_the_twin_says_the_same(serve: Callable[..., httpx.Client]):
    """As `clew play --json` does; the run is in the store of this server."""
    client = serve(EXAMPLE)
    assert client.get("/api/play").json() == {
        "configurations": [
            {
                "identifier": "greeter",
                "provider": "scripted",
                "model": "scripted-small",
                "tools": ["is_leap_year"],
            }
        ]
    }
    found = play(client).json()
    assert (found["status"], found["text"], found["rounds"]) == ("completed", ANSWER, 2)
    run = client.get(f"/api/runs/{found['run_id']}").json()["run"]
    assert (run["status"], run["agent"]) == ("completed", "greeter")


def test_a_dry_run_sends_nothing(serve: Callable[..., httpx.Client], tmp_path: Path):
    """It shows the messages and the body that the run then sends."""
    with ScriptedProvider([Reply(text="Hi.")]) as server:
        path = written(tmp_path, provider="openai", base_url=server.openai_base_url, prompt="Own.")
        client = serve(path)
        words = {"configuration": "one", "prompt": "Mine <b>."}
        dry = play(client, action="dry", **words).json()
        page = play(client, action="dry", headers={"accept": "text/html"}, **words).text
        assert server.requests == []
        assert play(client, **words).json()["text"] == "Hi."
        assert dry["wire"].encode() == server.requests[0].body
    assert "<pre><bdi>Mine &lt;b&gt;.</bdi></pre>" in page


def test_forced_sources(serve: Callable[..., httpx.Client]):
    """Separated by commas; what is gone is said."""
    found = play(
        serve(EXAMPLE), action="dry", snippets="formal, nobody", skills=" small-talk "
    ).json()
    assert found["dropped"] == ["snippet#nobody gone"]
    assert "Write as one writes to a stranger." in found["wire"]
    assert "Ask how somebody is" in found["wire"]


@pytest.mark.parametrize(
    ("me", "permitted"),
    [
        ("root", ["greeter", "one"]),
        ("ann", ["one"]),
        ("bot", ["greeter", "one"]),
        ("idle", None),
        ("eve", None),
    ],
)
def test_who_may_play(
    serve: Callable[..., httpx.Client], tmp_path: Path, me: str, permitted: list[str] | None
):
    """The owner, an administrator, a service with the scope; for others there is no such page."""
    client = serve(
        EXAMPLE,
        written(tmp_path, owner="ann"),
        authenticator=Known(
            root=Actor(id="root", admin=True),
            ann=Actor(id="ann"),
            bot=Actor(id="bot", kind="service", scopes=frozenset({"configuration:use"})),
            idle=Actor(id="idle", kind="service", scopes=frozenset({"agent:read"})),
            eve=Actor(id="eve", grants=frozenset({"agent_approve"})),
        ),
    )
    headers = {"x-me": me}
    shown = client.get("/api/play", headers=headers)
    if permitted is None:
        assert shown.status_code == 403
        sent = {"configuration": "one", "question": "hello"}
        assert client.post("/play", data=sent, headers={**headers, **JSON}).status_code == 403
        return
    assert [one["identifier"] for one in shown.json()["configurations"]] == permitted
    answers = {
        name: play(client, configuration=name, headers=headers).status_code
        for name in ("greeter", "one")
    }
    assert answers == {name: 200 if name in permitted else 400 for name in ("greeter", "one")}
    assert client.get("/api/play").status_code == 401


def test_the_run_is_the_readers(serve: Callable[..., httpx.Client], tmp_path: Path):
    """It acts for them, in their tenant, and they may read it."""
    client = serve(written(tmp_path, owner="ann"), authenticator=Known(ann=Actor(id="ann")))
    headers = {"x-me": "ann"}
    found = play(client, configuration="one", headers=headers).json()
    run = client.get(f"/api/runs/{found['run_id']}", headers=headers)
    assert (run.status_code, run.json()["run"]["tenant"]) == (200, "acme")


def test_a_form_from_elsewhere_is_refused(serve: Callable[..., httpx.Client]):
    """Without a token of this server, or when the browser says that another page has sent it."""
    client = serve(EXAMPLE)
    assert play(client, token="").status_code == 403
    assert play(client, headers={"origin": "http://elsewhere.example"}).status_code == 403
    assert play(client, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/api/runs").json()["runs"] == []


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"question": " "}, "write a question"),
        ({"configuration": "nobody"}, "there is no such configuration"),
    ],
)
def test_what_cannot_be_played(serve: Callable[..., httpx.Client], sent: Any, said: str):
    """The page comes back with what was written, and says why."""
    client = serve(EXAMPLE)
    refused = play(client, headers={"accept": "text/html"}, **sent)
    assert (refused.status_code, said in refused.text) == (400, True)
    assert play(client, **sent).json()["error"]["message"] == said
    large = client.post("/play", data={"question": "x" * 300_000}, headers=JSON)
    assert large.status_code == 400
    assert client.post("/play", json={"question": "x"}, headers=JSON).status_code == 400


def test_a_configuration_that_became_wrong(serve: Callable[..., httpx.Client], tmp_path: Path):
    """What it names is looked for when it is played."""
    client = serve(written(tmp_path, rules="nowhere.yaml"))
    answer = play(client, configuration="one")
    assert answer.status_code == 400
    assert "the rule file" in answer.json()["error"]["message"]


def test_a_run_that_fails_is_shown(serve: Callable[..., httpx.Client], tmp_path: Path):
    """As a result, not as an error of the page."""
    client = serve(written(tmp_path, replies=[{"status": 400}]))
    answer = play(client, configuration="one", headers={"accept": "text/html"})
    assert answer.status_code == 200
    assert "failed (provider_failed): 1 rounds" in answer.text


def test_a_run_that_waits_keeps_its_state(serve: Callable[..., httpx.Client], tmp_path: Path):
    """For its owner alone; the page says how to go on."""
    tool = {
        "name": "pay",
        "function": "calendar:isleap",
        "effect": "idempotent_write",
        "approval": True,
    }
    path = written(
        tmp_path,
        tools=["pay"],
        functions=[tool | {"parameters": {"type": "object"}}],
        replies=[{"tool_calls": [{"name": "pay", "arguments": {"year": 2028}}]}],
    )
    answer = play(serve(path), configuration="one", headers={"accept": "text/html"})
    (state,) = re.findall(r"--resume ([^<]+)</code>", answer.text)
    assert Path(state).stat().st_mode & 0o777 == 0o600
    assert "waiting_for_approval: 1 rounds" in answer.text


def test_folders_of_configurations(tmp_path: Path):
    """Every YAML file that names a provider; two of one name are refused."""
    written(tmp_path, "one")
    written(tmp_path, "two")
    (tmp_path / "library.yaml").write_text("snippets: []\n")
    (tmp_path / "notes.md").write_text("provider: x\n")
    admin = Actor(id="root", admin=True)
    assert list(Playground([tmp_path]).permitted(admin)) == ["one", "two"]
    with pytest.raises(ConfigurationError, match="are both called 'one'"):
        Playground([tmp_path, tmp_path / "one.yaml"])


def test_without_a_playground_there_is_no_page(http: httpx.Client):
    """And no way to it."""
    assert http.get("/play").status_code == 404
    assert "/play" not in http.get("/").text
