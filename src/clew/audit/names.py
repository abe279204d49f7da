"""What other instrumentations call the facts that Clew asks about.

So that an auditor's question covers services that do not run Clew too. The first name that is
there wins, ours first. Sources: the GenAI conventions of OpenTelemetry and their earlier versions,
OpenInference's and OpenLLMetry's semantic conventions, the Vercel AI SDK's telemetry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from clew import semconv

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "agent": (semconv.AGENT_NAME, "traceloop.entity.name", "agent.name", "graph.node.id"),
    "provider": (
        semconv.PROVIDER,
        "gen_ai.system",
        "llm.provider",
        "llm.system",
        "ai.model.provider",
    ),
    "model": (
        semconv.RESPONSE_MODEL,
        semconv.REQUEST_MODEL,
        "ai.response.model",
        "ai.model.id",
        "llm.response.model",
        "llm.request.model",
        "llm.model_name",
        "embedding.model_name",
    ),
    "tool": (semconv.TOOL_NAME, "tool.name", "ai.toolCall.name", "mcp.tool.name"),
    "input_tokens": (
        semconv.USAGE_INPUT,
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "llm.usage.prompt_tokens",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
    ),
    "output_tokens": (
        semconv.USAGE_OUTPUT,
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "llm.usage.completion_tokens",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
    ),
    "cache_read_tokens": (
        semconv.USAGE_CACHE_READ,
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
        "llm.usage.cache_read_input_tokens",
        "ai.usage.cachedInputTokens",
    ),
    "cache_write_tokens": (
        semconv.USAGE_CACHE_WRITE,
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
        "llm.usage.cache_creation_input_tokens",
    ),
    "cost_usd": (
        semconv.COST_USD,
        "llm.cost.total",
        "gen_ai.usage.cost",
        "gen_ai.cost.total_cost",
        "operation.cost",
    ),
    "conversation": (
        semconv.CONVERSATION_ID,
        "session.id",
        "gen_ai.thread.id",
        "traceloop.association.properties.session_id",
    ),
    "actor": (semconv.ACTOR, "user.id", "enduser.id", "traceloop.association.properties.user_id"),
    "tenant": (semconv.TENANT, "tenant.id"),
}
"""Names of each fact, by the column of the auditor's table."""


def first(attributes: Mapping[str, Any], column: str) -> Any:
    """Return the first of a fact's names that a span has; None if it has none."""
    for name in NAMES[column]:
        value = attributes.get(name)
        if value is not None:
            return value
    return None
