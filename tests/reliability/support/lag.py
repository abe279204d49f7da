"""A service in a process of its own that says how late its event loop is, with Clew and without.

Give the provider's address, that of a receiver, that of a collector that is dead, how many rounds,
and seconds of each turn. In each round every state has a turn; it prints one JSON object: for each
state the lags at p99 (ms) in the order of the rounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import sys
import time
from typing import Any

import openai
from opentelemetry import trace

import clew
from clew.pipeline import runtime
from clew.pipeline.otlp_http import FastOTLPSpanExporter
from clew.settings import Settings

TICK_S = 0.001
WORKERS = 8
PAUSE_S = 0.15
QUANTILE = 0.99


async def _tick(lags: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        lags.append(time.perf_counter() - began - TICK_S)


async def _work(client: openai.AsyncOpenAI, until: float, dice: random.Random) -> int:
    """Ask, read streams and use tools, as an agent does, until it is time."""
    done = 0
    await asyncio.sleep(dice.random() * PAUSE_S)
    while time.perf_counter() < until:
        async with clew.run("desk", actor="ann", tenant="acme"):
            asked: dict[str, Any] = {"model": "gpt-5-mini"}
            asked["messages"] = [{"role": "user", "content": "Hi"}]
            await client.chat.completions.create(**asked)
            for _ in range(4):
                with clew.tool("search"):
                    clew.decide("tool", "allow", subject="search")
            with trace.get_tracer("other").start_as_current_span("lookup") as span:
                span.set_attribute("db.system", "sqlite")
            async for _ in await client.chat.completions.create(**asked, stream=True):
                pass
        done += 1
        await asyncio.sleep(PAUSE_S * (0.5 + dice.random()))
    return done


async def _serve(base_url: str, seconds: float, seed: int) -> float:
    """Return the lag at p99 (ms) of a service at work."""
    dice = random.Random(seed)  # noqa: S311 - it only spreads the load
    lags: list[float] = []
    async with openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0) as client:
        await _work(client, time.perf_counter() + 0.01, dice)  # connects
        until = time.perf_counter() + seconds
        ticking = asyncio.ensure_future(_tick(lags))
        done = await asyncio.gather(*(_work(client, until, dice) for _ in range(WORKERS)))
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking
    assert sum(done) >= WORKERS, done
    lags.sort()
    return lags[int(len(lags) * QUANTILE)] * 1000


def _configure(endpoint: str) -> None:
    exporter = FastOTLPSpanExporter(endpoint=endpoint, timeout=1)
    settings = Settings(digest_key="k", export_delay_ms=200, seal_grace_s=0.1, shutdown_s=0.5)
    clew.configure("lag", settings=settings, span_exporters=[exporter])
    clew.instrument()
    current = runtime.get()
    assert current is not None
    assert current.prices.wait(20)


def main(base_url: str, receiver: str, dead: str, rounds: int, seconds: float) -> None:
    """Measure all states in each round, and print what was found."""
    with contextlib.suppress(OSError, AttributeError):
        # What else runs on this machine is not what is measured.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    states = {"bare": None, "clew": receiver, "dead": dead}
    found: dict[str, list[float]] = {name: [] for name in states}
    asyncio.run(_serve(base_url, 0.3, 0))
    _configure(receiver)  # loads what is loaded once
    asyncio.run(_serve(base_url, 0.3, 0))
    clew.uninstrument()
    clew.shutdown()
    for number in range(rounds):
        order = list(states.items())
        for name, endpoint in order if number % 2 else reversed(order):
            gc.collect()
            if endpoint is not None:
                _configure(endpoint)
            found[name].append(asyncio.run(_serve(base_url, seconds, number)))
            clew.uninstrument()
            clew.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]), float(sys.argv[5]))
