"""The dry run: everything that happens before round 1 is sent, and nothing of the rest."""

from __future__ import annotations

from typing import Any, NamedTuple

from clew import exchange
from clew.exchange import Target
from clew.governance.governor import Result
from clew.governance.proposals import here, of_request
from clew.loop import ops
from clew.loop.chain import choices_of
from clew.loop.ops import NOTHING, Ended, Op, Walk
from clew.loop.recording import plain, read_wire
from clew.loop.result import DryRun
from clew.loop.session import Session
from clew.pipeline import runtime as _runtime
from clew.providers.base import ChatRequest, Provider
from clew.providers.http import HttpProvider

_KINDS = ("model_call", "model_input")


class Verdicts(NamedTuple):
    """What the gates would say about a request."""

    body: bytes
    stopped_by: str | None = None
    code: str | None = None


class AskGates(Op):
    """Ask the gates about a request that is not sent; nothing is recorded."""

    def __init__(self, provider: Provider, request: ChatRequest, *, stream: bool) -> None:
        self._provider = provider
        self._request = request
        self._stream = stream
        self._body = provider.wire_body(request, stream=stream)

    def do(self) -> Verdicts:
        """Return what they would say."""
        asked, target = ops.governor(), self._target()
        if asked is None or target is None:
            return Verdicts(self._body)
        proposal, gates = self._proposal(target)
        result = asked.ask(proposal, gates, _KINDS, redact=True, only=NOTHING)
        asked.release(result)
        return _verdicts(result, self._body)

    async def ado(self) -> Verdicts:
        """Return what they would say."""
        asked, target = ops.governor(), self._target()
        if asked is None or target is None:
            return Verdicts(self._body)
        proposal, gates = self._proposal(target)
        result = await asked.aask(proposal, gates, _KINDS, redact=True, only=NOTHING)
        asked.release(result)
        return _verdicts(result, self._body)

    def _target(self) -> Target | None:
        import httpx

        runtime, provider = _runtime.get(), self._provider
        if runtime is None or not isinstance(provider, HttpProvider):
            return None
        url = httpx.URL(provider.base_url + provider.path(self._request, stream=self._stream))
        path = url.raw_path.decode("ascii", "replace").partition("?")[0]
        return exchange.target_of(runtime, "POST", url.scheme, url.host, url.port, path)

    def _proposal(self, target: Target) -> tuple[Any, Any]:
        runtime, asked = _runtime.get(), ops.governor()
        assert runtime is not None and asked is not None  # noqa: S101, PT018 - asked before
        run = here()
        facts = target.route.dialect.request(self._body, target.route)
        proposal = of_request(runtime, run, target, facts, self._body)
        return proposal, asked.gates_for(run, _KINDS)


def _verdicts(result: Result, body: bytes) -> Verdicts:
    if result.stopped is None:
        return Verdicts(result.replacement or body)
    verdict = result.stopped.verdict
    return Verdicts(body, result.stopped.gate.name, verdict.reason or verdict.outcome)


def walk(session: Session, dropped: tuple[str, ...]) -> Walk[DryRun]:
    """Go up to the point where round 1 would be sent."""
    yield from session.prepare()
    reason = gate = code = wire = None
    try:
        session.request(1)
    except Ended as end:
        reason = end.reason
    request = session.prepared
    assert request is not None  # noqa: S101 - it was made just now
    sent = plain(request.messages)
    if reason is None:
        by, asked = choices_of(session.plan.provider, request)[0]
        verdicts: Verdicts = yield AskGates(by, asked, stream=session.plan.stream)
        gate, code = verdicts.stopped_by, verdicts.code
        if gate is None:
            wire = verdicts.body
            read = read_wire(by.dialect.name, wire) if isinstance(by, HttpProvider) else None
            sent = sent if read is None else read
        else:
            reason = "budget_exhausted" if gate == "budget" else "policy_denied"
    tools = tuple(tool.name for tool in request.tools)
    session.recorder.assembled(sent, tools)
    return DryRun(
        run_id=str(session.run.run_id),
        messages=request.messages,
        wire=wire,
        tools=tools,
        breakdown=session.breakdown,
        dropped=dropped,
        reason=reason,
        gate=gate,
        code=code,
    )
