"""Proposals: what is about to happen, put together for the gates."""

from __future__ import annotations

import itertools
from typing import Any

from clew import context, semconv
from clew.exchange import Target
from clew.facts import RequestFacts, Usage
from clew.pipeline.runtime import Runtime
from clew.pricing import PENDING, compute
from clew.runs import Run
from clew.tools import REGISTERED
from clew.typing import (
    UNKNOWN_ZONE,
    PendingCall,
    Proposal,
    Spent,
)

_PRICES_PATIENCE = 2.0
NUMBERS = itertools.count(1)
"""Tells the proposals of this process apart."""


def here() -> Run | None:
    """Return the innermost run that is current."""
    node = context.current_node()
    return node.agent.run if node is not None and node.agent is not None else None


def _of_run(run: Run | None) -> dict[str, Any]:
    """Return what a proposal says about its run."""
    if run is None:
        return {}
    totals = run.counted()
    declared = run.terms.strictest()
    return {
        "run_id": str(run.run_id),
        "agent": run.agent_name,
        "actor": run.terms.actor,
        "configuration": run.terms.option(semconv.CONFIGURATION),
        "tenant": run.terms.option(semconv.TENANT),
        "reference": run.reference,
        "spent": Spent(
            rounds=totals.rounds,
            tool_calls=totals.tool_calls,
            tokens=(totals.input_tokens or 0) + (totals.output_tokens or 0),
            cost_usd=totals.cost_usd or 0.0,
        ),
        "source": declared[0],
        "data_class": declared[1],
    }


def _zone(runtime: Runtime, host: str, provider: str | None) -> str:
    """Return the zone of a host; a callable of one's own has none, and is in its provider's."""
    zones = runtime.settings.trust_zones
    name = host or provider or ""
    return zones.get(name) or zones.get(name.partition(":")[0]) or UNKNOWN_ZONE


def _host(target: Target) -> str:
    host = str(target.born.get(semconv.SERVER_ADDRESS) or "")
    port = target.born.get(semconv.SERVER_PORT)
    return host if port in (None, 443, 80) else f"{host}:{port}"


def of_request(
    runtime: Runtime, run: Run | None, target: Target, facts: RequestFacts, body: bytes | None
) -> Proposal:
    """Return the proposal of a model call.

    Args:
        runtime: the runtime.
        run: the run that it is part of.
        target: where it goes.
        facts: what its body says.
        body: its body, None where it is not in memory.
    """
    host = _host(target)
    model = facts.model or target.route.model
    tier = facts.service_tier

    def planned_cost(input_tokens: int, output_tokens: int) -> float | None:
        provider = target.route.provider
        price = runtime.prices.find_for(provider, None, model, tier)
        if price is PENDING:
            runtime.prices.wait(_PRICES_PATIENCE)
            price = runtime.prices.find_for(provider, None, model, tier)
        if price is PENDING or price is None:
            return None
        usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
        return compute(price, usage, complete=True).usd

    return Proposal(
        kind="model_call",
        number=next(NUMBERS),
        provider=target.route.provider,
        host=host,
        model=model,
        operation=facts.operation or target.route.operation,
        stream=facts.stream or target.route.stream,
        offered=facts.tools or (),
        request_bytes=None if body is None else len(body),
        max_output_tokens=facts.max_tokens,
        planned_input_tokens=None if body is None else -(-len(body) // 4),
        planned_cost=planned_cost,
        trust_zone=_zone(runtime, host, target.route.provider),
        content=lambda: body,
        **_of_run(run),
    )


def of_tool(
    run: Run | None, call: PendingCall, turn: tuple[PendingCall, ...], *, executing: bool
) -> Proposal:
    """Return the proposal of a tool call.

    Args:
        run: the run that it is part of.
        call: the tool call.
        turn: the calls that are decided on together with it.
        executing: whether it is executed at once when nothing stops it.
    """
    node = context.current_node()
    offered = node.agent.offered if node is not None and node.agent is not None else ()
    return Proposal(
        kind="tool_call",
        number=next(NUMBERS),
        tool=call.name,
        registered=call.name in REGISTERED or call.name in offered,
        call_id=call.id,
        effect=call.feared_effect,
        arguments_bytes=None if call.arguments is None else len(call.arguments),
        turn=turn,
        executing=executing,
        content=lambda: call.arguments,
        **_of_run(run),
    )
