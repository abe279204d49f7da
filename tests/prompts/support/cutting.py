"""A template, and prompts cut into their blocks."""

from __future__ import annotations

import jinja2

from clew.prompts import Prompt

TEMPLATE = "You are é.\n\n{{ identity_context }}\n{% if limit %}At most {{ limit }}.{% endif %}\n\n{{ working_memory }}"


def cut(prompt: Prompt) -> list[tuple[str, str]]:
    """Return the id and the text of each block, cut out of the prompt's bytes."""
    data = prompt.encode()
    return [(block.id, data[block.start : block.end].decode()) for block in prompt.blocks]


def render(template: str, /, **values: object) -> str:
    """Render a template as somebody does who knows nothing of blocks."""
    strict = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701 - a prompt, no page
    return strict.from_string(template).render(values)
