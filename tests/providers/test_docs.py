"""The page about providers keeps up with the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.providers import PROVIDERS, ChatRequest, ChatResponse, provider
from clew.semconv import FAILURE_CLASSES

PAGE = (Path(__file__).parents[2] / "docs" / "providers.md").read_text("utf-8")


def variables() -> list[str]:
    adapters: list[Any] = [provider(name) for name in PROVIDERS]
    return [name for adapter in adapters for name in adapter.key_variables]


@pytest.mark.parametrize(
    "names",
    [
        PROVIDERS,
        FAILURE_CLASSES,
        variables(),
        ChatRequest.__struct_fields__[1:],
        ChatResponse.__struct_fields__,
    ],
    ids=["adapters", "failure classes", "key variables", "request", "response"],
)
def test_every_name_is_explained(names: Any):
    """Adapters, failure classes, variables and fields are on the page."""
    assert [name for name in names if f"`{name}`" not in PAGE] == []
