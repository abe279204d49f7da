"""The checked-in configurations: what the generator writes, and what the Collector takes."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import build_peers
import pytest
import real_peers
import yaml
from typer.testing import CliRunner

from clew import semconv
from clew.allow_list import AllowList
from clew.cli import build
from clew.cli.collector import documents, statements
from clew.rules import Identifier
from clew.settings import Settings

DEFAULT = AllowList.default()


def clew(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return exit code and what it wrote."""
    result = CliRunner().invoke(build(arguments), arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("name", documents.NAMES)
def test_the_files_are_what_the_command_prints(name: str) -> None:
    """After a change of the list: `clew collector-config --write collector-config`."""
    code, printed, _ = clew("collector-config", name)
    assert 0 == code
    assert (real_peers.CONFIGS / f"{name}.yaml").read_text() == printed
    assert yaml.safe_load(printed)


def test_the_table_is_up_to_date_and_marks_every_key() -> None:
    """Each key of the list has a line, with how exact the Collector's rule is."""
    assert documents.table(DEFAULT) == (real_peers.CONFIGS / "RULES.md").read_text()
    code, printed, _ = clew("collector-config", "table", "--json")
    assert 0 == code
    rows = json.loads(printed)
    assert {"exact", "coarser", "stricter"} == {each["grade"] for each in rows}
    keys = {each["key"] for each in rows if each["on"] == "span, event"}
    assert set(DEFAULT.spans) == keys
    assert all(each["note"] for each in rows if each["grade"] != "exact")


@pytest.mark.parametrize("names", [["local"], ["gateway"], ["gateway", "sampling"], ["agent"]])
def test_the_collector_takes_each_configuration(programs: None, names: list[str]) -> None:
    """`validate` builds every component and reads every statement."""
    command = [str(build_peers.program("collector")), "validate"]
    for name in names:
        command += ["--config", str(real_peers.CONFIGS / f"{name}.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr[-2000:]


def test_the_manifest_names_exactly_the_components_that_are_used() -> None:
    """Nothing is built that no configuration uses, and nothing used is missing."""
    used: set[str] = set()
    for name in ("local", "gateway", "sampling", "agent"):
        config = yaml.safe_load((real_peers.CONFIGS / f"{name}.yaml").read_text())
        for kind in ("receivers", "processors", "connectors", "exporters", "extensions"):
            used |= {each.split("/")[0].replace("_", "") for each in config.get(kind) or {}}
    manifest = (real_peers.CONFIGS / "builder.yaml").read_text()
    built = set(
        re.findall(r"/(\w+?)(?:receiver|processor|connector|exporter|extension)? v0", manifest)
    )
    names = {"otlpgrpc": "otlp", "memorylimiter": "memorylimiter", "healthcheck": "healthcheck"}
    assert {names.get(each, each) for each in used} | {"otlp"} == built


def test_all_modules_are_of_one_release() -> None:
    """v0.161.0, and the stable modules of the same day."""
    manifest = (real_peers.CONFIGS / "builder.yaml").read_text()
    versions = set(re.findall(r"gomod: \S+ (v\S+)", manifest))
    assert {"v0.161.0", "v1.67.0"} == versions


def test_a_list_of_your_own_is_in_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLEW_ALLOW_LIST adds keys here as it does in a service."""
    file = tmp_path / "list.json"
    file.write_text('{"spans": {"shop.order": {"rule": "identifier", "max_length": 12}}}')
    monkeypatch.setenv("CLEW_ALLOW_LIST", str(file))
    code, printed, _ = clew("collector-config", "gateway")
    assert 0 == code
    assert "      - 'shop.order'\n" in printed
    assert (
        'IsMatch(span.cache["shop.order"], "^(?:[A-Za-z0-9_][A-Za-z0-9_.:/@+=~#-]{0,11})$$")'
        in printed
    )


def test_content_passes_only_when_asked_for() -> None:
    """`--content` adds the keys of content; the table calls their rule coarser."""
    assert not any(key in clew("collector-config", "gateway")[1] for key in semconv.CONTENT)
    code, printed, _ = clew("collector-config", "gateway", "--content")
    assert 0 == code
    assert all(key in printed for key in semconv.CONTENT)
    rows = json.loads(clew("collector-config", "table", "--json", "--content")[1])
    grades = {each["key"]: each["grade"] for each in rows}
    assert {"coarser"} == {grades[key] for key in semconv.CONTENT}


def test_the_backends_limits_are_above_ours() -> None:
    """An attribute of content fits whole, whatever its characters are, and a long run does."""
    tempo = yaml.safe_load((real_peers.CONFIGS / "tempo.yaml").read_text())
    longest = 4 * Settings().content_limit
    assert tempo["distributor"]["max_attribute_bytes"] >= longest
    most = tempo["overrides"]["defaults"]["global"]["max_bytes_per_trace"]
    assert most >= 300 * 2 * longest
    exporters = yaml.safe_load((real_peers.CONFIGS / "gateway.yaml").read_text())["exporters"]
    for name in ("otlp_grpc/jaeger", "otlp_grpc/tempo"):
        batch = exporters[name]["sending_queue"]["batch"]
        assert "bytes" == batch["sizer"]
        assert batch["max_size"] < 4 * 2**20  # the largest message that they take


def test_an_empty_list_is_an_empty_list() -> None:
    """Fail-closed: no key stands for none, never for all."""
    text = documents.document("gateway", AllowList())
    config = yaml.safe_load(
        text.replace("${env:CLEW_TRACES_TO:-[otlp_grpc/jaeger, span_metrics]}", "[]")
    )
    assert {"allow_all_keys": False, "summary": "silent", "allowed_keys": []} == config[
        "processors"
    ]["redaction"]


def test_what_cannot_be_said_is_refused() -> None:
    """A rule of one's own that no data can name stops the generation instead of being left out."""

    class Mine:
        name = "mine"

        def apply(self, value: object) -> object:
            return value

    from clew.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match="'mine'"):
        documents.document("gateway", AllowList({"a": Mine()}))


def test_unknown_names_are_refused() -> None:
    """Wrong usage is exit code 2."""
    code, _, said = clew("collector-config", "getaway")
    assert 2 == code
    assert "getaway" in said


def test_quoting() -> None:
    """Keys with quotation marks or dollar signs stay what they are."""
    text = documents.document("local", AllowList({"it's $HOME": Identifier(5)}))
    config = yaml.safe_load(text.replace("$${", "${"))
    assert ["it's $$HOME"] == config["processors"]["redaction"]["allowed_keys"]
    assert (
        'span.cache["it\'s $HOME"]'
        in statements.trace_statements(AllowList({"it's $HOME": Identifier(5)}))[2][2]
    )
