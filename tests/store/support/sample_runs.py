"""Runs as a service would send them, built by hand from the attribute contract."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from clew import semconv as s

START_NS = 1_796_119_200_000_000_000
"""2026-12-01T10:00:00Z"""
MS = 1_000_000
KINDS = {"internal": 1, "server": 2, "client": 3}


@dataclass
class Sent:
    """One span on its way to a receiver; times are milliseconds after `START_NS`."""

    run: Sample
    span_id: str
    parent_id: str
    name: str
    start_ms: float
    end_ms: float
    attributes: dict[str, Any]
    kind: str = "internal"
    scope: str = s.SCOPE
    status: int = 0
    events: list[tuple[str, float, dict[str, Any]]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)

    @property
    def start_ns(self) -> int:
        return self.run.base_ns + round(self.start_ms * MS)

    @property
    def end_ns(self) -> int:
        return self.run.base_ns + round(self.end_ms * MS)


class Sample:
    """A run under construction: hands out span ids and sequence numbers."""

    def __init__(
        self, run_id: str | None = None, *, service: str = "support-bot", base_ns: int = START_NS
    ) -> None:
        self.run_id = str(uuid.UUID(run_id)) if run_id else str(uuid.uuid4())
        self.trace_id = uuid.UUID(self.run_id).hex
        self.base_ns = base_ns
        self.resource = {"service.name": service, "service.instance.id": "i-1"}
        self.spans: list[Sent] = []
        self.segment = 1
        self.segment_id = f"{self.trace_id[:14]}01"
        self._seq = 0

    def next_segment(self) -> None:
        self.segment += 1
        self.segment_id = f"{self.trace_id[:14]}{self.segment:02x}"
        self._seq = 0

    def add(
        self,
        name: str,
        start_ms: float,
        end_ms: float,
        parent: Sent | None = None,
        attributes: dict[str, Any] | None = None,
        *,
        agent: str = "a" * 16,
        identity: bool = True,
        **more: Any,
    ) -> Sent:
        self._seq += 1
        stamp = {
            s.RUN_ID: self.run_id,
            s.SEGMENT_ID: self.segment_id,
            s.SEGMENT: self.segment,
            s.SEQ: self._seq,
            s.AGENT_ID: agent,
        }
        span = Sent(
            run=self,
            span_id=f"{uuid.UUID(self.run_id).int >> 100:04x}"[:4].rjust(4, "1")
            + f"{self.segment:04x}{self._seq:08x}",
            parent_id=parent.span_id if parent else "",
            name=name,
            start_ms=start_ms,
            end_ms=end_ms,
            attributes={**(stamp if identity else {}), **(attributes or {})},
            **more,
        )
        self.spans.append(span)
        return span

    def root(self, agent: str, start: float, end: float, **totals: Any) -> Sent:
        attributes = {
            s.OPERATION: "invoke_agent",
            s.AGENT_NAME: agent,
            s.RUN_ROOT: True,
            s.CAPTURE_LEVEL: "metadata",
            **totals,
        }
        return self.add(f"invoke_agent {agent}", start, end, None, attributes)

    def mark(self, what: str, agent: str, at: float, parent: Sent, **more: Any) -> Sent:
        attributes = {
            s.OPERATION: "invoke_agent",
            s.AGENT_NAME: agent,
            s.RUN_EVENT: what,
            **more,
        }
        return self.add(f"run_{what} {agent}", at, at, parent, attributes)

    def model(
        self,
        number: int,
        start: float,
        end: float,
        parent: Sent,
        *,
        provider: str = "openai",
        model: str = "gpt-5-mini",
        tokens: tuple[int, int, int, int, int] = (1200, 180, 800, 0, 64),
        cost: float | None = 0.00123,
        agent: str = "a" * 16,
        status: int = 0,
        **more: Any,
    ) -> Sent:
        attributes = {
            s.OPERATION: "chat",
            s.PROVIDER: provider,
            s.REQUEST_MODEL: model,
            s.RESPONSE_MODEL: f"{model}-2026-08-07",
            s.RESPONSE_ID: f"resp_{number}",
            s.RESPONSE_FINISH_REASONS: ["tool_call"],
            s.ROUND: number,
            s.ATTEMPTS: 1,
            s.USAGE_INPUT: tokens[0],
            s.USAGE_OUTPUT: tokens[1],
            s.USAGE_CACHE_READ: tokens[2],
            s.USAGE_CACHE_WRITE: tokens[3],
            s.USAGE_REASONING: tokens[4],
            s.USAGE_SOURCE: "reported",
            s.COST_STATUS: "priced" if cost is not None else "unpriced",
            s.SERVER_ADDRESS: f"api.{provider}.com",
            s.SERVER_PORT: 443,
            s.HTTP_STATUS: 200,
            s.REQUEST_BYTES: 15_340,
            s.RESPONSE_BYTES: 912,
            **({s.COST_USD: cost} if cost is not None else {}),
            **more,
        }
        return self.add(
            f"chat {model}", start, end, parent, attributes,
            kind="client", agent=agent, status=status,
        )  # fmt: skip

    def tool(
        self, name: str, start: float, end: float, parent: Sent, outcome: str = "ok", **more: Any
    ) -> Sent:
        agent = more.pop("agent", "a" * 16)
        attributes = {
            s.OPERATION: "execute_tool",
            s.TOOL_NAME: name,
            s.TOOL_TYPE: "function",
            s.TOOL_CALL_ID: f"call_{name}",
            s.TOOL_OUTCOME: outcome,
            s.TOOL_EFFECT: "read_only",
            s.TOOL_ARGUMENTS_BYTES: 42,
            s.TOOL_RESULT_BYTES: 512,
            **more,
        }
        status = 2 if outcome in {"error", "timeout"} else 0
        return self.add(
            f"execute_tool {name}", start, end, parent, attributes, agent=agent, status=status
        )

    def decide(
        self, gate: str, outcome: str, at: float, parent: Sent, subject: str, reason: str
    ) -> Sent:
        attributes = {
            s.DECISION_ID: uuid.uuid5(uuid.NAMESPACE_OID, f"{gate}{at}{subject}").hex,
            s.DECISION_GATE: gate,
            s.DECISION_OUTCOME: outcome,
            s.DECISION_REASON: reason,
            s.DECISION_SUBJECT: subject,
            s.DECISION_POLICY: "support-policy",
            s.DECISION_POLICY_VERSION: "7",
            s.DECISION_BY: "policy",
            s.DECISION_ENFORCED: True,
            s.DECISION_EXECUTED: outcome == "allow",
        }
        return self.add(f"decide {gate}", at, at + 1.5, parent, attributes)


def totals(scope: str = "run", **values: Any) -> dict[str, Any]:
    """Totals of a run or a segment, by their short names."""
    return {f"clew.{scope}.{name.replace('__', '.')}": value for name, value in values.items()}


def triage(run_id: str | None = None, *, base_ns: int = START_NS) -> Sample:
    """A run with three rounds, tools, decisions, a subagent and spans of other libraries."""
    run = Sample(run_id, base_ns=base_ns)
    root = run.root(
        "triage", 0, 8420,
        **{
            s.RUN_STATUS: "completed", s.RUN_TERMINATION_REASON: "completed",
            s.CONVERSATION_ID: "conv-81", s.TENANT: "acme", s.CONFIGURATION: "support-v3",
        },
        **totals(
            rounds=4, tool_calls=4, decisions=4, denials=1, rounds_unpriced=0,
            rounds_without_usage=0, usage__input_tokens=9150, usage__output_tokens=1221,
            usage__cache_read_tokens=5200, usage__cache_write_tokens=1024,
            usage__reasoning_tokens=384, cost__usd=0.031872, cost__status="priced",
        ),
    )  # fmt: skip
    run.mark("started", "triage", 0.2, root)
    run.decide("guardrail_input", "allow", 1, root, "user_message", "clean")
    first = run.model(
        1, 12, 2140, root, tokens=(1850, 212, 800, 0, 128), cost=0.00214,
        **{
            s.ATTEMPTS: 2, s.ATTEMPT_WAIT_MS: 500.0, s.REQUEST_STREAM: True,
            s.STREAM_OUTCOME: "complete", s.STREAM_CHUNKS: 57,
            s.RESPONSE_TIME_TO_FIRST_CHUNK: 0.412,
        },
    )  # fmt: skip
    run.add(
        "POST", 14, 60, first, {"http.request.method": "POST", s.HTTP_STATUS: 429},
        kind="client", scope="opentelemetry.instrumentation.httpx", status=2,
    )  # fmt: skip
    run.add(
        "POST", 562, 2138, first, {"http.request.method": "POST", s.HTTP_STATUS: 200},
        kind="client", scope="opentelemetry.instrumentation.httpx",
    )  # fmt: skip
    run.decide("tool", "allow", 2144, root, "search_orders", "allowed")
    search = run.tool("search_orders", 2146, 2420, root)
    run.add(
        "SELECT shop.orders", 2150, 2398, search,
        {"db.system.name": "postgresql", "db.operation.name": "SELECT"},
        kind="client", scope="opentelemetry.instrumentation.psycopg",
    )  # fmt: skip
    run.decide("tool", "deny", 2424, root, "refund_payment", "trust_zone")
    run.tool(
        "refund_payment", 2426, 2427, root, "denied", **{s.TOOL_EFFECT: "non_idempotent_write"}
    )
    run.model(
        2, 2440, 4900, root, provider="anthropic", model="claude-sonnet-5",
        tokens=(3900, 420, 2600, 1024, 256), cost=0.0184,
    )  # fmt: skip
    delegate = run.tool("delegate", 4910, 6980, root)
    nested = run.add(
        "invoke_agent researcher", 4915, 6975, delegate,
        {s.OPERATION: "invoke_agent", s.AGENT_NAME: "researcher"}, agent="b" * 16,
    )  # fmt: skip
    run.model(1, 4920, 6100, nested, tokens=(1400, 189, 800, 0, 0), cost=0.00163, agent="b" * 16)
    run.tool(
        "fetch_page", 6110, 6970, nested, "error", agent="b" * 16, **{s.ERROR_TYPE: "TimeoutError"}
    )
    run.model(
        3, 6990, 8400, root, provider="anthropic", model="claude-sonnet-5",
        tokens=(2000, 400, 1000, 0, 0), cost=0.0097, **{s.RESPONSE_FINISH_REASONS: ["stop"]},
    )  # fmt: skip
    run.decide("guardrail_output", "redact", 8404, root, "answer", "secret_pattern")
    run.mark("sealed", "triage", 13_421, root, **{s.SEAL_SPANS: 20, s.SEAL_LAST_SEQ: 20})
    return run


def suspended(run_id: str | None = None, *, base_ns: int = START_NS) -> Sample:
    """A run that waited an hour for an approval and was resumed in another process."""
    run = Sample(run_id, service="refund-bot", base_ns=base_ns)
    first = run.root(
        "refunds", 0, 2200,
        **{s.RUN_STATUS: "waiting_for_approval"},
        **totals(rounds=1, tool_calls=1, decisions=1, denials=0, cost__usd=0.002,
                 cost__status="priced", usage__input_tokens=900, usage__output_tokens=80),
    )  # fmt: skip
    run.mark("started", "refunds", 0.1, first)
    run.model(1, 10, 2100, first, tokens=(900, 80, 0, 0, 0), cost=0.002)
    run.decide("approval", "require_approval", 2110, first, "refund_payment", "amount_over_limit")
    run.tool("refund_payment", 2112, 2112.5, first, "awaiting_approval")
    run.mark("sealed", "refunds", 7200, first)
    run.next_segment()
    hour = 3_600_000.0
    second = run.root(
        "refunds", hour, hour + 3100,
        **{s.RUN_STATUS: "completed", s.RUN_TERMINATION_REASON: "completed"},
        **totals(rounds=2, tool_calls=2, decisions=2, denials=0, cost__usd=0.005,
                 cost__status="partial", usage__input_tokens=2000, usage__output_tokens=150),
    )  # fmt: skip
    second.links.append((run.trace_id, first.span_id))
    run.mark("started", "refunds", hour + 0.1, second)
    run.decide("approval", "allow", hour + 2, second, "refund_payment", "approved")
    run.tool("refund_payment", hour + 5, hour + 640, second)
    run.model(2, hour + 650, hour + 3080, second, tokens=(1100, 70, 0, 0, 0), cost=0.003)
    run.mark("sealed", "refunds", hour + 8100, second)
    return run


def failed(run_id: str | None = None, *, base_ns: int = START_NS) -> Sample:
    """A run that ended with an error of the provider; its only round has no usage."""
    run = Sample(run_id, service="batch-jobs", base_ns=base_ns)
    root = run.root(
        "nightly-report", 0, 930,
        **{
            s.RUN_STATUS: "failed", s.RUN_TERMINATION_REASON: "provider_failed",
            s.ERROR_TYPE: "openai.InternalServerError",
        },
        **totals(rounds=1, tool_calls=0, decisions=0, denials=0, rounds_without_usage=1,
                 cost__status="unknown"),
    )  # fmt: skip
    root.status = 2
    run.mark("started", "nightly-report", 0.1, root)
    broken = run.add(
        "chat gpt-5-mini", 4, 925, root,
        {
            s.OPERATION: "chat", s.PROVIDER: "openai", s.REQUEST_MODEL: "gpt-5-mini",
            s.ROUND: 1, s.ATTEMPTS: 3, s.HTTP_STATUS: 503, s.ERROR_TYPE: "503",
            s.USAGE_SOURCE: "absent", s.COST_STATUS: "unknown",
        },
        kind="client", status=2,
    )  # fmt: skip
    broken.events.append(("exception", 925, {s.EXCEPTION_TYPE: "openai.InternalServerError"}))
    return run


def running(run_id: str | None = None, *, base_ns: int = START_NS) -> Sample:
    """A run whose start and first round have arrived, and nothing else yet."""
    run = Sample(run_id, service="support-bot", base_ns=base_ns)
    root = Sent(run, "9" * 16, "", "", 0, 0, {})
    run.mark("started", "triage", 0.1, root)
    run.model(1, 10, 900, root)
    return run


def foreign(trace_id: str | None = None, *, base_ns: int = START_NS) -> Sample:
    """A trace without any span of Clew."""
    run = Sample(trace_id, service="web", base_ns=base_ns)
    server = run.add(
        "GET /orders", 0, 120, None, {"http.request.method": "GET"},
        identity=False, kind="server", scope="opentelemetry.instrumentation.asgi",
    )  # fmt: skip
    run.add(
        "SELECT", 10, 90, server, {"db.system.name": "postgresql"},
        identity=False, kind="client", scope="opentelemetry.instrumentation.psycopg",
    )  # fmt: skip
    return run
