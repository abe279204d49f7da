"""What rounds of the loop cost, and which models its provider may ask."""

from __future__ import annotations

from urllib.parse import urlsplit

from clew._guard import guard
from clew.dialects import recognise
from clew.loop.chain import choices_of, providers_of
from clew.loop.ops import prices
from clew.pipeline import runtime as _runtime
from clew.pipeline.totals import Totals
from clew.pricing import PENDING, Cost, compute
from clew.providers.base import ChatRequest, ChatResponse, Provider
from clew.providers.http import HttpProvider


def models_of(provider: Provider, model: str) -> list[tuple[str | None, str]]:
    """Return `gen_ai.provider.name` and model of everything that may be asked.

    Behind a gateway a model may also be what the adapter's own provider calls by that name: nobody
    is billed by a context length.
    """
    request = ChatRequest(model=model, messages=())
    return [
        (name, asked.model)
        for one, asked in choices_of(provider, request)
        for name in dict.fromkeys((name_of(one, asked), one.semconv_name))
    ]


def default_output(provider: Provider) -> int | None:
    """Return the output tokens that a provider asks for by itself, the most of a chain."""
    return max(one.default_max_tokens or 0 for one in providers_of(provider)) or None


def name_of(provider: Provider, request: ChatRequest) -> str | None:
    """Return the `gen_ai.provider.name` of where a request goes; None where nobody knows.

    As for rounds: a host of your own has no provider, unless the settings name it.
    """
    if not isinstance(provider, HttpProvider):
        return provider.semconv_name
    url = urlsplit(provider.base_url + provider.path(request, stream=False))
    runtime = _runtime.get()
    hosts = None if runtime is None else runtime.settings.provider_hosts
    route = recognise("POST", url.netloc.rpartition("@")[2], url.path, hosts=hosts)
    return None if route is None else route.provider


def count(
    totals: Totals, provider: Provider, request: ChatRequest, answer: ChatResponse
) -> float | None:
    """Add a round that was answered to the totals; return what it cost, where that is known."""
    totals.rounds += 1
    usage = answer.usage
    if usage is None:
        totals.rounds_without_usage += 1
        totals.add_cost("unknown", None)
        return None
    totals.add_usage(usage)
    cost = Cost(status="unknown")
    with guard("price a round of the loop"):
        tried = choices_of(provider, request)
        by, asked = tried[answer.hop] if answer.hop < len(tried) else tried[0]
        known = prices()
        if known.loaded:
            price = known.find_for(name_of(by, asked), answer.model, asked.model)
            if price is not PENDING:
                cost = compute(price, usage, complete=True)
    totals.add_cost_of(cost)
    return cost.usd
