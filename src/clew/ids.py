"""Run ids, trace ids and span ids.

The trace id of a run is the 128 bits of its uuid. Span ids come from a random source of our own,
so that an application that seeds `random` cannot make them repeat.
"""

from __future__ import annotations

import contextvars
import os
import random
import uuid

from clew.errors import RunIdError

_source = random.Random(os.urandom(32))  # noqa: S311 - ids, not secrets


def _reseed() -> None:
    _source.seed(os.urandom(32))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reseed)


def parse_run_id(value: uuid.UUID | str | None) -> uuid.UUID:
    """Return the uuid of a run; None and empty text mint a fresh one (version 4).

    Raises:
        RunIdError: the value is the nil uuid, or is not a uuid.
    """
    if value is None or value == "":
        return fresh_run_id()
    if isinstance(value, uuid.UUID):
        run_id = value
    elif isinstance(value, str):
        try:
            run_id = uuid.UUID(value.strip())
        except ValueError:
            raise RunIdError(
                f"run_id {_shown(value)} is not a uuid; "
                "give a uuid.UUID, its text form, or None for a fresh one"
            ) from None
    else:
        raise RunIdError(
            f"run_id has type {type(value).__name__}; "
            "give a uuid.UUID, its text form, or None for a fresh one"
        )
    if run_id.int == 0:
        raise RunIdError("run_id is the nil uuid, which cannot be a trace id; give another one")
    return run_id


def _shown(value: str) -> str:
    return repr(value if len(value) <= 64 else value[:61] + "...")


def fresh_run_id() -> uuid.UUID:
    """Return a random (version 4) uuid from Clew's own source."""
    return uuid.UUID(int=_source.getrandbits(128), version=4)


random_bits = _source.getrandbits
"""Returns so many random bits, which may all be zero."""


def random_64() -> int:
    """Return 64 random bits, never zero."""
    return random_bits(64) or random_64()


def hex_64() -> str:
    """Return 64 random bits as 16 hexadecimal digits."""
    return f"{random_64():016x}"


_next_trace_id: contextvars.ContextVar[int] = contextvars.ContextVar(
    "clew_next_trace_id", default=0
)


class RunIdGenerator:
    """An OpenTelemetry `IdGenerator` whose next trace id can be chosen.

    `with_trace_id(n)` makes the next root span started in this context take `n` as its trace id.
    All other ids are random.
    """

    def generate_span_id(self) -> int:
        """Return a random, non-zero 64-bit span id."""
        return random_64()

    def generate_trace_id(self) -> int:
        """Return the chosen trace id, or that of a fresh uuid: a lone call can be named by it."""
        return _next_trace_id.get() or fresh_run_id().int

    def is_chosen(self) -> bool:
        """Tell whether the next trace id was chosen, as a run's is."""
        return bool(_next_trace_id.get())

    def is_trace_id_random(self) -> bool:
        """Tell whether the rightmost 56 bits of the next trace id are random.

        They are for ids of our own and for uuids of version 4 and 7
        (https://www.w3.org/TR/trace-context-2/#random-trace-id-flag, RFC 9562).
        """
        chosen = _next_trace_id.get()
        return not chosen or (chosen >> 76) & 0xF in (4, 7)

    @staticmethod
    def with_trace_id(trace_id: int) -> contextvars.Token[int]:
        """Choose the next trace id; undo with `reset`."""
        return _next_trace_id.set(trace_id)

    @staticmethod
    def reset(token: contextvars.Token[int]) -> None:
        """Undo `with_trace_id`."""
        _next_trace_id.reset(token)
