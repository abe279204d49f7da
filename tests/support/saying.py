"""Gates that say what they are told to, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clew.gates.guardrail import redact
from clew.testing import CaptureExporter
from clew.typing import Proposal, Verdict

Govern = Callable[..., CaptureExporter]
MARK = "zqmark"
"""Stands in every prompt, answer and tool argument."""
SECRET = f"{MARK}-key-123"
"""What guardrails look for."""


@dataclass
class Saying:
    """A gate that says what it is told to, and keeps what it was asked."""

    says: Verdict | Exception | None = None
    name: str = "house"
    mode: Any = "enforce"
    mandatory: bool = True
    kinds: frozenset[str] = frozenset({"model_call"})
    rank: int = 50
    asked: list[Proposal] = field(default_factory=list)
    settled: list[Any] = field(default_factory=list)
    released: list[Proposal] = field(default_factory=list)

    def check(self, proposal: Proposal) -> Verdict | None:
        self.asked.append(proposal)
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    def settle(self, proposal: Proposal, settlement: Any) -> None:
        self.settled.append((proposal, settlement))

    def release(self, proposal: Proposal) -> None:
        self.released.append(proposal)


DENY = Verdict(outcome="deny", reason="house_rule")


def no_keys(text: str) -> Verdict | None:
    """Replace the secret."""
    return redact(text.replace(SECRET, "[gone]"), reason="found") if SECRET in text else None


def saying(outcome: str) -> Callable[[str], Verdict | None]:
    """Return what says the same of each text with the secret in it."""

    def look(text: str) -> Verdict | None:
        return Verdict(outcome=outcome, reason="found") if SECRET in text else None  # type: ignore[arg-type]

    return look


def decisions(exported: CaptureExporter) -> list[dict[str, Any]]:
    """Return what the decisions say, without the prefix of their keys."""
    return [
        {
            key.removeprefix("clew.decision."): value
            for key, value in (span.attributes or {}).items()
            if key.startswith("clew.decision.")
        }
        for span in exported.by_name("decide")
    ]
