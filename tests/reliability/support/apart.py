"""Functions that nothing can stand around, with the reason: they are not made to raise."""

from __future__ import annotations

_CHECKS = "checks what the caller gives: its errors are the caller's"
_ASKED = "gives the caller what it has asked for"
_PASSES = "is the passing on itself; all that it does beside that is guarded"
_ONCE = "is done once, when the service is loaded"
_CONTEXT = "reads, sets or resets a context variable"
_MADE = "only stores what it is given"
APART: dict[str, str] = {
    **dict.fromkeys(
        (
            "clew.taps.entries._entry", "clew.taps.entries._aentry",
            "clew.taps.governed.send", "clew.taps.governed.asend",
            "clew.taps.httpx._send", "clew.taps.httpx._asend", "clew.taps.httpx._transport",
            "clew.taps.httpx._respond_sync", "clew.taps.httpx._respond_async",
            "clew.taps.aiohttp.Content._reading", "clew.taps.aiohttp.Content._took",
            "clew.taps.aiohttp._look_at", "clew.streams.follow", "clew.streams.afollow",
            "clew.streams.StreamTap.take", "clew.streams.StreamTap.exhausted",
            "clew.tools.ToolCall.admit", "clew.tools.ToolCall.aadmit",
            "clew.tools.ToolCall._write_down",
            "clew.governance.governor.Governor.admit_tool",
            "clew.governance.governor.Governor.aadmit_tool",
            "clew.governance.governor.Governor._admitted",
            "clew.governance.governor.Governor.of_tool",
            "clew.governance.governor.Governor.settle",
            "clew.governance.governor.Governor.ask", "clew.governance.governor.Governor.aask",
            "clew.governance.passages.governs",
            "clew.context.Block.__exit__", "clew.runs.Run.__enter__", "clew.runs.Run.begin",
            "clew.runs.Run.finish",
        ),
        _PASSES,
    ),
    **dict.fromkeys(
        (
            "clew.terms.checked", "clew.terms.identify", "clew.terms.Terms.uses",
            "clew.actors.Actor.of", "clew.levels.number_of", "clew.ids.parse_run_id",
            "clew.references.Reference.parse", "clew.runs.Run.__init__",
        ),
        _CHECKS,
    ),
    **dict.fromkeys(
        (
            "clew.runs.Run.totals", "clew.runs.Run.reference", "clew.references.Reference.__str__",
            "clew.terms.Terms.strictest", "clew.terms.Terms._chain", "clew.terms.Terms.copy",
            "clew.ids.fresh_run_id",
        ),
        _ASKED,
    ),
    **dict.fromkeys(
        (
            "clew.tools.ToolCall.__call__", "clew.wrapping.wrap_function", "clew.wrapping._plain",
            "clew.wrapping._coroutine", "clew.wrapping._generator",
            "clew.wrapping._async_generator",
        ),
        _ONCE,
    ),
    **dict.fromkeys(
        (
            "clew.attempts.LogicalCall.__init__", "clew.exchange.Exchange.context",
            "clew.exchange.is_covered", "clew.exchange.active_exchange",
            "clew.attempts.current_call", "clew.attempts.is_sent_again",
            "clew.context.Stepper.enter", "clew.context.Stepper.leave",
            "clew.context.node_in", "clew.context.detach",
        ),
        _CONTEXT,
    ),
    **dict.fromkeys(
        (
            "clew.spans.Node.__init__", "clew.tools.ToolCall.__init__",
            "clew.decisions.Decision.__init__", "clew.capturing.Capture.__init__",
            "clew.terms.Terms.__init__", "clew.governance.governor.Result.__init__",
            "clew.governance.governor.governor_of",
        ),
        _MADE,
    ),
    "clew.spans.identifier": "is a part of a reference, which the caller has asked for",
    "clew.ids.random_64": "OpenTelemetry asks for ids, and there is no span without one",
    "clew.recording.recorder.Recorder.flush": "is called here by the test itself",
}  # fmt: skip
"""Functions that are left out, with the reason. Left out, too, is what only reads and stores, and
what is guarded as a whole: then what it calls raises in its place."""

DONE_ANEW = ("clew.content.listing.", "clew.redaction.Redactor.entry")
"""Where these fail the work is done once more in another way: nothing is lost, none is counted."""
