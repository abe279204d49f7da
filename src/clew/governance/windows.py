"""The window through which the gates look at a streamed answer.

Text is held back until it has been looked at: by the gate's `window`, in characters, and by its
`overlap`, which is looked at again with what follows, so that a pattern across a border is seen.
What was looked at goes on to the caller, in whole events. A `Window` does no input or output: a
tap feeds it bytes, asks the gates what it wants to know (`clew.governance.passages.look`,
`alook`), and gives the caller the bytes it returns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec

from clew import context
from clew._guard import record_failure
from clew.content.deltas import ECHOED, FORMATS, Delta, deltas
from clew.content.frames import Frame, Frames
from clew.content.texts import Place, places
from clew.errors import ClewError
from clew.governance.governor import (
    STOPS,
    STRICTNESS,
    Governor,
    Result,
    Step,
    crashed,
    refused_redaction,
    refused_retry,
)
from clew.typing import Gate, Proposal, Verdict

_ALLOWED: Final = Verdict(outcome="allow", reason="no_finding")
_BODY_KEPT = 16 * 1024 * 1024


class Question(NamedTuple):
    """What a gate is to be asked."""

    gate: Gate
    proposal: Proposal
    text: str | None
    """The text to look at; None where the gate is asked about the whole answer."""


Walk = Generator[Question, Verdict | None, bytes]
_Look = Generator[Question, Verdict | None, None]


class _Stopped(Exception):  # noqa: N818 - a verdict, not a fault
    """A gate has stopped the stream."""


class _Slot:
    """A piece of a channel's text in one event; `end` counts characters from the beginning."""

    __slots__ = ("delta", "end", "frame", "text")

    def __init__(self, frame: Frame, delta: Delta, text: str, end: int) -> None:
        self.frame = frame
        self.delta = delta
        self.text = text
        self.end = end

    def put(self, text: str) -> int:
        """Put another text there, and leave nothing beside it that repeats the old one."""
        if text != self.text:
            self.delta.holder[self.delta.key] = text
            self.frame.changed = True
            _drop_logprobs(self.frame.document)
        return len(text)


class _Channel:
    """One text of the answer: what of it is held back, and what has become of the rest."""

    def __init__(self, window: int, *, fixed: bool) -> None:
        self.fixed = fixed
        self.held = ""
        self.start = 0
        """How many characters have been let go."""
        self.seen = 0
        """Up to where it was looked at."""
        self.step = window
        self.slots: deque[_Slot] = deque()
        self.given: list[str] = []
        self.let_go: list[str] = []

    @property
    def total(self) -> int:
        """How many characters have come."""
        return self.start + len(self.held)

    def take(self, frame: Frame, delta: Delta) -> _Slot:
        """Take the next piece."""
        text: str = delta.holder[delta.key]
        self.held += text
        self.given.append(text)
        slot = _Slot(frame, delta, text, self.total)
        self.slots.append(slot)
        return slot

    def is_due(self) -> bool:
        """Tell whether it is time to look."""
        return self.total - self.seen >= self.step

    def is_whole(self, text: str) -> bool:
        """Tell whether a text is this one as a whole."""
        return len(text) == self.total and text == "".join(self.given)

    def let_pass(self, changed: str, overlap: int, window: int, *, final: bool) -> None:
        """Let go what was looked at, in whole events.

        Args:
            changed: what the gates have made of the text that is held back.
            overlap: how much of it is looked at again.
            window: how much is looked at together.
            final: whether no more follows, so that nothing has to be kept.
        """
        self.seen = self.total
        first, last, middle = _difference(self.held, changed)
        cut = len(self.held)
        if not final:
            cut = max(0, cut - overlap)
            if last > cut and middle is not None:
                cut = min(cut, max(0, first - overlap))
            cut = self._border(cut)
            if middle is not None and first - overlap < cut < last:
                cut = self._border(max(0, first - overlap))
        slots: list[_Slot] = []
        while self.slots and self.slots[0].end <= self.start + cut:
            slots.append(self.slots.popleft())
        self._release(slots, (first, last, middle), final=final)
        self.held = self.held[cut:]
        self.start += cut
        # What cannot be let go yet is looked at again, but not for each few characters.
        self.step = max(window, len(self.held) - overlap)

    def _border(self, cut: int) -> int:
        """Return the last end of an event that is not behind `cut`."""
        found = 0
        for slot in self.slots:
            if slot.end - self.start > cut:
                break
            found = slot.end - self.start
        return found

    def _release(
        self, slots: list[_Slot], difference: tuple[int, int, str | None], *, final: bool
    ) -> None:
        first, last, middle = difference
        begin = 0
        for slot in slots:
            end = slot.end - self.start
            text = slot.text
            if middle is not None:
                text = self.held[begin : max(begin, min(end, first))]
                if begin <= first < end or (final and first == end and slot is slots[-1]):
                    text += middle
                text += self.held[max(begin, last) : end]
            slot.put(text)
            self.let_go.append(text)
            begin = end


class Window:
    """Looks at one streamed answer.

    Args:
        governor: records what the gates say.
        proposal: the answer, as the gates are asked about it.
        gates: whom to ask.
        dialect: the name of the wire format.
        sse: whether there are server-sent events; False: each line is one; None: the gates, which
            only observe then, are asked about the answer as a whole, when it has ended.
    """

    def __init__(
        self,
        governor: Governor,
        proposal: Proposal,
        gates: Sequence[Gate],
        dialect: str,
        *,
        sse: bool | None,
    ) -> None:
        self._governor = governor
        self._proposal = proposal
        self._gates = [gate for gate in gates if sse is not None and width_of(gate)]
        self._late = [gate for gate in gates if gate not in self._gates]
        enforced = [gate for gate in self._gates if gate.mode == "enforce"]
        self.holds = bool(enforced)
        """Whether anything is held back; else the caller is given each piece at once."""
        self._window = max((width_of(gate) for gate in self._gates), default=0)
        self._overlap = max((getattr(gate, "overlap", 0) for gate in self._gates), default=0)
        self._dialect = dialect
        self._frames = Frames(sse=bool(sse))
        self._events: deque[tuple[Frame, list[_Slot], int]] = deque()
        self._channels: dict[tuple[Any, ...], _Channel] = {}
        self._known: dict[str, str] = {}
        self._steps: dict[int, Step] = {}
        self._stopped: Step | None = None
        self._body: list[bytes] | None = [] if self._late else None
        self._size = 0
        self._context = context.current()
        self.may_retry = False
        """Whether the model can be asked once more while nothing has gone on."""
        self.released = 0
        """How many characters of text have been let go."""
        self.error: ClewError | None = None
        """What to raise, once a gate has stopped the stream."""
        self.over = False
        self._open = False
        """Whether what comes goes on without a look."""

    @property
    def wants_again(self) -> bool:
        """Whether a gate wants the model to be asked once more, and can have it."""
        return self._stopped is not None and self._stopped.verdict.outcome == "retry"

    # --- what comes in, and what goes out --------------------------------------------------------

    def feed(self, data: bytes) -> Walk:
        """Take the next bytes of the body, decompressed; return those that may go on."""
        self._keep(data)
        return (yield from self._step(self._frames.feed(data)))

    def end(self, *, complete: bool = True) -> Walk:
        """The body has ended: look at what is left, and record what was decided.

        Args:
            complete: whether the answer is there as a whole.
        """
        if self.over:
            return b""
        out = yield from self._step(self._frames.end(), final=True)
        if complete and self._body is not None and not self.over:
            body = b"".join(self._body)
            whole = msgspec.structs.replace(self._proposal, content=lambda: body)
            for gate in self._late:
                yield from self._ask(Question(gate, whole, None), "")
        self.left()
        return out

    def left(self) -> None:
        """Nobody reads on: record what was decided until now. Only the first call counts."""
        if self.over:
            return
        self.over = True
        result = Result(self._proposal)
        gates = [*self._gates, *self._late]
        result.steps = [self._steps[id(gate)] for gate in gates if id(gate) in self._steps]
        result.stopped = self._stopped
        token = context.attach(self._context)
        try:
            released = self.released if self.holds else None
            self._governor.conclude(result, released=released)
        finally:
            context.detach(token)
        self.error = result.error
        self._events.clear()
        self._channels.clear()

    def dropped(self) -> None:
        """The stream was collected. Called from a finaliser: another thread does the work."""
        if not self.over:
            self._governor.runtime.worker.call_soon(self.left)

    def broken(self) -> bytes:
        """Looking has failed: a mandatory gate denies then; else all that is held back goes on."""
        record_failure("look at a stream")
        held = b"".join(frame.raw for frame, _, _ in self._events) + self._frames.rest()
        enforced = [gate for gate in self._gates if gate.mode == "enforce"]
        if not self.over and enforced:
            gate = next((gate for gate in enforced if gate.mandatory), enforced[0])
            verdict = crashed(gate)
            step = self._steps[id(gate)] = Step(gate, verdict, time.time_ns(), enforced=True)
            self._stopped = step if gate.mandatory else None
        self.left()
        self._open = self.error is None
        return held if self._open else b""

    def _step(self, frames: list[Frame], *, final: bool = False) -> Walk:
        if self.over or not self._gates:
            return b"".join(frame.raw for frame in frames) if self._open else b""
        try:
            for frame in frames:
                yield from self._take(frame)
            if final:
                for channel in self._channels.values():
                    yield from self._look(channel, final=True)
        except _Stopped:
            self.left()
            return b""
        return self._release()

    def _keep(self, data: bytes) -> None:
        if self._body is not None:
            self._size += len(data)
            self._body.append(data)
            if self._size > _BODY_KEPT:
                self._body = None

    def _release(self) -> bytes:
        out: list[bytes] = []
        events = self._events
        while events:
            frame, slots, size = events[0]
            if not all(map(self._is_clear, slots)):
                break
            events.popleft()
            self.released += size + sum(len(slot.delta.holder[slot.delta.key]) for slot in slots)
            out.append(frame.bytes())
        return b"".join(out)

    def _is_clear(self, slot: _Slot) -> bool:
        return slot.end <= self._channels[slot.delta.channel].start

    # --- looking ---------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> _Look:
        """Take an event: add its pieces to their channels, and look where it is time to."""
        slots: list[_Slot] = []
        touched: list[_Channel] = []
        taken: set[tuple[int, Any]] = set()
        document: Any = frame.document
        if isinstance(document, dict):
            for delta in deltas(self._dialect, cast("dict[str, Any]", document)):
                taken.add((id(delta.holder), delta.key))
                channel = self._channels.get(delta.channel)
                if channel is None:
                    channel = _Channel(self._window, fixed=delta.fixed)
                    self._channels[delta.channel] = channel
                slots.append(channel.take(frame, delta))
                touched.append(channel)
        size = 0
        if frame.text is not None:
            size = len(frame.text)
            if (yield from self._whole(frame.text)) != frame.text:
                self._refuse("redact_not_possible")
        for place in list(places(document, ECHOED)):
            if (id(place.holder), place.key) not in taken:
                size += yield from self._beside(frame, place)
        self._events.append((frame, slots, size))
        for channel in touched:
            if channel.is_due():
                yield from self._look(channel)

    def _beside(self, frame: Frame, place: Place) -> Generator[Question, Verdict | None, int]:
        """Look at a text that is no piece of another: whole, or a channel's, said once more."""
        text = place.text
        for channel in self._channels.values():
            if channel.is_whole(text):
                yield from self._look(channel, final=True)
                changed = "".join(channel.let_go)
                break
        else:
            changed = yield from self._whole(text)
        if changed != text:
            place.holder[place.key] = changed
            frame.changed = True
            _drop_logprobs(frame.document)
        return len(changed)

    def _whole(self, text: str) -> Generator[Question, Verdict | None, str]:
        if text not in self._known:
            self._known[text] = yield from self._looked(text)
        return self._known[text]

    def _look(self, channel: _Channel, *, final: bool = False) -> _Look:
        """Look at what a channel holds back, and let go what can be."""
        text = channel.held
        if not text:
            return
        changed = yield from self._looked(text)
        if changed != text and channel.fixed:
            self._refuse("redact_not_possible")
        channel.let_pass(changed, self._overlap, self._window, final=final)

    def _looked(self, text: str) -> Generator[Question, Verdict | None, str]:
        """Ask the gates about a text, one after the other; return what they make of it."""
        for gate in self._gates:
            text = yield from self._ask(Question(gate, self._proposal, text), text)
        return text

    def _ask(self, question: Question, text: str) -> Generator[Question, Verdict | None, str]:
        started = time.time_ns()
        verdict = yield question
        gate = question.gate
        if verdict is None:
            if question.text is None:
                return text
            verdict = _ALLOWED
        enforced = gate.mode == "enforce" and verdict.enforced
        if verdict.outcome == "redact" and (verdict.replacement is None or question.text is None):
            verdict = refused_redaction(verdict)
        if verdict.outcome == "retry" and enforced and (self.released or not self.may_retry):
            verdict = refused_retry(verdict)
        step = self._noted(gate, verdict, started, enforced=enforced)
        if enforced and verdict.outcome in STOPS:
            self._steps[id(gate)] = self._stopped = step
            raise _Stopped
        if enforced and verdict.outcome == "redact" and verdict.replacement is not None:
            return verdict.replacement.decode("utf-8", "surrogatepass")
        return text

    def _noted(self, gate: Gate, verdict: Verdict, started: int, *, enforced: bool) -> Step:
        """Take note of what a gate says: its strictest word is its decision on the stream."""
        before = self._steps.get(id(gate))
        step = Step(gate, verdict, started if before is None else before.started_ns, enforced)
        crash = verdict.reason == "gate_error" and before is not None
        if before is None or _strictness(verdict) > _strictness(before.verdict) - crash:
            self._steps[id(gate)] = step
        return step

    def _refuse(self, reason: str) -> None:
        """A text was to be changed that cannot be: whoever wanted it denies."""
        for key, step in self._steps.items():
            if step.enforced and step.verdict.outcome == "redact":
                verdict = msgspec.structs.replace(step.verdict, outcome="deny", reason=reason)
                self._steps[key] = self._stopped = step._replace(verdict=verdict)
                raise _Stopped


def width_of(gate: Gate) -> int:
    """Return how many characters a gate looks at together; 0: it wants an answer as a whole."""
    width: Any = getattr(gate, "window", None)
    return width if isinstance(width, int) and width > 0 else 0


def knows(dialect: str) -> bool:
    """Tell whether streams of a wire format can be looked at by window."""
    return dialect in FORMATS


def _strictness(verdict: Verdict) -> int:
    return STRICTNESS.index(verdict.outcome)


def _difference(old: str, new: str) -> tuple[int, int, str | None]:
    """Return where two texts differ: from, up to (in the old one), and what is there instead."""
    if old == new:
        return len(old), len(old), None
    most = min(len(old), len(new))
    first = next((at for at in range(most) if old[at] != new[at]), most)
    same = 0
    while same < most - first and old[-1 - same] == new[-1 - same]:
        same += 1
    return first, len(old) - same, new[first : len(new) - same]


def _drop_logprobs(value: Any) -> None:
    """Take out what repeats a text that has been changed, token by token."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if members.get("logprobs"):
            members["logprobs"] = None
        for item in members.values():
            _drop_logprobs(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _drop_logprobs(item)
