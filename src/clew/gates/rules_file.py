"""The rule file gate: rules in YAML, with a version that is on each decision.

    version: "2026-11-01"
    default: allow
    rules:
      - deny: no_foreign_refunds
        kind: tool_call
        tool: [refund, payout]
        tenant: [acme]
      - require_approval: large_model
        kind: model_call
        model: "gpt-5-pro*"

The first rule whose conditions all hold decides; its word is the outcome, what stands behind it
the reason. A condition is a pattern (`*` and `?`) or a list of them, compared with what the
proposal says: kind, agent, actor, configuration, tenant, provider, host, model, operation, tool,
effect, trust_zone, data_class.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, cast

from msgspec import Struct

from clew.errors import ConfigurationError, MissingExtraError
from clew.gates.base import BaseGate
from clew.rules import Identifier
from clew.typing import GateMode, Proposal, Verdict

_OUTCOMES: Final = ("allow", "deny", "require_approval")
_CONDITIONS: Final = frozenset(
    {
        "kind",
        "agent",
        "actor",
        "configuration",
        "tenant",
        "provider",
        "host",
        "model",
        "operation",
        "tool",
        "effect",
        "trust_zone",
        "data_class",
    }
)
_code = Identifier(64)


class _Rule(Struct, frozen=True):
    outcome: Literal["allow", "deny", "require_approval"]
    reason: str
    conditions: dict[str, tuple[str, ...]]

    def holds(self, proposal: Proposal) -> bool:
        for name, patterns in self.conditions.items():
            value: Any = getattr(proposal, name)
            if name == "actor" and value is not None:
                value = value.id
            if value is None or not any(fnmatchcase(value, pattern) for pattern in patterns):
                return False
        return True


class RulesFileGate(BaseGate):
    """Decides by the rules of a YAML file, read once.

    Args:
        path: the file.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`.
        name: see `BaseGate`.

    Raises:
        ConfigurationError: the file cannot be read, or is no rule file.
        MissingExtraError: PyYAML is not installed.
    """

    default_name: ClassVar[str] = "rules"
    kinds = frozenset({"model_call", "tool_call"})
    rank: ClassVar[int] = 15
    looks_at_offers: ClassVar[bool] = True

    def __init__(
        self,
        path: Path | str,
        *,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        name: str | None = None,
    ) -> None:
        document = _read(Path(path))
        version = document.get("version")
        super().__init__(
            name=name,
            mode=mode,
            mandatory=mandatory,
            policy=Path(path).name,
            policy_version=None if version is None else str(version),
        )
        self._default = document.get("default", "allow")
        if self._default not in _OUTCOMES:
            raise ConfigurationError(f"{path}: default is {self._default!r}; give {_OUTCOMES}")
        self._rules = [
            _rule(entry, f"{path}: rule {number}")
            for number, entry in enumerate(document.get("rules") or [], 1)
        ]

    def check(self, proposal: Proposal) -> Verdict | None:
        """Return what the first rule that holds says."""
        for rule in self._rules:
            if rule.holds(proposal):
                return Verdict(outcome=rule.outcome, reason=rule.reason)
        return Verdict(outcome=self._default, reason="no_rule")


def _read(path: Path) -> dict[str, Any]:
    try:
        import yaml  # pyright: ignore[reportMissingModuleSource]
    except ImportError:
        raise MissingExtraError("a YAML rule file", "yaml") from None
    try:
        document: Any = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        kind = type(error).__name__
        raise ConfigurationError(f"the rule file {path} cannot be read: {kind}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} is no rule file: it has no `rules`")
    known = cast("dict[str, Any]", document)
    unknown = set(known) - {"version", "default", "rules"}
    if unknown:
        raise ConfigurationError(f"{path} has unknown members: {sorted(unknown)}")
    return known


def _rule(entry: Any, where: str) -> _Rule:
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{where} is no mapping")
    members = cast("dict[str, Any]", entry)
    outcomes = [name for name in _OUTCOMES if name in members]
    unknown = set(members) - _CONDITIONS - set(_OUTCOMES)
    if len(outcomes) != 1 or unknown:
        raise ConfigurationError(
            f"{where} needs one of {_OUTCOMES} with a reason, and conditions among "
            f"{sorted(_CONDITIONS)}" + (f"; unknown: {sorted(unknown)}" if unknown else "")
        )
    reason = members[outcomes[0]]
    if not isinstance(reason, str) or _code.fits(reason) is None:
        raise ConfigurationError(f"{where} has the reason {reason!r}; give an identifier")
    conditions = {
        name: tuple(map(str, cast("list[Any]", value) if isinstance(value, list) else [value]))
        for name, value in members.items()
        if name in _CONDITIONS
    }
    outcome = cast("Literal['allow', 'deny', 'require_approval']", outcomes[0])
    return _Rule(outcome, reason, conditions)
