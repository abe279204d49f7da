"""What tests of an agent need: providers that answer by script, recordings, captured spans.

Everything here runs on loopback and in this process. `pytest_plugins = ["clew.testing.fixtures"]`
in a `conftest.py` brings the fixtures.
"""

from __future__ import annotations

from clew.testing.capture import CaptureExporter
from clew.testing.deterministic import CountingIds, SteppingClock
from clew.testing.loopback import LoopbackServer, ReceivedRequest
from clew.testing.mistral_format import MistralChatCompletions
from clew.testing.otlp_sink import OtlpSink
from clew.testing.provider import ScriptedProvider
from clew.testing.recordings import (
    RecordedExchange,
    RecordingError,
    find_recordings,
    read_recording,
)
from clew.testing.replay_server import RedirectedTransport, ReplayServer
from clew.testing.script import Reply, ScriptedError, ScriptedToolCall, sse
from clew.testing.session import captured
from clew.testing.wire import WireFormat

__all__ = [
    "CaptureExporter",
    "CountingIds",
    "LoopbackServer",
    "MistralChatCompletions",
    "OtlpSink",
    "ReceivedRequest",
    "RecordedExchange",
    "RecordingError",
    "RedirectedTransport",
    "ReplayServer",
    "Reply",
    "ScriptedError",
    "ScriptedProvider",
    "ScriptedToolCall",
    "SteppingClock",
    "WireFormat",
    "captured",
    "find_recordings",
    "read_recording",
    "sse",
]
