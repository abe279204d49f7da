"""`clew prices`: rates, tiers, source, and which row a name stands for."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from commands import Clew

OWN = {
    "version": "2026-11-01",
    "currency": "USD",
    "prices": [
        {
            "provider": "acme",
            "model": "big-1",
            "input": 2.5,
            "output": 10,
            "cache_read": 0.25,
            "web_search": 0.01,
            "tiers": [{"above": 1000, "input": 5}],
        },
        {"provider": "acme", "model": "big-1", "service_tier": "batch", "input": 1.25},
        {"model": "ours", "input": 0, "output": 0},
    ],
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A price file and aliases of the user's own."""
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(OWN))
    monkeypatch.setenv("CLEW_PRICES_FILE", str(path))
    monkeypatch.setenv("CLEW_MODEL_ALIASES", "chat-prod=acme/big-1")


def matches(clew: Clew, *arguments: str) -> list[Any]:
    code, out, err = clew("prices", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)["matches"]


BIG = {
    "provider": "acme",
    "row": "big-1",
    "source": "prices.json",
    "version": "2026-11-01",
    "until": None,
    "page": None,
    "resolved": [],
    "rates": {"input": 2.5, "output": 10.0, "cache_read": 0.25, "web_search": 0.01},
    "tiers": [
        {
            "above": 1000,
            "rates": {"input": 5.0, "output": 10.0, "cache_read": 0.25, "web_search": 0.01},
        }
    ],
    "service_tiers": {"batch": {"rates": {"input": 1.25}, "tiers": []}},
    "unmeasured": [],
}


@pytest.mark.usefixtures("own")
def test_a_row_of_the_users_own(clew: Clew):
    """Every rate, tier and discount, with the file's name and version."""
    assert matches(clew, "big-1", "--provider", "acme") == [BIG]
    assert matches(clew, "big-1") == [BIG]
    (free,) = matches(clew, "ours")
    assert (free["provider"], free["rates"]) == (None, {"input": 0.0, "output": 0.0})


@pytest.mark.usefixtures("own")
def test_how_a_name_was_resolved(clew: Clew):
    """Alias, provider's name, dated name: each step is told."""
    assert matches(clew, "chat-prod") == [{**BIG, "resolved": ["alias chat-prod -> acme/big-1"]}]
    (dated,) = matches(clew, "big-1-2026-01-31", "--provider", "acme")
    assert dated == {**BIG, "resolved": ["name big-1-2026-01-31 -> big-1"]}
    (gemini,) = matches(clew, "gemini-2.5-pro", "--provider", "gcp.gemini")
    assert (gemini["row"], gemini["resolved"]) == (
        "gemini-2.5-pro",
        ["provider gcp.gemini -> google"],
    )


def test_a_model_of_the_library(clew: Clew):
    """Source, version, the provider's page, cache rates and tiers by context length."""
    (found,) = matches(clew, "claude-sonnet-4-5-20250929", "--provider", "anthropic")
    assert (found["source"], found["version"]) == ("genai-prices", version("genai-prices"))
    assert found["row"] == "claude-sonnet-4-5"
    assert found["resolved"] == ["name claude-sonnet-4-5-20250929 -> claude-sonnet-4-5"]
    assert found["page"].startswith("https://")
    assert {"input", "output", "cache_read", "cache_write"} <= set(found["rates"])
    assert [tier["above"] for tier in found["tiers"]] == [200000]
    assert "batch" in found["service_tiers"]


def test_without_a_provider_all_are_listed(clew: Clew):
    """Each provider that serves the model has its row."""
    providers = [found["provider"] for found in matches(clew, "gpt-4o")]
    assert {"openai", "azure"} <= set(providers)
    assert len(providers) == len(set(providers))
    code, out, err = clew("prices", "gpt-4o")
    assert code == 0
    assert out.splitlines()[0].split() == [
        "PROVIDER", "ROW", "INPUT", "OUTPUT", "CACHE", "READ", "CACHE", "WRITE", "ABOVE",
    ]  # fmt: skip
    assert "genai-prices" in err


@pytest.mark.usefixtures("own")
def test_for_people(clew: Clew):
    """One row: a table of all its rates, then where they are from."""
    code, out, err = clew("prices", "chat-prod")
    assert (code, err) == (0, "")
    assert out == (
        "big-1 (acme)\n"
        "US DOLLARS               STANDARD  ABOVE 1000  BATCH\n"
        "input, per million            2.5           5   1.25\n"
        "output, per million            10          10      -\n"
        "cache read, per million      0.25        0.25      -\n"
        "web search, each             0.01        0.01      -\n"
        "source    prices.json 2026-11-01\n"
        "row       big-1\n"
        "resolved  alias chat-prod -> acme/big-1\n"
    )


@pytest.mark.usefixtures("own")
def test_an_unknown_model(clew: Clew):
    """Exit code 1, and the nearest names on stderr; nothing on stdout, as JSON neither."""
    for arguments in (["gpt-4oo"], ["gpt-4oo", "--json"], ["gpt-4oo", "--provider", "openai"]):
        code, out, err = clew("prices", *arguments)
        assert (code, out) == (1, "")
        assert "no price of 'gpt-4oo' is known" in err
        assert "nearest names: gpt-4o" in err
    assert "nearest names: big-1" in clew("prices", "big-11", "--provider", "acme")[2]
    assert "chat-prod" in clew("prices", "chat-prd")[2]
    assert "no name is like it" in clew("prices", "zzzzzzzzzz")[2]


def test_an_unknown_provider(clew: Clew):
    """It is told apart from an unknown model."""
    code, out, err = clew("prices", "gpt-4o", "--provider", "opnai")
    assert (code, out) == (1, "")
    assert "no prices of a provider 'opnai' are known; nearest: openai" in err


def test_names_cannot_drive_the_terminal(clew: Clew):
    """Control characters in what was asked for are shown, not sent."""
    _, _, err = clew("prices", "\x1b[31mred")
    assert "\x1b" not in err


def test_a_wrong_price_file(clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is told as it is at `configure`."""
    path = tmp_path / "prices.json"
    path.write_text("{}")
    monkeypatch.setenv("CLEW_PRICES_FILE", str(path))
    code, out, err = clew("prices", "gpt-4o")
    assert (code, out) == (1, "")
    assert "price file 'prices.json' cannot be read" in err
