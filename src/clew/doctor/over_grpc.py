"""What a receiver's answer over gRPC means, in plain words.

The code alone says little: `UNAVAILABLE` is a receiver that is busy, a name that nobody knows and a
certificate that is not trusted. Which of them it is stands in gRPC's own words beside it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from clew.pipeline.otlp_sending import Answer

PORT: Final = 4317
_HTTP_PORT: Final = 4318
_SPOOL: Final = "batches wait, and are lost if that lasts (CLEW_SPOOL_DIR keeps them on the disk)"
_UNAVAILABLE: Final = (
    (
        ("dns", "name resolution", "errors resolving", "domain name"),
        "nobody knows the name {host} (DNS)",
        "Correct the host name",
    ),
    (
        ("certificate_verify_failed", "hostname verification", "peer name", "server name"),
        "its certificate is not trusted",
        "Name the authority in OTEL_EXPORTER_OTLP_CERTIFICATE",
    ),
    (
        ("ssl", "tls", "handshake"),
        "TLS failed",
        "Does it speak TLS there? Try http:// in place of https://, or the reverse",
    ),
    (
        ("socket closed", "goaway", "connection reset", "http/2", "preface"),
        "what listens there closes the connection: it speaks no gRPC, or wants TLS",
        f"Correct the port (usually {PORT}) or OTEL_EXPORTER_OTLP_PROTOCOL, or use https://",
    ),
    (
        ("refused", "failed to connect"),
        "nobody listens there",
        f"Start the collector, or correct the address and port (usually {PORT})",
    ),
)
"""Words in the details of UNAVAILABLE, what they mean, and what to do; the first that fits."""
_BY_CODE: Final = {
    "UNAVAILABLE": ("it is not ready", f"Its log says why; {_SPOOL}"),
    "UNAUTHENTICATED": ("it wants credentials", "Give them in OTEL_EXPORTER_OTLP_HEADERS"),
    "PERMISSION_DENIED": (
        "the credentials are not enough",
        "Give others in OTEL_EXPORTER_OTLP_HEADERS",
    ),
    "UNIMPLEMENTED": (
        "nothing takes OTLP over gRPC there",
        f"Use the port for gRPC (usually {PORT}), or OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ),
    "RESOURCE_EXHAUSTED": (
        "it is overloaded, or its limit for a message is very low",
        f"Its log says which; {_SPOOL}",
    ),
}


def reason_of(answer: Answer, where: str, timeout_s: float) -> tuple[str, str]:
    """Say why a message was not taken, and what to do.

    Args:
        answer: of a request over gRPC.
        where: the address that was asked.
        timeout_s: seconds that it had.
    """
    if answer.code == "DEADLINE_EXCEEDED":
        advice = "Look for a firewall between, or for another protocol at that port"
        if urlsplit(where).port == _HTTP_PORT:
            advice += f"; OTLP over gRPC is usually at port {PORT}"
        return f"no answer within {timeout_s:g} s", advice
    if answer.code == "UNAVAILABLE":
        details = str(getattr(answer.error, "details", str)() or "").lower()
        for words, reason, advice in _UNAVAILABLE:
            if any(word in details for word in words):
                return reason.format(host=urlsplit(where).hostname), advice
    found = _BY_CODE.get(answer.code or "")
    return found or (f"it answered {answer.code}", "The receiver's log says why")
