"""Entry points for `opentelemetry-instrument`: Clew without a line of code.

The distro and the configurator make Clew's own tracer provider. Where another distribution's
configurator was chosen, the instrumentor entry point joins its provider. Set
OTEL_PYTHON_DISTRO=clew and OTEL_PYTHON_CONFIGURATOR=clew to choose when several are installed.
"""

from __future__ import annotations

import os
from typing import Any

from opentelemetry.instrumentation.distro import BaseDistro  # type: ignore[import-untyped]

from clew import patching, setup


class ClewDistro(BaseDistro):  # type: ignore[misc]
    """Chooses Clew's configurator, unless the environment chooses another."""

    def _configure(self, **kwargs: Any) -> None:
        os.environ.setdefault("OTEL_PYTHON_CONFIGURATOR", "clew")


class ClewConfigurator:
    """Makes Clew's tracer provider from the environment."""

    def configure(self, **kwargs: Any) -> None:
        """Configure Clew, as `clew.configure()` does."""
        setup.configure()


class ClewInstrumentor:
    """Installs the taps; joins the provider that is there when Clew has none yet."""

    def instrument(self, **kwargs: Any) -> None:
        """Configure and instrument, as the two functions of the facade do."""
        setup.configure()
        patching.instrument()

    def uninstrument(self, **kwargs: Any) -> None:
        """Take the taps off again."""
        patching.uninstrument()
