"""One run of the loop, from its first round to its end: everything that changes while it goes on.

A `Session` is made for each run and each resumption, and belongs to nobody else: two runs of the
same loop at the same time share nothing but what is constant.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace

from clew._guard import guard
from clew.errors import ApprovalRequired, PolicyDenied
from clew.loop import ops, pricing
from clew.loop.calls import Done, Planned, record_refused, refused
from clew.loop.ops import Ended, Walk
from clew.loop.plan import Plan
from clew.loop.recording import Recorder
from clew.loop.result import InputWanted, Waiting
from clew.loop.state import State, digest_of
from clew.loop.window import SEED, Breakdown, Fitting, Parts
from clew.loop.writes import Writes
from clew.pipeline.totals import Totals
from clew.providers import errors
from clew.providers.base import ChatRequest, ChatResponse, Message, ToolRequest
from clew.providers.errors import ProviderError
from clew.rounds import Hops
from clew.runs import Run
from clew.spans import allowed
from clew.tools import canonical
from clew.typing import PendingCall

NOT_SENT: Final = frozenset({"configuration", "circuit_open"})


class Session:
    """The state of one run."""

    def __init__(
        self,
        plan: Plan,
        run: Run,
        recorder: Recorder,
        *,
        messages: Sequence[Message],
        parts: Parts,
        sources: Sequence[tuple[str, str]],
        cancelled: Callable[[], bool] | None,
        options: Mapping[str, Any],
        state: State | None = None,
        submitted_by: str | None = None,
    ) -> None:
        self.plan = plan
        self.run = run
        self.recorder = recorder
        self.messages = list(messages)
        self.parts = parts
        self.sources = tuple(sources)
        self.own_options = dict(options)
        self.options = {**plan.options, **options}
        self.cancelled = cancelled or (lambda: False)
        self.resumed = state
        self.submitted_by = submitted_by
        self.rounds: int = 0 if state is None else state.rounds
        self.totals = Totals() if state is None else replace(state.totals)
        self.text = "" if state is None else state.text
        self.inputs: dict[str, dict[str, Any]] = {} if state is None else dict(state.inputs)
        self.remote_calls = 0
        self.permitted: frozenset[str] = frozenset()
        self.fitting: Fitting | None = None
        self.breakdown: Breakdown | None = None
        """Of the last round."""
        self.prepared: ChatRequest | None = None
        """What was last made ready to be asked, sent or not."""
        self.waiting: Waiting | None = None
        self.reason = "completed"
        self._writes = Writes(plan)
        self._lock = threading.Lock()

    # --- the walk ------------------------------------------------------------------------------

    def walk(self) -> Walk[None]:
        """Go from here to the end, or to where the run has to wait."""
        try:
            yield from self.prepare()
            if self.resumed is not None and not (yield from self._go_on(self.resumed)):
                return
            while self.rounds < self.plan.configuration.limits.max_rounds:
                answer = yield from self.ask()
                if not (answer.tool_calls and self.permitted):
                    return
                if not (yield from self._use_tools(self._plan_turn(answer.tool_calls))):
                    return
            yield from self.ask(closing=True)
            raise Ended("max_rounds")
        except Ended as end:
            self.reason = end.reason
            self.run.terminate(end.reason)
        except ApprovalRequired as waits:
            if self.waiting is None:
                self._wait_for_approval((), waits)
            raise
        except ProviderError:
            self.reason = "provider_failed"
            self.run.terminate(self.reason)
            raise
        finally:
            self._writes.give_back()

    def prepare(self) -> Walk[None]:
        """Say what goes into the prompts, and find out what may be offered and what fits."""
        for source, data_class in self.sources:
            self.run.uses(source, data_class)
        yield ops.Listening(self.plan.provider, governed=self.plan.governed)
        self.permitted = yield ops.Offer(self.plan.offered)
        yield from self.prepare_window()

    def prepare_window(self) -> Walk[None]:
        """Find out how much the model takes."""
        window, before = self.plan.window, self.resumed
        if window is None:
            return
        length = window.context_length
        if length is None:
            models = pricing.models_of(self.plan.provider, self.plan.configuration.model)
            length = yield ops.ContextLength(models)
        self.fitting = Fitting(
            window,
            context_length=length,
            default_output=pricing.default_output(self.plan.provider),
        )
        if before is not None:
            self.fitting.calibration, self.fitting.measured = before.calibration, before.measured

    def _stop_if_cancelled(self) -> None:
        if self.cancelled():
            raise Ended("cancelled")

    # --- a round -------------------------------------------------------------------------------

    def request(self, number: int, *, closing: bool = False) -> tuple[ChatRequest, dict[str, Any]]:
        """Return what is asked in a round, and the numbers of its window fit as attributes.

        Raises:
            Ended: it does not fit.
        """
        configuration = self.plan.configuration
        offered = [tool.spec for tool in self.plan.offered if tool.name in self.permitted]
        options = dict(self.options)
        limit = options.pop("max_tokens", None) or configuration.limits.max_tokens
        if closing and offered:
            # Left out altogether, tools that the transcript used would be refused by some.
            options["tool_choice"] = "none"
        request = ChatRequest.from_options(
            options, model=configuration.model, messages=tuple(self.messages), tools=tuple(offered)
        )
        request = self.prepared = replace(request, max_tokens=limit)
        if self.fitting is None:
            return request, {}
        fit = self.fitting.fit(self.messages, offered, self.parts, max_tokens=limit)
        request = self.prepared = replace(request, messages=fit.messages)
        self.breakdown = fit.breakdown
        self.recorder.context(number, fit.breakdown)
        if not fit.fits:
            raise Ended("context_truncated")
        born: dict[str, Any] = {}
        with guard("describe the window of a round"):
            born = allowed(fit.breakdown.attributes())
        return request, born

    def ask(self, *, closing: bool = False) -> Walk[ChatResponse]:
        """Ask the model once."""
        self._stop_if_cancelled()
        number = self.rounds + 1
        request, born = self.request(number, closing=closing)
        watch = self.recorder.watch(number, self.plan.provider, request)
        asking = self._asking(
            number, request, Hops(errors.of_ending, born=born or None, watch=watch)
        )
        started = time.perf_counter()
        try:
            answer: ChatResponse = yield asking
        except BaseException as error:
            self._not_answered(number, asking, error)
            self.recorder.failed(number, error, time.perf_counter() - started)
            raise
        self.rounds = number
        cost = pricing.count(self.totals, self.plan.provider, request, answer)
        if self.fitting is not None and answer.usage is not None:
            self.fitting.learn(answer.usage.input_tokens)
        self.recorder.answered(number, answer, time.perf_counter() - started, cost)
        self.messages.append(answer.message)
        if answer.text or closing or not answer.tool_calls:
            self.text = answer.text
        return answer

    def _asking(self, number: int, request: ChatRequest, hops: Hops) -> ops.Ask | ops.AskStreamed:
        provider = self.plan.provider
        if not self.plan.stream:
            return ops.Ask(provider, request, hops)
        return ops.AskStreamed(
            provider,
            request,
            hops,
            heard=lambda text: self.recorder.heard(number, text),
            stopped=self.cancelled,
        )

    def _not_answered(
        self, number: int, asking: ops.Ask | ops.AskStreamed, error: BaseException
    ) -> None:
        """Count a round that has no answer, if it was one, and keep what had come of it."""
        failed = isinstance(error, ProviderError) and error.failure_class not in NOT_SENT
        if failed or isinstance(error, Ended):
            self.rounds = number
            self.totals.rounds += 1
            self.totals.rounds_without_usage += 1
            # As for rounds: nobody knows what was billed.
            self.totals.add_cost("unknown", None)
        if isinstance(asking, ops.AskStreamed) and asking.text and not _denied(error):
            self.text = asking.text

    # --- tools ---------------------------------------------------------------------------------

    def _go_on(self, state: State) -> Walk[bool]:
        """Go on with the calls that waited; False: the run waits again."""
        if not state.calls:
            return True
        turn = self._plan_turn(state.calls, waited=True)
        if state.waiting == "input":
            self.recorder.given(self.rounds, self.submitted_by)
        else:
            pending = _pending(turn)
            decided = yield ops.Approvals(pending)
            if decided is not None:
                writes = decided[0] and any(one.effect != "read_only" for one in pending)
                self.recorder.approval(self.rounds, *decided, must_save=writes)
                if not decided[0] and self.plan.stop_when_denied:
                    for one in turn:
                        self._refuse(replace(one, refusal="approval_denied"))
                    raise Ended("approval_denied")
        return (yield from self._use_tools(turn))

    def _use_tools(self, turn: Sequence[Planned]) -> Walk[bool]:
        """Execute the calls of a turn; False: the run waits."""
        self._stop_if_cancelled()
        wanted = [one for one in turn if self._wants_input(one)]
        if wanted:
            self._wait_for_input(turn, wanted)
            return False
        try:
            yield ops.CheckTurn(_pending(turn))
        except ApprovalRequired as waits:
            self._wait_for_approval(turn, waits)
            raise
        executable = [one for one in turn if one.refusal is None]
        done = {one.place: self._refuse(one) for one in turn if one.refusal is not None}
        self.remote_calls += sum(one.tool is not None and one.tool.remote for one in executable)
        results: list[Done] = yield ops.ExecuteAll(
            executable,
            str(self.run.run_id),
            self._writes.hooks(self._done),
            workers=self.plan.limits.parallel,
            stopped=self.cancelled,
        )
        done |= {one.planned.place: one for one in results}
        for one in turn:
            if one.place in done:
                output = done[one.place].output
                self.messages.append(
                    Message.result(one.request, output.text, is_error=output.is_error)
                )
        self.inputs = {}
        if len(done) < len(turn):
            raise Ended("cancelled")
        return True

    def _plan_turn(self, calls: Sequence[ToolRequest], *, waited: bool = False) -> list[Planned]:
        left = self.plan.limits.remote_calls - self.remote_calls
        planned: list[Planned] = []
        for place, request in enumerate(calls):
            one = self._planned(place, request, waited=waited)
            if one.refusal is None and one.tool is not None and one.tool.remote:
                left -= 1
                if left < 0:
                    one = replace(one, refusal="remote_calls")
            planned.append(one)
        return planned

    def _planned(self, place: int, request: ToolRequest, *, waited: bool) -> Planned:
        tool = self.plan.tools.get(request.name)
        refusal, arguments = None, request.arguments
        # What waited had been offered: whether it may still be executed is for the gates to say.
        offered = self.plan.configuration.tools if waited else self.permitted
        if tool is None:
            refusal = "unknown"
        elif request.name not in offered:
            refusal = "not_offered"
        elif arguments is None:
            refusal = "invalid_arguments"
        else:
            arguments = {**arguments, **self.inputs.get(str(place), {})}
        return Planned(
            request=request,
            round=self.rounds,
            place=place,
            tool=tool,
            arguments=arguments,
            refusal=refusal,
        )

    def _refuse(self, planned: Planned) -> Done:
        assert planned.refusal is not None  # noqa: S101 - asked before
        record_refused(planned)
        done = refused(planned, planned.refusal)
        self.totals.tool_calls += 1
        self.recorder.tool(done)
        return done

    def _done(self, done: Done) -> None:
        with self._lock:
            self.totals.tool_calls += 1
        self.recorder.tool(done)

    # --- waiting -------------------------------------------------------------------------------

    def _wants_input(self, planned: Planned) -> bool:
        tool = planned.tool
        needs = planned.refusal is None and tool is not None and tool.input_schema is not None
        return needs and str(planned.place) not in self.inputs

    def _wait_for_input(self, turn: Sequence[Planned], wanted: Sequence[Planned]) -> None:
        for one in wanted:
            self.recorder.tool(refused(one, "awaiting_input"))
        reference = self.run.suspend("waiting_for_input")
        inputs = [
            InputWanted(
                place=one.place,
                call_id=one.request.id,
                tool=one.request.name,
                schema=one.tool.input_schema or {},
            )
            for one in wanted
            if one.tool is not None
        ]
        self.waiting = self._wait("input", turn, reference, inputs=tuple(inputs))

    def _wait_for_approval(self, turn: Sequence[Planned], waits: ApprovalRequired) -> None:
        for one in turn:
            if one.refusal is None:
                self.recorder.tool(refused(one, "awaiting_approval"))
        reference = waits.reference or self.run.reference()
        self.waiting = self._wait("approval", turn, reference, approval_id=waits.approval_id)

    def _wait(
        self,
        kind: Literal["approval", "input"],
        turn: Sequence[Planned],
        reference: str,
        *,
        inputs: tuple[InputWanted, ...] = (),
        approval_id: str | None = None,
    ) -> Waiting:
        calls = [one.request for one in turn]
        digest = digest_of(calls, self.plan.schemas)
        state = State(
            configuration=self.plan.configuration.identifier,
            reference=reference,
            waiting=kind,
            digest=digest,
            messages=tuple(self.messages),
            inputs=self.inputs,
            parts=self.parts,
            rounds=self.rounds,
            totals=self.totals,
            calibration=SEED if self.fitting is None else self.fitting.calibration,
            measured=self.fitting is not None and self.fitting.measured,
            sources=self.sources,
            text=self.text,
            options=self.own_options,
        )
        return Waiting(
            kind=kind,
            state=state.encode(),
            reference=reference,
            digest=digest,
            tools=tuple(call.name for call in calls),
            inputs=inputs,
            approval_id=approval_id,
        )


def _denied(error: BaseException) -> bool:
    return isinstance(error, (PolicyDenied, ApprovalRequired))


def _pending(turn: Sequence[Planned]) -> list[PendingCall]:
    """Return the calls as gates see them, without those that are refused anyway."""
    return [
        PendingCall(
            name=one.request.name,
            id=one.request.id,
            effect=None if one.tool is None else one.tool.effect,
            arguments=canonical(one.arguments),
        )
        for one in turn
        if one.refusal is None
    ]
