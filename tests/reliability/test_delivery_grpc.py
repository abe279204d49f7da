"""What is special to a receiver over gRPC; what it has in common with HTTP is in `test_delivery.py`."""

from __future__ import annotations

import os
from typing import Any

import pytest
from protocols import GRPC
from services import in_time

if os.environ.get("CI") != "true":
    pytest.importorskip("grpc")

GREENLETS = """
from gevent import monkey
monkey.patch_all()
import time
import gevent
import clew
clew.configure("greenlets")
longest = 0.0
def tick():
    global longest
    while True:
        began = time.monotonic()
        gevent.sleep(0.01)
        longest = max(longest, time.monotonic() - began)
gevent.spawn(tick)
for _ in range(3):
    with clew.run("desk") as run:
        pass
    gevent.sleep(0.2)
print("run", f"{run.run_id.int:032x}")
clew.shutdown()
print("held up" if longest > 1 else "went on", flush=True)
print("done", flush=True)
"""


def test_greenlets_do_not_wait_for_a_receiver(service: Any) -> None:
    """Under gevent a request waits as greenlets do; else it would hold up the whole process."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("gevent")
    with GRPC.receiver(status="NEVER") as server:
        ended = service(GREENLETS, **GRPC.environment(server.base_url))
        assert server.asked > 0
    in_time(ended)
    assert ended.out.splitlines()[1:] == ["went on", "done"]
