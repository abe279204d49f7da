"""Settings: one frozen object, and the one table of environment variables.

What OpenTelemetry has a variable for is read from that (`OTEL_*`); `CLEW_*` is for the rest.
Arguments in code win over the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from clew._guard import logger
from clew.allow_list import AllowList
from clew.errors import ConfigurationError
from clew.folders import default_data_dir
from clew.levels import LevelName
from clew.semconv import CAPTURE_LEVELS


class Variable(NamedTuple):
    """One environment variable, the setting that it fills, and what it means."""

    name: str
    field: str
    meaning: str


VARIABLES: Final = (
    Variable("OTEL_SERVICE_NAME", "service_name", "name of the service"),
    Variable("OTEL_SDK_DISABLED", "disabled", "`true` switches Clew off"),
    Variable("OTEL_BSP_MAX_QUEUE_SIZE", "queue_size", "finished spans kept in memory at the most"),
    Variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "batch_size", "spans in one export request"),
    Variable("OTEL_BSP_SCHEDULE_DELAY", "export_delay_ms", "milliseconds between two exports"),
    Variable("OTEL_METRIC_EXPORT_INTERVAL", "metric_interval_ms", "the same for metrics"),
    Variable("CLEW_METRIC_TENANTS", "metric_tenants", "tenants that may be labels of metrics"),
    Variable("CLEW_METRIC_PROFILE", "metric_profile", "`current` or `v0.1.0`: names of metrics"),
    Variable("CLEW_METRIC_REASONS", "metric_reasons", "reasons that may be labels of decisions"),
    Variable("CLEW_PROVIDER_HOSTS", "provider_hosts", "`host=provider` pairs, comma-separated"),
    Variable("CLEW_PROPAGATE_TO", "propagate_to", "hosts that may see trace headers"),
    Variable("CLEW_TRUST_ZONES", "trust_zones", "`host=zone` pairs for gates, comma-separated"),
    Variable("CLEW_MODEL_ALIASES", "model_aliases", "`name=model` pairs for prices"),
    Variable("CLEW_PRICES_FILE", "prices_file", "a price file of your own (JSON)"),
    Variable("CLEW_DIGEST_KEY", "digest_key", "secret key for digests"),
    Variable("CLEW_OTLP_ENCODER", "otlp_encoder", "`stock`: OpenTelemetry's encoder, not Clew's"),
    Variable(
        "CLEW_SPOOL_DIR", "spool_dir", "folder where spans wait that the OTLP receiver cannot take"
    ),
    Variable("CLEW_SPOOL_MAX_BYTES", "spool_max_bytes", "bytes that wait there at the most"),
    Variable(
        "CLEW_AUDIT",
        "audit",
        "`best_effort` or `fail_closed`: writes and decisions are on the disk before they happen",
    ),
    Variable("CLEW_KEEP", "keep", "what keeps a run that is sampled out; `none`: nothing"),
    Variable("CLEW_KEEP_ABOVE_USD", "keep_above_usd", "cost above which such a run is kept"),
    Variable("CLEW_INTEGRITY", "integrity", "`false`: spans carry no digests"),
    Variable("CLEW_INTEGRITY_KEY", "integrity_key", "secret key for the digests of spans"),
    Variable("CLEW_SIGNING_KEY_FILE", "signing_key_file", "Ed25519 key (PEM) that signs seals"),
    Variable("CLEW_CAPTURE", "capture", "`none`, `metadata`, `redacted` or `full`"),
    Variable("CLEW_CAPTURE_MAX", "capture_max", "level to which a run may raise its own"),
    Variable("CLEW_CONTENT_TO", "content_to", "`spans`, `store`: where captured content goes"),
    Variable("CLEW_CONTENT_LIMIT", "content_limit", "characters of content in one attribute"),
    Variable("CLEW_PROMPT_CAPTURE", "prompt_capture", "`on` or `off` forces recording of calls"),
    Variable("CLEW_PROMPT_RETENTION_DAYS", "prompt_retention_days", "days that records are kept"),
    Variable("CLEW_PROMPT_MAX_BYTES", "prompt_max_bytes", "bytes that payloads of records take"),
    Variable("CLEW_REDACTION", "redaction_detectors", "further detectors: `detect_secrets`"),
    Variable("CLEW_ALLOW_LIST", "allow_list_file", "a file that adds keys to the allow-list"),
    Variable("CLEW_DATA_DIR", "data_dir", "folder of the local store"),
    Variable("CLEW_STREAM_IDLE_SECONDS", "stream_idle_s", "an idle stream is `held` after this"),
    Variable("CLEW_HEARTBEAT_SECONDS", "heartbeat_s", "between two heartbeats of a run; 0: none"),
    Variable(
        "CLEW_SEAL_GRACE_SECONDS", "seal_grace_s", "wait for late spans before a run is sealed"
    ),
    Variable("CLEW_SHUTDOWN_SECONDS", "shutdown_s", "deadline of `clew.shutdown`"),
    Variable(
        "CLEW_FLUSH_ON_SIGTERM", "flush_on_sigterm", "`false`: SIGTERM ends the process at once"
    ),
)
"""The environment variables that Clew reads itself; exporters read the OTEL_EXPORTER_* ones."""

_SECRETS = frozenset({"digest_key", "integrity_key"})
_LISTS = frozenset({"propagate_to", "content_to", "keep"})
_LEVELS = frozenset({"capture", "capture_max"})
_SEQUENCES = frozenset({"redaction_detectors"})
_NAMES = frozenset({"metric_tenants", "metric_reasons"})
_ON = ("on", "true", "enable", "1", "yes")
_OFF = ("off", "false", "disable", "0", "no")
_PAIRS = frozenset({"provider_hosts", "trust_zones", "model_aliases"})


class Settings(BaseModel):
    """How Clew behaves in this process. Frozen; secrets are masked in `repr`."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    service_name: str | None = None
    disabled: bool = False
    queue_size: int = Field(default=2048, ge=1)
    batch_size: int = Field(default=512, ge=1)
    export_delay_ms: float = Field(default=5000, gt=0)
    """Milliseconds that a finished span waits at the most before it is exported."""
    metric_interval_ms: float = Field(default=60_000, gt=0)
    """Milliseconds between two exports of metrics."""
    metric_readers: tuple[Any, ...] = ()
    """OpenTelemetry metric readers of your own (code only); they replace those that
    OTEL_METRICS_EXPORTER names."""
    metric_tenants: frozenset[str] = frozenset()
    """Tenants that are labels of metrics; with none, metrics tell no tenants apart."""
    metric_profile: Literal["current", "v0.1.0"] = "current"
    """Names of the GenAI conventions' metrics: today's, or those of its release 0.1.0."""
    metric_reasons: frozenset[str] = frozenset()
    """Reasons that are labels of `clew.decisions`; with none, there is no such label."""
    provider_hosts: Mapping[str, str] = Field(default_factory=dict)
    """`gen_ai.provider.name` by host (`host` or `host:port`), for gateways and local servers."""
    propagate_to: frozenset[str] = frozenset()
    """Hosts to which trace headers may go."""
    model_aliases: Mapping[str, str] = Field(default_factory=dict)
    """Names of deployments or gateway models, each with the model whose price it has."""
    prices_file: Path | None = None
    digest_key: SecretStr | None = None
    otlp_encoder: Literal["clew", "stock"] = "clew"
    """What writes spans into OTLP over HTTP: Clew's writer, or the stock exporter's encoder."""
    spool_dir: Path | None = None
    """Folder in which batches wait while the OTLP receiver does not take them; None: they wait in
    memory only, and not for long. See `docs/reliability.md`."""
    spool_max_bytes: int = Field(default=256 << 20, ge=1 << 16)
    """Bytes that wait there at the most; of more, the oldest are given up and counted."""
    audit: Literal["off", "best_effort", "fail_closed"] = "off"
    """Whether tool calls that write and enforced decisions are written to the journal in the data
    folder before they are carried out, and whether they are not when that fails."""
    keep: frozenset[Literal["deny", "require_approval", "error", "write"]] = frozenset(
        {"deny", "require_approval", "error", "write"}
    )
    """What keeps a run whole that the sampler has dropped: a decision, an error, a tool call that
    writes. Until then its spans wait in memory."""
    keep_above_usd: float | None = Field(default=None, ge=0)
    """The cost (US dollars) above which such a run is kept."""
    keep_spans: int = Field(default=10_000, ge=1)
    """Spans of such runs that wait at the most."""
    integrity: bool = True
    """Whether spans of runs carry digests, and seals the chain of them; see `docs/audit.md`."""
    integrity_key: SecretStr | None = None
    """Makes the digests keyed (HMAC-SHA-256): nobody without it can alter a span unseen."""
    signing_key_file: Path | None = None
    """File with the Ed25519 key (PEM) that signs the seals."""
    data_dir: Path = Field(default_factory=default_data_dir)
    stream_idle_s: float = Field(default=600, gt=0)
    heartbeat_s: float = Field(default=60, ge=0)
    """Seconds between two marks of a run that goes on, each with its totals so far; 0: none."""
    seal_grace_s: float = Field(default=5, ge=0)
    shutdown_s: float = Field(default=5, gt=0)
    flush_on_sigterm: bool = True
    """Whether SIGTERM, where nobody handles it and it would end the process at once, is let wait
    (2 s at the most) until what is open was ended and exported."""
    capture: LevelName = "metadata"
    """How much content may be let through; see `docs/capture.md`."""
    capture_max: LevelName | None = None
    """The switch for exceptions: the level up to which an authorised actor may raise a run."""
    content_to: frozenset[Literal["spans", "store"]] = frozenset()
    """Where captured content goes: onto spans, or into the data folder, as records. Without a place
    none is captured."""
    prompt_capture: bool | None = None
    """Forces the recording of model calls on or off; None: `clew prompt capture` decides."""
    prompt_retention_days: int | None = Field(default=None, ge=1)
    """Days that records are kept; None: as `clew prompt capture --retain` says, else 7."""
    prompt_max_bytes: int = Field(default=1024**3, ge=0)
    """Bytes that the payload files of records may take; of more, the oldest go."""
    content_limit: int = Field(default=32_768, ge=100)
    """Characters of captured content in one attribute; longer content is shortened inside."""
    redaction_detectors: tuple[Any, ...] = ()
    """Detectors of secrets asked on top of Clew's own: the name `detect_secrets`, or (in code)
    functions that return a text with what they find masked."""
    gates: tuple[Any, ...] = ()
    """Gates that every model call and tool call passes (code only; see `clew.gates`)."""
    record_allow: bool = True
    """Whether decisions that allow are recorded too."""
    trust_zones: Mapping[str, str] = Field(default_factory=dict)
    """Trust zone by host (`host` or `host:port`); a host that is not named is
    `external_global`."""
    allow_list: AllowList = Field(default_factory=AllowList.default)
    allow_list_file: Path | None = None
    """A file (YAML or JSON) whose keys are added to `allow_list`, or replace rules in it."""

    def effective_allow_list(self) -> AllowList:
        """Return the allow-list with what the file adds to it.

        Raises:
            ConfigurationError: the file cannot be read, or is no list.
        """
        if self.allow_list_file is None:
            return self.allow_list
        added = AllowList.read(self.allow_list_file)
        return self.allow_list.extended(added.spans, resource=added.resource)

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, **overrides: Any
    ) -> Settings:
        """Read the environment; keyword arguments win over it.

        Raises:
            ConfigurationError: a variable holds something that its setting cannot take.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        names: dict[str, str] = {}
        for variable in VARIABLES:
            text = environ.get(variable.name, "").strip()
            if text and variable.field not in overrides:
                values[variable.field] = _parse(variable, text)
                names[variable.field] = variable.name
        try:
            return cls(**values, **overrides)
        except ValidationError as error:
            raise ConfigurationError(_explain(error, names)) from None


def _parse(variable: Variable, text: str) -> Any:
    if variable.field == "keep" and text.lower() == "none":
        return frozenset[str]()
    if variable.field in _LISTS:
        return frozenset(part.strip().lower() for part in text.split(",") if part.strip())
    if variable.field in _LEVELS and text.lower() not in CAPTURE_LEVELS:
        # A level that cannot be read must never be a reason to let more through, nor to stop.
        logger.warning(
            "%s is %r, which is no capture level (%s); `metadata` is used",
            *(variable.name, text, ", ".join(CAPTURE_LEVELS)),
        )
        return "metadata"
    if variable.field in _LEVELS:
        return text.lower()
    if variable.field == "prompt_capture":
        # What cannot be read must not be a reason to record.
        if text.lower() not in (*_ON, *_OFF):
            logger.warning("%s is %r, neither `on` nor `off`; `off` is used", variable.name, text)
        return text.lower() in _ON
    if variable.field == "prompt_retention_days" and not (text.isdecimal() and int(text) > 0):
        logger.warning("%s is %r, which is no number of days; 7 is used", variable.name, text)
        return 7
    if variable.field in _SEQUENCES:
        return tuple(part.strip().lower() for part in text.split(",") if part.strip())
    if variable.field in _NAMES:
        return frozenset(part.strip() for part in text.split(",") if part.strip())
    if variable.field in _PAIRS:
        pairs: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            key, equals, value = part.rpartition("=")
            if not (equals and key.strip() and value.strip()):
                raise ConfigurationError(
                    f"{variable.name} has the entry {part!r}; write NAME=VALUE pairs, "
                    "separated by commas"
                )
            pairs[key.strip()] = value.strip()
        return pairs
    return text


def _explain(error: ValidationError, names: Mapping[str, str]) -> str:
    parts: list[str] = []
    for problem in error.errors(include_url=False, include_context=False):
        field = str(problem["loc"][0]) if problem["loc"] else "settings"
        given = "a secret" if field in _SECRETS else repr(problem.get("input"))
        parts.append(f"{names.get(field, field)}: {problem['msg']} (given: {given})")
    return "; ".join(parts)
