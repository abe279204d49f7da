"""Judge the bill of materials, and ask for known vulnerabilities of what is installed.

    python .ci/supply_chain.py sbom build/sbom.json
    python .ci/supply_chain.py vulnerabilities

The first fails where the file is no valid CycloneDX document or lacks a dependency. The second
fails where a vulnerability is known. Where the service that knows cannot be reached, in a bounded
time, it says so and does not fail: no network is not a fault of the code.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

ACCEPTED: dict[str, str] = {}
"""Vulnerabilities that do not fail: identifier, and why it does not concern this project."""
INSTALL_S = 150
PROBE_S = 30
AUDIT_S = 120
ONE = "wrapt"
"""The dependency that is asked about first."""


def normal(name: str) -> str:
    """Return the one form that a project's name has among many."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required() -> set[str]:
    """Return the names of what every installation needs."""
    lines = metadata.requires("clew") or []
    return {normal(re.split(r"[^\w.-]", one)[0]) for one in lines if "extra ==" not in one}


# --- the bill of materials -------------------------------------------------------------------


def faults_of(text: str) -> list[str]:
    """Return what is wrong with a CycloneDX document; nothing where it is in order."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    try:
        bill: dict[str, Any] = json.loads(text)
        version = SchemaVersion.from_version(str(bill.get("specVersion")))
    except (ValueError, AttributeError):
        return ["it is no CycloneDX document"]
    wrong = JsonStrictValidator(version).validate_str(text)
    faults = [] if wrong is None else [f"it breaks the schema: {wrong.data.message}"]
    parts = {normal(each["name"]): each for each in bill.get("components", ())}
    own = bill.get("metadata", {}).get("component", {})
    if own:
        parts[normal(own["name"])] = own
    faults += [f"{name} is missing" for name in sorted({"clew", *required()} - parts.keys())]
    faults += [
        f"{name} has no version" for name, each in sorted(parts.items()) if not each.get("version")
    ]
    return faults


def sbom(path: Path) -> int:
    """Judge a file; return the exit code."""
    text = path.read_text()
    faults = faults_of(text)
    for each in faults:
        print(f"{path}: {each}", file=sys.stderr)
    if not faults:
        print(f"{path}: {len(json.loads(text)['components'])} components, valid")
    return 1 if faults else 0


# --- known vulnerabilities -------------------------------------------------------------------


def judge(report: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the exit code for a report of pip-audit, and what is to be said."""
    parts = report["dependencies"]
    # Where the service knows nothing at all, it is not the service that was meant.
    asked = [each for each in parts if "skip_reason" not in each]
    if not asked:
        return 0, ["vulnerabilities: not asked, the service that knows them cannot be reached"]
    found = [
        f"{each['name']} {each['version']}: {one['id']}"
        + (f", mended in {', '.join(one['fix_versions'])}" if one.get("fix_versions") else "")
        for each in asked
        for one in each["vulns"]
        if not {one["id"], *one.get("aliases", ())} & ACCEPTED.keys()
    ]
    said = f"vulnerabilities: {len(found)} known in {len(asked)} of {len(parts)} packages"
    return (1 if found else 0), [*found, said]


def program(cache: Path) -> Path | None:
    """Return pip-audit, in an environment of its own; None where it cannot be had."""
    folder = cache / "pip-audit"
    found = folder / "bin" / "pip-audit"
    if found.exists():
        return found
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=INSTALL_S)
        subprocess.run(
            [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "pip-audit"],
            check=True, timeout=INSTALL_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (subprocess.SubprocessError, OSError):
        return None
    return found


def ask(audit: Path, timeout: int, *what: str) -> dict[str, Any] | None:
    """Return the report on packages; None where there was none in time."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "report.json"
        try:
            subprocess.run(
                [audit, "--progress-spinner", "off", "--timeout", "10", "--format", "json",
                 "--output", answer, *what],
                check=False, timeout=timeout, capture_output=True, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            report: dict[str, Any] = json.loads(answer.read_text())
        except (subprocess.SubprocessError, OSError, ValueError):
            return None
    return report


def vulnerabilities() -> int:
    """Ask about what is installed here; return the exit code."""
    cache = Path(os.environ.get("CLEW_CACHE") or Path.home() / ".cache" / "clew")
    audit = program(cache)
    if audit is None:
        print("vulnerabilities: not asked, pip-audit cannot be installed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        one = Path(folder) / "requirements.txt"
        one.write_text(f"{ONE}=={metadata.version(ONE)}\n")
        report = ask(audit, PROBE_S, "--disable-pip", "--no-deps", "--requirement", str(one))
    if report is not None and judge(report)[1][-1].startswith("vulnerabilities: not asked"):
        report = None  # one question is enough to know
    if report is not None:
        report = ask(audit, AUDIT_S, "--path", sysconfig.get_paths()["purelib"])
    code, lines = judge(report or {"dependencies": []})
    for line in lines:
        print(line, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(sbom(Path(sys.argv[2])) if sys.argv[1] == "sbom" else vulnerabilities())
