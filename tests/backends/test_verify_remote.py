"""Runs that come back from backends with column or JSON forms are proven there, too."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import agent_runs
import msgspec
import pytest
import stand_ins

from clew.audit.keys import KeyRing
from clew.audit.verify import verify
from clew.integrity import Key
from clew.pipeline import otlp_writer
from clew.sources import open_source
from clew.testing import OtlpSink


@pytest.mark.parametrize("kind", ["tempo", "clickhouse"])
def test_digests_survive_each_backend(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyed run verifies as signed; one fact that was changed there is named."""
    secret = "a secret of thirty-two bytes, or more"
    monkeypatch.setenv("CLEW_INTEGRITY_KEY", secret)
    with OtlpSink() as sink:
        run_id, exported = agent_runs.run_demo(sink.base_url)
    message = otlp_writer.encode(exported)
    if kind == "clickhouse":
        pytest.importorskip("chdb")
    backend = {"tempo": stand_ins.Tempo, "clickhouse": stand_ins.ClickHouse}[kind]
    ring = KeyRing([Key(secret.encode())])
    with (
        backend(message) as running,
        open_source(f"{kind}://{running.address}") as opened,
    ):
        record = opened.run(run_id.hex)
    report = verify(record, ring)
    assert ("COMPLETE", "SIGNED", ()) == (report.status, report.integrity, report.findings)
    spans = list(record.spans)
    place = next(i for i, span in enumerate(spans) if span.type == "decision")
    altered = {**spans[place].attributes, "clew.decision.reason": "another"}
    spans[place] = msgspec.structs.replace(spans[place], attributes=altered)
    report = verify(msgspec.structs.replace(record, spans=tuple(spans)), ring)
    assert ["ALTERED", [spans[place].span_id]] == [
        report.integrity,
        [each.span_id for each in report.findings],
    ]
