"""The agent that `clew demo` runs: a support desk that looks for a late parcel.

`models.py` talks to a model through the real SDK clients, `agent.py` is the agent, `script.py` is
what the scripted provider answers. Nothing in it is known to the rest of Clew.
"""

from __future__ import annotations

from clew.testing.demo.agent import Outcome, answer_customer
from clew.testing.demo.models import AnthropicModel, Model, OpenAIModel
from clew.testing.demo.script import CARRIER_MODEL, CARRIER_REPLIES, DESK_MODEL, DESK_REPLIES

__all__ = [
    "CARRIER_MODEL",
    "CARRIER_REPLIES",
    "DESK_MODEL",
    "DESK_REPLIES",
    "AnthropicModel",
    "Model",
    "OpenAIModel",
    "Outcome",
    "answer_customer",
]
