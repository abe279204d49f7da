"""Questions that auditors ask, as SQL over the table `spans` (see `clew.audit.table`)."""

# ruff: noqa: S608 - the parts of the statements are constants
from __future__ import annotations

from typing import Final, NamedTuple


class Question(NamedTuple):
    """One named question; `:name` in the SQL stands for a filter, which is null when not given."""

    name: str
    help: str
    sql: str


_WHEN: Final = "strftime('%Y-%m-%dT%H:%M:%SZ', {column} / 1000000000, 'unixepoch')"
_START: Final = _WHEN.format(column="s.start_ns")
_FILTERS: Final = """
    AND (:tool IS NULL OR s.tool = :tool OR s.subject = :tool)
    AND (:model IS NULL OR s.model = :model OR s.subject = :model)
    AND (:gate IS NULL OR s.gate = :gate)
    AND (:data_class IS NULL OR s.data_class = :data_class)
    AND (:zone IS NULL OR s.trust_zone = :zone)
    AND (:tenant IS NULL OR r.tenant = :tenant)
    AND (:agent IS NULL OR r.agent = :agent)
    AND (:actor IS NULL OR r.actor = :actor)
"""
_RUNS: Final = """
WITH r AS (
    SELECT trace_id, min(agent) AS agent, max(actor) AS actor, max(tenant) AS tenant,
           max(configuration) AS configuration
    FROM spans WHERE root OR parent_id IS NULL GROUP BY trace_id
)
"""

QUESTIONS: Final = (
    Question(
        "denials",
        "Every denial, and the rule that made it.",
        f"""{_RUNS}
SELECT {_START} AS time, s.run_id AS run, r.agent, s.gate, s.reason, s.policy,
       s.policy_version AS version, s.subject, s.decided_by AS "by",
       CASE WHEN s.enforced THEN 'enforced' WHEN NOT s.enforced THEN 'observed' END AS mode,
       CASE WHEN s.executed THEN 'yes' WHEN NOT s.executed THEN 'no' END AS executed
FROM spans s LEFT JOIN r USING (trace_id)
WHERE s.outcome = 'deny' {_FILTERS}
ORDER BY s.start_ns, s.span_id""",
    ),
    Question(
        "observed",
        "Decisions in observe mode that would have stopped something.",
        f"""{_RUNS}
SELECT {_START} AS time, s.run_id AS run, r.agent, s.gate, s.outcome, s.reason, s.policy,
       s.policy_version AS version, s.subject
FROM spans s LEFT JOIN r USING (trace_id)
WHERE s.gate IS NOT NULL AND NOT s.enforced AND s.outcome <> 'allow' {_FILTERS}
ORDER BY s.start_ns, s.span_id""",
    ),
    Question(
        "approvals",
        "Who approved or refused what, after how long.",
        f"""{_RUNS}
SELECT {_START} AS time, s.run_id AS run, r.agent, s.outcome, s.reason, s.subject,
       s.actor AS approver, s.decided_by AS "by", round(s.wait_ms / 1000.0, 3) AS waited_s,
       s.subject_digest AS digest
FROM spans s LEFT JOIN r USING (trace_id)
WHERE (s.gate = 'approval' OR s.outcome = 'require_approval'
       OR s.decided_by IN ('self', 'second_person', 'initiator_unknown', 'unresolved'))
  AND coalesce(s.reason, '') <> 'not_needed' {_FILTERS}
ORDER BY s.start_ns, s.span_id""",
    ),
    Question(
        "touched",
        "Every run that touched a tool, a model, a data class or a trust zone.",
        f"""{_RUNS}
SELECT {_WHEN.format(column="min(s.start_ns)")} AS time, s.run_id AS run, r.agent, r.tenant,
       count(*) AS times, group_concat(DISTINCT s.tool) AS tools,
       group_concat(DISTINCT s.model) AS models, sum(s.failed) AS failed
FROM spans s LEFT JOIN r USING (trace_id)
WHERE (s.tool IS NOT NULL OR s.model IS NOT NULL OR s.data_class IS NOT NULL
       OR s.trust_zone IS NOT NULL) {_FILTERS}
GROUP BY s.trace_id, s.run_id, r.agent, r.tenant
ORDER BY min(s.start_ns), s.run_id""",
    ),
    Question(
        "content",
        "Runs with content captured, and who has read it.",
        f"""{_RUNS}, c AS (
    SELECT trace_id, run_id, max(capture_level) AS level, min(start_ns) AS start_ns
    FROM spans WHERE capture_level IN ('redacted', 'full') GROUP BY trace_id, run_id
)
SELECT {_WHEN.format(column="c.start_ns")} AS time, c.run_id AS run, r.agent, c.level,
       count(a.time_ns) AS readings, group_concat(DISTINCT a.reader) AS readers,
       {_WHEN.format(column="max(a.time_ns)")} AS last_read
FROM c LEFT JOIN r USING (trace_id) LEFT JOIN readings a ON a.run_id = c.run_id
WHERE (:tenant IS NULL OR r.tenant = :tenant) AND (:agent IS NULL OR r.agent = :agent)
GROUP BY c.trace_id, c.run_id, r.agent, c.level, c.start_ns
ORDER BY c.start_ns, c.run_id""",
    ),
    Question(
        "cost",
        "Cost and rounds by actor; the cost is a lower bound where some of it is unknown.",
        f"""{_RUNS}, p AS (
    SELECT trace_id, sum(segment_cost_usd) AS usd, sum(segment_rounds) AS rounds,
           sum(segment_cost_usd IS NULL OR run_status IS NULL) AS unknown
    FROM spans WHERE root GROUP BY trace_id
    UNION ALL
    SELECT trace_id, sum(cost_usd), count(*), sum(cost_usd IS NULL) FROM spans s
    WHERE model IS NOT NULL AND input_tokens IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM spans o WHERE o.root AND o.trace_id = s.trace_id)
    GROUP BY trace_id
)
SELECT r.actor, r.tenant, count(*) AS runs, sum(p.rounds) AS rounds,
       round(sum(p.usd), 9) AS cost_usd, sum(p.unknown) AS without_cost
FROM p LEFT JOIN r USING (trace_id)
WHERE (:tenant IS NULL OR r.tenant = :tenant) AND (:agent IS NULL OR r.agent = :agent)
  AND (:actor IS NULL OR r.actor = :actor)
GROUP BY r.actor, r.tenant ORDER BY cost_usd DESC, r.actor""",
    ),
    Question(
        "policies",
        "Runs that were decided on by a policy older than a version.",
        f"""{_RUNS}
SELECT {_WHEN.format(column="min(s.start_ns)")} AS time, s.run_id AS run, r.agent, s.policy,
       group_concat(DISTINCT s.policy_version) AS versions, count(*) AS decisions
FROM spans s LEFT JOIN r USING (trace_id)
WHERE s.gate IS NOT NULL AND s.policy IS NOT NULL
  AND (:policy IS NULL OR s.policy = :policy)
  AND (:older_than IS NULL OR s.policy_version IS NULL
       OR version_key(s.policy_version) < version_key(:older_than)) {_FILTERS}
GROUP BY s.trace_id, s.run_id, r.agent, s.policy
ORDER BY min(s.start_ns), s.run_id, s.policy""",
    ),
)
"""All of them; each is a command of `clew audit`."""

BY_NAME: Final = {each.name: each for each in QUESTIONS}
FILTERS: Final[tuple[str, ...]] = (
    "tool", "model", "gate", "data_class", "zone", "tenant", "agent", "actor", "policy",
    "older_than",
)  # fmt: skip
"""The filters that questions may have."""


def version_key(version: str | None) -> str | None:
    """Return a text by which versions sort: numbers inside as numbers, `2.10` behind `2.9`."""
    if version is None:
        return None
    parts: list[str] = []
    digits = ""
    for each in f"{version} ":
        if each.isascii() and each.isdigit():
            digits += each
            continue
        if digits:
            parts.append(digits.lstrip("0").rjust(20, "0"))
            digits = ""
        parts.append(each)
    return "".join(parts).rstrip()
