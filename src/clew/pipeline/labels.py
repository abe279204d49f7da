"""Label values of metrics: closed sets, and bounded ones whose further values are `_OTHER`.

A label never holds a run, a user, or text that a model or a user wrote, and the number of series
depends on what is deployed, not on how much it is used.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any, Final

from clew import semconv
from clew.rules import DROPPED, OTHER, Closed, Identifier, Rule
from clew.settings import Settings

MAX_VALUES: Final = 200
"""Distinct values of one bounded label in one process; further ones are `_OTHER`."""

Labels = dict[str, Any]

_ERRORS_OF_PROVIDERS: Final = frozenset(
    {
        # OpenAI and those who speak its format
        *("invalid_request_error", "invalid_api_key", "insufficient_quota", "server_error"),
        *("rate_limit_exceeded", "context_length_exceeded", "model_not_found", "content_filter"),
        *("content_policy_violation", "requests", "tokens"),
        # https://docs.anthropic.com/en/api/errors
        *("authentication_error", "permission_error", "not_found_error", "request_too_large"),
        *("rate_limit_error", "api_error", "overloaded_error", "timeout_error", "billing_error"),
        # https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto
        *("INVALID_ARGUMENT", "FAILED_PRECONDITION", "PERMISSION_DENIED", "NOT_FOUND"),
        *("RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED"),
        *("UNAUTHENTICATED", "CANCELLED", "UNIMPLEMENTED", "OUT_OF_RANGE"),
        # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModel.html
        *("ThrottlingException", "ValidationException", "AccessDeniedException"),
        *("ModelTimeoutException", "ModelErrorException", "ModelNotReadyException"),
        *("ModelStreamErrorException", "InternalServerException", "ResourceNotFoundException"),
        *("ServiceUnavailableException", "ServiceQuotaExceededException"),
        # ours
        "stream_cut_off",
    }
)
_LIBRARIES: Final = (
    *("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "requests", "urllib3", "botocore"),
    *("asyncio", "anyio", "ssl", "socket", "openai", "anthropic", "google", "mistralai", "groq"),
)


class Bounded:
    """Keeps the first `limit` distinct values that obey a rule; all others are `_OTHER`.

    Not thread-safe.
    """

    __slots__ = ("_known", "_limit", "_rule")

    def __init__(self, rule: Rule, limit: int = MAX_VALUES) -> None:
        self._rule = rule
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, value: Any) -> str | None:
        """Return the label for a value; None stays None."""
        if value is None:
            return None
        if type(value) is str and value in self._known:
            return value
        shown = self._rule.apply(value)
        if shown in self._known:
            return shown
        if len(self._known) >= self._limit or shown is DROPPED:
            return OTHER
        self._known.add(shown)
        return shown


class Chosen:
    """Keeps the values that the operator listed; without a list there is no label at all."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[str]) -> None:
        self._values = frozenset(values)

    def __call__(self, value: Any) -> str | None:
        """Return the label for a value; None stays None."""
        if value is None or not self._values:
            return None
        return value if value in self._values else OTHER


def _closed(*values: str) -> Bounded:
    return Bounded(Closed(*values), len(values))


class Words:
    """The label values that one process uses.

    Args:
        settings: the tenants and decision reasons that may be labels.
    """

    def __init__(self, settings: Settings) -> None:
        name = Identifier(128)
        self.operation = _closed(*semconv.OPERATIONS)
        self.provider = Bounded(name)
        self.request_model = Bounded(Identifier(256))
        self.response_model = Bounded(Identifier(256))
        self.tool = Bounded(name)
        self.tool_outcome = _closed(*semconv.TOOL_OUTCOMES)
        self.gate = _closed(*semconv.GATES)
        self.decision_outcome = _closed(*semconv.DECISION_OUTCOMES)
        self.stream_outcome = _closed(*semconv.STREAM_OUTCOMES)
        self.budget = Bounded(name)
        self.budget_unit = _closed(*semconv.BUDGET_UNITS)
        self.rule = Bounded(name)
        self.reason = Chosen(settings.metric_reasons)
        self._tenant = Chosen(settings.metric_tenants)
        self._agent = Bounded(name)
        self._error = Bounded(name)

    def agent(self, agent: Any) -> Labels:
        """Return the labels of an agent: its name, and the tenant where tenants are labels."""
        if agent is None:
            return {}
        name, tenant = agent.run.labels()
        return {semconv.AGENT_NAME: self._agent(name), semconv.TENANT: self._tenant(tenant)}

    def error(self, value: str | None) -> str | None:
        """Return the label of an `error.type`: a status, a known word, or a library's class."""
        if value is None:
            return None
        if value in _ERRORS_OF_PROVIDERS or _is_status(value):
            return value
        return self._error(value) if _is_class(value) else OTHER


def _is_status(value: str) -> bool:
    return len(value) == 3 and value.isdecimal() and value[0] in "45"


def _is_class(value: str) -> bool:
    module, dot, _ = value.partition(".")
    if dot:
        return module in _LIBRARIES
    found = getattr(builtins, value, None)
    return isinstance(found, type) and issubclass(found, BaseException)


MEANINGS: Final = {
    semconv.AGENT_NAME: f"identifier, at most {MAX_VALUES} values",
    semconv.TENANT: "one of CLEW_METRIC_TENANTS",
    semconv.OPERATION: "closed_set",
    semconv.PROVIDER: f"identifier, at most {MAX_VALUES} values",
    semconv.REQUEST_MODEL: f"identifier, at most {MAX_VALUES} values",
    semconv.RESPONSE_MODEL: f"identifier, at most {MAX_VALUES} values",
    semconv.TOOL_NAME: f"a tool registered in code, at most {MAX_VALUES} values",
    semconv.TOOL_OUTCOME: "closed_set",
    semconv.ERROR_TYPE: "a status, a known word, or the class of a known library",
    semconv.STREAM_OUTCOME: "closed_set",
    semconv.RUN_STATUS: "closed_set",
    semconv.RUN_TERMINATION_REASON: "closed_set",
    semconv.COST_STATUS: "closed_set",
    semconv.TOKEN_TYPE: "closed_set",
    semconv.TOKEN_MODALITY: "closed_set",
    semconv.METRIC_TOKEN_TYPE: "closed_set",
    semconv.ATTEMPT_OUTCOME: "closed_set",
    semconv.DECISION_GATE: "closed_set",
    semconv.DECISION_OUTCOME: "closed_set",
    semconv.DECISION_ENFORCED: "flag",
    semconv.DECISION_REASON: "one of CLEW_METRIC_REASONS",
    semconv.BUDGET_NAME: f"identifier, at most {MAX_VALUES} values",
    semconv.BUDGET_UNIT: "closed_set",
    semconv.PIPELINE_SIGNAL: "closed_set",
    semconv.PRIVACY_RULE: f"identifier, at most {MAX_VALUES} values",
}
"""What each label of a metric may hold; any other value becomes `_OTHER`."""
