"""What is set up in this process: the provider, its sampler and processors, and the taps."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from clew import patching, setup
from clew.doctor.findings import Finding, note, ok, problem, warning
from clew.errors import ClewError
from clew.pipeline import runtime, sampling


def load(application: str) -> None:
    """Import a module as its process would; `module:function` calls the function, too.

    Raises:
        ClewError: it cannot be imported, or has no such function.
    """
    name, _, attribute = application.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
        if attribute:
            getattr(module, attribute)()
    except Exception as error:
        raise ClewError(
            f"{application} cannot be set up: {type(error).__name__}; --app takes a module that "
            "can be imported here, or module:function"
        ) from None


def examine() -> Iterator[Finding]:
    """Look at what is set up here."""
    current = runtime.get()
    provider = setup.unwrapped(trace.get_tracer_provider())
    if current is None:
        yield problem(
            "provider",
            "Clew is not configured in the application",
            "Call clew.configure() where the process starts",
        )
        return
    in_force, own = setup.provider_in_force()
    if own:
        yield ok("provider", "Clew has made the tracer provider")
    else:
        yield from _joined(in_force, exports=bool(setup.exporters_in_force()))
    if isinstance(provider, TracerProvider) and provider is not in_force:
        yield warning(
            "provider",
            "The process's tracer provider is not the one that Clew uses: spans of other libraries "
            "are not part of runs",
            "Set the other library up first, then call clew.configure()",
        )
    if in_force is not None:
        yield from _sampler(in_force)
        if own:
            yield from _foreign_processors(in_force)
    if not patching.is_active() and not patching.patched():
        yield warning(
            "taps",
            "Nothing is listened to: no round will be recorded",
            "Call clew.instrument(), or clew.instrument(client)",
        )
    else:
        yield ok("taps", f"{len(patching.patched())} places are listened to in the application")


def _joined(provider: TracerProvider | None, *, exports: bool) -> Iterator[Finding]:
    names = ", ".join(_processors(provider)) or "none"
    yield warning(
        "provider",
        "The application had a tracer provider already, and Clew has joined it: spans of other "
        f"libraries that leave by its processors ({names}) are outside Clew's allow-list",
        "Call clew.configure() first to have every span guarded",
    )
    if not exports and names == "none":
        yield problem(
            "exporter",
            "That provider has no processor, and Clew exports nothing: no span leaves",
            "Give clew.configure(span_exporters=[...])",
        )


def _processors(provider: Any) -> list[str]:
    """Return the types of the processors of a provider that are not Clew's."""
    both = getattr(provider, "_active_span_processor", None)
    found = getattr(both, "_span_processors", ())
    return [type(one).__name__ for one in found if not type(one).__module__.startswith("clew.")]


def _foreign_processors(provider: TracerProvider) -> Iterator[Finding]:
    names = _processors(provider)
    if names:
        yield warning(
            "provider",
            f"Others have added processors to Clew's provider: {', '.join(names)}. What they "
            "export is outside Clew's allow-list",
            "Give exporters to clew.configure(span_exporters=[...]) instead",
            processors=names,
        )


def _sampler(provider: TracerProvider) -> Iterator[Finding]:
    sampler = provider.sampler
    if sampling.harms_runs(sampler):
        yield problem(
            "sampler",
            "The provider samples by a ratio of the trace id: a uuid has its fixed bits there, so "
            "nearly all runs are kept, or none",
            "Use clew.pipeline.sampling.RunRatioSampler in its place",
            sampler=sampler.get_description(),
        )
    else:
        description = sampler.get_description()
        yield note("sampler", f"The provider's sampler is {description}", sampler=description)
