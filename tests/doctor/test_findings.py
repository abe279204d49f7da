"""Settings that cancel each other, switches of other libraries, the data folder."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from clew.doctor import files, neighbours
from clew.doctor import settings as settings_room
from clew.doctor.findings import Finding, Report, note, ok, problem, warning
from clew.pipeline.spool import Spool, folder_for
from clew.settings import VARIABLES, Settings
from clew.store.migrations import MIGRATIONS
from clew.store.writer import Writer


def found_in(environ: dict[str, str]) -> set[tuple[str, str]]:
    """Return check and level of all that is wrong with an environment."""
    settings, found = settings_room.read(environ)
    found += settings_room.variables(environ)
    found += settings_room.contradictions(settings, environ)
    return {(each.check, each.level) for each in found if each.level != "ok"}


NAMED = {"OTEL_SERVICE_NAME": "shop"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, set()),
        ({"CLEW_SHUTDOWN_SECOND": "3"}, {("settings", "warning")}),
        ({"CLEW_SHUTDOWN_SECONDS": "soon"}, {("settings", "problem"), ("settings", "note")}),
        ({"CLEW_JAEGER_INSECURE": "true"}, set()),
        ({"CLEW_CAPTURE": "redacted"}, {("content", "warning")}),
        ({"CLEW_CAPTURE": "redacted", "CLEW_CONTENT_TO": "spans"}, set()),
        ({"CLEW_CAPTURE": "full", "CLEW_CONTENT_TO": "spans"}, {("content", "note")}),
        ({"CLEW_CONTENT_TO": "spans"}, {("content", "warning")}),
        ({"CLEW_CAPTURE_MAX": "none"}, {("content", "warning")}),
        ({"CLEW_CAPTURE": "none", "CLEW_PROMPT_CAPTURE": "on"}, {("content", "warning")}),
        ({"CLEW_INTEGRITY": "false", "CLEW_INTEGRITY_KEY": "k"}, {("settings", "warning")}),
        ({"CLEW_SIGNING_KEY_FILE": "/nowhere/key.pem"}, {("keys", "problem")}),
        ({"CLEW_PRICES_FILE": "/nowhere/prices.json"}, {("settings", "warning")}),
        ({"CLEW_ALLOW_LIST": "/nowhere/list.json"}, {("settings", "problem")}),
        ({"OTEL_BSP_MAX_QUEUE_SIZE": "256"}, {("settings", "warning")}),
        ({"OTEL_TRACES_EXPORTER": "none"}, {("exporter", "warning")}),
        ({"OTEL_SDK_DISABLED": "true"}, {("settings", "problem")}),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, {("sampler", "problem")}),
        ({"OTEL_TRACES_SAMPLER": "traceidratio"}, set()),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.1"},
            {("sampler", "note")},
        ),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "ten"},
            {("sampler", "warning")},
        ),
        ({"CLEW_KEEP_ABOVE_USD": "1"}, {("sampler", "note")}),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "10"}, {("limits", "warning")}),
        ({"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "100"}, {("limits", "warning")}),
    ],
)
def test_what_settings_say(environ: dict[str, str], expected: set[tuple[str, str]]) -> None:
    """Each contradiction is found, and nothing where there is none."""
    assert found_in({**NAMED, **environ}) == expected


def test_a_service_without_a_name() -> None:
    """The resource attribute is a name, too."""
    assert found_in({}) == {("settings", "note")}
    assert found_in({"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop"}) == set()


def test_no_value_of_a_secret_is_said() -> None:
    """Neither of a variable that nothing reads."""
    environ = {"CLEW_DIGEST_KEYS": "hunter2", "CLEW_INTEGRITY_KEY": "hunter2", **NAMED}
    settings, found = settings_room.read(environ)
    found += settings_room.variables(environ)
    found += settings_room.contradictions(settings, environ)
    assert "hunter2" not in repr(found)


def test_every_variable_is_known() -> None:
    """The doctor warns of no variable that the settings read."""
    environ = {variable.name: "" for variable in VARIABLES}
    assert list(settings_room.variables(environ)) == []


@pytest.mark.parametrize(
    ("variable", "value", "packages"),
    [
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true", []),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_AND_EVENT", []),
        ("TRACELOOP_TRACE_CONTENT", "", ["traceloop-sdk"]),
        ("OPENINFERENCE_HIDE_INPUTS", "", ["openinference-instrumentation-openai"]),
        ("LANGSMITH_TRACING", "true", []),
        ("LANGFUSE_SECRET_KEY", "sk", ["langfuse"]),
        ("LOGFIRE_TOKEN", "t", ["logfire"]),
        ("OPENAI_LOG", "debug", []),
        ("AZURE_TRACING_GEN_AI_CONTENT_RECORDING_ENABLED", "true", []),
    ],
)
def test_content_of_other_libraries(variable: str, value: str, packages: list[str]) -> None:
    """A switch that lets content out is named; its value is not."""
    found = list(neighbours.content(dict.fromkeys(packages, "1"), {variable: value}))
    (named,) = [each for each in found if each.facts.get("variable") == variable]
    assert named.level == "warning"


@pytest.mark.parametrize(
    ("variable", "value", "packages"),
    [
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "false", []),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "no_content", []),
        ("TRACELOOP_TRACE_CONTENT", "false", ["traceloop-sdk"]),
        ("TRACELOOP_TRACE_CONTENT", "", []),
        ("OPENAI_LOG", "info", []),
    ],
)
def test_quiet_neighbours(variable: str, value: str, packages: list[str]) -> None:
    """A switch that is off, or of a library that is not there, is no finding."""
    found = list(neighbours.content(dict.fromkeys(packages, "1"), {variable: value}))
    assert [each.level for each in found] == ["ok"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("opentelemetry-instrumentation-openai-v2", True),
        ("opentelemetry-instrumentation-genai-anthropic", True),
        ("openinference-instrumentation-langchain", True),
        ("traceloop-sdk", True),
        ("opentelemetry-instrumentation-httpx", False),
        ("openai", False),
    ],
)
def test_instrumentations_are_known_by_name(name: str, expected: bool) -> None:
    """Those of HTTP clients are none of model calls."""
    assert neighbours.is_instrumentation(name) is expected


def placed(folder: Path, **options: Any) -> Settings:
    return Settings.from_environment({}, data_dir=folder, digest_key="k", **options)


def wrong(settings: Settings) -> list[Finding]:
    return [each for each in files.examine(settings) if each.level in ("warning", "problem")]


def test_a_folder_in_order(tmp_path: Path) -> None:
    """A store that is sound says its size and schema."""
    Writer(tmp_path / "data" / "clew.db").close()
    settings = placed(tmp_path / "data", integrity_key="k")
    assert wrong(settings) == []
    (store,) = Report(findings=tuple(files.examine(settings))).of("store")
    assert (store.level, store.facts["schema"], store.facts["spans"]) == ("ok", len(MIGRATIONS), 0)


def test_files_that_others_may_read(tmp_path: Path) -> None:
    """They are named, with the command that closes them."""
    Writer(tmp_path / "data" / "clew.db").close()
    (tmp_path / "data" / "clew.db").chmod(0o644)
    (found,) = wrong(placed(tmp_path / "data"))
    assert (found.check, found.level) == ("folder", "warning")
    assert found.advice == f"chmod -R go= {tmp_path / 'data'}"


def test_a_damaged_store(tmp_path: Path) -> None:
    """Pages of garbage are found."""
    path = tmp_path / "data" / "clew.db"
    Writer(path).close()
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xa5" * (len(content) - 8192)
    path.write_bytes(content)
    (found,) = wrong(placed(tmp_path / "data"))
    assert (found.check, found.level) == ("store", "problem")


def test_a_store_of_a_newer_clew(tmp_path: Path) -> None:
    """It is said to be newer."""
    path = tmp_path / "data" / "clew.db"
    Writer(path).close()
    connection = sqlite3.connect(path)
    connection.execute("INSERT INTO migrations VALUES (999, 'future', 0)")
    connection.commit()
    connection.close()
    (found,) = wrong(placed(tmp_path / "data"))
    assert found.check == "store"
    assert "newer Clew" in found.message


def test_what_waits_in_the_spool(tmp_path: Path) -> None:
    """It is counted; where a spool has no effect, that is said."""
    settings = placed(tmp_path / "data", spool_dir=tmp_path / "spool")
    assert [each.level for each in files.spool(settings, {})] == ["ok"]
    one = Spool(folder_for(tmp_path / "spool", "http://a/v1/traces"), 1 << 20)
    one.add(b"x" * 100, 7)
    (found,) = files.spool(settings, {})
    assert (found.level, found.facts) == ("warning", {"spans": 7, "bytes": 100, "files": 1})
    (found,) = files.spool(settings, {"OTEL_TRACES_EXPORTER": "console"})
    assert "no effect" in found.message
    assert list(files.spool(placed(tmp_path / "data"), {})) == []


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_install_key(tmp_path: Path, mode: int) -> None:
    """One that others may read is not used, and said so."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "digest.key").write_bytes(b"k")
    (folder / "digest.key").chmod(mode)
    found = wrong(Settings.from_environment({}, data_dir=folder))
    expected = [] if mode == 0o600 else [("keys", "problem"), ("folder", "warning")]
    assert [(each.check, each.level) for each in found] == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Where tools that write depend on it, it is a problem."""
    tmp_path.chmod(0o500)
    (found,) = wrong(placed(tmp_path / "data", audit="fail_closed"))
    tmp_path.chmod(0o700)
    assert (found.check, found.level) == ("folder", "problem")


def test_the_worst_level_is_the_reports() -> None:
    """From ok to problem."""
    each = [ok("a", "b"), note("a", "b"), warning("a", "b"), problem("a", "b")]
    assert [Report(findings=tuple(each[:n])).level for n in range(5)] == [
        *("ok", "ok", "note", "warning", "problem"),
    ]


def test_the_page_names_what_is_looked_at() -> None:
    """Each check that a module can report, and each switch of another library."""
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    source = Path(files.__file__).parent
    text = "\n".join(each.read_text() for each in source.glob("*.py"))
    checks = set(re.findall(r'(?:ok|note|warning|problem|level|found)\(\s*"([a-z ]+)"', text))
    assert len(checks) > 10
    assert {each for each in checks if f"| `{each}` |" not in page} == set()
    shown = page.replace("`_OUTPUTS`", "OPENINFERENCE_HIDE_OUTPUTS")
    assert {each.variable for each in neighbours.CONTENT if each.variable not in shown} == set()
