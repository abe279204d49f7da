"""Settings: frozen, from the environment, documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from clew.errors import ConfigurationError
from clew.settings import VARIABLES, Settings

README = Path(__file__).parents[1] / "README.md"


def test_defaults() -> None:
    """Without an environment the documented defaults hold."""
    settings = Settings.from_environment({})
    assert (settings.queue_size, settings.batch_size, settings.shutdown_s) == (2048, 512, 5)
    assert (settings.stream_idle_s, settings.seal_grace_s) == (600, 5)
    assert settings.propagate_to == frozenset()


SECRETS = {"CLEW_DIGEST_KEY": "digest_key", "CLEW_INTEGRITY_KEY": "integrity_key"}


def test_the_environment_fills_each_setting() -> None:
    """Every variable of the table reaches the setting that it names."""
    values = {
        "OTEL_SERVICE_NAME": ("bot", "bot"),
        "OTEL_SDK_DISABLED": ("true", True),
        "OTEL_BSP_MAX_QUEUE_SIZE": ("10", 10),
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": ("5", 5),
        "OTEL_BSP_SCHEDULE_DELAY": ("250", 250.0),
        "CLEW_PROVIDER_HOSTS": (
            "gw.local:8080=openai, llm.local=vllm",
            {"gw.local:8080": "openai", "llm.local": "vllm"},
        ),
        "CLEW_TRUST_ZONES": ("llm.local=local", {"llm.local": "local"}),
        "CLEW_PROPAGATE_TO": ("A.local, b.local", frozenset({"a.local", "b.local"})),
        "CLEW_MODEL_ALIASES": ("gpt-prod=openai/gpt-4o", {"gpt-prod": "openai/gpt-4o"}),
        "CLEW_PRICES_FILE": ("/tmp/prices.json", Path("/tmp/prices.json")),  # noqa: S108
        "CLEW_OTLP_ENCODER": ("stock", "stock"),
        "CLEW_FLUSH_ON_SIGTERM": ("false", False),
        "CLEW_SPOOL_DIR": ("/var/spool/clew", Path("/var/spool/clew")),
        "CLEW_SPOOL_MAX_BYTES": ("1000000", 1000000),
        "CLEW_AUDIT": ("fail_closed", "fail_closed"),
        "CLEW_KEEP": ("Deny, error", frozenset({"deny", "error"})),
        "CLEW_KEEP_ABOVE_USD": ("0.5", 0.5),
        "CLEW_INTEGRITY": ("false", False),
        "CLEW_SIGNING_KEY_FILE": ("/etc/clew/key.pem", Path("/etc/clew/key.pem")),
        "CLEW_CAPTURE": ("Redacted", "redacted"),
        "CLEW_CAPTURE_MAX": ("full", "full"),
        "CLEW_CONTENT_TO": ("spans", frozenset({"spans"})),
        "CLEW_CONTENT_LIMIT": ("100", 100),
        "CLEW_PROMPT_CAPTURE": ("On", True),
        "CLEW_PROMPT_RETENTION_DAYS": ("30", 30),
        "CLEW_PROMPT_MAX_BYTES": ("1000", 1000),
        "CLEW_REDACTION": ("detect_secrets", ("detect_secrets",)),
        "CLEW_ALLOW_LIST": ("/etc/clew/list.yaml", Path("/etc/clew/list.yaml")),
        "CLEW_DATA_DIR": ("/var/clew", Path("/var/clew")),
        "CLEW_STREAM_IDLE_SECONDS": ("1.5", 1.5),
        "CLEW_HEARTBEAT_SECONDS": ("30", 30.0),
        "CLEW_SEAL_GRACE_SECONDS": ("0", 0.0),
        "CLEW_SHUTDOWN_SECONDS": ("2", 2.0),
        "OTEL_METRIC_EXPORT_INTERVAL": ("1000", 1000.0),
        "CLEW_METRIC_TENANTS": ("Acme, other", frozenset({"Acme", "other"})),
        "CLEW_METRIC_PROFILE": ("v0.1.0", "v0.1.0"),
        "CLEW_METRIC_REASONS": ("over_budget", frozenset({"over_budget"})),
    }
    for variable in VARIABLES:
        if variable.name in SECRETS:
            continue
        text, expected = values[variable.name]
        settings = Settings.from_environment({variable.name: text})
        assert getattr(settings, variable.field) == expected, variable.name


@pytest.mark.parametrize("name", SECRETS)
def test_the_key_is_never_shown(name: str) -> None:
    """A secret is masked in `repr`, and in the error about it."""
    settings = Settings.from_environment({name: "hunter2"})
    key = getattr(settings, SECRETS[name])
    assert key is not None
    assert key.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(settings)


def test_settings_are_frozen() -> None:
    """What was configured stays so."""
    with pytest.raises(ValidationError):
        Settings().queue_size = 1  # type: ignore[misc]


def test_code_wins_over_the_environment() -> None:
    """An argument is taken, whatever the variable says, right or wrong."""
    environ = {"OTEL_BSP_MAX_QUEUE_SIZE": "nonsense"}
    assert Settings.from_environment(environ, queue_size=7).queue_size == 7


@pytest.mark.parametrize("variable", ["CLEW_CAPTURE", "CLEW_CAPTURE_MAX"])
def test_a_level_that_cannot_be_read_is_metadata(
    variable: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake in the environment never lets more through; it is said."""
    settings = Settings.from_environment({variable: "fulll"})
    assert (settings.capture, settings.capture_max or "metadata") == ("metadata", "metadata")
    assert variable in caplog.text


@pytest.mark.parametrize("text", ["=x", "x=", "x"])
def test_a_pair_that_is_none_is_named(text: str) -> None:
    """The error says which variable and which entry."""
    with pytest.raises(ConfigurationError, match="CLEW_MODEL_ALIASES"):
        Settings.from_environment({"CLEW_MODEL_ALIASES": text})


def test_the_readme_lists_each_variable() -> None:
    """The table in the README is the table in the code, line by line."""
    rows = re.findall(
        r"^\| `((?:OTEL|CLEW)_[A-Z_]+)` \| (.+?) \|", README.read_text(), re.MULTILINE
    )
    assert rows == [(variable.name, variable.meaning) for variable in VARIABLES]


@pytest.mark.parametrize(
    ("name", "text", "field", "expected"),
    [
        ("CLEW_PROMPT_CAPTURE", "perhaps", "prompt_capture", False),
        ("CLEW_PROMPT_CAPTURE", "disable", "prompt_capture", False),
        ("CLEW_PROMPT_RETENTION_DAYS", "forever", "prompt_retention_days", 7),
        ("CLEW_PROMPT_RETENTION_DAYS", "0", "prompt_retention_days", 7),
        ("CLEW_PROMPT_RETENTION_DAYS", "-3", "prompt_retention_days", 7),
    ],
)
def test_what_cannot_be_read_neither_records_nor_keeps_for_ever(
    name: str, text: str, field: str, expected: object
) -> None:
    """An unreadable switch is off, an unreadable retention is 7 days."""
    assert getattr(Settings.from_environment({name: text}), field) == expected
