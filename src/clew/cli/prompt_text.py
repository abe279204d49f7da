"""Recorded calls as text: one call, and the difference between two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from clew.cli.output import clean, is_terminal
from clew.prompts.blocks import text_of
from clew.prompts.compare import BlockChange, Comparison
from clew.prompts.shares import shares
from clew.sources import wording
from clew.store.prompt_records import PromptRecord, PromptRow, RecordedBlock
from clew.web.diff import Diff

_WIDTH: Final = 78
_WITHOUT: Final = ("none", "metadata")
KEPT_OUT: Final = "kept out at capture level {level}"
NOT_THERE: Final = "not there: it was erased, or could not be read"


def head(row: PromptRow, record: PromptRecord) -> list[tuple[str, str]]:
    """Return what is said about a call above its content: labels and values."""
    usage, run, model = record.usage, record.run, record.model
    used = ""
    if usage is not None:
        parts = [
            f"{wording.count(value)} {label}"
            for value, label in (
                (usage.input_tokens, "in"),
                (usage.cache_read_tokens, "from cache"),
                (usage.cache_write_tokens, "to cache"),
                (usage.output_tokens, "out"),
                (usage.reasoning_tokens, "reasoning"),
            )
            if value is not None
        ]
        if usage.cost_usd:
            parts.append(wording.cost(usage.cost_usd, usage.cost_status))
        used = ", ".join(parts)
    answered = "" if model.answered in (None, model.name) else f", answered by {model.answered}"
    served = "" if model.served_by is None else f", served by {model.served_by}"
    named = model.name or model.answered or wording.UNKNOWN
    provider = "" if model.provider is None else f"{model.provider} / "
    lines = [
        ("request", record.request_id),
        ("process", process(row)),
        ("run", run.run_id or ""),
        ("round", "" if run.round is None else str(run.round)),
        ("tenant", run.tenant or ""),
        ("model", f"{provider}{named}{answered}{served}"),
        ("operation", "" if record.operation == "chat" else record.operation),
        ("trigger", record.trigger.kind or ""),
        ("message", record.trigger.message_id or ""),
        ("parent", record.trigger.parent or ""),
        ("started", f"{wording.moment(record.start_ns)} UTC"),
        ("duration", wording.duration(row.duration_ns)),
        ("outcome", outcome(row)),
        ("usage", used or "none reported"),
        ("level", record.level),
    ]
    return [(label, clean(value)) for label, value in lines if value]


def process(row: PromptRow) -> str:
    """Say who called: the agent and the kind of its run."""
    if row.agent is None:
        return row.kind
    return row.agent if row.kind == "unknown" else f"{row.agent} ({row.kind})"


def outcome(row: PromptRow) -> str:
    """Say how a call ended."""
    said = "ok" if row.status == "ok" else f"error {row.error_type or ''}".rstrip()
    if row.partial:
        said += f", partial ({row.outcome})"
    return said if row.attempts == 1 else f"{said}, {row.attempts} attempts"


def print_call(row: PromptRow, record: PromptRecord) -> None:
    """Print a call whole."""
    for label, value in head(row, record):
        print(f"{label:<11}{value}")
    _print_system(row, record)
    _print_tools(record)
    _print_messages(record)
    _print_response(record)


def _rule(title: str, *facts: str) -> None:
    said = "  ".join((clean(title), *(fact for fact in facts if fact)))
    if is_terminal():
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False)
        line = Text("\n── ", style="dim")
        line.append(clean(title), style="bold")
        rest = said[len(clean(title)) :]
        line.append(rest, style="dim")
        line.append(" " + "─" * max(0, min(console.width, _WIDTH) - len(said) - 4), style="dim")
        console.print(line, soft_wrap=True)
    else:
        print(f"\n── {said} {'─' * max(0, _WIDTH - len(said) - 4)}".rstrip())


def _print_text(text: str) -> None:
    for line in text.split("\n"):
        print(clean(line.expandtabs(4)))


def _print_system(row: PromptRow, record: PromptRecord) -> None:
    text = record.system.text
    if not row.system_bytes:
        _rule("system prompt", "none")
        return
    blocks = record.system.blocks
    if not blocks:
        size = f"{row.system_chars} chars", f"~{row.system_tokens} tokens"
        _rule("system prompt", "no map", *size, missing(record, text))
        if text is not None:
            _print_text(text)
        return
    data = None if text is None else text.encode()
    # The sizes are those of the text as it was sent; masking changes them.
    known = row.blocks if len(row.blocks) == len(blocks) else blocks
    parts = shares([block.bytes for block in known])
    for block, sent, part in zip(blocks, known, parts, strict=True):
        _rule(*_block_facts(sent, part.part), missing(record, text))
        if data is not None:
            _print_text(text_of(block, data))


def _block_facts(block: RecordedBlock, part: float) -> tuple[str, ...]:
    return (
        block.id,
        f"{block.layer} · {block.stability} · {block.source}",
        f"{block.chars} chars",
        f"~{block.tokens} tokens",
        f"{part:.1%}",
    )


def missing(record: PromptRecord, value: object) -> str:
    """Say why content is not there; nothing where it is."""
    if value is not None:
        return ""
    return KEPT_OUT.format(level=record.level) if record.level in _WITHOUT else NOT_THERE


def _print_tools(record: PromptRecord) -> None:
    if not record.tools:
        return
    total = sum(tool.chars for tool in record.tools)
    _rule(f"tools ({len(record.tools)})", f"{total} chars")
    for tool in record.tools:
        kind = "" if tool.type == "function" else f" [{tool.type}]"
        print(f"{clean(tool.name)}{clean(kind)}  {tool.chars} chars")
        if tool.description:
            _print_text("\n".join(f"    {line}" for line in tool.description.split("\n")))
        if tool.schema is not None:
            print(f"    {clean(json.dumps(tool.schema, ensure_ascii=False))}")


def _print_messages(record: PromptRecord) -> None:
    kept_out = "" if record.body is not None else missing(record, record.messages)
    _rule(f"messages ({wording.count(record.history_length)})", kept_out)
    if record.messages:
        _print_json(record.messages)
    elif record.body is not None:
        _print_json(record.body)
    if record.parameters:
        _rule("parameters")
        _print_json(record.parameters)


def _print_response(record: PromptRecord) -> None:
    response = record.response
    reason = f"finish reason {response.finish_reason}" if response.finish_reason else ""
    _rule("response", reason)
    if response.thinking is not None:
        _print_text("\n".join(f"thinking │ {line}" for line in response.thinking.split("\n")))
    if response.text is not None:
        _print_text(response.text)
    for call in response.tool_calls:
        print(clean(f"calls {call.name} {json.dumps(call.arguments, ensure_ascii=False)}"))
    if response.body is not None:
        _print_json(response.body)
    if response.error is not None:
        print(clean(f"error {' '.join(_error_words(record))}"))
    if len(record.attempts) > 1:
        for attempt in record.attempts:
            ended = attempt.error or "answered"
            status = "" if attempt.status is None else f" {attempt.status}"
            took = "" if attempt.duration_ms is None else f", {attempt.duration_ms:.0f} ms"
            print(clean(f"attempt {attempt.number}{status} {ended} after "
                        f"{attempt.start_ms:.0f} ms{took}"))  # fmt: skip


def _error_words(record: PromptRecord) -> Iterator[str]:
    error = record.response.error
    if error is not None:
        yield error.type or wording.UNKNOWN
        if error.code is not None and error.code != error.type:
            yield f"(code {error.code})"
        if error.status is not None:
            yield f"HTTP {error.status}"


def _print_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    for line in text.split("\n"):
        print(clean(line))


# --- the difference between two calls -------------------------------------------------------------


def print_difference(before: PromptRow, after: PromptRow, found: Diff) -> None:
    """Print what differs between two calls; that nothing does is said, too."""
    lines = [*_prompt_lines(before, after, found.comparison), *_other_lines(found)]
    for line in lines:
        print(clean(line))
    if not lines:
        print("identical" if found.identical else "nothing differs that can be compared")


def _prompt_lines(before: PromptRow, after: PromptRow, comparison: Comparison) -> Iterator[str]:
    for change in comparison.changes:
        yield f"{change.what:<10} {_named(change)}{_sizes(before, after, change)}"
    if comparison.basis == "whole" and comparison.outcome == "changed":
        sizes = f"{before.system_chars} → {after.system_chars} chars"
        yield f"{'changed':<10} (whole prompt)  {sizes}, one of them has no map"
    if comparison.outcome == "not_comparable":
        yield (
            "unknown    whether prompts of equal size are the same: their digests were made with "
            "different keys"
        )


def _named(change: BlockChange) -> str:
    return change.id if change.occurrence == 1 else f"{change.id} #{change.occurrence}"


def _sizes(before: PromptRow, after: PromptRow, change: BlockChange) -> str:
    one, other = _chars(before, change.before), _chars(after, change.after)
    if one is None or other is None:
        known = other if one is None else one
        return "" if known is None else f"  {known} chars"
    if change.what == "reordered":
        moved = f"  block {(change.before or 0) + 1} → {(change.after or 0) + 1}"
        return f"{moved}, {one} → {other} chars" if change.changed else moved
    return f"  {one} → {other} chars"


def _chars(row: PromptRow, place: int | None) -> int | None:
    known = place is not None and place < len(row.blocks)
    return row.blocks[place].chars if known and place is not None else None


def _other_lines(found: Diff) -> Iterator[str]:
    for tool in found.tools:
        sizes = [str(each) for each in (tool.chars_before, tool.chars_after) if each is not None]
        yield f"{tool.what:<10} tool {tool.name}  {' → '.join(sizes)} chars"
    for value in found.values:
        yield f"{'changed':<10} {value.name}  {value.before} → {value.after}"
    messages = found.messages
    lengths = wording.count(messages.length_before), wording.count(messages.length_after)
    if not messages.known:
        if lengths[0] != lengths[1]:
            yield f"{'changed':<10} messages  {lengths[0]} → {lengths[1]}"
        return
    gone = (messages.length_before or 0) - messages.same
    come = (messages.length_after or 0) - messages.same
    if gone or come:
        what = f"{gone} replaced by {come}" if gone and come else f"{gone} fewer"
        what = what if gone else f"{come} more"
        yield (
            f"{'changed':<10} messages  {lengths[0]} → {lengths[1]}: {what} behind "
            f"{messages.same} that are the same"
        )
