"""The fixtures, used as a user's test suite would use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import clew
from clew.testing import captured

CONFTEST = 'pytest_plugins = ["clew.testing.fixtures"]\n'
SUITE = """
import clew
import openai
from clew.testing import Reply


def test_one(clew_spans, scripted_provider):
    scripted_provider.add(Reply(text="hello"))
    client = openai.OpenAI(base_url=scripted_provider.openai_base_url, api_key="k")
    with clew.run("agent") as run, client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    (span,) = clew_spans.by_name("chat")
    assert span.context.trace_id == run.run_id.int


def test_two(clew_spans, otlp_sink):
    assert clew_spans.spans == ()
    assert otlp_sink.spans == ()
    with clew.run("agent"):
        pass
    assert clew_spans.by_name("invoke_agent")


def test_three():
    with clew.run("agent") as run:
        assert run.span.is_recording() is False
"""


def test_a_suite_of_a_user(tmp_path: Path):
    """The fixtures configure Clew for one test each and leave nothing behind."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_suite.py").write_text(SUITE)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:asyncio",
            "-p",
            "no:cacheprovider",
            tmp_path,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert "3 passed" in result.stdout


def test_two_sessions_at_once_are_refused():
    """A block inside a block says what to do."""
    with captured(), pytest.raises(RuntimeError, match="shutdown"), captured():
        pass


def test_a_session_after_a_session():
    """Each block has spans of its own, and settings of its own."""
    for name in ("one", "two"):
        with captured(service_name=name) as exporter:
            with clew.run("agent"):
                pass
            assert len(exporter.by_name("invoke_agent")) == 1
            assert {span.resource.attributes["service.name"] for span in exporter.spans} == {name}
