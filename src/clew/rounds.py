"""Rounds and calls: one logical model call, all HTTP attempts and the whole stream included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, SpanKind

from clew import context, semconv
from clew._guard import guard, record_failure
from clew.facts import NO_RESPONSE, ROUND_OPERATIONS, RequestFacts, ResponseFacts
from clew.pipeline.late import Pending, add_cost, cost_attributes
from clew.pipeline.runtime import Runtime
from clew.pricing import PENDING, Cost, compute
from clew.rules import DROPPED, OTHER
from clew.spans import Node, error_type, is_cancellation
from clew.tools import REGISTERED
from clew.typing import Route

_MODEL = semconv.RULES[semconv.REQUEST_MODEL]
UNKNOWN_COST = Cost(status="unknown")


class Ending(Struct, frozen=True, kw_only=True):
    """How a round ended, as the tap saw it."""

    response: ResponseFacts = NO_RESPONSE
    status: int | None = None
    """HTTP status of the last attempt."""
    error: BaseException | None = None
    """The exception that reached the caller."""
    outcome: str | None = None
    """Outcome of the stream; None for a plain response."""
    chunks: int | None = None
    response_bytes: int | None = None
    first_chunk_s: float | None = None
    end_ns: int | None = None
    """When it ended, where that was before it could be told (ns since the epoch)."""


class RoundRecord(Struct, frozen=True, kw_only=True):
    """A finished round or call, for observers on this process' own side of the walls."""

    route: Route
    request: RequestFacts
    ending: Ending
    cost: Cost
    error_type: str | None
    attempts: int
    trace_id: int
    span_id: int
    duration_s: float


class Round(Node):
    """One model call. Opened by a tap, finished by it exactly once."""

    __slots__ = (
        "attempts",
        "counted",
        "grouped",
        "late",
        "number",
        "request",
        "resend",
        "route",
        "wait_ns",
    )

    def __init__(self, route: Route, request: RequestFacts, *, grouped: bool, resend: int) -> None:
        super().__init__()
        self.route = route
        self.request = request
        self.grouped = grouped
        self.resend = resend
        self.attempts = 0
        self.wait_ns = 0
        self.number: int | None = None
        self.counted = route.operation in ROUND_OPERATIONS
        self.late: Pending | None = None
        """The cost, where it is still to come."""

    def open(self, runtime: Runtime, born: Mapping[str, Any], request_bytes: int) -> None:
        """Start the span, under whatever span is current.

        Args:
            runtime: the runtime.
            born: attributes that the target of the request gives; they have obeyed their rules.
            request_bytes: size of the request body.
        """
        try:
            self._open(runtime, born, request_bytes)
        except Exception:
            record_failure("start a round")

    def _open(self, runtime: Runtime, born: Mapping[str, Any], request_bytes: int) -> None:
        node = self.parent_node = context.current_node()
        agent = self.agent = node.agent if node is not None else None
        request, route = self.request, self.route
        attributes = {**born, semconv.REQUEST_BYTES: request_bytes}
        name = route.operation
        model = request.model or route.model
        if model is not None:
            model = _MODEL.apply(model)
            if model is DROPPED:
                model = OTHER
            attributes[semconv.REQUEST_MODEL] = model
            name = f"{name} {model}"
        if agent is not None:
            if self.counted:
                self.seq, self.number = agent.segment.next_round(agent)
                attributes[semconv.ROUND] = self.number
            else:
                self.seq = agent.segment.next_seq()
            attributes[semconv.SEQ] = self.seq
            attributes.update(agent.common)
            if request.tools:
                agent.offered.update(request.tools)
        around = trace.get_current_span()
        if node is None or around is not node.span:
            runtime.folds.fold(around.get_span_context().span_id)
        self._start(runtime, name, attributes, kind=SpanKind.CLIENT)

    def finish(self, ending: Ending) -> None:
        """End the round; only the first call counts."""
        runtime = self.runtime
        if runtime is None or self.span is INVALID_SPAN or not self._claim():
            return
        try:
            self._finish(runtime, ending)
        except Exception:
            record_failure("finish a round")
            with guard("end a broken round"):
                self._end({})

    def _finish(self, runtime: Runtime, ending: Ending) -> None:
        response = ending.response
        failure = _failure(ending)
        cost = self._cost(runtime, ending)
        if runtime.metrics is not None:
            runtime.metrics.round_ended(self, ending, cost, failure)
        attributes: dict[str, Any] = {}
        if self.span.is_recording():
            self._describe_request(attributes)
            self._describe_response(attributes, ending)
            attributes.update(cost_attributes(cost))
            if failure is not None:
                attributes[semconv.ERROR_TYPE] = failure
            if response.tool_calls:
                self._describe_tool_calls(runtime, attributes, response)
        if self.agent is not None:
            self.agent.learn(self.number, response.tool_calls)
        self._end(attributes, failed=failure is not None, end_ns=ending.end_ns)
        if runtime.observers:
            runtime.observe(self._record(ending, cost, failure))

    def _cost(self, runtime: Runtime, ending: Ending) -> Cost:
        """Price the round, and add it to the totals of its run."""
        response, request = ending.response, self.request
        segment = self.agent.segment if self.agent is not None else None
        usage = response.usage
        complete = ending.outcome in (None, "complete")
        late: Pending | None = None
        if usage is None:
            cost = UNKNOWN_COST
        else:
            provider, models = (
                self.route.provider,
                (response.model, request.model or self.route.model),
            )
            tier = response.service_tier
            price = runtime.prices.find_for(provider, *models, tier)
            if price is PENDING:
                cost = UNKNOWN_COST
                late = self.late = Pending(
                    provider=provider,
                    models=models,
                    tier=tier,
                    usage=usage,
                    complete=complete,
                    segment=segment,
                )
                runtime.late.add_round(self.span.get_span_context().span_id, late)
            else:
                cost = compute(price, usage, complete=complete)
        if segment is not None and self.route.operation != "count_tokens":
            with segment.locked():
                if usage is not None:
                    segment.totals.add_usage(usage)
                    segment.totals.rounds_without_usage -= self.counted
                if late is None:
                    add_cost(segment.totals, cost)
                else:
                    segment.pending.append(late)
        return cost

    def _describe_request(self, attributes: dict[str, Any]) -> None:
        request = self.request
        attributes[semconv.ATTEMPTS] = max(1, self.attempts)
        attributes[semconv.ATTEMPT_GROUPED] = self.grouped
        attributes[semconv.REQUEST_MAX_TOKENS] = request.max_tokens
        attributes[semconv.REQUEST_TEMPERATURE] = request.temperature
        attributes[semconv.REQUEST_TOP_P] = request.top_p
        attributes[semconv.REQUEST_MESSAGES] = request.messages
        if request.tools is not None:
            attributes[semconv.REQUEST_TOOLS] = len(request.tools)
        if request.stream or self.route.stream:
            attributes[semconv.REQUEST_STREAM] = True
        if self.wait_ns:
            attributes[semconv.ATTEMPT_WAIT_MS] = self.wait_ns / 1e6
        if self.resend:
            attributes[semconv.HTTP_RESEND_COUNT] = self.resend
        for key, value in (
            (semconv.REQUEST_TOP_K, request.top_k),
            (semconv.REQUEST_FREQUENCY_PENALTY, request.frequency_penalty),
            (semconv.REQUEST_PRESENCE_PENALTY, request.presence_penalty),
            (semconv.REQUEST_SEED, request.seed),
            (semconv.REQUEST_REASONING_LEVEL, request.reasoning_level),
            (semconv.REQUEST_SERVICE_TIER, request.service_tier),
            (semconv.OUTPUT_TYPE, request.output_type),
            (semconv.REQUEST_PREVIOUS_RESPONSE_ID, request.previous_response_id),
            (semconv.EMBEDDINGS_DIMENSIONS, request.dimensions),
        ):
            if value is not None:
                attributes[key] = value
        if request.choice_count not in (None, 1):
            attributes[semconv.REQUEST_CHOICE_COUNT] = request.choice_count
        if request.encoding_formats:
            attributes[semconv.REQUEST_ENCODING_FORMATS] = request.encoding_formats

    def _describe_response(self, attributes: dict[str, Any], ending: Ending) -> None:
        response = ending.response
        attributes[semconv.HTTP_STATUS] = ending.status
        attributes[semconv.RESPONSE_BYTES] = ending.response_bytes
        attributes[semconv.RESPONSE_ID] = response.id
        attributes[semconv.RESPONSE_MODEL] = response.model
        attributes[semconv.RESPONSE_SERVICE_TIER] = response.service_tier
        attributes[semconv.RESPONSE_SYSTEM_FINGERPRINT] = response.system_fingerprint
        attributes[semconv.SERVED_PROVIDER] = response.served_provider
        if response.finish_reasons:
            attributes[semconv.RESPONSE_FINISH_REASONS] = tuple(
                reason or OTHER for reason in response.finish_reasons
            )
        if ending.outcome is not None:
            attributes[semconv.STREAM_OUTCOME] = ending.outcome
            attributes[semconv.STREAM_CHUNKS] = ending.chunks
            attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = ending.first_chunk_s
        usage = response.usage
        attributes[semconv.USAGE_SOURCE] = "absent" if usage is None else "reported"
        if usage is None:
            return
        attributes[semconv.USAGE_INPUT] = usage.input_tokens
        attributes[semconv.USAGE_OUTPUT] = usage.output_tokens
        attributes[semconv.USAGE_CACHE_READ] = usage.cache_read_tokens
        attributes[semconv.USAGE_CACHE_WRITE] = usage.cache_write_tokens
        attributes[semconv.USAGE_REASONING] = usage.reasoning_tokens
        if usage.mismatch:
            attributes[semconv.USAGE_MISMATCH] = True
        for key, value in (
            (semconv.USAGE_AUDIO_INPUT, usage.input_audio_tokens),
            (semconv.USAGE_AUDIO_OUTPUT, usage.output_audio_tokens),
            (semconv.USAGE_IMAGE_INPUT, usage.input_image_tokens),
            (semconv.USAGE_IMAGE_OUTPUT, usage.output_image_tokens),
        ):
            if value:
                attributes[key] = value

    def _describe_tool_calls(
        self, runtime: Runtime, attributes: dict[str, Any], response: ResponseFacts
    ) -> None:
        """Name the tool calls asked for; a name that nobody but the model gave is digested."""
        offered = self.agent.offered if self.agent is not None else set(self.request.tools or ())
        ids = tuple(call.id or OTHER for call in response.tool_calls)
        names = [call.name for call in response.tool_calls]
        known = [name in offered or name in REGISTERED for name in names]
        rules = semconv.RULES
        found = {
            semconv.RESPONSE_TOOL_CALL_IDS: ids,
            semconv.RESPONSE_TOOL_CALL_NAMES: tuple(
                str(name) if ok else OTHER for name, ok in zip(names, known, strict=True)
            ),
        }
        for key, value in found.items():
            kept = rules[key].apply(value)
            if kept is not DROPPED:
                attributes[key] = kept
        if not all(known):
            digests = runtime.digests.get()
            attributes[semconv.RESPONSE_TOOL_CALL_DIGESTS] = tuple(
                OTHER if ok else digests.of(name or "")
                for name, ok in zip(names, known, strict=True)
            )
            attributes[semconv.DIGEST_KEY_ID] = digests.key_id

    def _record(self, ending: Ending, cost: Cost, failure: str | None) -> RoundRecord:
        span = self.span.get_span_context()
        return RoundRecord(
            route=self.route,
            request=self.request,
            ending=ending,
            cost=cost,
            error_type=failure,
            attempts=max(1, self.attempts),
            trace_id=span.trace_id,
            span_id=span.span_id,
            duration_s=(self.now_ns() - self.start_ns) / 1e9,
        )


def _failure(ending: Ending) -> str | None:
    """Return `error.type`: the provider's own type or code, an exception's class, or a status."""
    if ending.outcome in ("closed", "abandoned", "held"):
        return None
    if ending.error is not None and is_cancellation(ending.error):
        return error_type(ending.error)
    error = ending.response.error
    if error is not None:
        for value in (error.type, error.code):
            if value and semconv.RULES[semconv.ERROR_TYPE].apply(value) is not DROPPED:
                return value
    if ending.status is not None and ending.status >= 400:
        return str(ending.status)
    if ending.error is not None:
        return error_type(ending.error)
    if error is not None:
        return OTHER
    return "stream_cut_off" if ending.outcome == "failed" else None
