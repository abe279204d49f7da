"""Templates of several kinds as one: a function from values by name to text."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from clew.errors import MissingExtraError

if TYPE_CHECKING:
    import jinja2

Renderer = Callable[[Mapping[str, Any]], str]
_SOURCES_KEPT = 256


def jinja(template: str | jinja2.Template) -> Renderer:
    """Return what renders a Jinja2 template.

    Args:
        template: a template of an environment of your own, or a source. A source is compiled with
            Jinja2's defaults, except that a variable that is not given is an error.

    Raises:
        MissingExtraError: Jinja2 is not installed.
        jinja2.TemplateSyntaxError: the source is none.
    """
    return _compiled(template).render if isinstance(template, str) else template.render


def named_fields(template: str) -> Renderer:
    """Return what fills in fields as `str.format_map` does."""
    return template.format_map


@functools.lru_cache(maxsize=_SOURCES_KEPT)
def _compiled(source: str) -> jinja2.Template:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise MissingExtraError("A Jinja2 template", "prompts") from None
    # What is rendered is a prompt and no page: nothing is escaped.
    return Environment(undefined=StrictUndefined, autoescape=False).from_string(source)  # noqa: S701
