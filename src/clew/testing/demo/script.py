"""What the scripted provider says to the demo's agents, in the order in which they ask."""

from __future__ import annotations

from typing import Final

from clew.facts import Usage
from clew.testing.script import Reply, ScriptedToolCall

DESK_MODEL: Final = "gpt-5-mini"
CARRIER_MODEL: Final = "claude-haiku-4-5"

DESK_REPLIES: Final = (
    Reply.failure(429, "Rate limit reached. Try again in 150 ms.", retry_after_ms=150, delay=0.04),
    Reply(
        text="I am sorry that it is late. I look up your order first.",
        tool_calls=(ScriptedToolCall(name="find_order", arguments={"order": "20417"}),),
        usage=Usage(
            input_tokens=1243, cache_read_tokens=1024, output_tokens=94, reasoning_tokens=64
        ),
        model="gpt-5-mini-2025-08-07",
        delay=0.18,
        event_delay=0.012,
    ),
    Reply(
        text="The customer also asks for the money back. I try that.",
        tool_calls=(
            ScriptedToolCall(name="refund_order", arguments={"order": "20417", "euros": 64}),
        ),
        usage=Usage(
            input_tokens=1398, cache_read_tokens=1024, output_tokens=181, reasoning_tokens=128
        ),
        model="gpt-5-mini-2025-08-07",
        delay=0.31,
    ),
    Reply(
        text="A small voucher is due for the delay.",
        tool_calls=(
            ScriptedToolCall(name="send_voucher", arguments={"order": "20417", "euros": 5}),
        ),
        usage=Usage(
            input_tokens=1466, cache_read_tokens=1280, output_tokens=102, reasoning_tokens=64
        ),
        model="gpt-5-mini-2025-08-07",
        delay=0.22,
    ),
    Reply(
        text=(
            "Your parcel took a wrong van on Tuesday and waits in the Leeds depot. It comes "
            "tomorrow before noon, in time for the birthday on Friday. While it is on its way I "
            "cannot refund it; should it not arrive tomorrow, reply to this message and a "
            "colleague returns the full price. A voucher for the delay is in your mailbox."
        ),
        usage=Usage(
            input_tokens=1592, cache_read_tokens=1408, output_tokens=71, reasoning_tokens=0
        ),
        model="gpt-5-mini-2025-08-07",
        delay=0.16,
        event_delay=0.009,
    ),
)

CARRIER_REPLIES: Final = (
    Reply(
        text="I ask the carrier for the scans of this parcel.",
        tool_calls=(ScriptedToolCall(name="carrier_scans", arguments={"tracking": "HR550193"}),),
        usage=Usage(
            input_tokens=1892, cache_read_tokens=0, cache_write_tokens=1536, output_tokens=71
        ),
        model="claude-haiku-4-5-20251001",
        delay=0.14,
        event_delay=0.01,
    ),
    Reply(
        text=(
            "The parcel was sorted onto the wrong van on Tuesday and went back to the Leeds depot. "
            "It is on the first van tomorrow, Thursday, before noon. It is late, not lost."
        ),
        usage=Usage(
            input_tokens=2071, cache_read_tokens=1536, cache_write_tokens=0, output_tokens=58
        ),
        model="claude-haiku-4-5-20251001",
        delay=0.26,
    ),
)
