"""What CI says of the dependencies: a bill of materials that is valid, and known vulnerabilities."""

from __future__ import annotations

import importlib.util
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "supply_chain.py"


@pytest.fixture(scope="module")
def chain() -> Any:
    spec = importlib.util.spec_from_file_location("supply_chain", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def part(name: str, version: str | None = "1.0") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "library", "name": name, "bom-ref": name}
    return found | ({"version": version} if version else {})


def bill(chain: Any, **more: Any) -> dict[str, Any]:
    names = sorted({"clew", *chain.required()})
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "components": [part(name) for name in names],
        **more,
    }


def test_what_every_installation_needs(chain: Any) -> None:
    """The dependencies without those of extras."""
    assert chain.required() == {
        "genai-prices",
        "httpx",
        "msgspec",
        "opentelemetry-api",
        "opentelemetry-exporter-otlp-proto-http",
        "opentelemetry-sdk",
        "pydantic",
        "wrapt",
    }


def test_a_bill_in_order(chain: Any) -> None:
    """Clew itself may stand among the parts, or above them."""
    pytest.importorskip("cyclonedx")
    whole = bill(chain)
    assert chain.faults_of(json.dumps(whole)) == []
    above = whole | {
        "metadata": {"component": part("clew")},
        "components": [each for each in whole["components"] if each["name"] != "clew"],
    }
    assert chain.faults_of(json.dumps(above)) == []


def test_a_bill_that_is_not(chain: Any) -> None:
    """Another document, one that breaks the schema, one that lacks a part or a version."""
    pytest.importorskip("cyclonedx")
    assert chain.faults_of("{}") == ["it is no CycloneDX document"]
    assert chain.faults_of("<bom/>") == ["it is no CycloneDX document"]
    (fault,) = chain.faults_of(json.dumps(bill(chain, unknown=1)))
    assert fault.startswith("it breaks the schema: ")
    lacking = bill(chain)
    lacking["components"] = [each for each in lacking["components"] if each["name"] != "wrapt"]
    assert chain.faults_of(json.dumps(lacking)) == ["wrapt is missing"]
    nameless = bill(chain)
    nameless["components"].append(part("other", None))
    assert chain.faults_of(json.dumps(nameless)) == ["other has no version"]


KNOWN = {
    "id": "PYSEC-1",
    "aliases": ["CVE-1"],
    "fix_versions": ["1.1", "2.0"],
    "description": "",
}


@pytest.mark.parametrize(
    ("parts", "code", "said"),
    [
        ([], 0, ["vulnerabilities: not asked, the service that knows them cannot be reached"]),
        (
            [{"name": "a", "skip_reason": "not found"}],
            0,
            ["vulnerabilities: not asked, the service that knows them cannot be reached"],
        ),
        (
            [
                {"name": "a", "version": "1.0", "vulns": []},
                {"name": "clew", "skip_reason": "not found"},
            ],
            0,
            ["vulnerabilities: 0 known in 1 of 2 packages"],
        ),
        (
            [{"name": "a", "version": "1.0", "vulns": [KNOWN]}],
            1,
            [
                "a 1.0: PYSEC-1, mended in 1.1, 2.0",
                "vulnerabilities: 1 known in 1 of 1 packages",
            ],
        ),
    ],
)
def test_a_report_is_judged(
    chain: Any, parts: list[dict[str, Any]], code: int, said: list[str]
) -> None:
    """What is known fails; a service that knows of no package at all has not answered."""
    assert chain.judge({"dependencies": parts}) == (code, said)


def test_what_was_accepted_does_not_fail(chain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its identifier or another name of it."""
    monkeypatch.setitem(chain.ACCEPTED, "CVE-1", "no part of ours calls it")
    report = {"dependencies": [{"name": "a", "version": "1.0", "vulns": [KNOWN]}]}
    assert chain.judge(report) == (0, ["vulnerabilities: 0 known in 1 of 1 packages"])


HANGS = "#!{python}\nimport time\ntime.sleep(60)\n"
FAILS = "#!{python}\nraise SystemExit(1)\n"


@pytest.mark.parametrize("program", [HANGS, FAILS], ids=["hangs", "fails"])
def test_no_answer_is_not_waited_for(chain: Any, program: str, tmp_path: Path) -> None:
    """A service that hangs, or a program that fails, is none that found something."""
    audit = tmp_path / "audit"
    audit.write_text(program.format(python=sys.executable))
    audit.chmod(audit.stat().st_mode | stat.S_IXUSR)
    assert chain.ask(audit, 1) is None
