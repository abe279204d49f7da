"""How many instructions Clew adds to a call: counted by valgrind, so nearly free of noise.

    python tests/bench/instructions.py            count and print
    python tests/bench/instructions.py --store    store as the figures of this Python version

One process runs every workload with and without Clew under callgrind, which writes what it has
counted whenever the C function `getpgrp` is entered; the workloads are told apart by calling it
between them. A figure is (with Clew - without) / floor, for one call, export included. Dividing
by the floor, one plain SDK span counted in the same process, makes figures of one Python version
comparable between builds of it.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "instructions.json"
TOLERANCE = 1.10
VERSION = "{}.{}".format(*sys.version_info[:2])
TIMES = {
    "small chat": 60,
    "40 messages": 60,
    "stream, per chunk": 4,
    "50 at once": 2,
    "agent run": 8,
}
FLOORS = 100
_TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def child() -> None:
    """Run the workloads, with a mark before and after each (inside valgrind)."""
    sys.path.insert(0, str(HERE))
    from workloads import Bench, configure, flush, workloads

    import clew

    configure()
    bench = Bench()
    steps = [("floor", bench.floor, FLOORS)]
    loads = workloads(bench)
    steps += [(f"{load.name}: bare", load.bare, TIMES[load.name]) for load in loads]
    steps += [(f"{load.name}: traced", load.traced, TIMES[load.name]) for load in loads]
    for name, work, times in steps:
        if name == f"{loads[0].name}: traced":
            clew.instrument()
        ended = bench.flush_floor if name == "floor" else flush
        for _ in range(2):  # specialised bytecode, caches, the first look-up of a price
            work(max(2, times // 4))
        ended()
        gc.collect()
        os.getpgrp()
        work(times)
        ended()
        os.getpgrp()


def names() -> list[str]:
    """Return the steps of `child` in their order."""
    return ["floor", *(f"{n}: bare" for n in TIMES), *(f"{n}: traced" for n in TIMES)]


def count() -> dict[str, int]:
    """Return the instructions of each step of `child`.

    Raises:
        RuntimeError: valgrind or the child failed.
    """
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        done = subprocess.run(
            [
                "valgrind",
                "--tool=callgrind",
                "--dump-before=getpgrp",
                f"--callgrind-out-file={folder}/out",
                sys.executable,
                __file__,
                "--child",
            ],
            env={**os.environ, "PYTHONHASHSEED": "0", "OTEL_SDK_DISABLED": "false"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        dumps = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        if done.returncode or len(dumps) != 2 * len(names()):
            raise RuntimeError(f"counted {len(dumps)} marks\n{done.stderr[-4000:]}")
        totals = [int(_TOTALS.findall(path.read_text("utf-8"))[-1]) for path in dumps]
    # Every second dump is of the warm-up between two steps.
    return dict(zip(names(), totals[1::2], strict=True))


def figures() -> dict[str, float]:
    """Return for each workload what Clew adds to one call, in floors."""
    counted = count()
    floor = counted["floor"] / FLOORS
    return {
        name: round((counted[f"{name}: traced"] - counted[f"{name}: bare"]) / times / floor, 4)
        for name, times in TIMES.items()
    }


def stored() -> dict[str, dict[str, float]]:
    """Return the stored figures by Python version."""
    return json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}


def key() -> str:
    """Return the key of this interpreter's figures."""
    return f"{VERSION} {platform.machine()}"


def main() -> None:
    if "--child" in sys.argv:
        child()
        return
    counted = figures()
    before = stored().get(key(), {})
    for name, figure in counted.items():
        was = f"   was {before[name]:.3f}" if name in before else ""
        print(f"{name:20}{figure:>10.3f} floors{was}")
    if "--store" in sys.argv:
        content = {**stored(), key(): counted}
        FIGURES.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
