"""Configurations: which model is asked with which prompt, snippets, skills, tools and limits."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from clew.errors import ConfigurationError
from clew.prompts.documents import parse, read_text
from clew.prompts.segments import Prompt
from clew.prompts.skills import DEFAULT_BYTES, TrustLevel
from clew.prompts.snippets import check_identifier, parse_tags


def _tags(value: Any) -> Any:
    if isinstance(value, str):
        return parse_tags(value)
    if isinstance(value, list | tuple):
        given = cast("list[Any]", value)
        return parse_tags(given) if all(isinstance(each, str) for each in given) else value  # pyright: ignore[reportUnknownVariableType]
    return value


def _identifier(value: str) -> str:
    check_identifier("configuration", value)
    return value


def _prompt(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    # Checked as text, a prompt would become one without its blocks.
    return value if isinstance(value, Prompt) else check(value)


class Limits(BaseModel):
    """Bounds of a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    max_rounds: Annotated[int, Field(ge=1, le=20)] = 5
    """Rounds with tools; one more, without them, sums up."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Output tokens of one round; None leaves it to the provider."""


class Configuration(BaseModel):
    """One configuration of an agent, as a YAML file or in code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identifier: Annotated[str, AfterValidator(_identifier)] = "default"
    provider: str
    model: str
    prompt: Annotated[str, WrapValidator(_prompt)] = ""
    """The system prompt of its own, a text or a `Prompt`; snippets stand behind it."""
    snippet_tags: Annotated[tuple[str, ...], BeforeValidator(_tags)] = ()
    """Tags whose snippets belong to the prompt: comma-separated, or a list."""
    skills: tuple[str, ...] = ()
    """Skills to use, each by `source#identifier`, or by its identifier where only one has it."""
    minimum_trust: TrustLevel = "untrusted"
    """Skills that are trusted less are not used."""
    skill_bytes: int = DEFAULT_BYTES
    """Bytes that all skills together may have."""
    tools: tuple[str, ...] = ()
    """Names of the tools that are offered."""
    limits: Limits = Limits()

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a YAML file.

        Raises:
            ConfigurationError: it cannot be read or is no configuration; says file and line.
            MissingExtraError: PyYAML is not installed.
        """
        document = parse(read_text(Path(path)), Path(path))
        read: Any = document.data
        if not isinstance(read, dict):
            raise ConfigurationError(f"{document.where()}: no configuration: give a mapping")
        data = {**cast("dict[str, Any]", read)}
        if isinstance(data.get("prompt"), str):
            # A block of YAML ends with a line break that nobody wrote on purpose.
            data["prompt"] = str(data["prompt"]).rstrip("\n")
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)
            # A misspelt member is often why another one is missing.
            first = min(wrong, key=lambda each: each["type"] != "extra_forbidden")
            place = first["loc"]
            problem = first["msg"]
            if first["type"] == "extra_forbidden":
                near = get_close_matches(str(place[-1]), cls.model_fields, n=1)
                problem = "is unknown" + (f"; is it {near[0]!r}?" if near else "")
                if isinstance(data.get("snippets"), list):
                    problem = "is a library's, not a configuration's: give the file by `--from`"
            name = ".".join(map(str, place))
            raise ConfigurationError(f"{document.where(place)}: {name}: {problem}") from None
