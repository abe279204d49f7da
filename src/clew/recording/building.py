"""What a finished call becomes: a row of the index, and a record where content is let through.

At level `metadata` the request is read to be measured, and nothing of it is kept. At `redacted`
every text passes the masks of `clew.redaction`; `full` keeps what was sent. Media are replaced by
their kind, size and digest at every level.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from clew import levels, semconv
from clew.digests import Digests
from clew.facts import ResponseFacts
from clew.pipeline.runtime import Runtime
from clew.pricing import Cost
from clew.prompts import registry
from clew.recording import normal
from clew.recording.masking import Masks
from clew.rules import DROPPED, OTHER
from clew.store.prompt_index import iso
from clew.store.prompt_records import (
    Attempt,
    ModelOfRecord,
    PromptRecord,
    PromptRow,
    RecordedBlock,
    RecordedError,
    RecordedResponse,
    RecordedUsage,
    RunOfRecord,
    SystemPrompt,
    ToolDefinition,
    Trigger,
)

if TYPE_CHECKING:
    from clew.rounds import Round
    from clew.spans import Agent

_PATIENCE_S: Final = 5.0
_NO_BYTES: Final = b""


class Call(Protocol):
    """A call that has ended, as the recorder is handed it (`clew.captured.CapturedCall`)."""

    round: Any
    """The `clew.rounds.Round`."""
    level: int
    request: bytes | None
    """The request body that the answer belongs to; None where it is not in memory."""
    request_bytes: int | None
    system: str | None
    """The system text of a call that is no bytes."""
    given: Any
    """What a callable of the host's was given, where that is kept."""
    gave: Any
    """What it returned."""
    stream_type: str | None
    """The media type of an answer that is a stream of events."""
    failure: str | None
    """`error.type`, where the call failed."""
    hop: int | None
    """Place of the provider in a chain, 0 for the first choice."""
    end_ns: int

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        ...

    def answer(self) -> bytes | None:
        """Return the bytes of the answer as far as they came; None where they were not kept."""
        ...

    def attempts(self) -> tuple[Attempt, ...]:
        """Return its attempts."""
        ...


def build(runtime: Runtime, call: Call, request_id: str) -> tuple[PromptRow, PromptRecord | None]:
    """Return the row of a call, and its record where the level lets content through."""
    digests = runtime.digests.get()
    round_: Round = call.round
    if call.request is None:
        asked = normal.Request(system=call.system, body=call.given)
    else:
        asked = normal.request_of(round_.route.dialect.name, call.request)
    system = measured(asked.system, digests)
    tools = _tools(asked, digests)
    cost = _cost(runtime, round_)
    known = _known(runtime, call, request_id, cost)
    known = replace(
        known, system=system, tools=tools, history_length=_history_length(round_, asked)
    )
    offered = round_.request.tools
    count = None if offered is None else len(offered)
    row = replace(
        _row(known, call, digests),
        tool_count=count if asked.tools is None else len(tools),
        tool_chars=None if asked.tools is None else sum(tool.chars for tool in tools),
    )
    if call.level < levels.REDACTED:
        return row, None
    return row, _with_content(known, call, asked, Masks(call.level, digests.of))


def measured(text: str | None, digests: Digests) -> SystemPrompt:
    """Return the sizes of a system prompt, its digest, and its map where it is a known prompt."""
    if not text:
        return SystemPrompt()
    data = text.encode("utf-8", "surrogatepass")
    found = registry.find(data) if registry.known else None
    blocks: Sequence[Any] = () if found is None else found.blocks
    return SystemPrompt(
        bytes=len(data),
        chars=len(text),
        digest=digests.of(data),
        blocks=tuple(
            RecordedBlock(
                id=block.id,
                layer=block.layer,
                stability=block.stability,
                source=block.source,
                start=block.start,
                end=block.end,
                chars=block.chars,
                digest=digests.of(data[block.start : block.end]),
            )
            for block in blocks
        ),
    )


def _tools(asked: normal.Request, digests: Digests) -> tuple[ToolDefinition, ...]:
    """Return the size and the digest of each tool that was offered; no text of it but its name."""
    found: list[ToolDefinition] = []
    for tool in asked.tools or ():
        name, description = str(tool.get("name", "")), str(tool.get("description", ""))
        schema = tool.get("parameters")
        serialised = "" if schema is None else compact(schema)
        found.append(
            ToolDefinition(
                name=ruled(semconv.TOOL_NAME, name) or OTHER,
                type=str(tool.get("type", "function")),
                chars=len(name) + len(description) + len(serialised),
                digest=digests.of(compact(tool)),
            )
        )
    return tuple(found)


def compact(value: Any) -> str:
    """Return the JSON of a value, in the order of its keys, without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _history_length(round_: Round, asked: normal.Request) -> int | None:
    return round_.request.messages if asked.messages is None else len(asked.messages)


def _cost(runtime: Runtime, round_: Round) -> Cost:
    cost, late = round_.count_up(), round_.late
    if late is None:
        return cost
    runtime.prices.wait(_PATIENCE_S)
    runtime.late.settle(late)
    return late.cost or cost


def _known(runtime: Runtime, call: Call, request_id: str, cost: Cost) -> PromptRecord:
    """Return what is known of a call without its content."""
    round_: Round = call.round
    ending, request = round_.ending, round_.request
    response = ending.response
    agent = round_.agent
    outcome = ending.outcome
    return PromptRecord(
        request_id=request_id,
        level=levels.name_of(call.level),
        operation=ruled(semconv.OPERATION, round_.operation) or OTHER,
        started_at=iso(round_.start_ns),
        start_ns=round_.start_ns,
        duration_ms=round((call.end_ns - round_.start_ns) / 1e6, 2),
        partial=ending.chunks is not None and outcome not in (None, "complete"),
        run=_run(runtime, call),
        trigger=Trigger() if agent is None else _trigger(agent),
        model=ModelOfRecord(
            name=ruled(semconv.REQUEST_MODEL, request.model or round_.route.model),
            provider=ruled(semconv.PROVIDER, round_.route.provider),
            answered=ruled(semconv.RESPONSE_MODEL, response.model),
            served_by=ruled(semconv.SERVED_PROVIDER, response.served_provider),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
        ),
        request_bytes=call.request_bytes,
        response=RecordedResponse(
            finish_reason=_finish_reason(response),
            error=_error(call),
            outcome=outcome,
            id=ruled(semconv.RESPONSE_ID, response.id),
            bytes=ending.response_bytes,
        ),
        usage=_usage(response, cost),
        attempts=call.attempts(),
    )


def _finish_reason(response: ResponseFacts) -> str | None:
    reasons = response.finish_reasons
    if not reasons or reasons[0] is None:
        return None
    return reasons[0] if reasons[0] in semconv.FINISH_REASONS else OTHER


def _error(call: Call) -> RecordedError | None:
    ending = call.round.ending
    if call.failure is None:
        return None
    error = ending.response.error
    code = None if error is None else error.code
    if isinstance(code, str):
        code = ruled(semconv.ERROR_TYPE, code)
    return RecordedError(type=call.failure, code=code, status=ending.status)


def _usage(response: ResponseFacts, cost: Cost) -> RecordedUsage | None:
    usage = response.usage
    if usage is None:
        return None
    return RecordedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=cost.usd,
        cost_status=cost.status,
    )


def _run(runtime: Runtime, call: Call) -> RunOfRecord:
    round_: Round = call.round
    ids = round_.span.get_span_context()
    agent = round_.agent
    trace_id = f"{ids.trace_id:032x}" if ids.is_valid else None
    span_id = f"{ids.span_id:016x}" if ids.is_valid else None
    service = runtime.settings.service_name
    if agent is None:
        return RunOfRecord(trace_id=trace_id, span_id=span_id, service=service)
    terms = agent.run.terms
    tenant = ruled(semconv.TENANT, terms.option(semconv.TENANT))
    return RunOfRecord(
        kind=ruled(semconv.RUN_KIND, terms.option(semconv.RUN_KIND)) or "unknown",
        run_id=str(agent.segment.run_id),
        trace_id=trace_id,
        span_id=span_id,
        segment_id=agent.segment.id,
        round=round_.number,
        hop=call.hop,
        agent=ruled(semconv.AGENT_NAME, agent.run.agent_name),
        agent_id=agent.id,
        # Whose name is no identifier is nobody's: two of them must not be taken for one.
        tenant=None if tenant == OTHER else tenant,
        actor=ruled(semconv.ACTOR, terms.option(semconv.ACTOR)),
        configuration=ruled(semconv.CONFIGURATION, terms.option(semconv.CONFIGURATION)),
        conversation_id=ruled(semconv.CONVERSATION_ID, terms.option(semconv.CONVERSATION_ID)),
        service=service,
    )


def _trigger(agent: Agent) -> Trigger:
    terms = agent.run.terms
    return Trigger(
        kind=ruled(semconv.TRIGGER, terms.option(semconv.TRIGGER)),
        message_id=ruled(semconv.MESSAGE_ID, terms.option(semconv.MESSAGE_ID)),
        parent=_parent(agent),
    )


def _parent(agent: Agent) -> str | None:
    """Return the run that the run of an agent was started in."""
    own = agent.segment.run_id
    node = agent.run.parent_node
    while node is not None and node.agent is not None:
        if node.agent.segment.run_id != own:
            return str(node.agent.segment.run_id)
        node = node.agent.run.parent_node
    return None


def ruled(key: str, value: Any) -> Any:
    """Return a value as its rule lets it through: `_OTHER` for one that does not obey."""
    if value is None:
        return None
    kept = semconv.RULES[key].apply(value)
    return OTHER if kept is DROPPED else kept


def _row(known: PromptRecord, call: Call, digests: Digests) -> PromptRow:
    run = msgspec.structs.asdict(known.run)
    usage = {} if known.usage is None else msgspec.structs.asdict(known.usage)
    model, trigger, response = known.model, known.trigger, known.response
    return PromptRow(
        request_id=known.request_id,
        start_ns=known.start_ns,
        duration_ns=max(0, call.end_ns - known.start_ns),
        level=known.level,
        operation=known.operation,
        status="ok" if response.error is None else "error",
        error_type=None if response.error is None else response.error.type,
        outcome=response.outcome,
        partial=known.partial,
        trigger=trigger.kind,
        message_id=trigger.message_id,
        parent=trigger.parent,
        model=model.name,
        provider=model.provider,
        answered=model.answered,
        served_by=model.served_by,
        system_bytes=known.system.bytes,
        system_chars=known.system.chars,
        system_digest=known.system.digest,
        digest_key=digests.key_id,
        history_length=known.history_length,
        request_bytes=known.request_bytes,
        response_bytes=response.bytes,
        finish_reason=response.finish_reason,
        attempts=max(1, call.round.attempts),
        blocks=known.system.blocks,
        tools=known.tools,
        **run,
        **usage,
    )


def _with_content(
    known: PromptRecord, call: Call, asked: normal.Request, masks: Masks
) -> PromptRecord:
    """Return the record with its content, masked as the level wants it."""
    answer = RecordedResponse(body=call.gave)
    if call.gave is None:
        body = call.answer() or _NO_BYTES
        answer = normal.response_of(call.round.route.dialect.name, call.stream_type, body)
    tools = tuple(
        replace(
            tool,
            name=masks.text(str(given.get("name", ""))),
            description=masks.text(given.get("description")),
            schema=masks.value(given.get("parameters")),
        )
        for tool, given in zip(known.tools, asked.tools or (), strict=True)
    )
    text, blocks = masks.system(asked.system, known.system.blocks)
    return replace(
        known,
        system=replace(known.system, text=text, blocks=blocks),
        tools=tools,
        messages=masks.value(asked.messages),
        parameters=masks.value(asked.parameters),
        body=masks.value(asked.body),
        response=replace(
            known.response,
            text=masks.text(answer.text),
            thinking=masks.text(answer.thinking),
            tool_calls=tuple(
                replace(
                    asked_tool,
                    name=masks.text(asked_tool.name),
                    arguments=masks.value(asked_tool.arguments),
                )
                for asked_tool in answer.tool_calls
            ),
            choices=tuple(masks.value(list(answer.choices))),
            body=masks.value(answer.body),
        ),
    )
