"""A small HTTP/1.1 server on 127.0.0.1, for the test doubles of this package.

It serves from daemon threads while its `with` block is open, keeps every request it received, and
gives its subclasses the whole of a connection: single writes, pauses, cuts in the middle.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import select
import socket
import socketserver
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from types import TracebackType
from typing import Any, Final, Self, cast

MAX_BODY: Final = 64 * 1024 * 1024
"""Longest request body that is read, in bytes; a longer one is answered with 413."""
MAX_WAIT: Final = 60.0
"""Longest time, in seconds, that a reply may hang."""
JOIN_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class ReceivedRequest:
    """One request as it arrived: the target with its query, headers in order, the whole body."""

    number: int
    """Counted from 1, in the order of arrival."""
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    """The body without transfer encoding; `content-encoding` is left as it came."""

    def header(self, name: str) -> str | None:
        """Return the first value of a header, whatever the case of its name."""
        wanted = name.lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def content(self) -> bytes:
        """Return the body, decompressed when it came with gzip."""
        return (
            gzip.decompress(self.body) if self.header("content-encoding") == "gzip" else self.body
        )

    def json(self) -> Any:
        """Return the body read as JSON.

        Raises:
            ValueError: if it is not JSON.
        """
        return json.loads(self.content())


class Connection:
    """The answering side of one connection: every call is one write, or none."""

    def __init__(self, handler: _Handler, stopping: threading.Event) -> None:
        self._socket = handler.connection
        self._handler = handler
        self._stopping = stopping
        self._chunked = False

    def head(self, status: int, headers: Mapping[str, str], length: int | None) -> None:
        """Send the status line and headers; `length` None means chunked transfer encoding."""
        self._chunked = length is None
        self._handler.send_response_only(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        if length is None:
            self._handler.send_header("transfer-encoding", "chunked")
        else:
            self._handler.send_header("content-length", str(length))
        self._handler.end_headers()

    def send(self, data: bytes) -> None:
        """Send a piece of the body."""
        if not data:
            return
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        self._socket.sendall(data)

    def end(self) -> None:
        """Finish the body; the connection stays open for the next request."""
        if self._chunked:
            self._socket.sendall(b"0\r\n\r\n")

    def cut(self, *, reset: bool = False) -> None:
        """Close the connection where it stands, politely (FIN) or not (RST)."""
        self._handler.close_connection = True
        with contextlib.suppress(OSError):
            if reset:
                linger = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                # The reader holds the socket open; only the last close sends the RST.
                self._handler.rfile.close()
                self._socket.close()
            else:
                self._socket.shutdown(socket.SHUT_RDWR)

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the server or of the peer's connection."""
        deadline = time.monotonic() + min(seconds, MAX_WAIT)
        while (left := deadline - time.monotonic()) > 0:
            if self._stopping.wait(min(left, 0.02)):
                raise ConnectionAbortedError
            if self._peer_left():
                raise ConnectionResetError

    def _peer_left(self) -> bool:
        readable, _, _ = select.select([self._socket], [], [], 0)
        return bool(readable) and self._socket.recv(1, socket.MSG_PEEK) == b""


class LoopbackServer(ABC):
    """Base of the servers of `clew.testing`: a context manager around a listening thread.

    An exception inside `respond` is answered with a 500 and raised again when the block is left,
    so that a faulty script cannot pass for a provider's answer.
    """

    port = 0
    """Where to listen; 0 takes a free port."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        """Every request received, in the order of arrival."""
        self.connections = 0
        """How many connections were ever accepted."""
        self.faults: list[Exception] = []
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        """Set when the server closes: a reply that waits looks at it."""
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        """Answer one request; called on that connection's own thread."""

    @property
    def base_url(self) -> str:
        """`http://127.0.0.1:port`, without a path.

        Raises:
            RuntimeError: if the server is not running.
        """
        return f"http://{self.address[0]}:{self.address[1]}"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        if self._server is None:
            raise RuntimeError(f"{type(self).__name__} is not running: use it in a `with` block")
        return cast("tuple[str, int]", self._server.server_address)

    @property
    def open_connections(self) -> int:
        """How many connections the clients hold open now."""
        return 0 if self._server is None else len(self._server.live)

    def start(self) -> Self:
        """Listen on 127.0.0.1, at `port` or on a free one."""
        self._server = _Server(self)
        self.stopping.clear()
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name=type(self).__name__,
            daemon=True,
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening and close every connection; safe to call again."""
        server, self._server = self._server, None
        if server is None or self._thread is None:
            return
        self.stopping.set()
        server.shutdown()
        server.server_close()
        server.drop_connections()
        self._thread.join(JOIN_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
        if exc is None and self.faults:
            raise self.faults[0]

    def receive(self, method: str, path: str, handler: _Handler, body: bytes) -> ReceivedRequest:
        """Keep a request that has arrived."""
        headers = tuple((str(name), str(value)) for name, value in handler.headers.items())
        with self._lock:
            request = ReceivedRequest(
                number=len(self.requests) + 1,
                method=method,
                path=path,
                headers=headers,
                body=body,
            )
            self.requests.append(request)
        return request


class _Server(socketserver.ThreadingTCPServer):
    # `http.server.HTTPServer` would ask the resolver for the host's name.
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, owner: LoopbackServer) -> None:
        self.owner = owner
        self.live: dict[socket.socket, threading.Thread] = {}
        super().__init__(("127.0.0.1", owner.port), _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self.owner.connections += 1
        self.live[request] = threading.current_thread()
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.live.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a peer that leaves in the middle is what these servers are for."""

    def drop_connections(self) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        for connection, thread in list(self.live.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(max(0.0, deadline - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def owner(self) -> LoopbackServer:
        return cast("_Server", self.server).owner

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base names it so
        """Keep quiet."""

    def _serve(self) -> None:
        owner = self.owner
        connection = Connection(self, owner.stopping)
        body = self._read_body()
        if body is None:
            connection.head(413, {"content-type": "text/plain"}, 0)
            connection.cut()
            return
        request = owner.receive(self.command, self.path, self, body)
        try:
            owner.respond(request, connection)
        except OSError:
            # The peer left, or the server is closing: nobody is there to answer.
            connection.cut()
        except Exception as fault:
            owner.faults.append(fault)
            with contextlib.suppress(OSError):
                self._fail(connection)

    def _fail(self, connection: Connection) -> None:
        text = b'{"error": {"message": "the test server failed", "type": "test_server_fault"}}'
        headers = {"content-type": "application/json", "x-should-retry": "false"}
        connection.head(500, headers, len(text))
        connection.send(text)
        connection.cut()

    def _read_body(self) -> bytes | None:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            return self._read_chunks()
        try:
            length = int(self.headers.get("content-length", "0"))
        except ValueError:
            return None
        return self.rfile.read(length) if 0 <= length <= MAX_BODY else None

    def _read_chunks(self) -> bytes | None:
        body = bytearray()
        while True:
            try:
                size = int(self.rfile.readline(64).split(b";")[0], 16)
            except ValueError:
                return None
            if size < 0 or len(body) + size > MAX_BODY:
                return None
            body += self.rfile.read(size)
            self.rfile.readline(8)
            if size == 0:
                return bytes(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base looks for these
    do_HEAD = do_OPTIONS = _serve  # noqa: N815
