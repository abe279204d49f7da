"""A receiver over gRPC that does not take spans: why, in plain words."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

if os.environ.get("CI") != "true":
    pytest.importorskip("grpc")
sys.path.insert(0, str(Path(__file__).parents[1] / "reliability" / "support"))

import receivers
from grpc_receivers import GrpcReceiver

GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}


def said(found: Any) -> tuple[str, str]:
    (one,) = found["exporter"]
    return one["level"], one["message"].split(": ", 1)[-1]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("UNAVAILABLE", "it is not ready"),
        ("UNAUTHENTICATED", "it wants credentials"),
        ("PERMISSION_DENIED", "the credentials are not enough"),
        ("UNIMPLEMENTED", "nothing takes OTLP over gRPC there"),
        ("RESOURCE_EXHAUSTED", "it is overloaded, or its limit for a message is very low"),
        ("DATA_LOSS", "it answered DATA_LOSS"),
    ],
)
def test_an_answer_that_refuses(doctor: Any, status: str, words: str) -> None:
    """Each code has its words; the code itself is in the facts."""
    with GrpcReceiver(status=status) as server:
        code, found = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=server.base_url, **GRPC)
    assert code == 1
    assert said(found) == ("problem", words)
    assert found["exporter"][0]["facts"] == {
        "endpoint": server.base_url.replace("http:", "grpc:"),
        "status": status,
    }


def test_a_receiver_that_takes_it(doctor: Any) -> None:
    """It is in order, and the span has come whole."""
    with GrpcReceiver() as server:
        code, found = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=server.base_url, **GRPC)
    assert (code, found["exporter"][0]["level"]) == (0, "ok")
    assert [each.name for each in server.records()] == ["invoke_agent clew_doctor"]


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://nowhere.invalid:4317", "nobody knows the name nowhere.invalid (DNS)"),
        ("http://127.0.0.1:9", "nobody listens there"),
    ],
)
def test_a_receiver_that_cannot_be_reached(doctor: Any, endpoint: str, words: str) -> None:
    """The cause is found in gRPC's own words."""
    code, found = doctor(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **GRPC)
    assert (code, said(found)) == (1, ("problem", words))


CLOSES = "what listens there closes the connection: it speaks no gRPC, or wants TLS"


@pytest.mark.parametrize(
    ("served", "asked", "protocol", "words"),
    [
        ("tls", "https", "grpc", "its certificate is not trusted"),
        ("tls", "http", "grpc", CLOSES),
        ("plain", "https", "grpc", "TLS failed"),
        ("http", "http", "grpc", CLOSES),
        (
            "plain",
            "http",
            "http/protobuf",
            "it closes the connection, or its answer is no HTTP",
        ),
    ],
)
def test_another_protocol_than_the_receivers(
    doctor: Any, served: str, asked: str, protocol: str, words: str, tmp_path: Path
) -> None:
    """TLS or none, gRPC or HTTP: what was mixed up is said."""
    files = receivers.certificate(tmp_path) if served == "tls" else None
    server: Any = receivers.Receiver() if served == "http" else GrpcReceiver(tls=files)
    with server:
        address = f"{asked}://{server.base_url.partition('://')[2]}"
        code, found = doctor(
            OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_EXPORTER_OTLP_PROTOCOL=protocol
        )
    assert (code, said(found)) == (1, ("problem", words))


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"},
            "it is no address of HTTP",
        ),
        (
            {"OTEL_EXPORTER_OTLP_COMPRESSION": "zip", **GRPC},
            'Invalid value "zip" for compression envvar OTEL_EXPORTER_OTLP_COMPRESSION',
        ),
    ],
)
def test_a_variable_that_is_wrong(doctor: Any, variables: dict[str, str], words: str) -> None:
    """It is said which, where the exporter itself would raise or send nowhere."""
    code, found = doctor(**variables)
    (one,) = found["exporter"]
    assert (code, one["level"]) == (1, "problem")
    assert one["message"].endswith(words)
