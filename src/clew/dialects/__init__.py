"""What each provider's wire format means: bytes in, facts out. Pure, without spans or I/O."""

from __future__ import annotations

from clew.dialects.routes import recognise

__all__ = ["recognise"]
