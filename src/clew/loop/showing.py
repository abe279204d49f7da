"""Runs of the loop in words and as plain data, the same in the terminal and in the viewer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.loop.result import DryRun, LoopResult
from clew.loop.trace import Step, Trace

_SHOWN: Final = 300
"""Characters of an argument or a result that are shown."""
WORDS: Final = {"llm": "answer", "dropped": "left out", "assembled": "dry run"}
"""What a step is called, where that is not its kind."""


def number(count: int | None) -> str:
    """Return a count as people read it."""
    return "unknown" if count is None else f"{count:,}"


def lines_of(step: Step) -> list[str]:
    """Return what a step says, on one or more lines."""
    if step.kind == "context" and step.context_budget is not None:
        return [_fit(step.context_budget)]
    if step.kind == "request":
        tools = f", tools: {', '.join(step.tool_specs)}" if step.tool_specs else ""
        hop = f", hop {step.hop}" if step.hop else ""
        return [f"{len(step.messages_sent or ())} messages{tools}{hop}"]
    if step.kind == "llm":
        return _answer(step)
    if step.kind == "tool":
        took = "refused" if step.tool_is_error and not step.duration_ms else _ms(step.duration_ms)
        outcome = "error" if step.tool_is_error else "ok"
        arguments = _short(json.dumps(step.tool_arguments, ensure_ascii=False))
        called = f"{step.tool_name}({arguments}) {outcome}, {took}"
        return [called, *([] if step.tool_result is None else [f"= {_short(step.tool_result)}"])]
    if step.kind == "assembled":
        return [f"{len(step.messages_sent or ())} messages would be sent"]
    if step.kind == "dropped":
        return [", ".join(step.dropped_sources or ())]
    if step.kind == "approval":
        by = f" by {step.decided_by}" if step.decided_by else ""
        return [f"{'approved' if step.approved else 'denied'}{by}"]
    return [f"given by {step.submitted_by}" if step.submitted_by else "given"]


def _answer(step: Step) -> list[str]:
    if step.error_type is not None:
        return [f"{step.error_type} after {_ms(step.duration_ms)}"]
    cost = "" if step.estimated_cost is None else f", {step.estimated_cost:.6f} USD"
    by = f"{step.provider} {step.model}" if step.model else f"{step.provider}"
    figures = (
        f"{by}, {_ms(step.duration_ms)}, {number(step.prompt_tokens)} in, "
        f"{number(step.completion_tokens)} out{cost}, {step.finish_reason or 'no reason'}"
    )
    found = [figures]
    if step.thinking:
        found.append(f"thinks: {_short(step.thinking)}")
    if step.content:
        found.append(f"says: {_short(step.content)}")
    found += [f"asks for {call['name']}" for call in step.requested_tool_calls or ()]
    if step.raw is not None:
        found += msgspec.json.format(msgspec.json.encode(step.raw), indent=2).decode().split("\n")
    return found


def _fit(budget: Mapping[str, Any]) -> str:
    dropped = f", {budget['droppedTurns']} turns left out" if budget["droppedTurns"] else ""
    return (
        f"about {budget['estimatedTokens']:,} of {budget['budget']:,} tokens "
        f"(model {budget['contextLength']:,}){dropped}"
    )


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2f} ms"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


# --- as JSON -------------------------------------------------------------------------------------


def form(
    result: LoopResult, trace: Trace, address: str | None, state: Path | None
) -> dict[str, Any]:
    """Return what `--json` prints of a run."""
    waiting = result.waiting
    waits = None
    if waiting is not None:
        waits = {
            "for": waiting.kind,
            "tools": list(waiting.tools),
            "digest": waiting.digest,
            "approval_id": waiting.approval_id,
            "inputs": {one.key: one.schema for one in waiting.inputs},
            "state": None if state is None else str(state),
        }
    return {
        "run_id": result.run_id,
        "status": result.status,
        "reason": result.reason,
        "text": result.text,
        "truncated": result.truncated,
        "rounds": result.rounds,
        "totals": msgspec.to_builtins(result.totals),
        "dropped": list(result.dropped),
        "error": None if result.error is None else str(result.error),
        "waiting": waits,
        "address": address,
        "steps": trace.as_list(),
    }


def dry_form(dry: DryRun, trace: Trace) -> dict[str, Any]:
    """Return what `--json` prints of a dry run."""
    return {
        "run_id": dry.run_id,
        "wire": None if dry.wire is None else dry.wire.decode("utf-8", "replace"),
        "tools": list(dry.tools),
        "context": None if dry.breakdown is None else dry.breakdown.as_dict(),
        "dropped": list(dry.dropped),
        "reason": dry.reason,
        "gate": dry.gate,
        "code": dry.code,
        "steps": trace.as_list(),
    }


def figures_of(result: LoopResult) -> str:
    """Return how a run ended, and its figures, in one line."""
    totals = result.totals
    cost = "" if totals.cost_usd is None else f", {totals.cost_usd:.6f} USD"
    reason = f" ({result.reason})" if result.reason not in (None, "completed") else ""
    return (
        f"{result.status}{reason}: {result.rounds} rounds, {totals.tool_calls} tool calls, "
        f"{number(totals.input_tokens)} tokens in, {number(totals.output_tokens)} out{cost}"
    )


def denial_of(dry: DryRun) -> str | None:
    """Return why nothing would be sent, in one line; None where it would be."""
    if dry.reason is None:
        return None
    by = "" if dry.gate is None else f" by the gate {dry.gate} ({dry.code})"
    return f"nothing would be sent: {dry.reason}{by}"


def parts_of(trace: Trace) -> list[tuple[str, str]]:
    """Return role and text of every part of the messages of a dry run."""
    found: list[tuple[str, str]] = []
    for step in trace.steps:
        if step.kind == "assembled":
            for message in step.messages_sent or ():
                parts: list[Mapping[str, Any]] = message.get("parts") or [
                    {"type": "text", "content": message.get("content", "")}
                ]
                for part in parts:
                    content = part.get("content")
                    plain = isinstance(content, str)
                    text = content if plain else json.dumps(part, ensure_ascii=False)
                    found.append((str(message["role"]), str(text)))
    return found
