"""An OTLP receiver that can be made to fail in each way that receivers do."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from clew.audit.keys import KeyRing
from clew.audit.verify import verify
from clew.sources.otlp_json import record_of
from clew.store import otlp_protobuf
from clew.store.records import SpanRecord
from clew.testing import OtlpSink, ReceivedRequest
from clew.testing.loopback import Connection


class Certificate(NamedTuple):
    """Files of a server's certificate, which is its own authority."""

    public: Path
    private: Path


class Receiver(OtlpSink):
    """Takes spans, or answers as it is told.

    Args:
        port: where to listen; 0 takes a free port.
        status: what it answers; 200 takes, 0 never answers, -1 closes the connection.
        headers: of its answers.
        most: bytes of a message that it takes.
        tls: what it shows, over TLS.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        most: int = 1 << 30,
        tls: Certificate | None = None,
    ) -> None:
        super().__init__()
        self.port = port
        self.status = status
        self.headers = headers or {}
        self.most = most
        self.after: tuple[int, int] | None = None
        """After so many requests its status becomes another."""
        self._tls = tls
        self.taken: list[bytes] = []

    def start(self) -> Self:
        super().start()
        assert self._server is not None
        if self._tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        return self

    @property
    def base_url(self) -> str:
        plain = super().base_url
        return plain if self._tls is None else plain.replace("http:", "https:")

    def respond(self, request: ReceivedRequest, connection: Connection) -> None:
        if self.after is not None and request.number > self.after[0]:
            self.status = self.after[1]
        if self.status == 0:
            connection.pause(60)
        elif self.status == -1:
            connection.cut(reset=True)
        elif len(request.content()) > self.most:
            connection.head(413, {}, 0)
        elif self.status != 200:
            connection.head(self.status, self.headers, 0)
        else:
            self.taken.append(request.content())
            connection.head(200, {"content-type": "application/x-protobuf"}, 0)

    def records(self) -> list[SpanRecord]:
        """Return every span that was taken, copies included, in the order of arrival."""
        return [span for body in self.taken for span in otlp_protobuf.decode(body).spans]


def verdicts(records: list[SpanRecord], runs: list[str]) -> dict[str, tuple[str, str]]:
    """Return what `clew verify` says of each run."""
    found: dict[str, tuple[str, str]] = {}
    for run in runs:
        spans = [each for each in records if each.trace_id == run]
        if not spans:
            found[run] = ("MISSING", "")
            continue
        report = verify(record_of(run, spans), KeyRing())
        found[run] = (report.status, report.integrity)
    return found


def certificate(folder: Path) -> Certificate:
    """Write a certificate of a server's own for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address: Any = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = folder / "server.pem"
    private = folder / "server.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return Certificate(public, private)
