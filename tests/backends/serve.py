"""Run the Collector, Jaeger and Prometheus on loopback until Ctrl-C: `make backends`."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import build_peers
import real_peers

RULES = build_peers.MANIFEST.parents[1] / "dashboards" / "clew.rules.yaml"


def main() -> int:
    """Start all three, say where they are, and end them when asked to."""
    lacking = real_peers.missing()
    if lacking is not None:
        print(lacking, file=sys.stderr)
        return 1
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clew-backends-")))
        try:
            jaeger = stack.enter_context(real_peers.Jaeger(folder / "jaeger", port=_port(16686)))
            gateway = stack.enter_context(
                real_peers.Collector(
                    folder / "gateway", "gateway", http_port=_port(4318), CLEW_JAEGER=jaeger.otlp
                )
            )
            targets = {"gateway": gateway.prometheus, "collector": gateway.own_metrics}
            prometheus = stack.enter_context(
                real_peers.Prometheus(
                    folder / "prometheus", targets, rules=[RULES], every="5s", port=_port(9090)
                )
            )
        except real_peers.PeerError as error:
            print(error, file=sys.stderr)
            return 1
        running = (jaeger, gateway, prometheus)
        print(
            f"OTLP/HTTP   {gateway.otlp}\n"
            f"OTLP/gRPC   {gateway.otlp_grpc}\n"
            f"Jaeger      http://{jaeger.address}\n"
            f"Prometheus  http://{prometheus.address}\n\n"
            f"  clew demo --otlp {gateway.otlp}\n"
            f"  clew runs --source jaeger://{jaeger.address}\n\n"
            "Ctrl-C ends all three.",
            flush=True,
        )
        while not stop.wait(0.5):
            for peer in running:
                if not peer.alive():
                    print(f"{peer.name} ended by itself:\n{peer.tail()}", file=sys.stderr)
                    return 1
    return 0


def _port(usual: int) -> int:
    """Return the usual port, or a free one where somebody has it."""
    return usual if real_peers.is_free(usual) else real_peers.free_port()


if __name__ == "__main__":
    sys.exit(main())
