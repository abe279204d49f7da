"""What holds the project together: floors, sizes, names, and what an import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from fresh import run
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "clew"

TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "collector-config",
    "dashboards",
    "docs",
    "pyproject.toml",
    "src",
    "tests",
}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

# In pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a package registry": r"\b(?:files\.python" + r"hosted|py" + r"pi)\.org\b",
    "another registry": r"\bregistry\." + r"npmjs\.org\b|\bproxy\.golang" + r"\.org\b",
    "a path of one machine": r"(?<![\w.])/(?:wo" + r"rk|ro" + r"ot)/",
    "a temporary path of one machine": r"/tm" + r"p/(?:te" + r"am\b|bash_jobs)",
    "a note on how it was made": r"\bknown-" + r"faults\b|\bseed-" + r"features\b",
    "a number that only the makers know": r"(?<![\"\w])(?<!noqa: )B"
    r"0\d\d\b|\b[Ii]ssue "
    r"\d+\b",
}


def tracked() -> list[Path]:
    """Return the files under version control, relative to the root of the checkout."""
    done = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    return [Path(name) for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def sources(*endings: str) -> list[Path]:
    return sorted(path for ending in endings or (".py",) for path in SOURCE.rglob(f"*{ending}"))


def test_modules_import_only_from_lower_floors():
    """The contract of the floors holds."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_top_level_holds_only_what_belongs_there():
    """A new entry at the top of the repository is a decision, not an accident."""
    assert {path.parts[0] for path in tracked()} - TOP_LEVEL == set()


def test_no_file_is_too_long():
    """No file has more than 500 lines, be it a source, of the viewer's pages, or of the tests."""
    tests = sorted((ROOT / "tests").rglob("*.py"))
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for path in (*sources(".py", ".js", ".css", ".html"), *tests)
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_no_test_file_is_imported_by_another():
    """What tests share is in a conftest or a support module, where one finds it."""
    importing = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"^\s*(?:from|import) test_", path.read_text("utf-8"), re.MULTILINE)
    }
    assert importing == set()


def test_every_room_of_the_tests_is_a_room_of_the_package_or_explained():
    """The page about the tests says what the others are about."""
    page = (ROOT / "tests" / "README.md").read_text("utf-8")
    rooms = {path.parts[1] for path in tracked() if path.parts[0] == "tests" and path.parts[2:]}
    packages = {path.name for path in SOURCE.iterdir() if path.is_dir()}
    assert {room for room in rooms - packages if f"`{room}/`" not in page} == set()


def test_no_function_is_too_long():
    """No function has more than 60 lines."""
    too_long = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert too_long == {}


def test_no_file_names_a_machine_or_its_makers():
    """Registry hosts, paths of one machine and notes of the makers stay out of the project."""
    found = []
    for path in tracked():
        text = (ROOT / path).read_text("utf-8", errors="replace")
        found += [
            f"{path}:{text.count(chr(10), 0, match.start()) + 1} {what}: {match.group()!r}"
            for what, pattern in FORBIDDEN.items()
            for match in re.finditer(pattern, text)
        ]
    assert found == []


def test_importing_clew_loads_nothing_heavy():
    """The facade brings no SDK of a provider, exporter, web framework or command line."""
    heavy = [
        "openai",
        "anthropic",
        "google",
        "mistralai",
        "groq",
        "ollama",
        "cohere",
        "openrouter",
        "boto3",
        "botocore",
        "aiohttp",
        "mcp",
        "httpx",
        "httpx2",
        "requests",
        "grpc",
        "opentelemetry.exporter",
        "opentelemetry.sdk",
        "starlette",
        "uvicorn",
        "jinja2",
        "typer",
        "click",
        "rich",
        "genai_prices",
        "pydantic",
        "clew.cli",
        "clew.web",
        "clew.setup",
        "sqlite3",
        "asyncio",
    ]
    loaded = run("import sys, clew; print(*sys.modules)").split()
    assert [
        name for name in loaded for root in heavy if name == root or name.startswith(root + ".")
    ] == []


def test_importing_clew_takes_little_time():
    """The import costs at most 30 ms of CPU, the best of five interpreters."""
    script = (
        "import time\nbefore = time.process_time()\nimport clew\n"
        "print(time.process_time() - before)"
    )
    assert min(float(run(script)) for _ in range(5)) <= 0.030


def test_every_public_name_can_be_loaded():
    """The names of the facade exist, and listing them loads nothing."""
    script = "import clew\nfor name in clew.__all__:\n    getattr(clew, name)\nprint('all')"
    assert run(script) == "all"


def core() -> dict[str, Distribution]:
    """Return the distributions that an installation without extras brings, Clew included."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement("clew")]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.setdefault(name, distribution(name))
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in found[name].requires or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return found


def size(package: Distribution) -> int:
    """Return the bytes that a distribution takes, without bytecode."""
    if canonicalize_name(package.name) == "clew":
        # An editable installation lists no sources.
        return sum(
            path.stat().st_size
            for path in SOURCE.rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        )
    places = [Path(str(file.locate())) for file in package.files or ()]
    return sum(
        place.stat().st_size for place in places if place.suffix != ".pyc" and place.is_file()
    )


def test_the_core_installation_is_small():
    """Without extras: at most 32 distributions and 22 MB before bytecode."""
    packages = core()
    assert len(packages) <= 32, sorted(packages)
    sizes = {name: size(package) for name, package in packages.items()}
    assert sum(sizes.values()) <= 22_000_000, sorted(sizes.items(), key=lambda item: -item[1])
