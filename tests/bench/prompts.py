"""What a round costs the caller while a segmented prompt is known: `python tests/bench/prompts.py`.

One process, interleaved, median of the rounds, CPU of the calling thread with Clew minus without. The
same requests are sent with no prompt known, with their system text known, and with another known
whose text has the same size but one character.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from statistics import median

import httpx2

import clew
from clew.prompts import Prompt, registry

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from workloads import FUNCTIONS, WORDS, Bench, configure, flush, history, request

SIZES = {"2 kB": 2_000, "50 kB": 50_000}
LENGTHS = (2, 40)
ROUNDS = 9
TIMES = 150


def text_of(size: int) -> str:
    return (WORDS * (size // len(WORDS) + 1))[:size]


def prepared(system: str, length: int) -> httpx2.Request:
    """Return a request with a conversation behind a system text."""
    messages = history(length)
    messages[0] = {"role": "system", "content": system}
    return request(messages, tools=FUNCTIONS, temperature=0.2)


def spend(work: Callable[[int], None]) -> float:
    gc.collect()
    began = time.thread_time()
    work(TIMES)
    return (time.thread_time() - began) / TIMES


def measure(bench: Bench, sent: httpx2.Request, text: str) -> dict[str, float]:
    """Return seconds for one call: without Clew, without a known prompt, mapped, unmapped."""

    def bare(times: int) -> None:
        bench._plain(sent, times)

    def traced(times: int) -> None:
        with clew.run("support-bot"):
            bench._plain(sent, times)

    half = len(text) // 2
    known = {
        "none known": None,
        "mapped": [("identity_context", text[:half]), ("working_memory", text[half:])],
        "unmapped": [("identity_context", text[:-1] + "#")],
    }
    spent: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        spent.setdefault("bare", []).append(spend(bare))
        clew.instrument()
        for name, sections in known.items():
            registry.forget()
            if sections is not None:
                Prompt.of(sections)
            spent.setdefault(name, []).append(spend(traced))
            flush()
        clew.uninstrument()
        if number == 0:
            spent.clear()  # the first round warms up
    return {name: median(values) for name, values in spent.items()}


def main() -> None:
    configure()
    bench = Bench()
    print("microseconds that Clew adds to a call, and over those with no prompt known")
    print(f"{'system text':12}{'messages':>9}{'none known':>12}{'mapped':>16}{'unmapped':>16}")
    for size, bytes_ in SIZES.items():
        for length in LENGTHS:
            text = text_of(bytes_)
            found = measure(bench, prepared(text, length), text)
            added = {name: (found[name] - found["bare"]) * 1e6 for name in found}
            row = f"{size:12}{length:>9}{added['none known']:>12.1f}"
            for name in ("mapped", "unmapped"):
                row += f"{added[name]:>10.1f} x{added[name] / added['none known']:.2f}"
            print(row)
    clew.shutdown()


if __name__ == "__main__":
    main()
