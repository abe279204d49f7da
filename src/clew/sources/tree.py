"""The spans of a run as a tree, in the order in which they are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from clew.store.records import RunRecord, SpanRecord


class Node(Struct, frozen=True, kw_only=True):
    """A span in its place: `depth` 0 is outermost."""

    span: SpanRecord
    depth: int
    orphan: bool = False
    """True where the span names a parent that is not there."""


class Section(Struct, frozen=True, kw_only=True):
    """One segment of a run (or all of a trace without segments), with a time axis of its own."""

    segment: int | None
    segment_id: str | None
    nodes: tuple[Node, ...]
    start_ns: int
    end_ns: int
    """The latest end, without marks: a seal comes seconds after everything else."""


def sections(record: RunRecord) -> tuple[Section, ...]:
    """Cut a run into its segments, each a tree in reading order."""
    groups: dict[tuple[int | None, str | None], list[Node]] = {}
    for tree in _trees(record.spans):
        outermost = tree[0].span
        groups.setdefault((outermost.segment, outermost.segment_id), []).extend(tree)
    return tuple(
        Section(
            segment=segment,
            segment_id=segment_id,
            nodes=tuple(nodes),
            start_ns=min(each.span.start_ns for each in nodes),
            end_ns=_end(nodes),
        )
        for (segment, segment_id), nodes in groups.items()
    )


def _end(nodes: Sequence[Node]) -> int:
    lasting = [each.span.end_ns for each in nodes if each.span.type != "event"]
    return max(lasting or [each.span.end_ns for each in nodes])


def _trees(spans: Sequence[SpanRecord]) -> list[list[Node]]:
    """Return each outermost span with what is below it; every span is in exactly one tree.

    `spans` are in order, so siblings stay in it. Spans that are their own ancestors would be
    reached from nowhere: the first of such a circle counts as outermost.
    """
    known = {each.span_id for each in spans}
    children: defaultdict[str | None, list[SpanRecord]] = defaultdict(list)
    for span in spans:
        children[span.parent_id].append(span)
    roots = [each for each in spans if each.parent_id is None or each.parent_id not in known]
    trees: list[list[Node]] = []
    reached: set[str] = set()
    for root in (*roots, *spans):
        if root.span_id in reached:
            continue
        tree: list[Node] = []
        waiting = [(root, 0)]
        while waiting:
            span, depth = waiting.pop()
            if span.span_id in reached:
                continue
            reached.add(span.span_id)
            orphan = depth == 0 and span.parent_id is not None
            tree.append(Node(span=span, depth=depth, orphan=orphan))
            waiting.extend((each, depth + 1) for each in reversed(children[span.span_id]))
        trees.append(tree)
    return trees
