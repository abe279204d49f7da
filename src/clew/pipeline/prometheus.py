"""A Prometheus endpoint for the metrics: `GET /metrics`, on loopback unless told otherwise.

OTEL_EXPORTER_PROMETHEUS_HOST and OTEL_EXPORTER_PROMETHEUS_PORT as in
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#prometheus-exporter.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast

from clew._guard import guard, warn_once
from clew.errors import ConfigurationError, MissingExtraError

THREAD_NAME = "clew-prometheus"
_PORT = 9464


class PrometheusEndpoint:
    """Serves what an OpenTelemetry metric reader collects, one request at a time.

    Args:
        environ: where to find host and port.

    Raises:
        ConfigurationError: the port is none.
        MissingExtraError: the Prometheus exporter is not installed.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        host = environ.get("OTEL_EXPORTER_PROMETHEUS_HOST", "").strip() or "localhost"
        self._host = "127.0.0.1" if host == "localhost" else host
        self._port = _port(environ.get("OTEL_EXPORTER_PROMETHEUS_PORT", "").strip())
        try:
            client = importlib.import_module("prometheus_client")
            exporter = importlib.import_module("opentelemetry.exporter.prometheus")
            self._exposition: Any = importlib.import_module("prometheus_client.exposition")
        except ImportError:
            raise MissingExtraError(
                "the Prometheus endpoint (OTEL_METRICS_EXPORTER=prometheus)", "prometheus"
            ) from None
        self._registry: Any = client.CollectorRegistry()
        try:
            self.reader: Any = exporter.PrometheusMetricReader(registry=self._registry)
        except TypeError:  # older exporters know the process's registry alone
            self._registry = client.REGISTRY
            self.reader = exporter.PrometheusMetricReader()
        self._server: _Server | None = None
        self._drain: Callable[[], None] | None = None

    def start(self, drain: Callable[[], None]) -> None:
        """Listen; `drain` is called before each answer. A port that is taken is a warning."""
        self._drain = drain
        try:
            self._server = _Server((self._host, self._port), self)
        except OSError as error:
            warn_once(
                "serve metrics to Prometheus",
                "Clew cannot serve metrics on %s:%d (%s); set OTEL_EXPORTER_PROMETHEUS_PORT to a "
                "free port, one for each process.",
                self._host,
                self._port,
                error.strerror,
            )
            return
        threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name=THREAD_NAME,
            daemon=True,
        ).start()

    def answer(self, accept: str) -> tuple[str, bytes]:
        """Return a content type and the metrics in that format."""
        if self._drain is not None:
            self._drain()
        encode, content_type = self._exposition.choose_encoder(accept)
        return content_type, encode(self._registry)

    def close(self) -> None:
        """Stop listening."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def forked(self) -> None:
        """Let go of the parent's socket: the parent goes on listening, the child does not."""
        server, self._server = self._server, None
        if server is not None:
            with guard("close a socket of the parent"):
                server.socket.close()


def _port(text: str) -> int:
    if not text:
        return _PORT
    if not (text.isdecimal() and int(text) < 65536):
        raise ConfigurationError(
            f"OTEL_EXPORTER_PROMETHEUS_PORT is {text!r}; give a number from 0 to 65535"
        )
    return int(text)


class _Server(HTTPServer):
    def __init__(self, address: tuple[str, int], endpoint: PrometheusEndpoint) -> None:
        self.endpoint = endpoint
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # `HTTPServer.server_bind` would ask the resolver for the host's name.
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a peer that leaves in the middle is no fault of the host's."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 5  # seconds for a request to come in; others wait meanwhile

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        endpoint = cast("_Server", self.server).endpoint
        content_type, body = endpoint.answer(self.headers.get("accept", ""))
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base names it so
        """Keep quiet."""
