"""What differs between the protocols of OTLP, for tests that say the same of each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from receivers import Receiver


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """One way to a receiver."""

    name: str
    receiver: Callable[..., Any]
    """Makes a receiver; takes `port`, `status`, `most` and `tls`, and what `faults` holds."""
    port: int
    """Where such receivers listen by custom."""
    faults: Mapping[str, Mapping[str, Any]]
    """How a receiver fails. `down` is not one's argument: it is not there at all; nor is `after`:
    its status becomes the second after so many requests."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a service sets to send by it."""
    halves: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a service sets, beside, that is to send a large batch in halves."""
    turns: int = 0
    """How many more processes it may take until all halves are sent."""

    def environment(self, where: int | str, spool: Path | None = None) -> dict[str, str]:
        """Return what a service sets.

        Args:
            where: the address of the receiver, or its port here.
            spool: the folder for what waits; None: nothing waits.
        """
        address = where if isinstance(where, str) else f"http://127.0.0.1:{where}"
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            **self.variables,
            **({} if spool is None else {"CLEW_SPOOL_DIR": str(spool)}),
        }


def _grpc_receiver(**how: Any) -> Any:
    from grpc_receivers import GrpcReceiver

    return GrpcReceiver(**how)


HTTP = Protocol(
    name="http",
    receiver=Receiver,
    port=4318,
    faults={
        "collector down at start": {"down": True},
        "collector dies midway": {"after": (1, -1)},
        "collector never answers": {"status": 0},
        "collector too busy (429)": {"status": 429, "headers": {"retry-after": "60"}},
        "collector not ready (503)": {"status": 503, "headers": {"retry-after": "60"}},
        "collector not ready, no Retry-After": {"status": 503},
        "credentials refused (401)": {"status": 401},
    },
)
GRPC = Protocol(
    name="grpc",
    receiver=_grpc_receiver,
    port=4317,
    faults={
        "collector down at start": {"down": True},
        "collector dies midway": {"after": (1, "DIES")},
        "collector never answers": {"status": "NEVER"},
        "UNAVAILABLE with RetryInfo": {"status": "UNAVAILABLE", "retry_s": 60.0},
        "UNAVAILABLE without": {"status": "UNAVAILABLE"},
        "RESOURCE_EXHAUSTED with RetryInfo": {"status": "RESOURCE_EXHAUSTED", "retry_s": 60.0},
        "RESOURCE_EXHAUSTED without": {"status": "RESOURCE_EXHAUSTED"},
        "UNAUTHENTICATED": {"status": "UNAUTHENTICATED"},
    },
    variables={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_BSP_SCHEDULE_DELAY": "20"},
    halves={"CLEW_SHUTDOWN_SECONDS": "8"},
    turns=3,  # each process has a second for what waits
)

_NO_GRPC = pytest.mark.skipif(
    os.environ.get("CI") != "true" and find_spec("grpc") is None, reason="gRPC is not installed"
)
"""On a user's machine; in CI it has to be there."""
PROTOCOLS = [pytest.param(HTTP, id="http"), pytest.param(GRPC, id="grpc", marks=_NO_GRPC)]
FAULTS = [
    pytest.param(each, fault, id=f"{each.name}-{fault}", marks=[_NO_GRPC] if each is GRPC else [])
    for each in (HTTP, GRPC)
    for fault in each.faults
]
