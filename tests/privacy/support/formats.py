"""Every wire format, written with a marker word in each place that content can stand."""

from __future__ import annotations

from amazon_formats import AMAZON_FORMATS
from anthropic_formats import ANTHROPIC_FORMATS
from gemini_formats import GEMINI_FORMATS
from openai_formats import OPENAI_FORMATS
from other_formats import OTHER_FORMATS

FORMATS = (
    *OPENAI_FORMATS,
    *ANTHROPIC_FORMATS,
    *GEMINI_FORMATS,
    *OTHER_FORMATS,
    *AMAZON_FORMATS,
)
