"""The schema of the store: numbered steps that are only ever appended to.

`clew.store.migrations` takes them.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Migration(NamedTuple):
    """One step; its number is its place in the list, from 1."""

    name: str
    statements: tuple[str, ...]


_OPERATION: Final = "json_extract(attributes, '$.\"gen_ai.operation.name\"')"
_IS_MODEL_CALL: Final = f"""
    {_OPERATION} IN (
        'chat', 'generate_content', 'text_completion', 'embeddings', 'rerank', 'image_generation',
        'transcription', 'speech', 'count_tokens', 'moderation', 'ocr', 'compaction',
        'create_cache', 'fetch_response'
    )
"""
"""Which spans were calls of a model when the step that asks for them was written."""
_MAY_COST: Final = f"""
    {_IS_MODEL_CALL} AND json_extract(attributes, '$."clew.aggregate"') IS NOT 1
    AND (
        cost_status IS NOT NULL OR cost_usd IS NOT NULL OR {_OPERATION} NOT IN (
            'count_tokens', 'moderation', 'compaction', 'create_cache', 'fetch_response'
        )
    )
"""

MIGRATIONS: Final = (
    Migration(
        "spans, resources, scopes and runs",
        (
            """
            CREATE TABLE resources (
                id INTEGER PRIMARY KEY,
                digest BLOB NOT NULL UNIQUE,
                service TEXT,
                record TEXT NOT NULL
            )
            """,
            """
            CREATE TABLE scopes (
                id INTEGER PRIMARY KEY,
                digest BLOB NOT NULL UNIQUE,
                name TEXT NOT NULL,
                record TEXT NOT NULL
            )
            """,
            """
            CREATE TABLE spans (
                id INTEGER PRIMARY KEY,
                trace_id BLOB NOT NULL,
                span_id BLOB NOT NULL,
                parent_id BLOB,
                digest BLOB NOT NULL,
                resource_id INTEGER NOT NULL,
                scope_id INTEGER NOT NULL,
                received_ns INTEGER NOT NULL,
                type TEXT NOT NULL,
                name TEXT NOT NULL,
                kind INTEGER NOT NULL,
                start_ns INTEGER NOT NULL,
                end_ns INTEGER NOT NULL,
                status INTEGER NOT NULL,
                error_type TEXT,
                segment_id TEXT,
                segment INTEGER,
                seq INTEGER,
                agent TEXT,
                agent_id TEXT,
                round INTEGER,
                provider TEXT,
                model TEXT,
                input_tokens INTEGER,
                output_tokens INTEGER,
                cache_read_tokens INTEGER,
                cache_write_tokens INTEGER,
                reasoning_tokens INTEGER,
                cost_usd REAL,
                cost_status TEXT,
                tool TEXT,
                tool_outcome TEXT,
                tool_effect TEXT,
                gate TEXT,
                outcome TEXT,
                reason TEXT,
                policy TEXT,
                policy_version TEXT,
                enforced INTEGER,
                executed INTEGER,
                subject TEXT,
                decided_by TEXT,
                data_class TEXT,
                trust_zone TEXT,
                attributes TEXT NOT NULL,
                rest TEXT
            )
            """,
            "CREATE UNIQUE INDEX spans_key ON spans (trace_id, span_id)",
            """
            CREATE INDEX spans_decisions ON spans (outcome, gate, start_ns)
            WHERE type = 'decision'
            """,
            "CREATE INDEX spans_tools ON spans (tool, start_ns) WHERE type = 'tool'",
            """
            CREATE TABLE span_conflicts (
                id INTEGER PRIMARY KEY,
                trace_id BLOB NOT NULL,
                span_id BLOB NOT NULL,
                digest BLOB NOT NULL,
                received_ns INTEGER NOT NULL,
                record TEXT NOT NULL,
                UNIQUE (trace_id, span_id, digest)
            )
            """,
            """
            CREATE TABLE runs (
                id INTEGER PRIMARY KEY,
                trace_id BLOB NOT NULL UNIQUE,
                is_run INTEGER NOT NULL,
                start_ns INTEGER NOT NULL,
                end_ns INTEGER NOT NULL,
                agent TEXT,
                service TEXT,
                status TEXT,
                tenant TEXT,
                conversation_id TEXT,
                denials INTEGER,
                errors INTEGER NOT NULL,
                input_tokens INTEGER,
                output_tokens INTEGER,
                cost_usd REAL,
                fold TEXT NOT NULL
            )
            """,
            "CREATE INDEX runs_by_time ON runs (is_run, start_ns, trace_id)",
            "CREATE INDEX runs_by_agent ON runs (agent, start_ns, trace_id)",
            "CREATE INDEX runs_by_status ON runs (status, start_ns, trace_id)",
            """
            CREATE INDEX runs_denied ON runs (start_ns, trace_id) WHERE denials > 0
            """,
            "CREATE INDEX runs_failed ON runs (start_ns, trace_id) WHERE errors > 0",
        ),
    ),
    Migration(
        "records of model calls",
        # Written so that it may run again over its own result.
        (
            """
            CREATE TABLE IF NOT EXISTS prompt_requests (
                request_id TEXT PRIMARY KEY,
                start_ns INTEGER NOT NULL,
                duration_ns INTEGER NOT NULL,
                level TEXT NOT NULL,
                operation TEXT NOT NULL,
                status TEXT NOT NULL,
                error_type TEXT,
                outcome TEXT,
                partial INTEGER NOT NULL,
                kind TEXT NOT NULL,
                run_id TEXT,
                trace_id TEXT,
                span_id TEXT,
                segment_id TEXT,
                round INTEGER,
                hop INTEGER,
                agent TEXT,
                agent_id TEXT,
                tenant TEXT,
                actor TEXT,
                configuration TEXT,
                conversation_id TEXT,
                service TEXT,
                trigger TEXT,
                message_id TEXT,
                parent TEXT,
                model TEXT,
                provider TEXT,
                answered TEXT,
                served_by TEXT,
                system_bytes INTEGER NOT NULL,
                system_chars INTEGER NOT NULL,
                system_digest TEXT,
                digest_key TEXT,
                history_length INTEGER,
                tool_count INTEGER,
                tool_chars INTEGER,
                request_bytes INTEGER,
                response_bytes INTEGER,
                finish_reason TEXT,
                input_tokens INTEGER,
                output_tokens INTEGER,
                cache_read_tokens INTEGER,
                cache_write_tokens INTEGER,
                reasoning_tokens INTEGER,
                cost_usd REAL,
                cost_status TEXT,
                attempts INTEGER NOT NULL,
                path TEXT,
                payload_bytes INTEGER NOT NULL,
                blocks TEXT NOT NULL,
                tools TEXT NOT NULL
            )
            """,
            "CREATE INDEX IF NOT EXISTS prompts_by_time ON prompt_requests (start_ns, request_id)",
            """
            CREATE INDEX IF NOT EXISTS prompts_by_agent
            ON prompt_requests (agent, start_ns, request_id)
            """,
            """
            CREATE INDEX IF NOT EXISTS prompts_by_tenant
            ON prompt_requests (tenant, start_ns, request_id)
            """,
            """
            CREATE INDEX IF NOT EXISTS prompts_by_conversation
            ON prompt_requests (conversation_id, start_ns, request_id)
            """,
            "CREATE INDEX IF NOT EXISTS prompts_by_run ON prompt_requests (run_id, start_ns)",
            "CREATE INDEX IF NOT EXISTS prompts_by_span ON prompt_requests (trace_id, span_id)",
            "CREATE INDEX IF NOT EXISTS prompts_by_message ON prompt_requests (message_id)",
        ),
    ),
    Migration(
        "snippets and skills",
        (
            """
            CREATE TABLE snippets (
                identifier TEXT PRIMARY KEY COLLATE NOCASE,
                name TEXT NOT NULL,
                description TEXT NOT NULL,
                text TEXT NOT NULL,
                tags TEXT NOT NULL,
                metadata TEXT NOT NULL,
                active INTEGER NOT NULL,
                hidden INTEGER NOT NULL,
                sorting INTEGER NOT NULL,
                data_class TEXT NOT NULL,
                changed_ns INTEGER NOT NULL
            )
            """,
            """
            CREATE TABLE skills (
                identifier TEXT NOT NULL COLLATE NOCASE,
                source TEXT NOT NULL COLLATE NOCASE,
                name TEXT NOT NULL,
                description TEXT NOT NULL,
                body TEXT NOT NULL,
                trust TEXT NOT NULL,
                checksum TEXT NOT NULL,
                enabled INTEGER NOT NULL,
                orphaned INTEGER NOT NULL,
                data_class TEXT NOT NULL,
                changed_ns INTEGER NOT NULL,
                PRIMARY KEY (source, identifier)
            )
            """,
        ),
    ),
    Migration(
        "search of runs, and costs",
        (
            "ALTER TABLE runs ADD COLUMN actor TEXT",
            """
            UPDATE runs SET actor = (
                SELECT json_extract(attributes, '$."clew.actor"') FROM spans
                WHERE spans.trace_id = runs.trace_id AND type IN ('run', 'event')
                    AND json_extract(attributes, '$."clew.actor"') IS NOT NULL
                ORDER BY spans.id LIMIT 1
            )
            """,
            "CREATE INDEX runs_by_tenant ON runs (tenant, start_ns, trace_id)",
            "CREATE INDEX runs_agents ON runs (tenant, agent)",
            "CREATE INDEX runs_by_actor ON runs (actor, start_ns, trace_id)",
            # Wide, so that a filter is answered from the index before a row is read.
            """
            CREATE INDEX runs_listed ON runs (
                start_ns, trace_id, is_run, cost_usd, status, agent, tenant, actor, denials, errors
            )
            """,
            """
            CREATE TABLE run_facets (
                kind TEXT NOT NULL,
                value TEXT NOT NULL,
                start_ns INTEGER NOT NULL,
                trace_id BLOB NOT NULL,
                PRIMARY KEY (kind, value, start_ns, trace_id)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX run_facets_run ON run_facets (trace_id)",
            """
            CREATE TABLE run_agents (
                trace_id BLOB NOT NULL,
                agent_id TEXT NOT NULL,
                agent TEXT NOT NULL,
                PRIMARY KEY (trace_id, agent_id)
            ) WITHOUT ROWID
            """,
            """
            CREATE TABLE run_costs (
                day INTEGER NOT NULL,
                trace_id BLOB NOT NULL,
                agent_id TEXT NOT NULL,
                model TEXT NOT NULL,
                calls INTEGER NOT NULL,
                unpriced INTEGER NOT NULL,
                unknown INTEGER NOT NULL,
                partial INTEGER NOT NULL,
                input_tokens INTEGER,
                output_tokens INTEGER,
                cost_usd REAL,
                PRIMARY KEY (day, trace_id, agent_id, model)
            ) WITHOUT ROWID
            """,
            "CREATE INDEX run_costs_run ON run_costs (trace_id)",
            f"""
            INSERT OR IGNORE INTO run_facets
            SELECT 'model', substr(spans.model, 1, 256), runs.start_ns, runs.trace_id
            FROM spans JOIN runs ON runs.trace_id = spans.trace_id
            WHERE spans.model IS NOT NULL AND {_IS_MODEL_CALL}
            """,  # noqa: S608 - our own words
            """
            INSERT OR IGNORE INTO run_facets
            SELECT 'tool', substr(tool, 1, 256), runs.start_ns, runs.trace_id
            FROM spans JOIN runs ON runs.trace_id = spans.trace_id
            WHERE type = 'tool' AND tool IS NOT NULL
            """,
            """
            INSERT OR IGNORE INTO run_facets
            SELECT kind, substr(value, 1, 256), start_ns, trace_id FROM (
                SELECT 'gate' AS kind, gate AS value, runs.start_ns, runs.trace_id
                FROM spans JOIN runs ON runs.trace_id = spans.trace_id WHERE type = 'decision'
                UNION
                SELECT 'outcome', outcome, runs.start_ns, runs.trace_id
                FROM spans JOIN runs ON runs.trace_id = spans.trace_id WHERE type = 'decision'
                UNION
                SELECT 'decision', outcome || ' ' || gate, runs.start_ns, runs.trace_id
                FROM spans JOIN runs ON runs.trace_id = spans.trace_id WHERE type = 'decision'
            ) WHERE value IS NOT NULL
            """,
            """
            INSERT OR IGNORE INTO run_agents
            SELECT trace_id, agent_id, agent FROM spans
            WHERE type IN ('run', 'agent', 'event')
                AND agent_id IS NOT NULL AND agent IS NOT NULL
            """,
            f"""
            INSERT OR IGNORE INTO run_costs
            SELECT start_ns / 86400000000000, trace_id, coalesce(agent_id, ''),
                coalesce(model, ''), count(*),
                sum(cost_usd IS NULL AND cost_status IS 'unpriced'),
                sum(cost_usd IS NULL AND cost_status IS NOT 'unpriced'),
                sum(cost_usd IS NOT NULL AND cost_status IS 'partial'),
                sum(input_tokens), sum(output_tokens), sum(cost_usd)
            FROM spans
            WHERE {_MAY_COST}
            GROUP BY 1, 2, 3, 4
            """,  # noqa: S608
        ),
    ),
    Migration(
        "groups of runs",
        (
            """
            CREATE TABLE run_groups (
                id INTEGER PRIMARY KEY,
                key TEXT NOT NULL UNIQUE,
                is_run INTEGER NOT NULL,
                agent TEXT,
                status TEXT,
                tenant TEXT,
                denied INTEGER NOT NULL,
                failed INTEGER NOT NULL,
                tool TEXT
            )
            """,
            """
            CREATE TABLE group_names (
                what TEXT NOT NULL,
                value TEXT NOT NULL,
                group_id INTEGER NOT NULL,
                PRIMARY KEY (what, value, group_id)
            ) WITHOUT ROWID
            """,
            """
            CREATE TABLE group_runs (
                group_id INTEGER NOT NULL,
                start_ns INTEGER NOT NULL,
                trace_id BLOB NOT NULL,
                cost_usd REAL,
                actor TEXT,
                PRIMARY KEY (group_id, start_ns, trace_id)
            ) WITHOUT ROWID
            """,
            """
            CREATE TABLE grouping AS
            WITH named AS (
                SELECT trace_id, start_ns, cost_usd, actor, is_run, agent, status, tenant,
                    coalesce(denials, 0) > 0 AS denied, errors > 0 AS failed,
                    (
                        SELECT json_group_array(json_array(kind, value)) FROM (
                            SELECT kind, value FROM run_facets f
                            WHERE f.trace_id = runs.trace_id AND kind <> 'tool'
                            ORDER BY kind, value
                        )
                    ) AS names
                FROM runs
            ), tools AS (
                SELECT named.*, NULL AS tool FROM named
                UNION ALL
                SELECT named.*, f.value FROM named
                JOIN run_facets f ON f.trace_id = named.trace_id AND f.kind = 'tool'
            )
            SELECT tools.*, json_array(
                is_run, agent, status, tenant, denied, failed, tool, json(names)
            ) AS key
            FROM tools
            """,
            """
            INSERT INTO run_groups (key, is_run, agent, status, tenant, denied, failed, tool)
            SELECT DISTINCT key, is_run, agent, status, tenant, denied, failed, tool FROM grouping
            """,
            """
            INSERT OR IGNORE INTO group_names
            SELECT json_extract(name.value, '$[0]'), json_extract(name.value, '$[1]'), g.id
            FROM run_groups g, json_each(g.key, '$[7]') name
            UNION
            SELECT 'tool', tool, id FROM run_groups WHERE tool IS NOT NULL
            """,
            """
            INSERT INTO group_runs
            SELECT g.id, start_ns, trace_id, cost_usd, actor
            FROM grouping JOIN run_groups g ON g.key = grouping.key
            ORDER BY 1, 2, 3
            """,
            "DROP TABLE grouping",
            """
            CREATE INDEX run_groups_all ON run_groups (
                tool, agent, status, is_run, tenant, denied, failed
            )
            """,
            "CREATE INDEX runs_by_cost ON runs (cost_usd, start_ns, trace_id)",
            "CREATE INDEX group_runs_run ON group_runs (trace_id)",
            "CREATE INDEX group_runs_cost ON group_runs (group_id, cost_usd)",
            "DROP TABLE run_facets",
            "DROP INDEX runs_by_agent",
            "DROP INDEX runs_by_status",
            "DROP INDEX runs_denied",
            "DROP INDEX runs_failed",
            "DROP INDEX runs_agents",
            "DROP INDEX runs_listed",
        ),
    ),
    Migration(
        "agents of costs",
        (
            "ALTER TABLE run_costs ADD COLUMN agent TEXT",
            """
            UPDATE run_costs SET agent = (
                SELECT a.agent FROM run_agents a
                WHERE a.trace_id = run_costs.trace_id AND a.agent_id = run_costs.agent_id
            )
            """,
            # Wide, and in the order of the sums: nothing is looked up, nothing sorted.
            """
            CREATE INDEX run_costs_sums ON run_costs (
                day, agent, model, calls, unpriced, unknown, partial,
                input_tokens, output_tokens, cost_usd
            )
            """,
        ),
    ),
)
