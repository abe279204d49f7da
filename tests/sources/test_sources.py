"""Sources: the same runs, whatever they are read from."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_messages
import sample_runs

from clew.errors import ClewError, StoreError
from clew.sources import AmbiguousRunError, RunNotFoundError, Source, open_source, resolve
from clew.store import otlp_json
from clew.store.otlp import OtlpError
from clew.store.records import Page, RunFilter
from clew.store.writer import Writer

START = sample_runs.START_NS
RUNS = (
    sample_runs.triage("11111111-0000-4000-8000-000000000001", base_ns=START),
    sample_runs.suspended("11112222-0000-4000-8000-000000000002", base_ns=START + 10**9),
    sample_runs.failed("22222222-0000-4000-8000-000000000003", base_ns=START + 2 * 10**9),
    sample_runs.foreign("33333333-0000-4000-8000-000000000004", base_ns=START + 3 * 10**9),
)


@pytest.fixture(params=["store", "one document", "one indented document", "lines"])
def source(request: pytest.FixtureRequest, store_file: Path, tmp_path: Path) -> Iterator[Source]:
    """The same four runs, the first one sent twice, behind each kind of source."""
    sent = (*RUNS, RUNS[0])
    file = tmp_path / "runs.json"
    match request.param:
        case "store":
            writer = Writer(store_file)
            writer.write(otlp_json.decode(sample_messages.otlp_json(*sent)).spans)
            writer.close()
            address = f"store://{store_file}"
        case "lines":
            file.write_bytes(b"\n".join(sample_messages.otlp_json(each) for each in sent) + b"\n")
            address = str(file)
        case indent:
            document = sample_messages.document(*sent)
            file.write_text(json.dumps(document, indent=2 if "indented" in indent else None))
            address = f"file://{file}"
    with open_source(address) as opened:
        yield opened


def test_every_source_shows_the_same_runs(source: Source) -> None:
    """Lists, filters and pages agree, whatever the source."""
    everything = source.runs(RunFilter(everything=True), Page()).runs
    assert [each.trace_id for each in reversed(RUNS)] == [each.trace_id for each in everything]
    listed = source.runs(RunFilter(), Page()).runs
    assert everything[1:] == listed
    first = source.runs(RunFilter(), Page(limit=2))
    second = source.runs(RunFilter(), Page(limit=2, after=first.next))
    assert (listed, None) == (first.runs + second.runs, second.next)
    failed = source.runs(RunFilter(status="failed"), Page()).runs
    assert ["nightly-report"] == [each.agent for each in failed]


def test_every_source_shows_the_same_spans(source: Source) -> None:
    """One run has all its spans in order, and its copies are counted."""
    expected = RUNS[0]
    record = source.run(expected.trace_id)
    assert [each.span_id for each in expected.spans] == [each.span_id for each in record.spans]
    assert len(expected.spans) == record.summary.duplicates
    assert ("completed", 4, 9150, 0.031872) == (
        record.summary.status,
        record.summary.rounds,
        record.summary.input_tokens,
        record.summary.cost_usd,
    )


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("22222222-0000-4000-8000-000000000003", 2),
        ("22222222000040008000000000000003", 2),
        (" 22222222-0000-4000-8000-000000000003 ", 2),
        ("2", 2),
        ("22222222-00", 2),
        ("11111", 0),
        ("1111-2", 1),
        ("AAAA", None),
        ("11112222-0000-4000-8000-000000000003", None),
        ("nonsense", None),
        ("", None),
        ("2" * 33, None),
    ],
)
def test_runs_are_named_by_uuid_or_beginning(
    source: Source, reference: str, found: int | None
) -> None:
    """A uuid with or without dashes, or an unambiguous beginning, finds the run."""
    if found is None:
        with pytest.raises(RunNotFoundError):
            resolve(source, reference)
    else:
        assert RUNS[found].trace_id == resolve(source, reference)


def test_an_ambiguous_beginning_lists_the_candidates(source: Source) -> None:
    """Several matches are an error of their own, which names them."""
    with pytest.raises(AmbiguousRunError) as caught:
        resolve(source, "1111")
    assert RUNS[0].run_id in str(caught.value)
    assert RUNS[1].run_id in str(caught.value)


def test_an_unknown_run_is_not_found(source: Source) -> None:
    """Asking for a run by a full id that is not there is `RunNotFoundError`."""
    with pytest.raises(RunNotFoundError):
        source.run("f" * 32)


def test_an_unreadable_store_is_a_third_error(store_file: Path) -> None:
    """No store is `StoreError`, which is neither missing nor ambiguous."""
    with pytest.raises(StoreError, match="there is no store"):
        open_source(f"store://{store_file}")


def test_the_store_is_found_by_its_folder_and_by_default(
    store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`store://FOLDER` and no address at all open `clew.db` in the folder."""
    writer = Writer(store_file)
    writer.write(otlp_json.decode(sample_messages.otlp_json(RUNS[0])).spans)
    writer.close()
    monkeypatch.setenv("CLEW_DATA_DIR", str(store_file.parent))
    for address in (f"store://{store_file.parent}", "store://", None):
        with open_source(address) as source:
            assert (RUNS[0].trace_id,) == source.find("1", 5)


def test_an_unknown_scheme_names_the_known_ones() -> None:
    """A source that does not exist is an error that lists what does."""
    with pytest.raises(ClewError, match=r"store://.*file://"):
        open_source("carrier-pigeon://x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not OTLP in JSON"),
        (b"hello", "not OTLP in JSON"),
        (b'{"resourceSpans": []}\nhello\n', "line 2"),
        (b'{"resourceSpans": \n{"resourceSpans": []}\n', "line 1"),
        (b'{\n  "resourceSpans": [\n', "not OTLP in JSON"),
        (b"\x00" * 100, "not OTLP in JSON"),
    ],
)
def test_a_file_that_is_no_otlp_says_where(tmp_path: Path, content: bytes, message: str) -> None:
    """A bad file is a clear error that names the file, and the line where it has lines."""
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    with pytest.raises(OtlpError, match=message) as caught:
        open_source(str(file))
    assert str(file) in str(caught.value)


def test_empty_lines_metrics_and_a_byte_order_mark_are_skipped(tmp_path: Path) -> None:
    """What a collector or an editor puts into such a file does not disturb."""
    file = tmp_path / "runs.jsonl"
    run = sample_messages.otlp_json(RUNS[0])
    file.write_bytes(b'\xef\xbb\xbf{"resourceMetrics": []}\n\n' + run + b"\n  \n")
    with open_source(str(file)) as source:
        assert (RUNS[0].trace_id,) == source.find("", 5)


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path, name: str) -> None:
    """A missing file or a folder is named, with the reason."""
    with pytest.raises(ClewError, match="cannot be read"):
        open_source(str(tmp_path / name))


def test_another_version_of_a_span_is_kept_beside(tmp_path: Path) -> None:
    """In a file, too, the first version of a span stays and another one is a conflict."""
    run = sample_runs.running()
    first = sample_messages.otlp_json(run)
    run.spans[1].attributes["gen_ai.usage.input_tokens"] = 1
    second = sample_messages.otlp_json(run)
    file = tmp_path / "runs.jsonl"
    file.write_bytes(first + b"\n" + second + b"\n")
    with open_source(str(file)) as source:
        record = source.run(run.trace_id)
    assert (1, 1, 1200) == (
        record.summary.conflicts,
        record.summary.duplicates,
        record.summary.input_tokens,
    )
    assert 1 == record.conflicts[0].attributes["gen_ai.usage.input_tokens"]
