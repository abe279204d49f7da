"""The playground: run a configuration from the viewer, or see what it would send.

It is there only where configurations were named when the server was started (`clew serve --play`).
Whoever may `configuration:use` one may play it: its owner, an administrator, a service account with
that scope. The run acts for the reader, and goes into the store of this server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clew.actors import Actor
from clew.errors import ClewError, ConfigurationError
from clew.loop import Augmentation, RunOptions, Trace, playing, showing
from clew.loop.playing import Play, PlayConfiguration, Scripted
from clew.store import otlp_protobuf
from clew.store.records import QueryError
from clew.store.writer import Writer
from clew.web.access import ANY_TENANT, ForbiddenError, visit_of
from clew.web.bodies import Limits, RefusedError, read_form
from clew.web.csrf import ForgedError, Tokens
from clew.web.views import NotFoundError, Views, json_response, wants_json

_FORM: Final = Limits(body_bytes=256 * 1024, all_bytes=256 * 1024, seconds=5.0)
_AT_ONCE: Final = 4
_WRITE_S: Final = 10.0


class StoreExporter(SpanExporter):
    """Writes what this process traces into the store that it serves."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write the spans."""
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

        batch = otlp_protobuf.decode(encode_spans(spans).SerializeToString())
        if batch.spans:
            self._writer.submit(batch.spans).result(_WRITE_S)
        return SpanExportResult.SUCCESS


class Playground:
    """The configurations that may be played here.

    Args:
        paths: YAML files, and folders of them.
        scripted: starts the scripted provider.

    Raises:
        ConfigurationError: two configurations have one identifier, or one is wrong.
    """

    def __init__(self, paths: Iterable[Path], *, scripted: Scripted | None = None) -> None:
        self._scripted = scripted
        self._files: dict[str, Path] = {}
        for path in _files(paths):
            name = PlayConfiguration.read(path).identifier
            if name in self._files:
                raise ConfigurationError(
                    f"{path} and {self._files[name]} are both called {name!r}: give each its own "
                    "identifier"
                )
            self._files[name] = path

    def permitted(self, actor: Actor) -> dict[str, PlayConfiguration]:
        """Return the configurations that somebody may play, as they are in their files now."""
        found = {name: PlayConfiguration.read(path) for name, path in self._files.items()}
        return {
            name: one
            for name, one in found.items()
            if playing.may_play(one, self._files[name], actor)
        }

    def play(self, name: str, configuration: PlayConfiguration) -> Play:
        """Return what runs a configuration."""
        return Play(configuration, self._files[name], scripted=self._scripted)


def _files(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(one for one in path.iterdir() if _is_configuration(one))
        else:
            found.append(path)
    return found


def _is_configuration(path: Path) -> bool:
    """Tell whether a file of a folder is a configuration: YAML that names a provider."""
    if path.suffix not in (".yaml", ".yml"):
        return False
    text = path.read_text("utf-8", errors="replace")
    return any(line.startswith("provider:") for line in text.splitlines())


class _Asked:
    """What was asked for on the page."""

    def __init__(self, sent: dict[str, str]) -> None:
        self.name = sent.get("configuration", "")
        self.question = sent.get("question", "").replace("\r\n", "\n")
        self.prompt = sent.get("prompt", "").replace("\r\n", "\n")
        self.snippets = _listed(sent.get("snippets", ""))
        self.skills = _listed(sent.get("skills", ""))
        self.dry = sent.get("action") == "dry"
        self.raw = sent.get("raw") == "on"

    @property
    def augmentation(self) -> Augmentation:
        """What the run adds to its configuration."""
        return Augmentation(prompt=self.prompt or None, snippets=self.snippets, skills=self.skills)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


class PlayPages:
    """The route `/play` and its twin.

    Args:
        playground: the configurations.
        views: what renders.
        flush: waits until what was traced is in the store.
    """

    def __init__(self, playground: Playground, views: Views, *, flush: Callable[[], None]) -> None:
        self._playground = playground
        self._views = views
        self._flush = flush
        self._tokens = Tokens()
        self._free = threading.BoundedSemaphore(_AT_ONCE)

    def routes(self) -> list[Route]:
        """Return the routes of page and twin."""
        return [
            *self._views.pair("/play", "/api/play", self._show),
            Route("/play", self._play, methods=["POST"]),
        ]

    def _show(self, request: Request) -> Response:
        permitted = self._permitted(request)
        if wants_json(request):
            forms = [
                {
                    "identifier": name,
                    "provider": one.provider,
                    "model": one.model,
                    "tools": list(one.tools),
                }
                for name, one in permitted.items()
            ]
            return json_response({"configurations": forms})
        asked = _Asked({"configuration": request.query_params.get("configuration", "")})
        return self._page(permitted, asked)

    def _permitted(self, request: Request) -> dict[str, PlayConfiguration]:
        permitted = self._playground.permitted(visit_of(request).principal.actor)
        if not permitted:
            raise ForbiddenError(f"This needs the right {playing.ACTION}.")
        return permitted

    async def _play(self, request: Request) -> Response:
        try:
            sent = await _read(request)
        except ClewError as error:
            return self._views.failure(request, error)
        return await run_in_threadpool(self._views.answering(self._played(sent)), request)

    def _played(self, sent: dict[str, str]) -> Callable[[Request], Response]:
        asked = _Asked(sent)

        def play(request: Request) -> Response:
            permitted = self._permitted(request)
            try:
                self._tokens.check(request, sent.get("token", ""))
                if not asked.question.strip():
                    raise QueryError("write a question")
                if asked.name not in permitted:
                    raise NotFoundError("there is no such configuration")
                if not self._free.acquire(blocking=False):
                    raise QueryError(f"{_AT_ONCE} runs are going on here: try again when one ends")
                try:
                    found = self._run(request, asked, permitted[asked.name])
                finally:
                    self._free.release()
            except ClewError as error:
                status = 403 if isinstance(error, ForgedError) else 400
                if wants_json(request):
                    return self._views.refusal(request, status, str(error))
                return self._page(permitted, asked, error=str(error), status=status)
            if wants_json(request):
                return json_response(found["form"])
            return self._page(permitted, asked, found=found)

        return play

    def _run(
        self, request: Request, asked: _Asked, configuration: PlayConfiguration
    ) -> dict[str, Any]:
        principal = visit_of(request).principal
        tenant = None if principal.tenant == ANY_TENANT else principal.tenant
        options = RunOptions(
            actor=principal.actor, tenant=tenant, kind="play", trigger="user_message"
        )
        trace = Trace()
        with self._playground.play(asked.name, configuration) as play:
            if asked.dry:
                dry = play.loop.dry_run(
                    asked.question, augmentation=asked.augmentation, options=options, trace=trace
                )
                return _of_dry(dry, trace)
            result = play.loop.run(
                asked.question,
                augmentation=asked.augmentation,
                options=options,
                capture_raw=asked.raw,
                trace=trace,
            )
        state = playing.keep_state(result)
        self._flush()
        return {
            "form": showing.form(result, trace, f"/runs/{result.run_id}", state),
            "summary": showing.figures_of(result),
            "good": result.ok or result.waiting is not None,
            "text": result.text,
            "state": None if state is None else str(state),
            "run": result.run_id,
            "steps": _steps(trace),
            "parts": [],
            "wire": None,
        }

    def _page(
        self,
        permitted: dict[str, PlayConfiguration],
        asked: _Asked,
        *,
        found: dict[str, Any] | None = None,
        error: str = "",
        status: int = 200,
    ) -> Response:
        return self._views.page(
            "play.html",
            code=status,
            configurations=permitted,
            asked=asked,
            found=found,
            error=error,
            token=self._tokens.issue(),
            twin="/api/play",
        )


def _of_dry(dry: Any, trace: Trace) -> dict[str, Any]:
    denial = showing.denial_of(dry)
    return {
        "form": showing.dry_form(dry, trace),
        "summary": denial or f"{len(dry.wire or b''):,} bytes would be sent",
        "good": denial is None,
        "text": "",
        "state": None,
        "run": None,
        "steps": _steps(trace),
        "parts": showing.parts_of(trace),
        "wire": None if dry.wire is None else dry.wire.decode("utf-8", "replace"),
    }


def _steps(trace: Trace) -> list[dict[str, Any]]:
    return [
        {
            "word": showing.WORDS.get(step.kind, step.kind),
            "kind": step.kind,
            "round": step.round or None,
            "lines": showing.lines_of(step),
            "failed": bool(step.error_type) or bool(step.tool_is_error),
        }
        for step in trace.steps
    ]


async def _read(request: Request) -> dict[str, str]:
    """Read a form within bounds."""
    try:
        return await read_form(request, _FORM)
    except RefusedError as error:
        raise QueryError(str(error)) from None
