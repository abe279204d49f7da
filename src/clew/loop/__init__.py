"""The bounded loop: a model, its tools, prompts put together once, and a trace of what happened.

from clew.loop import Loop, Tool
from clew.prompts.configuration import Configuration
from clew.providers import provider

configuration = Configuration(
    provider="openai", model="gpt-5-mini", prompt="Be brief.", tools=("find_parcel",)
)
loop = Loop(configuration, provider("openai"), tools=(Tool.of(find_parcel, effect="read_only"),))
print(loop.run("Where is parcel P-17?").text)
"""

from __future__ import annotations

from clew.loop.assembly import Assembly, Augmentation
from clew.loop.calls import Execution
from clew.loop.fence import Fence, FenceRefusedError, SqliteFence, Write
from clew.loop.loop import Loop, RunOptions
from clew.loop.plan import LoopLimits
from clew.loop.result import DryRun, InputWanted, LoopResult, Waiting
from clew.loop.state import StateError
from clew.loop.tools import Tool, ToolOutput
from clew.loop.trace import Step, StepNotSavedError, Trace
from clew.loop.window import Breakdown, Window

__all__ = [
    "Assembly",
    "Augmentation",
    "Breakdown",
    "DryRun",
    "Execution",
    "Fence",
    "FenceRefusedError",
    "InputWanted",
    "Loop",
    "LoopLimits",
    "LoopResult",
    "RunOptions",
    "SqliteFence",
    "StateError",
    "Step",
    "StepNotSavedError",
    "Tool",
    "ToolOutput",
    "Trace",
    "Waiting",
    "Window",
    "Write",
]
