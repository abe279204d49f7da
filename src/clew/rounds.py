"""Rounds and calls: one logical model call, all HTTP attempts and the whole stream included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, INVALID_SPAN_CONTEXT, SpanContext, SpanKind

from clew import captured, context, describe, semconv
from clew._guard import guard, record_failure
from clew.captured import CapturedCall
from clew.context import NODE
from clew.endings import Ending, RoundRecord, failure_of, not_billed
from clew.facts import (
    ROUND_OPERATIONS,
    RequestFacts,
    ToolCall,
    Usage,
)
from clew.levels import METADATA, NONE
from clew.pipeline.asked import Asked
from clew.pipeline.late import Pending, add_cost
from clew.pipeline.light import LightSpan
from clew.pipeline.runtime import Runtime
from clew.pipeline.totals import Totals
from clew.pricing import PENDING, Cost, compute
from clew.rules import DROPPED, OTHER
from clew.semconv import (
    ATTEMPT_GROUPED,
    ATTEMPTS,
    REQUEST_BYTES,
    REQUEST_MODEL,
    ROUND,
    SEQ,
)
from clew.spans import (
    Agent,
    Node,
    Terminated,
    put,
    without_digests,
)
from clew.tools import REGISTERED, infer, joined
from clew.typing import Route

_models = semconv.identifier_rule(REQUEST_MODEL)
_known_models = _models.known
UNKNOWN_COST = Cost(status="unknown")
NOT_BILLED = Cost(status="priced", usd=0.0)


class Hops:
    """The providers tried in turn for one logical call; their rounds share a number."""

    __slots__ = ("born", "classify", "index", "number", "started", "watch", "with_usage")

    def __init__(
        self,
        classify: Callable[[Ending], str | None],
        index: int | None = None,
        *,
        born: Mapping[str, Any] | None = None,
        watch: Callable[[bytes, int], None] | None = None,
    ) -> None:
        self.classify = classify
        """Tells the failure class of a failed round, one of `semconv.FAILURE_CLASSES`."""
        self.born = born
        """Attributes that each of these rounds has from birth; they have obeyed their rules."""
        self.watch = watch
        """Called with the body of each request just before it is sent, after the gates, and the
        place of its provider in the chain; once for all attempts there. It does not raise."""
        self.index = index
        """Place of the provider in the chain, 0 for the first choice; None without a chain."""
        self.number: int | None = None
        self.started = False
        self.with_usage = False


class Round(Node):
    """One model call. Opened by a tap, finished by it exactly once."""

    __slots__ = (
        "anchor",
        "attempts",
        "content",
        "cost",
        "counted",
        "ended_ns",
        "ending",
        "failed_as",
        "failure",
        "from_cache",
        "grouped",
        "hops",
        "known_tools",
        "late",
        "number",
        "operation",
        "request",
        "resend",
        "route",
        "unread",
        "wait_ns",
    )

    def __init__(
        self,
        route: Route,
        request: RequestFacts,
        *,
        grouped: bool,
        resend: int,
        hops: Hops | None = None,
    ) -> None:
        Node.__init__(self)
        self.route = route
        self.request = request
        self.grouped = grouped
        self.resend = resend
        self.attempts = 0
        self.wait_ns = 0
        self.failed_as: str | None
        """How the attempt before the last has failed; set where there was one."""
        self.number: int | None = None
        self.from_cache = False
        """Whether the answer came from a cache of responses: then nobody bills it again."""
        self.hops = hops
        self.operation = request.operation or route.operation
        """What the request is; some paths leave that to the body."""
        self.counted = self.operation in ROUND_OPERATIONS and (hops is None or not hops.started)
        self.anchor: SpanContext | None = None
        """The span that the trace began with, where this round was stitched to an earlier one."""
        self.late: Pending | None = None
        """The cost, where it is still to come."""
        self.content: CapturedCall | None = None
        """What is captured of the call, where the capture level lets content through."""
        self.unread: Callable[[Ending], Ending] | None = None
        """Reads the answer, where that has not been done: it adds to what is known."""
        self.ending: Ending
        self.failure: str | None = None
        """Its `error.type`, once it has failed; settled when it is counted."""
        self.ended_ns: int
        self.cost: Cost | None = None
        """None until the round was counted."""
        self.known_tools: Sequence[str] = ()
        """Those tools the answer asks for that were offered or registered."""

    def open(
        self,
        runtime: Runtime,
        born: Mapping[str, Any],
        request_bytes: int | None,
        here: Context | None = None,
    ) -> None:
        """Start the span, under whatever span is current.

        Args:
            runtime: the runtime.
            born: attributes that the target of the request gives; they have obeyed their rules.
            request_bytes: size of the request body, where it is known.
            here: the current context, where it is at hand.
        """
        try:
            if here is None:
                here = context.current()
            node: Any = here.get(NODE)
            self.parent_node = node
            agent: Agent | None = None if node is None else node.agent
            self.agent = agent
            request, hops, name = self.request, self.hops, self.operation
            if request.tool_result_ids:
                here = self._answer(runtime, here, request.tool_result_ids)
            if agent is None:
                attributes = {**born}
            elif self.counted:
                self.seq, self.number = agent.segment.next_round(agent)
                attributes = {**born, **agent.common, SEQ: self.seq, ROUND: self.number}
            else:
                attributes = {**born}
                self._take_seq(agent, attributes)
            if request.tools and agent is not None and not agent.offered.issuperset(request.tools):
                agent.segment.count_up()  # nobody had offered them until now
                agent.offered.update(request.tools)
            if request_bytes is not None:
                attributes[REQUEST_BYTES] = request_bytes
            if request.operation is not None:
                attributes[semconv.OPERATION] = name
            model = request.model or self.route.model
            if model is not None:
                shown = model if model in _known_models else _models.apply(model)
                if shown is DROPPED:
                    shown = model = OTHER
                attributes[REQUEST_MODEL] = shown
                name = f"{name} {shown}"
            if hops is not None:
                hops.started, hops.number = True, self.number
                if hops.index is not None:
                    attributes[semconv.PROVIDER_HOP] = hops.index
                if hops.born is not None:
                    attributes.update(hops.born)
            around = context.span_in(here)
            if runtime.folds.open:
                runtime.folds.fold(around.get_span_context().span_id or None, model)
            self._start(runtime, name, attributes, kind=SpanKind.CLIENT, parent=here, around=around)
        except Exception:
            record_failure("start a round")

    def _take_seq(self, agent: Agent, attributes: dict[str, Any]) -> None:
        """Take the identity of a call that is no round, or of a further hop of one."""
        self.seq = agent.segment.next_seq()
        attributes.update(agent.common)
        attributes[SEQ] = self.seq
        if self.hops is not None:
            self.number = self.hops.number
            if self.number is not None:
                attributes[ROUND] = self.number

    def _answer(self, runtime: Runtime, here: Context, call_ids: Sequence[str]) -> Context:
        """Add the tool calls that this request shows to have been executed; find its trace.

        Returns:
            The context in which the round belongs: outside a run, the trace of what it answers.
        """
        agent = self.agent
        if agent is not None:
            if agent.knows(call_ids):
                return here
            agent.account_for(*call_ids)
            agent.segment.count_up()
        calls = runtime.loose if agent is None else agent.asked
        latest, missed = calls.answered(call_ids)
        if agent is None and latest is not None:
            here = joined(here, latest)
            self.anchor = latest.anchor
        for call in missed:
            infer(runtime, agent, call, here)
        return here

    def _ask(self, runtime: Runtime, calls: Sequence[ToolCall]) -> None:
        """Remember the tool calls that this round asked for."""
        agent = self.agent
        if agent is None:
            book, offered = runtime.loose, self.request.tools or ()
            anchor = self.anchor or self.span.get_span_context()
        else:
            # In a run, the run says where what answers belongs.
            book, offered, anchor = agent.asked, agent.offered, INVALID_SPAN_CONTEXT
        asked: list[Asked] = []
        for call in calls:
            known = call.name in offered or call.name in REGISTERED
            asked.append(Asked(call, known, self.number, self.ended_ns, anchor))
        self.known_tools = [call.name for call in asked if call.known and call.name]
        book.ask(asked)

    def finish(self, ending: Ending) -> None:
        """End the round; only the first call counts."""
        runtime = self.runtime
        if runtime is None or self.span is INVALID_SPAN:
            return
        try:
            self._unclaimed.pop()  # as `_claim` does it
        except IndexError:
            return
        try:
            response, span = ending.response, self.span
            fine = ending.error is None and ending.outcome is None and response.error is None
            status = ending.status
            failure = None if fine and (status is None or status < 400) else failure_of(ending)
            self.ending, self.failure = ending, failure
            end_ns = self.ended_ns = ending.end_ns or self.now_ns()
            attributes: dict[str, Any] = {}
            if failure is not None:
                self._add_failure(attributes, failure)
            agent = self.agent
            if agent is not None:
                agent.segment.uncounted.append(self)
            elif response.tool_calls:
                self._ask(runtime, response.tool_calls)
            if type(span) is LightSpan:
                span.describer, span.plain = self, True  # later, off the caller's path
            else:
                self.count_up()
                if span.is_recording():
                    self.describe(attributes)
            if runtime.metrics is not None:
                runtime.metrics.round_ended(self)
            self._end_with(attributes, failed=failure is not None, end_ns=end_ns)
            if self.content is not None:
                self.content.ended(self, failure, end_ns)
            if runtime.observers:
                runtime.observe(self._record(failure))
        except Exception:
            record_failure("finish a round")
            with guard("end a broken round"):
                self._end({})

    def interrupt(self, error: Terminated) -> None:
        """End the round because the process ends."""
        self.finish(Ending(error=error))

    def _add_failure(self, attributes: dict[str, Any], failure: str) -> None:
        attributes[semconv.ERROR_TYPE] = failure
        kind = None if self.hops is None else self.hops.classify(self.ending)
        if kind is not None:
            attributes[semconv.PROVIDER_FAILURE_CLASS] = kind

    def describe(self, attributes: dict[str, Any]) -> None:
        """Add what the request and the response say, and the cost, to a span's attributes."""
        attributes[ATTEMPTS] = self.attempts or 1
        attributes[ATTEMPT_GROUPED] = self.grouped
        if self.wait_ns or self.resend or self.route.stream or self.from_cache:
            self._add_rare(attributes)
        describe.add_request(attributes, self.request)
        cost, response = self.count_up(), self.ending.response
        if self.failure is not None and type(self.span) is LightSpan:
            attributes[semconv.ERROR_TYPE] = self.failure  # it may be known by now only
            self.span.fail()
        describe.add_response(attributes, self.ending)
        add_cost(attributes, cost)
        if response.tool_calls:
            self._add_tool_calls(attributes, response.tool_calls)
        if response.error is not None or response.finish_reasons:
            self._add_unknown(attributes)
        if self.content is not None:
            attributes.update(self.content.attributes())

    def _add_tool_calls(self, attributes: dict[str, Any], calls: Sequence[ToolCall]) -> None:
        """Name the tool calls asked for; without digests, if the capture level forbids them."""
        runtime = self.runtime
        if runtime is not None:
            describe.add_tool_calls(attributes, calls, self.known_tools, runtime.digests)
            if getattr(self, "level", METADATA) == NONE:
                without_digests(attributes)

    def _add_unknown(self, attributes: dict[str, Any]) -> None:
        """Add digests of words that are not known, unless the capture level forbids digests."""
        runtime = self.runtime
        if runtime is not None and getattr(self, "level", METADATA) != NONE:
            describe.add_unknown(attributes, self.ending, runtime.digests)

    def capture(self, runtime: Runtime, body: bytes | None) -> None:
        """Keep the content of this call, if the level here and a place for it say so."""
        level = getattr(self, "level", runtime.capture_level)
        if captured.wanted(runtime, level):
            said = None if self.agent is None else self.agent.conversation
            beginning = None if said is None else said.known
            name = self.route.dialect.name
            self.content = CapturedCall(runtime, level, name, body, beginning)
            if self.hops is not None:
                self.content.hop = self.hops.index

    def _add_rare(self, attributes: dict[str, Any]) -> None:
        """Add what is remarkable about how the request was sent."""
        if self.wait_ns:
            attributes[semconv.ATTEMPT_WAIT_MS] = self.wait_ns / 1e6
            put(attributes, semconv.ATTEMPT_ERROR, getattr(self, "failed_as", None))
        if self.from_cache:
            attributes[semconv.RESPONSE_CACHED] = True
        if self.resend:
            attributes[semconv.HTTP_RESEND_COUNT] = self.resend
        if self.route.stream:
            attributes[semconv.REQUEST_STREAM] = True

    def count_up(self) -> Cost:
        """Count what has ended until now, this round included; return what it cost."""
        if self.cost is None:
            if self.agent is not None:
                self.agent.segment.count_up()
            else:
                self.count(Totals())
        return self.cost or UNKNOWN_COST

    def count(self, totals: Totals) -> None:
        """Price the round, add it to the totals of its run, and note what tool calls it asks for.

        Called once, with the lock of its segment held, where it is of a run.
        """
        runtime, route = self.runtime, self.route
        if runtime is None:
            return
        if self.unread is not None:
            self._read(self.unread)
        if self.from_cache:
            self.ending = not_billed(self.ending)
        response = self.ending.response
        usage = response.usage
        cost, late = UNKNOWN_COST, None
        if self.from_cache:
            cost = NOT_BILLED
        elif usage is not None:
            asked = self.request.model or route.model
            price = runtime.prices.find_for(
                route.provider, response.model, asked, response.service_tier
            )
            outcome = self.ending.outcome
            complete = outcome is None or outcome == "complete"
            if price is PENDING:
                late = self._price_later(runtime, usage, complete)
            else:
                cost = compute(price, usage, complete=complete)
        agent, hops = self.agent, self.hops
        if agent is not None and response.tool_calls:
            self._ask(runtime, response.tool_calls)
        if agent is not None and (self.counted or usage is not None):
            if usage is not None:
                totals.add_usage(usage)
                if self.counted or (hops is not None and not hops.with_usage):
                    totals.rounds_without_usage -= 1
                if hops is not None:
                    hops.with_usage = True
            if late is None:
                totals.add_cost_of(cost)
            else:
                agent.segment.pending.append(late)
        self.cost = cost  # last: who finds it set takes all the rest for settled

    def _read(self, unread: Callable[[Ending], Ending]) -> None:
        """Read the answer that has waited."""
        self.unread = None
        self.ending = ending = unread(self.ending)
        if ending.outcome == "failed":
            self.failure = failure_of(ending)

    def _price_later(self, runtime: Runtime, usage: Usage, complete: bool) -> Pending:
        response = self.ending.response
        late = self.late = Pending(
            provider=self.route.provider,
            models=(response.model, self.request.model or self.route.model),
            tier=response.service_tier,
            usage=usage,
            complete=complete,
            segment=self.agent.segment if self.agent is not None else None,
        )
        runtime.late.add_round(self.span.get_span_context().span_id, late)
        return late

    def _record(self, failure: str | None) -> RoundRecord:
        span = self.span.get_span_context()
        return RoundRecord(
            route=self.route,
            request=self.request,
            cost=self.count_up(),
            ending=self.ending,
            error_type=failure,
            attempts=max(1, self.attempts),
            trace_id=span.trace_id,
            span_id=span.span_id,
            duration_s=(self.ended_ns - self.start_ns) / 1e9,
        )
