"""The gateway's queue on disk: what a client was told is accepted arrives, whatever dies."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import threading
import time
from pathlib import Path

import agent_runs
import real_peers
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SPANS = 5
"""In one message."""


class Sender(threading.Thread):
    """Sends small messages as fast as they are taken; remembers which were."""

    def __init__(self, base_url: str, first: int) -> None:
        super().__init__(daemon=True)
        self.url = f"{base_url}/v1/traces"
        self.first = first
        self.accepted: set[int] = set()
        self.refused = 0
        self.halt = threading.Event()

    def run(self) -> None:
        """Send until told to stop; a message that is not confirmed counts for nothing."""
        number = self.first
        with requests.Session() as session:
            session.trust_env = False
            while not self.halt.is_set():
                message = ExportTraceServiceRequest()
                scope = message.resource_spans.add().scope_spans.add()
                now = time.time_ns()
                numbers = range(number, number + SPANS)
                for each in numbers:
                    scope.spans.add(
                        name="chat", trace_id=each.to_bytes(16, "big"),
                        span_id=each.to_bytes(8, "big"),
                        start_time_unix_nano=now, end_time_unix_nano=now,
                    )  # fmt: skip
                number += SPANS
                try:
                    answer = session.post(
                        self.url,
                        data=message.SerializeToString(),
                        headers={"content-type": "application/x-protobuf"},
                        timeout=5,
                    )
                except requests.RequestException:
                    self.refused += 1
                    time.sleep(0.05)
                    continue
                time.sleep(0.002)
                if answer.status_code == 200:
                    self.accepted.update(numbers)
                else:
                    self.refused += 1


def test_killed_and_restarted_under_load_nothing_accepted_is_lost(
    programs: None, tmp_path: Path
) -> None:
    """The Collector is killed twice, its backend is down meanwhile; each accepted span arrives."""
    port = real_peers.free_port()
    backend = f"127.0.0.1:{real_peers.free_port()}"  # nobody listens there
    settings = {"CLEW_JAEGER": backend}
    gateway = real_peers.Collector(tmp_path / "gateway", "gateway", http_port=port, **settings)
    senders = [Sender(gateway.otlp, 1 + number * 10**9) for number in range(2)]
    try:
        gateway.start()
        for sender in senders:
            sender.start()
        for _ in range(2):
            before = [len(each.accepted) for each in senders]
            agent_runs.eventually(
                lambda before=before: all(
                    len(each.accepted) > was + 500
                    for each, was in zip(senders, before, strict=True)
                ),
                seconds=60,
            )
            gateway.kill()
            gateway.start()
        for sender in senders:
            sender.halt.set()
            sender.join(10)
        gateway.kill()
        accepted = set.union(*(each.accepted for each in senders))
        assert len(accepted) > 2000
        assert all(each.refused for each in senders)  # it was down while they sent
        with real_peers.Jaeger(tmp_path / "jaeger") as jaeger:
            gateway._environment["CLEW_JAEGER"] = jaeger.otlp
            gateway.start()

            def stored() -> int:
                lines = requests.get(f"http://{gateway.own_metrics}/metrics", timeout=5).text
                return sum(
                    int(float(each.rsplit(" ", 1)[1]))
                    for each in lines.splitlines()
                    if each.startswith("otelcol_exporter_sent_spans")
                )

            agent_runs.eventually(lambda: stored() >= len(accepted), seconds=60)
            sample = [*sorted(accepted)[:: max(1, len(accepted) // 300)], max(accepted)]
            lost = [
                each for each in sample
                if not real_peers.answers_with(f"http://{jaeger.address}/api/v3/traces/{each:032x}", 200)
            ]  # fmt: skip
            assert [] == lost
    finally:
        for sender in senders:
            sender.halt.set()
        gateway.stop()
