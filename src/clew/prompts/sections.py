"""What the sections of a prompt are, by their names: layer, stability and source.

`SECTIONS` is the table; `classify` adds to it. A name that is not in it is runtime, volatile and
live state: the most changeable, so that nothing unknown passes for stable.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from clew.errors import ConfigurationError
from clew.prompts.blocks import LAYERS, SOURCES, STABILITIES


class Kind(Struct, frozen=True, kw_only=True):
    """What a section is: one word each of `LAYERS`, `STABILITIES` and `SOURCES`.

    Raises:
        ConfigurationError: a word is in none of these sets.
    """

    layer: str
    stability: str
    source: str

    def __post_init__(self) -> None:
        for what, word, words in (
            ("layer", self.layer, LAYERS),
            ("stability", self.stability, STABILITIES),
            ("source", self.source, SOURCES),
        ):
            if word not in words:
                known = ", ".join(words)
                raise ConfigurationError(f"{what} {word!r} is unknown; give one of: {known}")


def _kind(layer: str, stability: str, source: str) -> Kind:
    return Kind(layer=layer, stability=stability, source=source)


UNKNOWN: Final = _kind("runtime", "volatile", "live_state")
"""The kind of a section whose name nobody has classified."""

TEMPLATE: Final = _kind("contract", "static", "template")
"""The kind of a template's own prose."""

_CONTRACT: Final = _kind("contract", "epoch", "config")
_CAPABILITY: Final = _kind("capabilities", "epoch", "config")
_STORED: Final = _kind("capabilities", "epoch", "store")
_REMEMBERED: Final = _kind("working", "volatile", "synthesis")
_RECENT: Final = _kind("working", "volatile", "store")
_LIVE: Final = _kind("runtime", "volatile", "store")

_sections: dict[str, Kind] = {
    "identity_context": _kind("identity", "epoch", "file"),
    "execution_mode": _CONTRACT,
    "authority": _CONTRACT,
    "adapter_prompt": _CONTRACT,
    "tool_use_enforcement": _CONTRACT,
    "skills_prompt": _CAPABILITY,
    "worker_capabilities": _CAPABILITY,
    "required_skills": _CAPABILITY,
    "agents_manifest": _CAPABILITY,
    "runtime_config_snapshot": _CAPABILITY,
    "available_channels": _kind("capabilities", "volatile", "store"),
    "org_context": _STORED,
    "link_context": _STORED,
    "project_context": _STORED,
    "knowledge_synthesis": _kind("knowledge", "volatile", "synthesis"),
    "changelog_highlights": _kind("knowledge", "epoch", "config"),
    "working_memory": _REMEMBERED,
    "session_chronicle": _REMEMBERED,
    "channel_activity_map": _RECENT,
    "participant_context": _RECENT,
    "channel_transcript": _RECENT,
    "backfill_transcript": _kind("working", "epoch", "store"),
    "active_goals": _LIVE,
    "task_state": _LIVE,
    "active_workers": _LIVE,
    "conversation_context": _kind("runtime", "epoch", "live_state"),
    "status_text": _kind("runtime", "volatile", "live_state"),
}


def kind_of(name: str) -> Kind:
    """Return what the section of a name is; `UNKNOWN` where nobody has said."""
    return _sections.get(name, UNKNOWN)


def classify(name: str, *, layer: str, stability: str, source: str) -> None:
    """Say what the sections of a name are, in the whole process, from now on.

    Raises:
        ConfigurationError: a word is in none of the sets.
    """
    _sections[name] = _kind(layer, stability, source)


def classified() -> dict[str, Kind]:
    """Return a copy of the table, in the order in which names were added."""
    return dict(_sections)
