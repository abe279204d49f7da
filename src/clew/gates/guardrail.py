"""The guardrail gates: a function of yours looks at each text of a request, or of an answer.

    def no_keys(text: str) -> Verdict | None:
        if "sk-" in text:
            return redact(text.replace("sk-", "***"))

    Settings(gates=(InputGuardrail(no_keys), OutputGuardrail(no_keys)))

The strictest verdict on any text is the verdict on the whole: deny, require_approval, retry,
redact, allow. A redaction of a request changes what goes over the wire, before anything is signed;
where something has been signed, it denies (`redact_not_possible`). A streamed answer is looked at
by window (see `clew.governance.windows`).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import msgspec

from clew.content import framing
from clew.content.deltas import ECHOED
from clew.content.frames import Frames
from clew.content.texts import change, leaves
from clew.errors import ConfigurationError
from clew.gates.base import BaseGate
from clew.typing import GateMode, Proposal, Verdict

Look = Callable[[str], Verdict | None]
AsyncLook = Callable[[str], Awaitable[Verdict | None]]

_NOT_SYNCHRONOUS = "a guardrail with an asynchronous function was asked synchronously"
_STRICTNESS = ("allow", "redact", "retry", "require_approval", "deny")
_BESIDE = ECHOED | {":event-type", "p"}
"""What stands between the pieces of a streamed text: repetitions, names and padding."""


def redact(text: str, *, reason: str | None = None) -> Verdict:
    """Return a verdict that puts another text in the place of the one that was looked at."""
    return Verdict(
        outcome="redact", reason=reason, replacement=text.encode("utf-8", "surrogatepass")
    )


class _Texts:
    """The texts of a body, and what was said about them."""

    def __init__(self, body: bytes) -> None:
        self.streamed = False
        self.unreadable = False
        """Whether there is something that is neither JSON nor a stream of it."""
        try:
            self._document: Any = json.loads(body)
        except ValueError:
            self._document = _streamed(body)
            self.streamed = True
            self.unreadable = bool(body.strip()) and not self._document
        self.verdict: Verdict | None = None

    def __iter__(self) -> Iterator[str]:
        if self.streamed:
            joined = "".join(leaves(self._document, _BESIDE))
            if joined:
                yield joined
        else:
            yield from dict.fromkeys(leaves(self._document))

    def said(self, text: str, verdict: Verdict | None) -> None:
        """Take note of the verdict on one text."""
        if verdict is None:
            return
        if verdict.outcome == "redact" and not self.streamed and verdict.replacement is not None:
            replacement = verdict.replacement.decode("utf-8", "surrogatepass")
            if isinstance(self._document, str):
                self._document = replacement
            change(self._document, text, replacement)
        worst = self.verdict
        if worst is None or _STRICTNESS.index(verdict.outcome) > _STRICTNESS.index(worst.outcome):
            self.verdict = verdict

    def conclusion(self) -> Verdict:
        """Return the verdict on the whole."""
        verdict = self.verdict or Verdict(outcome="allow", reason="no_finding")
        if verdict.outcome == "redact" and self.streamed:
            verdict = msgspec.structs.replace(verdict, outcome="deny", reason="redact_not_possible")
        if verdict.outcome != "redact" or verdict.replacement is None:
            return msgspec.structs.replace(verdict, replacement=None)
        body = json.dumps(self._document, ensure_ascii=False, separators=(",", ":"))
        encoded = body.encode("utf-8", "backslashreplace")
        return msgspec.structs.replace(verdict, replacement=encoded)


def _streamed(body: bytes) -> list[Any]:
    """Return what the events of a stream carry: JSON, or text."""
    if body[:1] == b"\0":  # a frame of Amazon's begins with its length
        return list(framing.events_of("amazon.eventstream", body))
    frames = Frames(sse=body.lstrip()[:1] != b"{")
    found = [
        frame.document if frame.text is None else frame.text
        for frame in (*frames.feed(body), *frames.end())
    ]
    if any(found):
        return found
    try:
        return [body.decode()]  # plain text, as of a transcription
    except UnicodeDecodeError:
        return []


class _Guardrail(BaseGate):
    rank: ClassVar[int] = 70

    def __init__(
        self,
        look: Look | None = None,
        *,
        alook: AsyncLook | None = None,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        name: str | None = None,
        policy: str | None = None,
        policy_version: str | None = None,
    ) -> None:
        super().__init__(
            name=name,
            mode=mode,
            mandatory=mandatory,
            policy=policy,
            policy_version=policy_version,
        )
        self._look = look
        self._alook = alook

    def check(self, proposal: Proposal) -> Verdict | None:
        """Look at every text."""
        if self._look is None:
            raise TypeError(_NOT_SYNCHRONOUS)
        body = proposal.content() if proposal.content is not None else None
        if body is None:
            return self._unseen()
        texts = _Texts(body)
        if texts.unreadable:
            return self._unseen()
        for text in texts:
            texts.said(text, self._look(text))
        return texts.conclusion()

    async def acheck(self, proposal: Proposal) -> Verdict | None:
        """Look at every text, in asynchronous code."""
        if self._alook is None:
            return self.check(proposal)
        body = proposal.content() if proposal.content is not None else None
        if body is None:
            return self._unseen()
        texts = _Texts(body)
        if texts.unreadable:
            return self._unseen()
        for text in texts:
            texts.said(text, await self._alook(text))
        return texts.conclusion()

    def _unseen(self) -> Verdict:
        outcome = "deny" if self.mandatory else "allow"
        return Verdict(outcome=outcome, reason="content_unavailable")


class InputGuardrail(_Guardrail):
    """Looks at the texts of a request before it is sent.

    Args:
        look: called with each text; returns a verdict (see `redact`), or None for no finding.
        alook: the same, awaited, for asynchronous code; synchronous code needs `look`.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`; a request whose body is not in memory is denied then
            (`content_unavailable`), and otherwise allowed.
        name: see `BaseGate`.
        policy: see `BaseGate`.
        policy_version: see `BaseGate`.
    """

    default_name: ClassVar[str] = "guardrail_input"
    kinds = frozenset({"model_input"})


class OutputGuardrail(_Guardrail):
    """Looks at the texts of an answer before the caller sees it.

    `retry` asks the model once more; a second `retry` denies. An enforced guardrail holds a stream
    back by `window` and `overlap`; one that observes looks at the same texts and holds nothing.

    Args:
        look: see `InputGuardrail`.
        alook: see `InputGuardrail`.
        mode: see `BaseGate`.
        mandatory: see `BaseGate`; an answer that cannot be looked at is denied then
            (`content_unavailable`), and otherwise allowed.
        name: see `BaseGate`.
        policy: see `BaseGate`.
        policy_version: see `BaseGate`.
        window: how many characters of a stream are looked at together; None: all of them.
        overlap: how many of these are held back and looked at again with what follows. What is
            looked for is found across a border if it is not longer.

    Raises:
        ConfigurationError: an unknown mode, an empty window or a negative overlap.
    """

    default_name: ClassVar[str] = "guardrail_output"
    kinds = frozenset({"model_output"})

    def __init__(
        self,
        look: Look | None = None,
        *,
        alook: AsyncLook | None = None,
        mode: GateMode = "enforce",
        mandatory: bool = True,
        name: str | None = None,
        policy: str | None = None,
        policy_version: str | None = None,
        window: int | None = 512,
        overlap: int = 256,
    ) -> None:
        super().__init__(
            look,
            alook=alook,
            mode=mode,
            mandatory=mandatory,
            name=name,
            policy=policy,
            policy_version=policy_version,
        )
        if overlap < 0 or (window is not None and window < 1):
            raise ConfigurationError(
                f"a guardrail's window is {window!r} and its overlap {overlap!r}; "
                "give at least 1 and at least 0 characters"
            )
        self.window = window
        self.overlap = overlap

    def check_text(self, proposal: Proposal, text: str) -> Verdict | None:
        """Look at a part of a streamed answer."""
        del proposal
        if self._look is None:
            raise TypeError(_NOT_SYNCHRONOUS)
        return self._look(text)

    async def acheck_text(self, proposal: Proposal, text: str) -> Verdict | None:
        """Look at a part of a streamed answer, in asynchronous code."""
        if self._alook is None:
            return self.check_text(proposal, text)
        return await self._alook(text)
