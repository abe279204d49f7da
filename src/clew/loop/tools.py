"""Tools of the loop: what the model may ask for, what it does, and what comes back.

    def find_parcel(number: str) -> str:
        \"\"\"Say where a parcel is.\"\"\"

    tools = (Tool.of(find_parcel, effect="read_only"),)

A tool whose effect was not declared counts as one that writes and cannot be repeated.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

from msgspec import Struct, field

from clew.errors import ConfigurationError
from clew.providers.base import ToolSpec

Effect = Literal["read_only", "idempotent_write", "non_idempotent_write"]
WRITES: Final = frozenset({"idempotent_write", "non_idempotent_write"})
EFFECTS: Final = ("read_only", "idempotent_write", "non_idempotent_write")

MAX_BYTES: Final = 50_000
"""UTF-8 bytes of a result, and, apart from it, of all artifacts of one call."""

_CUT: Final = "\n[cut off]"


def _no_parameters() -> dict[str, Any]:
    return {"type": "object", "properties": {}}


class ToolOutput(Struct, frozen=True, kw_only=True):
    """What a tool gives, where plain text will not do."""

    text: str = ""
    """What the model is told."""
    is_error: bool = False
    artifacts: tuple[Any, ...] = ()
    """JSON values for the run trace alone: the provider never sees them."""


class Tool(Struct, frozen=True, kw_only=True):
    """A tool that the loop offers and executes.

    The function is called with the arguments by name. It may be a coroutine function. It returns a
    text, a `ToolOutput`, or anything that JSON can say. What it raises is told to nobody: the model
    hears that the tool failed.

    Raises:
        ConfigurationError: the effect is none, or the schema for a person's input is not one that
            can be checked.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=_no_parameters)
    """JSON Schema of an object."""
    effect: Effect = "non_idempotent_write"
    remote: bool = False
    """Whether it reaches beyond this process and counts against `LoopLimits.remote_calls`."""
    input_schema: dict[str, Any] | None = None
    """JSON Schema of what a person has to give before it is executed: the run waits for it. Only
    the members that the schema declares are put over the model's arguments."""

    def __post_init__(self) -> None:
        if self.effect not in EFFECTS:
            raise ConfigurationError(
                f"tool {self.name!r} has the effect {self.effect!r}; give one of {EFFECTS}"
            )
        if self.input_schema is not None:
            check_schema(self.input_schema, f"tool {self.name!r}")

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.effect in WRITES

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        effect: Effect = "non_idempotent_write",
        remote: bool = False,
        input_schema: dict[str, Any] | None = None,
    ) -> Tool:
        """Return a tool for a function: name, description and parameters come from it.

        Args:
            function: with annotated parameters, each of which can be given by name.
            name: by default the function's.
            description: by default the first line of its docstring.
            effect: what it does to the world.
            remote: see `Tool`.
            input_schema: see `Tool`.
        """
        from pydantic import TypeAdapter

        documented = (inspect.getdoc(function) or "").partition("\n\n")[0]
        adapter: Any = TypeAdapter(cast("Any", function))
        schema: dict[str, Any] = adapter.json_schema()
        return cls(
            name=name or function.__name__,
            function=function,
            description=" ".join(documented.split()) if description is None else description,
            parameters=schema,
            effect=effect,
            remote=remote,
            input_schema=input_schema,
        )


# --- what comes back -----------------------------------------------------------------------------


def output_of(value: Any) -> ToolOutput:
    """Return what a tool returned as its output, within the limits.

    Raises:
        TypeError: JSON cannot say it.
        ValueError: likewise.
    """
    if not isinstance(value, ToolOutput):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return ToolOutput(text=capped(text))
    return ToolOutput(
        text=capped(value.text), is_error=value.is_error, artifacts=_within(value.artifacts)
    )


def capped(text: str, limit: int = MAX_BYTES) -> str:
    """Return a text of at most so many UTF-8 bytes, cut between characters, and valid UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode("utf-8")
    return data[: limit - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _within(artifacts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the artifacts, in order, that fit into the limit and are JSON."""
    kept: list[Any] = []
    size = 0
    for artifact in artifacts:
        try:
            size += len(json.dumps(artifact, ensure_ascii=False).encode("utf-8", "replace"))
        except (TypeError, ValueError):
            continue
        if size > MAX_BYTES:
            break
        kept.append(artifact)
    return tuple(kept)


# --- what a person gives -------------------------------------------------------------------------

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_KEYWORDS: Final = frozenset(
    {
        "type",
        "properties",
        "required",
        "enum",
        "items",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "title",
        "description",
        "default",
        "additionalProperties",
    }
)


def check_schema(schema: Any, where: str, *, top: bool = True) -> None:
    """Refuse a schema with keywords that `problems` does not check.

    Raises:
        ConfigurationError: it has some, or is no schema of an object.
    """
    if not isinstance(schema, dict):
        raise ConfigurationError(f"{where}: a schema for input is no object")
    known = cast("dict[str, Any]", schema)
    unknown = sorted(set(known) - _KEYWORDS)
    kind = known.get("type")
    if unknown or (kind is not None and kind not in _TYPES) or (top and kind != "object"):
        raise ConfigurationError(
            f"{where}: a schema for input has type 'object' and the keywords "
            f"{', '.join(sorted(_KEYWORDS))}"
            + (f"; unknown: {', '.join(unknown)}" if unknown else "")
        )
    for name, member in known.get("properties", {}).items():
        check_schema(member, f"{where}, {name}", top=False)
    if "items" in known:
        check_schema(known["items"], f"{where}, items", top=False)


def problems(value: Any, schema: Mapping[str, Any], where: str = "input") -> list[str]:
    """Return what is wrong with a value, each as a sentence without the value; none if it fits."""
    kind = schema.get("type")
    if kind is not None and not _is_of(value, kind):
        return [f"{where} is not of type {kind}"]
    found: list[str] = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where} is none of the permitted values")
    for keyword, measure in _BOUNDS.items():
        if keyword in schema and not measure(value, schema[keyword]):
            found.append(f"{where} is outside of its bounds ({keyword})")
    if isinstance(value, dict):
        given = cast("dict[str, Any]", value)
        members: Mapping[str, Any] = schema.get("properties", {})
        required: list[str] = schema.get("required", [])
        found += [f"{where}.{name} is missing" for name in required if name not in given]
        for name, member in members.items():
            if name in given:
                found += problems(given[name], member, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        for place, item in enumerate(cast("list[Any]", value)):
            found += problems(item, schema["items"], f"{where}[{place}]")
    return found


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


_BOUNDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, bound: not isinstance(value, (int, float)) or value >= bound,
    "maximum": lambda value, bound: not isinstance(value, (int, float)) or value <= bound,
    "minLength": lambda value, bound: not isinstance(value, str) or len(value) >= bound,
    "maxLength": lambda value, bound: not isinstance(value, str) or len(value) <= bound,
}


def declared(values: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that a schema declares."""
    members: Mapping[str, Any] = schema.get("properties", {})
    return {name: values[name] for name in members if name in values}
