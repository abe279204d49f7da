"""Prompts that know their parts: blocks, segmented prompts, snippets, skills."""

from __future__ import annotations

from clew.prompts.blocks import Block
from clew.prompts.sections import Kind, classify
from clew.prompts.segments import Prompt, Section

__all__ = ["Block", "Kind", "Prompt", "Section", "classify"]
