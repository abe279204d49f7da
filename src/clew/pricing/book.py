"""Finding the price of a model: the user's file, then genai-prices, each asked once."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from clew._forks import fork_waits, in_each_child
from clew._guard import guard, guarded, record_failure
from clew.pricing import table
from clew.pricing.cost import Price
from clew.pricing.names import provider_id


class Pending(enum.Enum):
    """The answer while the price library is still loading."""

    PENDING = "pending"


PENDING: Final = Pending.PENDING

STANDARD_TIERS: Final = frozenset(
    {"auto", "default", "on_demand", "standard", "standard_only", "unspecified"}
)
"""Service tiers that bill the standard rates."""

_MEMO_LIMIT = 4096
_FORK_PATIENCE_S = 2.0
_PATIENCE = 10.0
_MAX_NAME = 512

_Found = tuple[Price | None, float | None]
"""A price and the time (seconds since the epoch) at which another one takes its place."""


class Prices:
    """Compiled prices by (provider, model), found once and remembered.

    Nothing here raises, blocks or uses the network: the rates are those inside the installed
    genai-prices package, and a question asked while it loads is answered `PENDING`.

    Args:
        aliases: The operator's names: `deployment` or `provider/deployment` to `model` (at the
            same provider) or `provider/model`.
        prices_file: A price file of the user's own (see `clew.pricing.table`).

    Raises:
        ConfigurationError: The price file is wrong.
    """

    def __init__(
        self, aliases: Mapping[str, str] | None = None, prices_file: Path | None = None
    ) -> None:
        self._aliases = {
            name.strip().lower(): target.strip() for name, target in (aliases or {}).items()
        }
        self.table = None if prices_file is None else table.read(prices_file)
        self._memo: dict[tuple[str | None, str, str | None], _Found] = {}
        self._answers: dict[tuple[str | None, ...], Price | None] = {}
        """What `find_for` has said, where no price in it will change by itself."""
        self._library: Any = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()
        in_each_child(self, Prices.after_fork)

    def load_in_background(self) -> None:
        """Start loading genai-prices in a daemon thread; calling it again changes nothing."""
        with self._lock:
            if self._thread is not None or self._done.is_set():
                return
            self._thread = threading.Thread(target=self._load, name="clew-prices", daemon=True)
            self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait for the library, at most `timeout` seconds; True when nothing is pending now."""
        self.load_in_background()
        return self._done.wait(timeout)

    def find(
        self, provider: str | None, model: str | None, service_tier: str | None = None
    ) -> Price | Pending | None:
        """Return the price of `model` at `provider` (a `gen_ai.provider.name`).

        None means that no rate is known: the provider is unknown and no alias names it, or the
        model is not in the table, or the table has no rates for this service tier.
        """
        found = self._find(provider, model, service_tier)
        return PENDING if found is PENDING else found[0]

    def _find(
        self, provider: str | None, model: str | None, service_tier: str | None
    ) -> _Found | Pending:
        if model is None or len(model) > _MAX_NAME:
            return None, None
        key = (provider, model, service_tier)
        found = self._memo.get(key)
        if found is None or (found[1] is not None and time.time() >= found[1]):
            return self._look_up(key)
        return found

    def find_for(
        self,
        provider: str | None,
        response_model: str | None,
        request_model: str | None,
        service_tier: str | None = None,
    ) -> Price | Pending | None:
        """Return the price of the model that answered, else of the one that was asked for.

        On Azure a request names a deployment, which may be called like a model that it is not:
        there the request's name counts only through an alias. On Bedrock the request says the
        region class that is billed (`us.anthropic.claude-...`) and the response does not, so a
        response that only repeats the model gives way.
        """
        key = (provider, response_model, request_model, service_tier)
        try:
            return self._answers[key]
        except KeyError:
            pass
        found = self._find_for(provider, response_model, request_model, service_tier)
        if found is PENDING:
            return PENDING
        price, until = found
        if until is None and all(name is None or len(name) <= _MAX_NAME for name in key):
            if len(self._answers) >= _MEMO_LIMIT:
                self._answers.clear()
            self._answers[key] = price
        return price

    def _find_for(
        self,
        provider: str | None,
        response_model: str | None,
        request_model: str | None,
        service_tier: str | None,
    ) -> _Found | Pending:
        served_by = None if provider is None else provider_id(provider)
        if served_by == "aws" and response_model and response_model in (request_model or ""):
            response_model, request_model = request_model, response_model
        found = self._find(provider, response_model, service_tier)
        if found is PENDING or found[0] is not None:
            return found
        if request_model is None or request_model == response_model:
            return found
        if provider is not None and served_by == "azure":
            alias = self._alias(provider, request_model)
            second = (None, None) if alias is None else self._find(*alias, service_tier)
        else:
            second = self._find(provider, request_model, service_tier)
        if second is PENDING:
            return PENDING
        limits = [until for until in (found[1], second[1]) if until is not None]
        return second[0], min(limits, default=None)

    @property
    def loaded(self) -> bool:
        """Whether the library has been loaded."""
        return self._done.is_set()

    def context_length(
        self, provider: str | None, model: str, *, patience_s: float = _PATIENCE
    ) -> int | None:
        """Return how many tokens a model takes, input and output together; None: nobody says.

        Waits until the library is loaded.

        Args:
            provider: a `gen_ai.provider.name`.
            model: the model, or an alias.
            patience_s: seconds to wait at the most.
        """
        if not self.wait(patience_s) or self._library is None or len(model) > _MAX_NAME:
            return None
        provider, model = self._alias(provider, model) or (provider, model)
        served_by = None if provider is None else provider_id(provider)
        with guard("look up a context length"):
            return None if served_by is None else self._library.context_length(served_by, model)
        return None

    def _alias(self, provider: str | None, model: str) -> tuple[str | None, str] | None:
        """Return provider and model that the operator gave for a name."""
        lowered = model.strip().lower()
        target = None
        if provider is not None:
            target = self._aliases.get(f"{provider.lower()}/{lowered}")
        if target is None:
            target = self._aliases.get(lowered)
        if target is None:
            return None
        head, slash, tail = target.partition("/")
        if slash and (provider is None or self._knows(provider_id(head))):
            return head, tail
        return provider, target

    def _knows(self, provider: str) -> bool:
        if self._library is not None and self._library.knows(provider):
            return True
        return self.table is not None and any(row.provider == provider for row in self.table)

    def _look_up(self, key: tuple[str | None, str, str | None]) -> _Found | Pending:
        found = self._resolve(*key)
        if found is PENDING:
            self.load_in_background()
            return PENDING
        # A fault of ours (None) counts as "no price" and is not tried again at every call.
        found = found or (None, None)
        if len(self._memo) >= _MEMO_LIMIT:
            self._memo.clear()
        self._memo[key] = found
        return found

    @guarded("look up a price")
    def _resolve(
        self, provider: str | None, model: str, service_tier: str | None
    ) -> _Found | Pending:
        tier = service_tier.strip().lower() if service_tier else None
        tier = None if tier in STANDARD_TIERS else tier or None
        if self._aliases:
            if not self._done.is_set():
                return PENDING
            provider, model = self._alias(provider, model) or (provider, model)
        served_by = None if provider is None else provider_id(provider)
        if self.table is not None:
            price = self.table.find(served_by, model, tier)
            if price is not None:
                return price, None
        if served_by is None:
            return None, None
        if self._library is None:
            return (None, None) if self._done.is_set() else PENDING
        return self._library.find(served_by, model, tier)

    def _load(self) -> None:
        try:
            with fork_waits(_FORK_PATIENCE_S):
                from clew.pricing.library import library

                self._library = library()
        except Exception:
            record_failure("load the price library")
        finally:
            self._done.set()

    def after_fork(self) -> None:
        """Start anew in a forked child what the parent had not finished."""
        self._lock = threading.Lock()
        if not self._done.is_set():
            self._done = threading.Event()
            self._thread = None
