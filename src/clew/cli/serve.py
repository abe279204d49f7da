"""`clew serve`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clew.cli.output import print_json, say
from clew.errors import ClewError, MissingExtraError
from clew.recording.sweeper import Sweeper, retention_of
from clew.settings import Settings
from clew.store.paths import store_path

if TYPE_CHECKING:
    from clew.web.access import Authenticator
from clew.store.retention import Retention

if TYPE_CHECKING:
    from clew.web.play import Playground

_PATIENCE_S = 5.0


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 4318,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the store. [default: CLEW_DATA_DIR]")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further Host name to answer; may be repeated.")
    ] = None,
    play: Annotated[
        list[Path] | None,
        typer.Option(help="A configuration to play in the browser, or a folder; may be repeated."),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(help="File of tokens of those who may read and send; see `clew token`."),
    ] = None,
    oidc: Annotated[
        Path | None,
        typer.Option(help="JSON file that says whose signed tokens are taken (OpenID Connect)."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the address and the store as JSON.")
    ] = False,
) -> None:
    """Receive OTLP/HTTP and show runs in the browser, until it is stopped."""
    if any(find_spec(each) is None for each in ("starlette", "jinja2", "uvicorn")):
        raise MissingExtraError("`clew serve`", "serve")
    from clew.web.server import start

    stop = threading.Event()

    def end(number: int, frame: object) -> None:  # noqa: ARG001 - what a handler is given
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    path = store_path(data_dir)
    playground = _playground(play or ())
    who = _who(tokens, oidc)
    names = allow_host or ()
    with start(host, port, path, names=names, authenticator=who, playground=playground) as server:
        if json:
            print_json({"address": server.address, "store": str(path)})
        else:
            print(server.address, flush=True)
        say(f"viewer and OTLP/HTTP receiver at {server.address}, store {path}; Ctrl-C stops")
        sweeper = Sweeper(path.parent, lambda: _retention(path.parent))
        sweeper.start()
        try:
            while not stop.wait(0.5):
                if not server.alive:
                    raise ClewError("the server has ended by itself; its log says why")
        finally:
            sweeper.stop(_PATIENCE_S)


def _playground(paths: Sequence[Path]) -> Playground | None:
    if not paths:
        return None
    from clew.cli.play import scripted
    from clew.web.play import Playground

    return Playground(paths, scripted=scripted)


def _retention(folder: Path) -> Retention:
    """Return how long recorded calls are kept, as the environment and the switch say now."""
    return retention_of(Settings.from_environment(data_dir=folder))


def _who(tokens: Path | None, oidc: Path | None) -> Authenticator | None:
    """Return who tells who sends a request; None where nobody is asked."""
    if tokens is not None and oidc is not None:
        raise ClewError("give --tokens or --oidc, not both")
    if tokens is not None:
        from clew.web.tokens import StaticTokens

        return StaticTokens(tokens)
    if oidc is not None:
        from clew.web.oidc import OidcTokens, read

        return OidcTokens(read(oidc))
    return None
