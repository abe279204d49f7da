"""Whether the settings can be read, mean something, and agree with each other."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Final

from clew.doctor.findings import Finding, note, ok, problem, warning
from clew.errors import ClewError
from clew.levels import REDACTED, number_of
from clew.pipeline import sampling
from clew.settings import VARIABLES, Settings
from clew.sources.http import AUTHORIZATION

_ELSEWHERE: Final = frozenset({AUTHORIZATION, "CLEW_CACHE", "CLEW_CORPUS", "CLEW_COEXISTENCE"})
"""Variables that are read in other places than the settings."""
_COLLECTOR: Final = (
    *("CLEW_TRACES_TO", "CLEW_QUEUE_", "CLEW_OTLP_HTTP", "CLEW_OTLP_GRPC", "CLEW_MEMORY_"),
    *("CLEW_KEPT_TO", "CLEW_HEALTH", "CLEW_GATEWAY", "CLEW_VIEWER", "CLEW_TEMPO", "CLEW_SELF_"),
    *("CLEW_PROMETHEUS", "CLEW_KEEP_", "CLEW_JAEGER", "CLEW_FILE", "CLEW_DECISION_"),
    "CLEW_CLICKHOUSE",
)
"""How those begin that the generated configurations of the Collector read."""
_FEW_ATTRIBUTES: Final = 64
_SHORT_VALUES: Final = 1024
_USUAL: Final = 128


def read(environ: Mapping[str, str] | None = None) -> tuple[Settings, list[Finding]]:
    """Return the settings of the environment, by default where they cannot be read."""
    environ = os.environ if environ is None else environ
    try:
        settings = Settings.from_environment(environ)
    except ClewError as error:
        found = problem("settings", f"clew.configure() would fail: {error}", "Correct the variable")
        return Settings(), [found]
    return settings, [ok("settings", "The settings can be read")]


def variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look for variables that nothing reads: their names are wrong."""
    known = {variable.name for variable in VARIABLES} | _ELSEWHERE
    for name in sorted(environ):
        if not name.startswith("CLEW_") or name in known or name.startswith(_COLLECTOR):
            continue
        like = difflib.get_close_matches(name, known, 1)
        advice = f"Did you mean {like[0]}?" if like else "`clew` has no setting of this name"
        yield warning("settings", f"Nothing reads the variable {name}", advice, variable=name)


def contradictions(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look for settings that cancel each other, or need something that is missing."""
    if settings.disabled:
        yield problem(
            "settings", "OTEL_SDK_DISABLED is true: Clew records nothing", "Unset it to record"
        )
    yield from _about_content(settings)
    yield from _about_proof(settings)
    yield from _about_export(settings, environ)
    yield from _about_limits(environ)
    yield from _about_sampling(settings, environ)


def _about_content(settings: Settings) -> Iterator[Finding]:
    level = number_of(settings.capture)
    highest = max(level, number_of(settings.capture_max or "none"))
    if highest >= REDACTED and not settings.content_to:
        yield warning(
            "content",
            "The capture level lets content through, but no place is named for it",
            "Set CLEW_CONTENT_TO to `spans` or `store`, or lower CLEW_CAPTURE",
        )
    if settings.content_to and highest < REDACTED:
        yield warning(
            "content",
            "CLEW_CONTENT_TO names a place, but no capture level lets content through",
            "Set CLEW_CAPTURE to `redacted` or `full`, or unset CLEW_CONTENT_TO",
        )
    if settings.capture_max is not None and number_of(settings.capture_max) < level:
        yield warning(
            "content",
            "CLEW_CAPTURE_MAX is below CLEW_CAPTURE: it has no effect",
            "CLEW_CAPTURE_MAX is the level up to which a run may raise its own",
        )
    if settings.capture == "full":
        yield note(
            "content",
            "CLEW_CAPTURE is `full`: content is not masked",
            "`redacted` masks what looks like a secret or personal data",
        )
    if settings.prompt_capture and settings.capture == "none":
        yield warning(
            "content",
            "CLEW_PROMPT_CAPTURE is on while CLEW_CAPTURE is `none`: nothing is recorded",
            "Raise CLEW_CAPTURE, or switch recording off",
        )
    try:
        if not settings.effective_allow_list().spans:
            yield problem(
                "content",
                "The allow-list is empty: spans leave without any attributes",
                "Use AllowList.default(), extended by what you need",
            )
    except ClewError as error:
        yield problem("settings", f"clew.configure() would fail: {error}")


def _about_proof(settings: Settings) -> Iterator[Finding]:
    keys = settings.integrity_key is not None or settings.signing_key_file is not None
    if not settings.integrity and keys:
        yield warning(
            "settings",
            "CLEW_INTEGRITY is false: the integrity key and the signing key are not used",
            "Unset one or the other",
        )
    if settings.signing_key_file is not None:
        if find_spec("cryptography") is None:
            yield problem(
                "keys",
                "CLEW_SIGNING_KEY_FILE needs `cryptography`",
                "pip install 'clew[audit]'",
            )
        elif not settings.signing_key_file.is_file():
            yield problem(
                "keys",
                f"CLEW_SIGNING_KEY_FILE: there is no file {settings.signing_key_file}",
                "clew.configure() would fail",
            )
    if settings.prices_file is not None and not settings.prices_file.is_file():
        yield warning(
            "settings",
            f"CLEW_PRICES_FILE: there is no file {settings.prices_file}",
            "Prices are those of the library",
        )


def _about_export(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    if settings.batch_size > settings.queue_size:
        yield warning(
            "settings",
            f"A batch ({settings.batch_size} spans) is larger than the queue "
            f"({settings.queue_size}): spans are dropped before a batch is full",
            "Lower OTEL_BSP_MAX_EXPORT_BATCH_SIZE, or raise OTEL_BSP_MAX_QUEUE_SIZE",
        )
    names = {part.strip() for part in environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")}
    if names <= {"none", ""}:
        yield warning(
            "exporter",
            "OTEL_TRACES_EXPORTER is `none`: no span leaves the process",
            "Unset it, or give exporters in code",
        )
    named = "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not settings.service_name and not named:
        yield note(
            "settings",
            "The service has no name: its spans say `unknown_service`",
            "Set OTEL_SERVICE_NAME, or give one to clew.configure()",
        )
    if settings.queue_size < _USUAL:
        yield warning(
            "settings",
            f"The queue holds {settings.queue_size} spans: a burst overflows it",
            "Raise OTEL_BSP_MAX_QUEUE_SIZE (the default is 2048)",
        )


def _about_limits(environ: Mapping[str, str]) -> Iterator[Finding]:
    count = _number(environ, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
    if count is not None and count < _FEW_ATTRIBUTES:
        yield warning(
            "limits",
            f"Spans may have {count} attributes: on a provider that is not Clew's own the first "
            "ones vanish",
            f"Allow at least {_USUAL}, the default",
        )
    length = _number(
        environ, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"
    )
    if length is not None and length < _SHORT_VALUES:
        yield warning(
            "limits",
            f"Values are cut after {length} characters: on a provider that is not Clew's own "
            "captured content ends in the middle of its JSON",
            "Unset it: Clew shortens content inside (CLEW_CONTENT_LIMIT)",
        )


def _number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        text = environ.get(name, "").strip()
        if text.isdecimal():
            return int(text)
    return None


def _about_sampling(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if name.endswith("always_off"):
        yield problem(
            "sampler",
            f"OTEL_TRACES_SAMPLER is {name}: no run is recorded",
            "Unset it, or use parentbased_traceidratio",
        )
    sampler = sampling.from_environment(environ)
    if sampler is None:
        if settings.keep_above_usd is not None:
            yield note(
                "sampler",
                "CLEW_KEEP_ABOVE_USD is set, but no run is sampled out: it has no effect",
            )
        return
    text = environ.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
    try:
        ratio = float(text or 1)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        yield warning(
            "sampler",
            "OTEL_TRACES_SAMPLER_ARG is no number from 0 to 1: every run is sampled",
            "Give a share, 0.1 for example",
        )
    elif ratio < 1:
        yield note(
            "sampler",
            f"{ratio:.0%} of all runs are sampled, each whole, by the random bits of its uuid",
            "A provider that is not Clew's own needs clew.pipeline.sampling.RunRatioSampler for "
            "that: the SDK's ratio sampler looks at a uuid's fixed bits",
            ratio=ratio,
        )
