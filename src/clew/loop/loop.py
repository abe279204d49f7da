"""The loop: a model, its tools, and a bound.

    loop = Loop(configuration, provider, tools=(Tool.of(find_parcel, effect="read_only"),))
    result = loop.run("Where is parcel P-17?", actor="ann")

A loop is constant; everything that changes belongs to one run. `run`, `resume` and `dry_run` have
asynchronous twins.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from clew import runs
from clew.actors import Actor
from clew.errors import ApprovalRequired, ConfigurationError, PolicyDenied
from clew.levels import LevelName
from clew.loop import dry, ops
from clew.loop.assembly import Assembly, Augmentation, assemble
from clew.loop.calls import Execution
from clew.loop.ending import Begun, result_of
from clew.loop.fence import Fence
from clew.loop.plan import LoopLimits, Plan
from clew.loop.recording import Recorder
from clew.loop.result import DryRun, LoopResult
from clew.loop.session import Session
from clew.loop.state import State, StateError
from clew.loop.tools import Tool
from clew.loop.trace import Trace
from clew.loop.window import Window
from clew.prompts.configuration import Configuration
from clew.prompts.repository import Repository
from clew.providers.base import CAPTURE_RAW, Message, Provider
from clew.providers.errors import ProviderError
from clew.tools import REGISTERED
from clew.typing import Gate

Question = str | Message | Sequence[Message]
DRY: Final = "dry_run"
_NOTHING: Final = Augmentation()
_OPTIONS: Final = frozenset(
    {"tool_choice", "max_tokens", "temperature", "top_p", "stop", "seed", "extra", "timeout"}
)


class RunOptions(Struct, frozen=True, kw_only=True):
    """Who a run is for and what is known about it; see `clew.run`."""

    run_id: uuid.UUID | str | None = None
    conversation_id: str | None = None
    actor: Actor | str | None = None
    tenant: str | None = None
    kind: str | None = None
    trigger: str | None = None
    message_id: str | None = None
    capture: LevelName | None = None


class Loop:
    """Asks a model, executes the tools that it asks for, and asks again, within bounds.

    Args:
        configuration: the model, the prompt, the names of the tools that are offered, the limits.
        provider: who is asked; a `FallbackProvider` for a chain. Its name need not be that in the
            configuration.
        tools: all tools that there are.
        repository: has the snippets and skills that the configuration selects.
        agent: name of the agent; by default the configuration's identifier.
        data_class: class of the configuration's own prompt, for the context gate.
        gates: gates for every run of this loop, on top of those of the settings.
        window: how the window fit is made; None: nothing is left out, whatever fits.
        limits: bounds beside those of the configuration.
        fence: notes writes; without one no tool that writes is executed.
        before_tool: called before every execution of a tool, never for a refused call, perhaps
            from several threads at once. What it raises refuses the call.
        stop_when_denied: whether a run ends with `approval_denied` when an approval was denied;
            otherwise the model is told, and goes on.
        stream: whether answers are streamed; `Trace` hears the text as it comes.
        options: of every request: `temperature`, `top_p`, `stop`, `seed`, `extra`, `timeout`,
            `max_tokens`, `tool_choice`.

    Raises:
        ConfigurationError: the configuration names a tool that is not there, two tools have one
            name, or there is no such option.
    """

    def __init__(
        self,
        configuration: Configuration,
        provider: Provider,
        *,
        tools: Sequence[Tool] = (),
        repository: Repository | None = None,
        agent: str | None = None,
        data_class: str | None = None,
        gates: Sequence[Gate] = (),
        window: Window | None = Window(),  # noqa: B008 - constant
        limits: LoopLimits = LoopLimits(),  # noqa: B008
        fence: Fence | None = None,
        before_tool: Callable[[Execution], object] | None = None,
        stop_when_denied: bool = False,
        stream: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._plan = Plan(
            configuration=configuration,
            provider=provider,
            tools=_by_name(tools, configuration),
            limits=limits,
            window=window,
            fence=fence,
            before_tool=before_tool,
            stop_when_denied=stop_when_denied,
            stream=stream,
            governed=bool(gates),
            options=_options(options),
        )
        self._repository = repository
        self._agent = agent or configuration.identifier
        self._data_class = data_class
        self._gates = tuple(gates)
        REGISTERED.update(self._plan.tools)

    # --- running -------------------------------------------------------------------------------

    def run(
        self,
        question: Question,
        *,
        augmentation: Augmentation = _NOTHING,
        options: RunOptions = RunOptions(),  # noqa: B008 - constant
        capture_raw: bool = False,
        trace: Trace | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> LoopResult:
        """Run once.

        Args:
            question: a text, a message, or a conversation; it is not changed.
            augmentation: what this run adds: a prompt, snippets, skills.
            options: who the run is for.
            capture_raw: whether raw answers are kept in the trace, where that is permitted (see
                `clew.providers.raw`).
            trace: records the steps.
            cancelled: asked before each step; the run ends when it returns True.

        Raises:
            ConfigurationError: gates are configured, and nobody would ask them.
            StepNotSavedError: see `Trace`.
        """
        begun = self._begin(
            question, augmentation, options, trace, capture_raw=capture_raw, cancelled=cancelled
        )
        try:
            with begun.run:
                ops.drive(begun.session.walk())
        except (PolicyDenied, ApprovalRequired, ProviderError) as error:
            return result_of(begun, error)
        return result_of(begun)

    async def arun(
        self,
        question: Question,
        *,
        augmentation: Augmentation = _NOTHING,
        options: RunOptions = RunOptions(),  # noqa: B008
        capture_raw: bool = False,
        trace: Trace | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> LoopResult:
        """Do what `run` does, in asynchronous code."""
        begun = self._begin(
            question, augmentation, options, trace, capture_raw=capture_raw, cancelled=cancelled
        )
        try:
            async with begun.run:
                await ops.adrive(begun.session.walk())
        except (PolicyDenied, ApprovalRequired, ProviderError) as error:
            return result_of(begun, error)
        return result_of(begun)

    def resume(
        self,
        state: bytes | str,
        *,
        actor: Actor | str | None = None,
        tenant: str | None = None,
        inputs: Mapping[str, Mapping[str, Any]] | None = None,
        digest: str | None = None,
        submitted_by: str | None = None,
        trace: Trace | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> LoopResult:
        """Go on with a run that waited, here or in another process.

        Tools are offered anew, under the gates as they are now. The messages are those that were
        put together when the run began, whatever has become of their sources.

        Args:
            state: `Waiting.state`.
            actor: who the run acts for; a state does not say.
            tenant: the tenant.
            inputs: what a person has given, by `InputWanted.key`.
            digest: `Waiting.digest` of what that person has seen; wanted with `inputs`.
            submitted_by: who gave it.
            trace: records the steps.
            cancelled: see `run`.

        Raises:
            StateError: the state cannot be read, or the input does not belong to it.
            ConfigurationError: see `run`.
        """
        begun = self._resume(state, actor, tenant, inputs, digest, submitted_by, trace, cancelled)
        try:
            with begun.run:
                ops.drive(begun.session.walk())
        except (PolicyDenied, ApprovalRequired, ProviderError) as error:
            return result_of(begun, error)
        return result_of(begun)

    async def aresume(
        self,
        state: bytes | str,
        *,
        actor: Actor | str | None = None,
        tenant: str | None = None,
        inputs: Mapping[str, Mapping[str, Any]] | None = None,
        digest: str | None = None,
        submitted_by: str | None = None,
        trace: Trace | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> LoopResult:
        """Do what `resume` does, in asynchronous code."""
        begun = self._resume(state, actor, tenant, inputs, digest, submitted_by, trace, cancelled)
        try:
            async with begun.run:
                await ops.adrive(begun.session.walk())
        except (PolicyDenied, ApprovalRequired, ProviderError) as error:
            return result_of(begun, error)
        return result_of(begun)

    def dry_run(
        self,
        question: Question,
        *,
        augmentation: Augmentation = _NOTHING,
        options: RunOptions = RunOptions(),  # noqa: B008
        trace: Trace | None = None,
    ) -> DryRun:
        """Return what round 1 would send; the provider is not called.

        The gates are asked what they would say, and told that nothing happened; nothing of that is
        recorded as a decision.
        """
        begun = self._begin(question, augmentation, options, trace, kind=DRY)
        with begun.run:
            return ops.drive(dry.walk(begun.session, begun.dropped))

    async def adry_run(
        self,
        question: Question,
        *,
        augmentation: Augmentation = _NOTHING,
        options: RunOptions = RunOptions(),  # noqa: B008
        trace: Trace | None = None,
    ) -> DryRun:
        """Do what `dry_run` does, in asynchronous code."""
        begun = self._begin(question, augmentation, options, trace, kind=DRY)
        async with begun.run:
            return await ops.adrive(dry.walk(begun.session, begun.dropped))

    def assemble(self, question: Question, augmentation: Augmentation = _NOTHING) -> Assembly:
        """Return the messages of a run, as they are before the window fit."""
        return assemble(
            self._plan.configuration,
            self._repository,
            question,
            augmentation,
            data_class=self._data_class,
        )

    # --- beginning -----------------------------------------------------------------------------

    def _begin(
        self,
        question: Question,
        augmentation: Augmentation,
        options: RunOptions,
        trace: Trace | None,
        *,
        capture_raw: bool = False,
        cancelled: Callable[[], bool] | None = None,
        kind: str | None = None,
    ) -> Begun:
        assembly = self.assemble(question, augmentation)
        run = runs.run(
            self._agent,
            run_id=options.run_id,
            conversation_id=options.conversation_id,
            actor=options.actor,
            tenant=options.tenant,
            configuration=self._plan.configuration.identifier,
            kind=kind or options.kind,
            trigger=options.trigger,
            message_id=options.message_id,
            gates=self._gates,
            capture=options.capture,
        )
        recorder = Recorder(trace)
        recorder.dropped(assembly.dropped)
        session = Session(
            self._plan,
            run,
            recorder,
            messages=assembly.messages,
            parts=assembly.parts,
            sources=assembly.sources,
            cancelled=cancelled,
            options={CAPTURE_RAW: True} if capture_raw is True else {},
        )
        return Begun(run, session, assembly.dropped)

    def _resume(
        self,
        data: bytes | str,
        actor: Actor | str | None,
        tenant: str | None,
        inputs: Mapping[str, Mapping[str, Any]] | None,
        digest: str | None,
        submitted_by: str | None,
        trace: Trace | None,
        cancelled: Callable[[], bool] | None,
    ) -> Begun:
        state = State.decode(data)
        if state.configuration != self._plan.configuration.identifier:
            raise StateError("other_configuration")
        given = state.accept(self._plan.schemas, inputs, digest)
        run = runs.resume(
            state.reference,
            actor=actor,
            tenant=tenant,
            configuration=self._plan.configuration.identifier,
            gates=self._gates,
        )
        session = Session(
            self._plan,
            run,
            Recorder(trace),
            messages=state.messages,
            parts=state.parts,
            sources=state.sources,
            cancelled=cancelled,
            options=state.options,
            state=state,
            submitted_by=submitted_by,
        )
        session.inputs |= given
        return Begun(run, session, ())


def _by_name(tools: Sequence[Tool], configuration: Configuration) -> dict[str, Tool]:
    found: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in found:
            raise ConfigurationError(f"two tools are called {tool.name!r}")
        found[tool.name] = tool
    missing = [name for name in configuration.tools if name not in found]
    if missing:
        known = ", ".join(map(repr, found)) or "none"
        raise ConfigurationError(
            f"the configuration {configuration.identifier!r} names the tools "
            f"{', '.join(map(repr, missing))}; there are: {known}"
        )
    return found


def _options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(options or {})
    unknown = sorted(set(given) - _OPTIONS)
    if unknown:
        raise ConfigurationError(f"there are no options {unknown}; give some of {sorted(_OPTIONS)}")
    return given
