"""A configuration that can be played: read from YAML, with its provider, tools, gates and rights.

    identifier: greeter
    provider: openai            # or anthropic, gemini, ..., or scripted
    base_url: http://127.0.0.1:8080/v1
    model: gpt-5-mini
    prompt: You greet people.
    tools: [is_leap_year]
    functions:
      - name: is_leap_year
        function: calendar:isleap
        effect: read_only

What is here is what the playground in the terminal and the one in the viewer have in common.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from clew.actors import Actor, ActorKind, may
from clew.errors import ClewError, ConfigurationError
from clew.gates.approval import ApprovalGate
from clew.gates.approval_store import SqliteApprovals
from clew.gates.context import ContextGate
from clew.gates.rules_file import RulesFileGate
from clew.loop.fence import SqliteFence
from clew.loop.loop import Loop
from clew.loop.result import LoopResult
from clew.loop.tools import Effect, Tool
from clew.loop.window import Window
from clew.prompts.configuration import Configuration
from clew.prompts.files import FileRepository
from clew.prompts.repository import MemoryRepository, Repository
from clew.providers import Choice, FallbackProvider, Provider, provider
from clew.store.paths import data_dir, prepare
from clew.store.snippets import SqliteRepository
from clew.typing import DATA_CLASSES, Gate

ACTION: Final = "configuration:use"
"""What somebody must be allowed to do with a configuration to play it."""
SCRIPTED: Final = "scripted"
"""The provider that answers by the configuration's own script, on loopback."""
STORE: Final = "store"

Scripted = Callable[[Sequence["ScriptedReply"]], AbstractContextManager[str]]
"""Starts a provider that answers these, in OpenAI's format; gives its `base_url`."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ScriptedCall(_Part):
    """A tool call that the scripted provider asks for."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class ScriptedReply(_Part):
    """One answer of the scripted provider; the last one is given to every further question."""

    text: str | None = None
    """`{question}` in it stands for the last message of the user."""
    tool_calls: tuple[ScriptedCall, ...] = ()
    status: int = 200
    """Another HTTP status makes it an error."""


class FunctionTool(_Part):
    """A tool: a function of an importable module."""

    name: str
    function: str
    """`module:name`."""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON Schema; by default made from the function's annotations."""
    effect: Effect = "non_idempotent_write"
    remote: bool = False
    input_schema: dict[str, Any] | None = None
    approval: bool = False
    """Whether each call waits for somebody's approval (`clew approvals`)."""

    def tool(self) -> Tool:
        """Return the tool.

        Raises:
            ConfigurationError: there is no such function.
        """
        function = self._load()
        more: dict[str, Any] = {
            "effect": self.effect,
            "remote": self.remote,
            "input_schema": self.input_schema,
        }
        if self.parameters is None:
            return Tool.of(function, name=self.name, description=self.description, **more)
        return Tool(
            name=self.name,
            function=function,
            description=self.description or "",
            parameters=self.parameters,
            **more,
        )

    def _load(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            kind = type(error).__name__
            raise ConfigurationError(
                f"tool {self.name!r} is {self.function!r}, which cannot be imported ({kind}): "
                "give module:function"
            ) from None
        if not callable(found):
            raise ConfigurationError(f"tool {self.name!r}: {self.function!r} is no function")
        return found


class ProviderChoice(_Part):
    """A further provider, for when the one before cannot answer."""

    provider: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    """Name of the environment variable that has the key, where `base_url` is not the provider's
    own address."""


class KnownActor(_Part):
    """Somebody who may be named with `--as`, and what they may do (see `clew.actors`)."""

    id: str
    kind: ActorKind = "human"
    admin: bool = False
    scopes: frozenset[str] = frozenset()
    grants: frozenset[str] = frozenset()


def _data_class(name: str) -> str:
    if name not in DATA_CLASSES:
        raise ValueError(f"give one of {', '.join(DATA_CLASSES)}")
    return name


class PlayConfiguration(Configuration):
    """A configuration, with everything that it takes to run it."""

    base_url: str | None = None
    """Another address that speaks the provider's API: any OpenAI-compatible server, with
    `provider: openai`."""
    api_key_env: str | None = None
    """Name of the environment variable that has the key for that address."""
    fallback: tuple[ProviderChoice, ...] = ()
    replies: tuple[ScriptedReply, ...] = ()
    """What the provider `scripted` answers; without any it repeats the question."""
    functions: tuple[FunctionTool, ...] = ()
    """Tools; `tools` names those that are offered."""
    library: str | None = None
    """A file or folder of snippets and skills beside this file, or `store`."""
    stream: bool = False
    """Whether answers are streamed."""
    context_length: int | None = None
    data_class: Annotated[str, AfterValidator(_data_class)] | None = None
    """Class of the prompt's own data."""
    rules: str | None = None
    """A rule file beside this file, see `clew.gates.rules_file`."""
    owner: str | None = None
    """Id of the person whose configuration this is; by default who owns the file."""
    actors: tuple[KnownActor, ...] = ()


def may_play(configuration: PlayConfiguration, path: Path, actor: Actor) -> bool:
    """Tell whether somebody may play a configuration that stands in this file."""
    return may(actor, ACTION, owner=configuration.owner or _owner_of(path))


def authorised(configuration: PlayConfiguration, path: Path, name: str | None) -> Actor:
    """Return who plays a configuration.

    Ids are not proved here: whoever can read the file and the keys could run it without Clew. What
    is checked, and recorded, is what the id that was given may do.

    Args:
        configuration: says whose it is, and who else is known.
        path: its file.
        name: an id, by default the name on this machine.

    Raises:
        ClewError: this actor may not `configuration:use` it.
    """
    me = getpass.getuser() if name is None else name
    known = next((one for one in configuration.actors if one.id == me), None)
    actor = Actor(id=me) if known is None else Actor(**known.model_dump())
    if not may_play(configuration, path, actor):
        raise ClewError(
            f"{me!r} may not use the configuration {configuration.identifier!r}: it takes its "
            f"owner, an administrator, or the scope {ACTION}"
        )
    return actor


def _owner_of(path: Path) -> str | None:
    with contextlib.suppress(OSError, KeyError, NotImplementedError):
        return path.owner()
    return None


def keep_state(result: LoopResult) -> Path | None:
    """Keep the state of a run that waits in the data folder, for its owner alone.

    Returns:
        The file, for `clew play --resume`; None where the run does not wait.

    Raises:
        StoreError: it cannot be written.
    """
    if result.waiting is None:
        return None
    path = data_dir() / "waiting" / f"{result.run_id}.json"
    prepare(path)
    path.write_bytes(result.waiting.state)
    return path


class Play:
    """A loop for a configuration, with its provider open for as long as the block is.

    Args:
        configuration: what to run.
        path: its file; what it names is looked up beside it.
        scripted: starts the scripted provider; None where there is none.

    Raises:
        ClewError: from `with`, where a part of it is not there or wrong.
    """

    loop: Loop
    provider: Provider

    def __init__(
        self, configuration: PlayConfiguration, path: Path, *, scripted: Scripted | None = None
    ) -> None:
        self.configuration = configuration
        self._folder = path.parent
        self._scripted = scripted
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.provider = stack.enter_context(self._provider(stack))
            configuration = self.configuration
            tools = [one.tool() for one in configuration.functions]
            self.loop = Loop(
                configuration,
                self.provider,
                tools=tools,
                repository=self._repository(),
                data_class=configuration.data_class,
                stream=configuration.stream,
                gates=self._gates(),
                window=Window(context_length=configuration.context_length),
                fence=SqliteFence() if any(tool.writes for tool in tools) else None,
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _provider(self, stack: ExitStack) -> Provider:
        wanted = self.configuration
        first = ProviderChoice(
            provider=wanted.provider,
            model=wanted.model,
            base_url=wanted.base_url,
            api_key_env=wanted.api_key_env,
        )
        made = [self._made(one, stack) for one in (first, *wanted.fallback)]
        return made[0].provider if len(made) == 1 else FallbackProvider(*made)

    def _made(self, choice: ProviderChoice, stack: ExitStack) -> Choice:
        name, base_url = choice.provider, choice.base_url
        key = None if choice.api_key_env is None else os.environ.get(choice.api_key_env)
        if choice.api_key_env is not None and not key:
            raise ConfigurationError(
                f"the environment variable {choice.api_key_env} is not set; it has the key for "
                f"{name}"
            )
        if name == SCRIPTED:
            if self._scripted is None:
                raise ConfigurationError("there is no scripted provider here")
            name, key = "openai", None
            base_url = stack.enter_context(self._scripted(self.configuration.replies))
        return Choice(provider=provider(name, api_key=key, base_url=base_url), model=choice.model)

    def _repository(self) -> Repository:
        library = self.configuration.library
        if library is None:
            return MemoryRepository()
        return SqliteRepository() if library == STORE else FileRepository(self._folder / library)

    def _gates(self) -> list[Gate]:
        configuration = self.configuration
        gates: list[Gate] = [ContextGate()]
        if configuration.rules is not None:
            gates.append(RulesFileGate(self._folder / configuration.rules))
        waiting = [one.name for one in configuration.functions if one.approval]
        if waiting:
            gates.append(ApprovalGate(waiting, store=SqliteApprovals()))
        return gates
