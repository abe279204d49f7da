"""The circuit gate: a host that fails again and again is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import ClassVar

from clew.gates.base import BaseGate, allow, deny
from clew.typing import GateMode, Proposal, Settlement, Verdict

_TRIPS = frozenset({408, 409, 429})


class _Circuit:
    __slots__ = ("failures", "opened", "trial")

    def __init__(self) -> None:
        self.failures = 0
        self.opened: float | None = None
        self.trial: int | None = None
        """Number of the one proposal that is let through to see whether all is well again."""


class CircuitGate(BaseGate):
    """Denies calls to a host after so many failures in a row, with the reason `circuit_open`.

    Failures to connect, rate limits and server errors count; an error that is the caller's own
    does not. After the cooldown one call is let through; its success closes the circuit.

    Args:
        failures: how many in a row open the circuit.
        cooldown_s: seconds until one call is let through.
        clock: returns a monotonic time in seconds.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`.
        name: see `BaseGate`.
        policy_version: see `BaseGate`.
    """

    default_name: ClassVar[str] = "circuit"
    kinds = frozenset({"model_call"})
    rank: ClassVar[int] = 30

    def __init__(
        self,
        failures: int = 5,
        *,
        cooldown_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        mode: GateMode = "enforce",
        mandatory: bool = False,
        name: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        super().__init__(name=name, mode=mode, mandatory=mandatory, policy_version=policy_version)
        self._failures = failures
        self._cooldown = cooldown_s
        self._clock = clock
        self._circuits: dict[str, _Circuit] = {}
        self._lock = threading.Lock()

    def check(self, proposal: Proposal) -> Verdict | None:
        """Deny while the circuit of the host is open."""
        with self._lock:
            circuit = self._circuits.setdefault(proposal.host or "", _Circuit())
            if circuit.opened is None:
                return allow("circuit_closed")
            waited = self._clock() - circuit.opened
            if waited < self._cooldown or circuit.trial is not None:
                return deny("circuit_open")
            circuit.trial = proposal.number
            return allow("circuit_trial")

    def settle(self, proposal: Proposal, settlement: Settlement) -> None:
        """Count a failure, or close the circuit."""
        status = settlement.status
        failed = settlement.failed and (status is None or status >= 500 or status in _TRIPS)
        with self._lock:
            circuit = self._circuits.setdefault(proposal.host or "", _Circuit())
            trial = circuit.trial == proposal.number
            if trial:
                circuit.trial = None
            if settlement.cancelled:
                return
            if not failed:
                circuit.failures, circuit.opened = 0, None
                return
            circuit.failures += 1
            if trial or circuit.failures >= self._failures:
                circuit.opened = self._clock()

    def release(self, proposal: Proposal) -> None:
        """Let another call be the one that is let through."""
        with self._lock:
            circuit = self._circuits.get(proposal.host or "")
            if circuit is not None and circuit.trial == proposal.number:
                circuit.trial = None
