"""Starting and stopping the server, in a background thread of this process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import uvicorn

from clew.digests import LazyDigests
from clew.errors import ClewError
from clew.settings import Settings
from clew.sources.store import StoreSource
from clew.store import paths
from clew.store.database import Claim
from clew.store.prompt_index import PromptReader
from clew.store.writer import Writer
from clew.web.access import Authenticator
from clew.web.app import create_app
from clew.web.bodies import Limits
from clew.web.gate import check_exposure
from clew.web.slow import protocol
from clew.web.views import Views

if TYPE_CHECKING:
    from clew.web.play import Playground, PlayPages

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 4318
"""The port of OTLP/HTTP."""
_START_SECONDS: Final = 15.0
_STOP_SECONDS: Final = 10.0


class Running:
    """A server that runs; stops at the end of a `with` block."""

    def __init__(
        self,
        server: uvicorn.Server,
        sock: socket.socket,
        address: str,
        cleanup: contextlib.ExitStack,
    ) -> None:
        self.address = address
        """`http://host:port`, where both the viewer and the receiver are."""
        self._server = server
        self._cleanup = cleanup
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [sock]}, name="clew-serve", daemon=True
        )
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.stop()
                raise ClewError(f"the server at {address} did not start")
            time.sleep(0.005)

    @property
    def alive(self) -> bool:
        """False once the server has ended."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Answer what is being asked, store what has arrived, and close everything."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)
        self._cleanup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def start(
    host: str = DEFAULT_HOST,
    port: int = DEFAULT_PORT,
    store_path: Path | None = None,
    *,
    names: Iterable[str] = (),
    limits: Limits | None = None,
    authenticator: Authenticator | None = None,
    playground: Playground | None = None,
) -> Running:
    """Serve a store in a background thread and return when it answers.

    Args:
        host: address to bind to.
        port: port to bind to; 0 takes a free one.
        store_path: the file of the store; by default the one in the data folder.
        names: Host names that are answered besides `host` and those of loopback.
        limits: bounds of the receiver.
        authenticator: tells who sends a request; needed where others can reach the address.
        playground: configurations that may be played here: Clew is then configured for this
            process, and what it traces goes into the store.

    Raises:
        StoreError: the store cannot be used, or is served already.
        ClewError: the address cannot be bound, or others can reach it and there is no
            authenticator, or the settings in the environment are wrong.
    """
    check_exposure(host, authenticator)
    path = store_path or paths.store_path()
    with contextlib.ExitStack() as stack:
        sock = _bind(host, port)
        stack.callback(sock.close)
        paths.prepare(path)
        stack.callback(Claim(path).release)
        writer = Writer(path)
        stack.callback(writer.close)
        source = StoreSource(path)
        stack.callback(source.close)
        prompts = None
        if path == paths.store_path(path.parent):
            prompts = PromptReader(path.parent)
            stack.callback(prompts.close)
        address = _address(host, sock)
        settings = Settings.from_environment()
        digests = _digests(settings, path.parent)
        app = create_app(
            writer,
            source,
            address=address,
            host=host,
            names=names,
            limits=limits,
            allow_list=settings.effective_allow_list(),
            prompts=prompts,
            authenticator=authenticator,
            digest_of=lambda identity: digests.get().of(identity),
            play=_playing(playground, writer, path.parent, digests, stack),
        )
        server = uvicorn.Server(_config(app, limits or Limits()))
        return Running(server, sock, address, stack.pop_all())


def _playing(
    playground: Playground | None,
    writer: Writer,
    folder: Path,
    digests: LazyDigests,
    stack: contextlib.ExitStack,
) -> Callable[[Views], PlayPages] | None:
    """Have this process trace the runs of its playground into the store that it serves."""
    if playground is None:
        return None
    from clew import patching, setup
    from clew.pipeline import runtime
    from clew.web.play import PlayPages, StoreExporter

    settings = Settings.from_environment(service_name="clew-play", data_dir=folder)
    setup.configure(settings=settings, span_exporters=[StoreExporter(writer)])
    stack.callback(setup.shutdown)
    configured = runtime.get()
    if configured is not None:
        # Readers are told their own runs by the digests that this server makes.
        configured.digests = digests
    patching.instrument()
    stack.callback(patching.uninstrument)

    def flush() -> None:
        if configured is not None:
            configured.worker.flush(_STOP_SECONDS)

    return lambda views: PlayPages(playground, views, flush=flush)


def _address(host: str, sock: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{sock.getsockname()[1]}"


def _digests(settings: Settings, folder: Path) -> LazyDigests:
    """Return what makes the keyed digest of an actor's id; the key is looked for when needed."""
    key = settings.digest_key
    return LazyDigests(key.get_secret_value() if key else None, folder)


def _config(app: object, limits: Limits) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType] - an ASGI application
        loop="asyncio",
        http=protocol(limits.seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=256,
        # Exporters send every few seconds over one connection; a shorter wait would race them.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=3,
    )


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise ClewError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; "
            "another program may have it, choose another one with --port"
        ) from None
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)  # noqa: FBT003 - the only way to say it
    return sock
