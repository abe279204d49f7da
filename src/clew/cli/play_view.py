"""How `clew play` shows a run: each step when it happens, in colour on a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from clew.cli.output import clean, is_terminal

if TYPE_CHECKING:
    from clew.loop import DryRun, LoopResult, Step, Trace

_SHOWN: Final = 300
"""Characters of an argument or a result that are shown."""
_STYLES: Final = {
    "context": "dim",
    "request": "blue",
    "llm": "bold",
    "tool": "cyan",
    "dropped": "yellow",
    "approval": "magenta",
    "input": "magenta",
}
_WORDS: Final = {"llm": "answer", "dropped": "left out", "assembled": "dry run"}


class View:
    """Shows steps as lines: what happened, in which round, and the figures.

    Args:
        quiet: show nothing while the run goes on.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console: Any = None
        self._status: Any = None
        self._heard = False
        if is_terminal() and not quiet:
            from rich.console import Console

            self._console = Console(highlight=False)

    def trace(self) -> Trace:
        """Return a trace whose steps are shown."""
        from clew.loop import Trace

        if self._quiet:
            return Trace()
        return Trace(self.step, on_text=self.hear)

    def hear(self, number: int, text: str) -> None:
        """Show a piece of a streamed answer, on a terminal."""
        if self._console is None:
            return
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._console.out(clean_piece(text), end="", style="italic", highlight=False)
        self._heard = True

    def step(self, step: Step) -> None:
        """Show a step."""
        self._wait(step)
        word = _WORDS.get(step.kind, step.kind)
        number = str(step.round) if step.round else ""
        for place, text in enumerate(lines_of(step)):
            head = f"{word:8} {number:>2}" if place == 0 else " " * 11
            self.line(head, clean(text), step.kind, failed=bool(step.error_type))

    def line(self, head: str, text: str, kind: str, *, failed: bool = False) -> None:
        """Show one line."""
        if self._console is None:
            print(f"{head}  {text}".rstrip(), flush=True)
            return
        from rich.text import Text

        style = "bold red" if failed else _STYLES.get(kind, "")
        self._console.print(Text.assemble((head, style), "  ", text))

    def _wait(self, step: Step) -> None:
        """Show that the model is asked, on a terminal."""
        if self._console is None:
            return
        if self._heard:
            self._console.print()
            self._heard = False
        if self._status is not None:
            self._status.stop()
            self._status = None
        if step.kind == "request":
            self._status = self._console.status("the model is asked")
            self._status.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def end(self, result: LoopResult) -> None:
        """Show what the run came to."""
        totals = result.totals
        cost = "" if totals.cost_usd is None else f", {totals.cost_usd:.6f} USD"
        reason = f" ({result.reason})" if result.reason not in (None, "completed") else ""
        figures = (
            f"{result.status}{reason}: {result.rounds} rounds, {totals.tool_calls} tool calls, "
            f"{number(totals.input_tokens)} tokens in, {number(totals.output_tokens)} out{cost}"
        )
        self.line("end        ", figures, "context", failed=not result.ok and not result.waiting)
        if result.error is not None:
            self.line(" " * 11, clean(str(result.error)), "context")
        if result.text:
            print()
            print("\n".join(clean(line) for line in result.text.splitlines()), flush=True)


def clean_piece(text: str) -> str:
    """Return a piece of text for a terminal; its line breaks stay."""
    return "\n".join(clean(line) for line in text.split("\n"))


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


def print_dry(dry: DryRun, trace: Trace) -> None:
    """Print what would be sent: its parts for people, and the body as it would leave."""
    for step in trace.steps:
        if step.kind == "assembled":
            for message in step.messages_sent or ():
                _print_message(message)
    if dry.tools:
        print(f"tools: {', '.join(map(clean, dry.tools))}")
    if dry.wire is not None:
        print(f"\n{len(dry.wire):,} bytes would be sent:")
        print(clean(dry.wire.decode("utf-8", "replace")))


def _print_message(message: Mapping[str, Any]) -> None:
    parts: list[Mapping[str, Any]] = message.get("parts") or [
        {"type": "text", "content": message.get("content", "")}
    ]
    for part in parts:
        content = part.get("content")
        text = content if isinstance(content, str) else json.dumps(part, ensure_ascii=False)
        print(f"{clean(str(message['role']))}:")
        print("\n".join(f"  {clean(line)}" for line in text.split("\n")))
