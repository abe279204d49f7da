"""The seal of a segment: the last word about how many spans it has."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from clew import semconv
from clew.pipeline.late import totals_attributes
from clew.pipeline.runtime import Runtime
from clew.spans import Agent, Node, identifier, put


def seal_later(runtime: Runtime, agent_name: str, span: Span, agent: Agent) -> None:
    """Seal the segment after a grace for late spans; at shutdown at once."""
    segment = agent.segment
    root = span.get_span_context()
    name = identifier(agent_name, semconv.AGENT_NAME, "agent name")

    def seal() -> None:
        if segment.sealed:
            return
        segment.sealed = True
        spans = segment.last_seq
        still_open = tuple(segment.open_seqs)
        mark = Node()
        mark.agent = agent
        parent = trace.set_span_in_context(trace.NonRecordingSpan(root), Context())
        attributes = totals_attributes(segment)
        attributes[semconv.RUN_EVENT] = "sealed"
        attributes[semconv.AGENT_NAME] = name
        attributes[semconv.SEAL_SPANS] = spans - len(still_open)
        attributes[semconv.SEAL_LAST_SEQ] = spans
        put(attributes, semconv.SEAL_OPEN_SEQS, still_open)
        mark._begin_with(runtime, f"run_sealed {name}", attributes, parent=parent)
        mark._end_with({}, end_ns=mark.start_ns)
        runtime.segments.close(segment)

    runtime.worker.call_later(runtime.settings.seal_grace_s, seal, at_shutdown=True)
