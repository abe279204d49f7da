"""Sections: which kinds the known ones have, and how others are classified."""

from __future__ import annotations

import pytest

from clew.errors import ConfigurationError
from clew.prompts import Kind, Prompt, Section, classify
from clew.prompts.sections import classified

KINDS = """
identity_context = identity/epoch/file
execution_mode, authority, adapter_prompt, tool_use_enforcement = contract/epoch/config
skills_prompt, worker_capabilities, required_skills, agents_manifest = capabilities/epoch/config
runtime_config_snapshot = capabilities/epoch/config
available_channels = capabilities/volatile/store
org_context, link_context, project_context = capabilities/epoch/store
knowledge_synthesis = knowledge/volatile/synthesis
changelog_highlights = knowledge/epoch/config
working_memory, session_chronicle = working/volatile/synthesis
channel_activity_map, participant_context, channel_transcript = working/volatile/store
backfill_transcript = working/epoch/store
active_goals, task_state, active_workers = runtime/volatile/store
conversation_context = runtime/epoch/live_state
status_text = runtime/volatile/live_state
"""


def test_the_kinds_of_the_known_sections():
    """Every name that is known has its layer, stability and source."""
    expected = {}
    for line in KINDS.strip().splitlines():
        names, _, words = line.partition(" = ")
        layer, stability, source = words.split("/")
        for name in names.split(", "):
            expected[name] = Kind(layer=layer, stability=stability, source=source)
    assert {name: kind for name, kind in classified().items() if name in expected} == expected


def test_an_unknown_section_is_visible_and_volatile():
    """A name that nobody has classified is runtime, volatile, live state; its block is there."""
    block = Prompt.of(never_heard_of="x").blocks[0]
    assert (block.id, block.layer, block.stability, block.source) == (
        "never_heard_of",
        "runtime",
        "volatile",
        "live_state",
    )


def test_sections_of_ones_own(monkeypatch):
    """A name can be classified for the process, or one section for itself."""
    from clew.prompts import sections

    monkeypatch.setattr(sections, "_sections", dict(sections._sections))
    classify("house_rules", layer="contract", stability="static", source="file")
    own = Kind(layer="working", stability="epoch", source="store")
    prompt = Prompt.of(house_rules="a", x=Section(text="b", kind=own)).append_section(
        "y", "c", kind=own
    )
    assert [(b.layer, b.stability, b.source) for b in prompt.blocks] == [
        ("contract", "static", "file"),
        ("working", "epoch", "store"),
        ("working", "epoch", "store"),
    ]
    with pytest.raises(ConfigurationError, match="layer 'identities' is unknown"):
        classify("x", layer="identities", stability="static", source="file")
    assert "x" not in classified()
