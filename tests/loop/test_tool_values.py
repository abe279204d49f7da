"""Tools from functions, the bounds of what they return, and the check of what a person gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_kit import DONE, Kit, asks

from clew.errors import ConfigurationError
from clew.loop import Tool, ToolOutput
from clew.loop.tools import MAX_BYTES, capped, declared, output_of, problems
from clew.testing import Reply

# --- a tool from a function -----------------------------------------------------------------------


def test_a_function_becomes_a_tool():
    """Name, the first paragraph of the docstring, and a schema of the parameters."""

    def find(number: str, limit: int = 3) -> str:
        """Find a parcel, wherever it is.

        Args: not for the model.
        """
        return number

    tool = Tool.of(find)
    assert (tool.name, tool.description) == ("find", "Find a parcel, wherever it is.")
    assert tool.effect == "non_idempotent_write"
    assert tool.writes
    properties = tool.parameters["properties"]
    assert {name: each["type"] for name, each in properties.items()} == {
        "number": "string",
        "limit": "integer",
    }
    assert tool.parameters["required"] == ["number"]
    assert Tool.of(find, name="f", description="d").spec.description == "d"


@pytest.mark.parametrize(
    "made",
    [
        {"effect": "harmless"},
        {"input_schema": {"type": "string"}},
        {"input_schema": {"type": "object", "properties": {"a": {"pattern": "x"}}}},
        {"input_schema": {"type": "object", "properties": {"a": {"type": "money"}}}},
        {"input_schema": {"type": "object", "properties": {"a": {"items": 3}}}},
        {"input_schema": "object"},
    ],
)
def test_a_tool_that_cannot_be_checked_is_refused(made: dict[str, Any]):
    """An unknown effect, or a schema for input with words that nobody here checks."""
    with pytest.raises(ConfigurationError, match="tool 'x'"):
        Tool(name="x", function=print, **made)


# --- results and their bounds ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [("text", "text"), ({"a": "ö"}, '{"a": "ö"}'), (None, "null"), ([1, 2.5], "[1, 2.5]")],
)
def test_a_value_becomes_text(value: Any, text: str):
    """Text as it is, everything else as JSON."""
    assert output_of(value) == ToolOutput(text=text)


async def test_a_value_that_json_cannot_say_is_a_failure(kit: Kit):
    """The model hears that the tool failed."""
    kit.script(Reply(tool_calls=(asks("odd"),)), DONE)
    await kit.run(kit.loop(Tool(name="odd", function=object, effect="read_only")))
    assert kit.told == ["The tool failed."]


@given(st.text(), st.integers(min_value=20, max_value=60))
def test_a_long_result_is_cut_between_characters(text: str, limit: int):
    """It has at most so many bytes, is valid UTF-8, and begins as it did."""
    found = capped(text, limit)
    whole = text.encode("utf-8", "replace").decode()
    assert len(found.encode()) <= limit
    assert found == whole or whole.startswith(found.removesuffix("\n[cut off]"))


def test_results_and_artifacts_have_bounds_of_their_own():
    """Of the artifacts those that fit, in order; what is no JSON is left out."""
    long = "x" * (MAX_BYTES + 1)
    output = output_of(ToolOutput(text=long, artifacts=("a", object(), {"b": 1}, long, "c")))
    assert len(output.text.encode()) == MAX_BYTES
    assert output.artifacts == ("a", {"b": 1})


# --- what a person gives --------------------------------------------------------------------------


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 4},
        "count": {"type": "integer", "minimum": 1, "maximum": 3},
        "kind": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "ok": {"type": "boolean"},
        "price": {"type": "number"},
    },
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"name": "ann", "count": 2, "kind": "a", "tags": ["x"], "ok": True, "price": 1}, []),
        ({"name": "ann", "count": 2.0, "other": 1}, []),
        ({}, ["input.name is missing"]),
        ("SECRET", ["input is not of type object"]),
        ({"name": "x"}, ["input.name is outside of its bounds (minLength)"]),
        ({"name": "SECRET"}, ["input.name is outside of its bounds (maxLength)"]),
        ({"name": "ann", "count": 0}, ["input.count is outside of its bounds (minimum)"]),
        ({"name": "ann", "count": 4}, ["input.count is outside of its bounds (maximum)"]),
        ({"name": "ann", "count": True}, ["input.count is not of type integer"]),
        ({"name": "ann", "count": 1.5}, ["input.count is not of type integer"]),
        ({"name": "ann", "ok": 1}, ["input.ok is not of type boolean"]),
        ({"name": "ann", "kind": "c"}, ["input.kind is none of the permitted values"]),
        ({"name": "ann", "tags": ["x", 3]}, ["input.tags[1] is not of type string"]),
    ],
)
def test_input_is_checked(given: Any, wrong: list[str]):
    """Each problem is a sentence that does not hold the value."""
    assert problems(given, SCHEMA) == wrong


def test_only_declared_members_count():
    """What the schema does not name is left behind."""
    assert declared({"name": "a", "amount": 1}, SCHEMA) == {"name": "a"}
