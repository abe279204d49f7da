"""`clew demo`: an agent that really runs, and its trace."""

from __future__ import annotations

import contextlib
import json
import os
import time
import webbrowser
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from clew import semconv
from clew.cli.output import is_terminal, say
from clew.errors import ClewError, MissingExtraError, StoreError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from rich.tree import Tree

    from clew.testing.demo import Model, Outcome
    from clew.web.server import Running


_TOTALS: Final = "clew.run."
"""Prefix of a run's totals (`semconv.TOTALS`)."""
_COLOURS: Final = {
    **dict.fromkeys(("deny", "denied", "error", "failed"), "red"),
    **dict.fromkeys(("require_approval", "awaiting_approval", "waiting_for_approval"), "yellow"),
}


def demo(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, then exit.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve/--no-serve", help="Show the run's timeline in the browser.")
    ] = True,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the viewer; 0 takes a free one.")
    ] = 4318,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write the run as one OTLP JSON document."),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            "--otlp", metavar="URL", help="Send the run to this OTLP/HTTP receiver instead."
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", metavar="URL", help="Ask this OpenAI-compatible server."),
    ] = None,
    model_name: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model to ask for there.")
    ] = None,
) -> None:
    """Run an agent through the real OpenAI and Anthropic clients and show its trace.

    The clients talk to a scripted provider inside this process, unless --base-url and --model name
    a real one. Two agents, several rounds, tool calls, a retried request, a denial, and an approval
    that suspends the run and resumes it are exported by OTLP, as a service would.
    """
    if (base_url is None) != (model_name is None):
        raise typer.BadParameter("--base-url and --model belong together")
    with ExitStack() as stack:
        receiver = (
            stack.enter_context(_receiver(port if serve else None))
            if otlp is None
            else _Receiver(otlp.rstrip("/"), viewer=_is_viewer(otlp.rstrip("/")))
        )
        live = None if base_url is None or model_name is None else (base_url, model_name)
        trace = _run_agent(live, receiver.traces_endpoint)
        address = receiver.address(str(trace.outcome.run_id))
        if export is not None:
            _write(export, trace.document)
        if as_json:
            print(json.dumps(trace.summary(address)))
            return
        _print(trace, address)
        if address is not None and is_terminal():
            webbrowser.open(address)
        receiver.linger()


class _Receiver:
    """Where the run is sent: an OTLP/HTTP receiver, and perhaps a viewer at the same address.

    Args:
        base_url: of the receiver.
        viewer: whether the viewer is there, too.
        own: what the viewer runs on, when this process has started it.
    """

    def __init__(self, base_url: str, *, viewer: bool = False, own: Running | None = None) -> None:
        self.traces_endpoint = f"{base_url}/v1/traces"
        self._base_url = base_url
        self._viewer = viewer
        self._own = own

    def address(self, run_id: str) -> str | None:
        """Return the address of a run's timeline; None without a viewer."""
        return f"{self._base_url}/runs/{run_id}" if self._viewer else None

    def linger(self) -> None:
        """Keep a viewer of our own up until it is stopped; at a terminal only."""
        if self._own is None:
            return
        if not is_terminal():
            say("the run is kept in the store: `clew serve` shows it again at this address")
            return
        say("Ctrl-C stops the viewer")
        with contextlib.suppress(KeyboardInterrupt):
            while self._own.alive:
                time.sleep(0.2)


@contextmanager
def _receiver(port: int | None) -> Generator[_Receiver]:
    """Give a viewer at this port of loopback, or a mere receiver when there is no port."""
    if port is None:
        from clew.testing import OtlpSink

        with OtlpSink() as sink:
            yield _Receiver(sink.base_url)
        return
    if any(find_spec(each) is None for each in ("starlette", "jinja2", "uvicorn")):
        raise MissingExtraError("The viewer (or else --no-serve)", "serve")
    usual = f"http://127.0.0.1:{port}"
    if port and _is_viewer(usual):
        yield _Receiver(usual, viewer=True)
        return
    with ExitStack() as stack:
        running = _start_viewer(stack, port)
        yield _Receiver(running.address, viewer=True, own=running)


def _is_viewer(base_url: str) -> bool:
    """Tell whether a `clew serve` answers there."""
    import httpx

    try:
        answer = httpx.get(f"{base_url}/api/runs?limit=1", timeout=2, trust_env=False)
        return answer.status_code == 200 and "runs" in answer.json()
    except (httpx.HTTPError, ValueError, TypeError):
        return False


def _start_viewer(stack: ExitStack, port: int) -> Running:
    """Start a viewer on the usual store and at this port, or as near to them as is free."""
    from clew.web.server import start

    with contextlib.suppress(ClewError):
        return stack.enter_context(start(port=port))
    with contextlib.suppress(StoreError):
        return stack.enter_context(start(port=0))
    folder = stack.enter_context(TemporaryDirectory(prefix="clew-demo-"))
    return stack.enter_context(start(port=0, store_path=Path(folder) / "clew.db"))


@dataclass(frozen=True, kw_only=True)
class _Trace:
    """The run's spans as they were exported."""

    outcome: Outcome
    spans: tuple[ReadableSpan, ...]
    document: dict[str, Any]

    def summary(self, address: str | None) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        totals = _totals(self.spans)
        kinds = ("input", "output", "cache_read", "cache_write", "reasoning")
        usage = {kind: totals.get(f"{_TOTALS}usage.{kind}_tokens") for kind in kinds}
        return {
            "run_id": str(self.outcome.run_id),
            "trace_id": self.outcome.run_id.hex,
            "spans": len(self.spans),
            "segments": len(_roots(self.spans)),
            "decisions": totals.get(f"{_TOTALS}decisions"),
            "denials": totals.get(f"{_TOTALS}denials"),
            "tokens": usage,
            "cost_usd": totals.get(f"{_TOTALS}cost.usd"),
            "cost_status": totals.get(f"{_TOTALS}cost.status"),
            "address": address,
        }


def _totals(spans: Iterable[ReadableSpan]) -> dict[str, Any]:
    """Return what the last segment says: totals are cumulative, the latest wins."""
    roots = _roots(spans)
    return dict(roots[-1].attributes or {}) if roots else {}


def _roots(spans: Iterable[ReadableSpan]) -> list[ReadableSpan]:
    """Return the outermost span of each segment, in order."""
    found = (span for span in spans if _of(span, semconv.RUN_ROOT))
    return sorted(found, key=lambda span: _of(span, semconv.SEGMENT) or 0)


def _run_agent(live: tuple[str, str] | None, traces_endpoint: str) -> _Trace:
    """Configure Clew, run the agent once, and return what was exported."""
    try:
        import requests
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        import clew
        from clew.testing import CaptureExporter
        from clew.testing.demo import answer_customer
        from clew.testing.session import settings_for_a_session
    except ImportError as error:
        raise MissingExtraError("The demo", "demo") from error
    # The receiver is on loopback: no proxy of the environment is meant for it.
    session = requests.Session()
    session.trust_env = False
    kept = CaptureExporter()
    exporters = [kept, OTLPSpanExporter(traces_endpoint, session=session)]
    with _models(live) as models:
        settings = settings_for_a_session(service_name="clew-demo", **models.settings)
        clew.configure(settings=settings, span_exporters=exporters)
        clew.instrument()
        try:
            outcome = answer_customer(models.desk, models.carrier)
        finally:
            clew.shutdown()
    spans = tuple(span for span in kept.spans if _trace_id(span) == outcome.run_id.int)
    return _Trace(outcome=outcome, spans=spans, document=kept.otlp_json())


@dataclass(frozen=True, kw_only=True)
class _Models:
    desk: Model
    carrier: Model
    settings: dict[str, Any]
    """Settings of Clew that go with them."""


@contextmanager
def _models(live: tuple[str, str] | None) -> Generator[_Models]:
    """Give the desk's model and the carrier agent's."""
    try:
        import anthropic
        import openai
    except ImportError as error:
        raise MissingExtraError("The demo", "demo") from error
    from clew.testing import ScriptedProvider
    from clew.testing import demo as story

    if live is not None:
        base_url, name = live
        key = os.environ.get("OPENAI_API_KEY") or "none"
        with openai.OpenAI(base_url=base_url, api_key=key) as client:
            model = story.OpenAIModel(client=client, name=name, limits={"max_tokens": 160})
            try:
                yield _Models(desk=model, carrier=model, settings={})
            except Exception as error:
                # The client raises assertion errors, too, for what it cannot read.
                said = f"{type(error).__name__}: {error}".rstrip(": ")
                raise ClewError(f"{base_url} did not answer as hoped: {said}") from error
        return
    with (
        ScriptedProvider(story.DESK_REPLIES) as one,
        ScriptedProvider(story.CARRIER_REPLIES) as two,
        openai.OpenAI(
            base_url=one.openai_base_url,
            api_key="scripted",
            http_client=openai.DefaultHttpxClient(trust_env=False),
        ) as desk,
        anthropic.Anthropic(
            base_url=two.base_url,
            api_key="scripted",
            http_client=anthropic.DefaultHttpxClient(trust_env=False),
        ) as carrier,
    ):
        # On loopback only the operator can know whose models answer.
        hosts = {
            "{}:{}".format(*one.address): "openai",
            "{}:{}".format(*two.address): "anthropic",
        }
        limits = {"max_completion_tokens": 400}
        yield _Models(
            desk=story.OpenAIModel(client=desk, name=story.DESK_MODEL, limits=limits),
            carrier=story.AnthropicModel(client=carrier, name=story.CARRIER_MODEL),
            settings={"provider_hosts": hosts},
        )


def _write(path: Path, document: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    except OSError as error:
        raise ClewError(f"cannot write {path}: {error.strerror}") from error


def _print(trace: _Trace, address: str | None) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_tree(trace.spans))
    summary = trace.summary(address)
    tokens: dict[str, int | None] = summary["tokens"]
    console.print(
        f"\n{summary['spans']} spans, {_count(tokens['input'])} tokens in, "
        f"{_count(tokens['output'])} out, {_money(summary['cost_usd'], summary['cost_status'])}"
    )
    console.print("The agent said:", trace.outcome.answer, style="italic", markup=False)
    if address is not None:
        console.print(f"The timeline: {address}")


def _tree(spans: Sequence[ReadableSpan]) -> Tree:
    """Return the trace as a tree, children in the order in which they started."""
    from rich.tree import Tree

    shown = [span for span in spans if _of(span, semconv.RUN_EVENT) is None]
    shown.sort(key=lambda span: (_of(span, semconv.SEGMENT) or 0, _of(span, semconv.SEQ) or 0))
    root = Tree(f"[dim]trace {_trace_id(spans[0]):032x}" if spans else "[dim]no spans")
    branches: dict[int, Tree] = {}
    for span in shown:
        parent = root if span.parent is None else branches.get(span.parent.span_id, root)
        context = span.get_span_context()
        if context is not None:
            branches[context.span_id] = parent.add(_line(span))
    return root


def _line(span: ReadableSpan) -> str:
    from rich.markup import escape

    milliseconds = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    parts = [f"[bold]{escape(span.name)}[/bold]", f"[dim]{milliseconds:,.0f} ms[/dim]"]
    read, written = _of(span, semconv.USAGE_INPUT), _of(span, semconv.USAGE_OUTPUT)
    if read is not None or written is not None:
        parts.append(f"{read or 0:,} in, {written or 0:,} out")
    if _of(span, semconv.COST_STATUS) is not None:
        parts.append(_money(_of(span, semconv.COST_USD), _of(span, semconv.COST_STATUS)))
    attempts = _of(span, semconv.ATTEMPTS) or 1
    if attempts > 1:
        parts.append(f"[yellow]{attempts} attempts[/yellow]")
    for key in (semconv.DECISION_OUTCOME, semconv.TOOL_OUTCOME, semconv.RUN_STATUS):
        word = _of(span, key)
        if word is not None:
            colour = _COLOURS.get(word, "green")
            parts.append(f"[{colour}]{word}[/{colour}]")
    more = (_of(span, key) for key in (semconv.DECISION_SUBJECT, semconv.DECISION_REASON))
    parts += (escape(str(word)) for word in more if word is not None)
    if _of(span, semconv.DECISION_BY) not in (None, "policy"):
        waited = (_of(span, semconv.DECISION_WAIT_MS) or 0) / 1000
        parts.append(f"by {_of(span, semconv.DECISION_BY)}, waited {waited:.1f} s")
    return "  ".join(parts)


def _count(tokens: int | None) -> str:
    return "unknown" if tokens is None else f"{tokens:,}"


def _money(usd: float | None, status: str | None) -> str:
    return f"cost {status or 'unknown'}" if usd is None else f"{usd:.6f} USD"


def _of(span: ReadableSpan, key: str) -> Any:
    return (span.attributes or {}).get(key)


def _trace_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.trace_id if context is not None else 0
