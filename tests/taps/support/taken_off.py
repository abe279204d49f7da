"""A tap that is taken off leaves nothing behind."""

from __future__ import annotations

from typing import Any

import clew


def check_taken_off(*places: tuple[Any, str]) -> None:
    """Put all taps on and off again; these attributes are others meanwhile, and then as before."""
    before = [vars(owner)[name] for owner, name in places]
    clew.instrument()
    during = [vars(owner)[name] for owner, name in places]
    clew.uninstrument()
    after = [vars(owner)[name] for owner, name in places]
    assert [now is was for now, was in zip(during, before, strict=True)] == [False] * len(places)
    assert [now is was for now, was in zip(after, before, strict=True)] == [True] * len(places)
