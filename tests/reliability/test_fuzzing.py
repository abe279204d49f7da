"""What comes from outside is fuzzed for a bounded time: OTLP, wire formats, references, questions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

FUZZ = Path(__file__).parent / "fuzz"
sys.path.insert(0, str(FUZZ))
import targets  # noqa: E402

SECONDS = 2
SEEDS = {
    "json": b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0102030405060708090a0b0c0d0e0f10",'
    b'"spanId":"0102030405060708","name":"x","startTimeUnixNano":"1","attributes":[{"key":"k",'
    b'"value":{"intValue":"1"}}]}]}]}]}',
    "dialects": b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"usage":'
    b'{"prompt_tokens":1,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
    "queries": b"0001-0102030405060708090a0b0c0d0e0f10",
}


def fuzz(name: str, seconds: int, folder: Path) -> None:
    """Run a target with atheris; a crash is a failure with its input."""
    (folder / "corpus").mkdir()
    (folder / "corpus" / "seed").write_bytes(SEEDS.get(name, b"x"))
    done = subprocess.run(
        [
            *(sys.executable, str(FUZZ / "targets.py"), name, str(folder / "corpus")),
            *(f"-max_total_time={seconds}", "-timeout=10", "-max_len=4096", "-verbosity=0"),
            f"-artifact_prefix={folder}/",
        ],
        capture_output=True, text=True, timeout=seconds + 60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(targets.atheris is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", targets.NAMES)
def test_a_target_with_coverage(name: str, tmp_path: Path) -> None:
    """Nothing but errors of Clew's own comes out, and nothing hangs."""
    fuzz(name, int(os.environ.get("FUZZ_SECONDS", SECONDS)), tmp_path)


@pytest.fixture(scope="module")
def loaded() -> dict[str, object]:
    return dict(targets.load())


@pytest.mark.parametrize("name", targets.NAMES)
def test_a_target_with_random_bytes(name: str, loaded: dict[str, object]) -> None:
    """The same without coverage, and with the seeds changed in places."""
    target = loaded[name]
    seed = SEEDS.get(name, b"x")
    mutated = st.tuples(st.integers(0, len(seed)), st.binary(max_size=8)).map(
        lambda pair: seed[: pair[0]] + pair[1] + seed[pair[0] + len(pair[1]) :]
    )

    @hypothesis.settings(max_examples=150, deadline=None)
    @hypothesis.given(st.one_of(st.binary(max_size=300), mutated))
    def feed(data: bytes) -> None:
        target(data)  # type: ignore[operator]

    feed()
