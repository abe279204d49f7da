"""One process of `make bench`: a subject and its loads, driven by lines on standard input.

    python member.py SUBJECT LIBRARY ENDPOINT|- on|off

Each line is the name of a load; the answer is a line of JSON. What the subject has patched is put
on and taken off again before each use, so that uses without it and with it take turns and share
all else. Times are CPU seconds of this process. Of the calling thread `bare` and `added` are the
medians of the uses and of the differences between neighbours, for a busy machine only ever adds;
`others` is what the other threads took. `floor` is one span of the stock SDK with
25 attributes. `flush` and `flush floor` export what is waiting; batches are full then, as they are
in a busy service.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

MODEL = "gpt-4o-2024-08-06"
FLOORS, EACH = 3, 20
ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": MODEL,
    "gen_ai.response.model": MODEL,
    "gen_ai.response.id": "chatcmpl-9nB1xT7fVh3oPq2",
    "gen_ai.response.finish_reasons": ("stop",),
    "gen_ai.request.temperature": 0.2,
    "gen_ai.usage.input_tokens": 1210,
    "gen_ai.usage.output_tokens": 64,
    "gen_ai.usage.cache_read.input_tokens": 1024,
    "gen_ai.conversation.id": "5f2b7b0e-3a55-4d0c-9a59-0d7e0f1a2b3c",
    "server.address": "api.openai.com",
    "server.port": 443,
    "http.request.method": "POST",
    "http.response.status_code": 200,
    "clew.run.id": "5f2b7b0e-3a55-4d0c-9a59-0d7e0f1a2b3c",
    "clew.segment.id": "0f1e2d3c4b5a6978",
    "clew.segment": 1,
    "clew.seq": 3,
    "clew.round": 2,
    "clew.request.messages": 12,
    "clew.request.bytes": 1500,
    "clew.response.bytes": 900,
    "clew.cost.usd": 0.0021,
    "clew.cost.status": "priced",
}


def floor(endpoint: str | None) -> tuple[Any, Any]:
    """Return what makes floor spans, and what waits for their export."""
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind
    from subjects import stock_provider

    provider = stock_provider(endpoint)
    tracer = provider.get_tracer("floor")
    nowhere = Context()

    def use(times: int) -> None:
        for _ in range(times):
            # Of no run: one that is not sampled would take this span with it.
            span = tracer.start_span("chat gpt-4o", nowhere, kind=SpanKind.CLIENT)
            for key, value in ATTRIBUTES.items():
                span.set_attribute(key, value)
            span.end()

    return use, lambda: provider.force_flush(20_000)


class Switch:
    """Takes off and puts on what a subject patches in the classes of the client libraries."""

    def __init__(self, library: str) -> None:
        self._prefixes = (f"{library}.", "httpx")
        self._before = self._look()
        self._changes: list[tuple[type, str, Any, Any]] = []

    def _look(self) -> dict[tuple[type, str], Any]:
        found: dict[tuple[type, str], Any] = {}
        for name, module in list(sys.modules.items()):
            if f"{name}.".startswith(self._prefixes):
                for each in list(vars(module).values()):
                    if isinstance(each, type):
                        found.update({(each, key): value for key, value in vars(each).items()})
        return found

    def learn(self) -> None:
        """Take what has changed since the start for what the subject has patched."""
        known = {kind for kind, _ in self._before}
        for (kind, name), value in self._look().items():
            before = self._before.get((kind, name), _NOTHING)
            patchable = callable(value) or isinstance(value, (classmethod, staticmethod))
            inherited = before is not _NOTHING or hasattr(kind.__base__, name)
            if kind in known and before is not value and patchable and inherited:
                self._changes.append((kind, name, before, value))

    def turn(self, *, on: bool) -> None:
        """Put everything on, or take it off."""
        for kind, name, before, value in self._changes:
            if on or before is not _NOTHING:
                setattr(kind, name, value if on else before)
            elif name in vars(kind):
                delattr(kind, name)

    def __len__(self) -> int:
        return len(self._changes)


_NOTHING = object()


def spend(traffic: Any, load: Any, subject: Any, switch: Switch, idle: Any) -> dict[str, float]:
    """Return what one use costs without the subject, and what it adds; the export comes later."""
    gc.collect()
    clock = time.thread_time
    bare: list[float] = []
    added: list[float] = []
    others = time.process_time() - time.thread_time()
    for _ in range(load.times):
        took: list[float] = []
        for on in (False, True):
            switch.turn(on=on)
            traffic.subject = subject if on else idle
            began = clock()
            load.use(1)
            took.append(clock() - began)
        bare.append(took[0])
        added.append(took[1] - took[0])
    others = time.process_time() - time.thread_time() - others
    return {"bare": median(bare), "added": median(added), "others": max(0.0, others)}


def spend_floor(use: Any) -> dict[str, float]:
    """Return what one span of the floor costs without its export."""
    gc.collect()
    took: list[float] = []
    for _ in range(FLOORS):
        began = time.thread_time()
        use(EACH)
        took.append((time.thread_time() - began) / EACH)
    return {"added": median(took), "spans": FLOORS * EACH}


def spend_flush(flush: Any) -> dict[str, float]:
    """Return what it costs to export all that is waiting."""
    gc.collect()
    process = time.process_time()
    flush()
    return {"export": time.process_time() - process}


def main() -> None:
    name, library, given, content = sys.argv[1:5]
    endpoint = None if given == "-" else given
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    from subjects import SUBJECTS, nothing
    from traffic import Traffic

    use, flush_floor = floor(endpoint)
    idle = nothing(endpoint, content == "on", library)
    for load in Traffic(library, idle).loads:
        load.use(1)  # loads what the libraries load late
    switch = Switch(library)
    subject = SUBJECTS[name](endpoint, content == "on", library)
    traffic = Traffic(library, subject)
    switch.learn()
    if name != "nothing" and not len(switch):
        raise RuntimeError(f"{name} has patched nothing of {library}")
    loads = {load.name: load for load in traffic.loads}
    gc.collect()
    gc.freeze()  # what is loaded is walked by nobody's collections
    answers.write("ready\n")
    answers.flush()
    opened, inside = ExitStack(), ""
    for line in sys.stdin:
        wanted = line.strip()
        if wanted == "flush":
            opened.close()
            inside = ""
        elif wanted in loads and not inside:
            inside = wanted
            if loads[wanted].in_run:
                opened.enter_context(subject.run())
        if wanted == "floor":
            found = spend_floor(use)
        elif wanted in ("flush", "flush floor"):
            found = spend_flush(subject.flush if wanted == "flush" else flush_floor)
        else:
            found = spend(traffic, loads[wanted], subject, switch, idle) | {
                "uses": loads[wanted].times
            }
        answers.write(f"{json.dumps(found)}\n")
        answers.flush()
    os._exit(0)  # what a library has left to do is not measured


if __name__ == "__main__":
    main()
