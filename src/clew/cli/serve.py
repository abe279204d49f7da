"""`clew serve`."""

from __future__ import annotations

import signal
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from clew.cli.output import print_json, say
from clew.errors import ClewError, MissingExtraError
from clew.recording.sweeper import Sweeper, retention_of
from clew.settings import Settings
from clew.store.paths import store_path
from clew.store.retention import Retention

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
    with start(host, port, path, names=allow_host or ()) as server:
        if json:
            print_json({"address": server.address, "store": str(path)})
        else:
            print(server.address, flush=True)
        say(f"viewer and OTLP/HTTP receiver at {server.address}, store {path}; Ctrl-C stops")
        if host not in {"127.0.0.1", "localhost", "::1"}:
            say(f"warning: whoever reaches {host} can read every run; there is no log-in")
        sweeper = Sweeper(path.parent, lambda: _retention(path.parent))
        sweeper.start()
        try:
            while not stop.wait(0.5):
                if not server.alive:
                    raise ClewError("the server has ended by itself; its log says why")
        finally:
            sweeper.stop(_PATIENCE_S)


def _retention(folder: Path) -> Retention:
    """Return how long recorded calls are kept, as the environment and the switch say now."""
    return retention_of(Settings.from_environment(data_dir=folder))
