"""The local store: finished spans in one SQLite file, written by one thread, read by many.

- `records`: the frozen objects that every reader of runs shares.
- `otlp_protobuf`, `otlp_json`: OTLP messages to records (and back to JSON).
- `writer`: the one writer thread; `reader`: queries over a pool of read-only connections.
- `summary`: what a run is known by in a list, folded from its spans.
- `migrations`, `database`, `paths`: the file itself.

Attributes are kept whole; some are repeated in columns, for lists and questions.
"""
