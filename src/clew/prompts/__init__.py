"""Prompts that know their parts: blocks, segmented prompts, snippets, skills."""
