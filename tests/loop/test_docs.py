"""The page about the loop keeps up with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from clew.loop import LoopLimits
from clew.loop import fence as fence_module
from clew.loop.playing import PlayConfiguration
from clew.loop.tools import EFFECTS, MAX_BYTES
from clew.loop.trace import STEP_KINDS
from clew.loop.window import SEED, UNKNOWN_CONTEXT
from clew.prompts.configuration import Limits
from clew.semconv import CONTEXT_LINES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "loop.md").read_text("utf-8")


@pytest.mark.parametrize(
    "names",
    [
        STEP_KINDS,
        EFFECTS,
        ("no_fence", "store_error", "lease_lost", "already_executed", "outcome_unknown"),
        [name for name in CONTEXT_LINES if name.endswith("_tokens")],
        ("base_url", "api_key_env", "fallback", "rules"),
    ],
    ids=["steps", "effects", "refusals", "lines", "members"],
)
def test_every_name_is_explained(names: list[str]):
    """Step kinds, effects, refusals of the fence, lines of the fit, members of a configuration."""
    assert [name for name in names if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(
    "said",
    [
        f"(`LoopLimits.remote_calls`, {LoopLimits().remote_calls} for each segment)",
        f"`limits.max_rounds` ({Limits().max_rounds}, at most 20)",
        f"at most {MAX_BYTES:,} bytes",
        f"{UNKNOWN_CONTEXT} where nobody knows",
        f"begins at {SEED}",
        f"a lease lasts {fence_module.LEASE_S / 60:.0f} minutes",
    ],
)
def test_every_number_is_true(said: str):
    """Bounds and defaults are those of the code."""
    assert said in " ".join(PAGE.split())


def test_the_reasons_of_the_fence_are_all_there():
    """Those that are raised anywhere."""
    source = "".join(
        Path(module).read_text("utf-8")
        for module in (fence_module.__file__, Path(fence_module.__file__).with_name("writes.py"))
    )
    raised = set(re.findall(r'FenceRefusedError\("(\w+)"\)', source))
    assert raised == {"no_fence", "lease_lost", "already_executed", "outcome_unknown"}


def test_the_example_is_a_configuration():
    """And everything in it is what it names."""
    example = PlayConfiguration.read(DOCS / "play-example.yaml")
    assert example.provider == "scripted"
    assert [one.name for one in example.functions] == list(example.tools)
