"""`clew play`: run a configuration once and watch it, or look at what it would send."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from clew.cli import play_view
from clew.cli.output import print_json, say
from clew.errors import ClewError

if TYPE_CHECKING:
    from clew.actors import Actor
    from clew.loop import Augmentation, DryRun, LoopResult, Trace
    from clew.loop.playing import Play, PlayConfiguration, ScriptedReply

VIEWER: Final = "http://127.0.0.1:4318"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_SIGNALS: Final = ("completed", "waiting_for_approval", "waiting_for_input")


def play(
    configuration: Annotated[Path, typer.Argument(metavar="CONFIG.yaml", help="What to run.")],
    question: Annotated[str | None, typer.Argument(help="What to ask.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be sent; send nothing.")
    ] = False,
    force_snippet: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Add a snippet; may be repeated.")
    ] = None,
    force_skill: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Add a skill; may be repeated.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="A system prompt instead of the configuration's own.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Show raw answers, where that is permitted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    actor: Annotated[
        str | None, typer.Option("--as", help="Your id. [default: your name on this machine]")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Go on with a run that waited.")
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="JSON", help="What a person gives, by call, with --resume."
        ),
    ] = None,
) -> None:
    """Run a configuration with a question and show each round as it happens.

    The configuration names a provider, a model, a prompt, and perhaps snippets, skills and tools;
    docs/play-example.yaml is one that needs no network and no account. The run is sent to a viewer
    (`clew serve`) that is up on this machine, or where OTEL_EXPORTER_OTLP_ENDPOINT says.
    """
    if (question is None) == (resume is None):
        raise typer.BadParameter("give a question, or --resume with the file of a run that waited")
    asked = _Asked(
        question=question,
        dry_run=dry_run,
        snippets=tuple(force_snippet or ()),
        skills=tuple(force_skill or ()),
        prompt=prompt,
        raw=raw,
        resume=resume,
        inputs=_inputs(inputs),
    )
    _play(configuration, actor, asked, as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What was asked for on the command line."""

    question: str | None
    dry_run: bool
    snippets: tuple[str, ...]
    skills: tuple[str, ...]
    prompt: str | None
    raw: bool
    resume: Path | None
    inputs: dict[str, dict[str, Any]]

    @property
    def augmentation(self) -> Augmentation:
        """What the run adds to its configuration."""
        from clew.loop import Augmentation

        return Augmentation(prompt=self.prompt, snippets=self.snippets, skills=self.skills)


def _play(path: Path, actor: str | None, asked: _Asked, *, as_json: bool) -> None:
    from clew.loop import playing, showing

    wanted = playing.PlayConfiguration.read(path)
    player = playing.authorised(wanted, path, actor)
    with _listening(player, raw=asked.raw) as address, _played(wanted, path) as played:
        view = play_view.View(quiet=as_json)
        trace = view.trace()
        if asked.dry_run and asked.question is not None:
            _show_dry(_dry(played, asked, player, trace), trace, as_json=as_json)
            return
        with view:
            result = _live(played, asked, player, trace)
        waits = playing.keep_state(result)
        where = None if address is None else f"{address}/runs/{result.run_id}"
        if as_json:
            print_json(showing.form(result, trace, where, waits))
        else:
            view.end(result)
    if where is not None:
        say(f"the run is at {where}")
    if waits is not None:
        say(_how_to_go_on(path, result, waits))
    if result.status not in _SIGNALS:
        raise typer.Exit(1)


def _inputs(text: str | None) -> dict[str, dict[str, Any]]:
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except msgspec.DecodeError:
        raise typer.BadParameter(
            '--input is a JSON object by call: {"call_1": {"name": "value"}}'
        ) from None


# --- running -------------------------------------------------------------------------------------


def _live(played: Play, asked: _Asked, player: Actor, trace: Trace) -> LoopResult:
    from clew.loop import RunOptions

    if asked.question is None:
        assert asked.resume is not None  # noqa: S101 - one of the two is there
        return _resume(played, asked.resume, player, asked.inputs, trace)
    return played.loop.run(
        asked.question,
        augmentation=asked.augmentation,
        options=RunOptions(actor=player, kind="play", trigger="user_message"),
        capture_raw=asked.raw,
        trace=trace,
    )


def _dry(played: Play, asked: _Asked, player: Actor, trace: Trace) -> DryRun:
    from clew.loop import RunOptions

    assert asked.question is not None  # noqa: S101 - asked before
    options = RunOptions(actor=player, trigger="user_message")
    return played.loop.dry_run(
        asked.question, augmentation=asked.augmentation, options=options, trace=trace
    )


def _resume(
    played: Play,
    file: Path,
    player: Actor,
    inputs: dict[str, dict[str, Any]],
    trace: Trace,
) -> LoopResult:
    from clew.loop.state import State

    try:
        state = State.decode(file.read_bytes())
    except OSError as error:
        raise ClewError(f"the file {file} cannot be read: {error.strerror}") from None
    return played.loop.resume(
        state.encode(),
        actor=player,
        inputs=inputs or None,
        # Who sits here has been shown what waits, by this command.
        digest=state.digest,
        submitted_by=player.id if inputs else None,
        trace=trace,
    )


@contextmanager
def _played(wanted: PlayConfiguration, path: Path) -> Generator[Play]:
    from clew.loop.playing import Play

    with Play(wanted, path, scripted=scripted) as played:
        yield played


@contextmanager
def scripted(replies: Sequence[ScriptedReply]) -> Generator[str]:
    """Start a provider on loopback that answers these; give its address."""
    from clew.testing import Reply, ScriptedProvider, ScriptedToolCall

    def answer(request: Any) -> Reply:
        said = request.json()["messages"]
        asked = next((one["content"] for one in reversed(said) if one["role"] == "user"), "")
        if not replies:
            return Reply(text=f"You said: {asked}")
        # By what it is asked, not by how often: a resumed run goes on where it was.
        place = sum(one["role"] == "assistant" for one in said)
        wanted = replies[min(place, len(replies) - 1)]
        if wanted.status != 200:
            return Reply.failure(wanted.status, headers={"x-should-retry": "false"})
        calls = tuple(
            ScriptedToolCall(name=call.name, arguments=call.arguments) for call in wanted.tool_calls
        )
        text = None if wanted.text is None else wanted.text.replace("{question}", str(asked))
        return Reply(text=text, tool_calls=calls)

    with ScriptedProvider(answer) as server:
        yield server.openai_base_url


@contextmanager
def _listening(player: Actor, *, raw: bool) -> Generator[str | None]:
    """Configure Clew for this process; give the viewer's address, where one is up."""
    import clew
    from clew.pipeline import runtime
    from clew.providers.raw import refusal_of
    from clew.testing.session import settings_for_a_session

    address = None if any(os.environ.get(name) for name in _ENDPOINTS) else _viewer()
    settings = settings_for_a_session(service_name="clew-play", seal_grace_s=0.05)
    with ExitStack() as stack:
        clew.configure(settings=settings, span_exporters=_exporters(address))
        stack.callback(clew.shutdown)
        clew.instrument()
        stack.callback(clew.uninstrument)
        refusal = refusal_of(player) if raw else None
        if refusal is not None:
            say(f"raw answers are not kept ({refusal}): see docs/providers.md")
        yield address
        current = runtime.get()
        if current is not None and address is not None:
            time.sleep(settings.seal_grace_s)
            current.worker.flush(5)


def _exporters(address: str | None) -> list[Any] | None:
    """Return where spans go: None is where the environment says."""
    if address is None:
        return None if any(os.environ.get(name) for name in _ENDPOINTS) else []
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return [OTLPSpanExporter(endpoint=f"{address}/v1/traces")]


def _viewer() -> str | None:
    """Return the address of the viewer on this machine; None where none answers."""
    import httpx

    try:
        answer = httpx.get(f"{VIEWER}/api/runs?limit=1", timeout=0.5, trust_env=False)
        return VIEWER if answer.status_code == 200 and "runs" in answer.json() else None
    except (httpx.HTTPError, ValueError, TypeError):
        return None


# --- runs that wait ------------------------------------------------------------------------------


def _how_to_go_on(configuration: Path, result: LoopResult, path: Path) -> str:
    waiting = result.waiting
    assert waiting is not None  # noqa: S101 - it has a file
    command = f"clew play {configuration} --resume {path}"
    if waiting.kind == "approval":
        return f"`clew approvals approve {waiting.approval_id}`, then `{command}`"
    example = {one.key: dict.fromkeys(_members(one.schema), "...") for one in waiting.inputs}
    return f"`{command} --input '{json.dumps(example)}'`"


def _members(schema: dict[str, Any]) -> list[str]:
    members: dict[str, Any] = schema.get("properties", {})
    return list(members)


# --- the dry run ---------------------------------------------------------------------------------


def _show_dry(dry: DryRun, trace: Trace, *, as_json: bool) -> None:
    from clew.loop import showing

    if as_json:
        print_json(showing.dry_form(dry, trace))
    else:
        play_view.print_dry(dry, trace)
    denial = showing.denial_of(dry)
    if denial is not None:
        say(denial)
        raise typer.Exit(1)
