"""The guardrail gates: a function of yours looks at each text of a request, or of an answer.

    def no_keys(text: str) -> Verdict | None:
        if "sk-" in text:
            return redact(text.replace("sk-", "***"))

    Settings(gates=(InputGuardrail(no_keys), OutputGuardrail(no_keys)))

The strictest verdict on any text is the verdict on the whole: deny, require_approval, retry,
redact, allow. A redaction of a request changes what goes over the wire, before anything is signed;
where something has been signed, it denies (`redact_not_possible`). A streamed answer is looked at
as a whole: an enforced guardrail holds it back until then, and denies what it would redact.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar, cast

import msgspec

from clew.gates.base import BaseGate
from clew.typing import GateMode, Proposal, Verdict

Look = Callable[[str], Verdict | None]
AsyncLook = Callable[[str], Awaitable[Verdict | None]]

_STRICTNESS = ("allow", "redact", "retry", "require_approval", "deny")
_NO_CONTENT = frozenset(
    {
        "call_id",
        "cache_control",
        "created",
        "encoding_format",
        "finish_reason",
        "finishReason",
        "id",
        "media_type",
        "mimeType",
        "model",
        "modelVersion",
        "name",
        "object",
        "responseId",
        "role",
        "service_tier",
        "status",
        "stop_reason",
        "system_fingerprint",
        "tool_call_id",
        "tool_use_id",
        "type",
        "usage",
    }
)
"""Members of requests and answers that hold identifiers and words of the protocol."""


def redact(text: str, *, reason: str | None = None) -> Verdict:
    """Return a verdict that puts another text in the place of the one that was looked at."""
    return Verdict(outcome="redact", reason=reason, replacement=text.encode())


class _Texts:
    """The texts of a body, and what was said about them."""

    def __init__(self, body: bytes) -> None:
        self.streamed = False
        try:
            self._document: Any = json.loads(body)
        except ValueError:
            self._document = _streamed(body)
            self.streamed = True
        self.verdict: Verdict | None = None

    def __iter__(self) -> Iterator[str]:
        if self.streamed:
            joined = "".join(_leaves(self._document))
            if joined:
                yield joined
        else:
            yield from dict.fromkeys(_leaves(self._document))

    def said(self, text: str, verdict: Verdict | None) -> None:
        """Take note of the verdict on one text."""
        if verdict is None:
            return
        if verdict.outcome == "redact" and not self.streamed and verdict.replacement is not None:
            replacement = verdict.replacement.decode()
            self._document = _changed(self._document, text, replacement)
        worst = self.verdict
        if worst is None or _STRICTNESS.index(verdict.outcome) > _STRICTNESS.index(worst.outcome):
            self.verdict = verdict

    def conclusion(self) -> Verdict:
        """Return the verdict on the whole."""
        verdict = self.verdict or Verdict(outcome="allow", reason="no_finding")
        if verdict.outcome != "redact" or verdict.replacement is None:
            return msgspec.structs.replace(verdict, replacement=None)
        body = json.dumps(self._document, ensure_ascii=False, separators=(",", ":"))
        encoded = body.encode("utf-8", "backslashreplace")
        return msgspec.structs.replace(verdict, replacement=encoded)


def _streamed(body: bytes) -> list[Any]:
    """Return the events of a stream, as far as they are JSON."""
    events: list[Any] = []
    for line in body.split(b"\n"):
        data = line.removeprefix(b"data:").strip()
        if data.startswith((b"{", b"[")):
            try:
                events.append(json.loads(data))
            except ValueError:
                continue
    return events


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            if key not in _NO_CONTENT or isinstance(item, dict | list):
                yield from _leaves(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _leaves(item)


def _changed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return new if value == old else value
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {
            key: item
            if key in _NO_CONTENT and not isinstance(item, dict | list)
            else _changed(item, old, new)
            for key, item in members.items()
        }
    if isinstance(value, list):
        return [_changed(item, old, new) for item in cast("list[Any]", value)]
    return value


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
            raise TypeError("a guardrail with an asynchronous function was asked synchronously")
        body = proposal.content() if proposal.content is not None else None
        if body is None:
            return self._unseen()
        texts = _Texts(body)
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

    `retry` asks the model once more; a second `retry` denies. The arguments are those of
    `InputGuardrail`.
    """

    default_name: ClassVar[str] = "guardrail_output"
    kinds = frozenset({"model_output"})
