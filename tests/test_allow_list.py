"""The allow-list as data: round trips, list files, and the one place where a user extends it."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.allow_list import (
    DROPPED,
    AllowList,
    Closed,
    Each,
    Flag,
    Hex,
    Identifier,
    KeyedDigest,
    Number,
    Opaque,
    Rule,
    Uuid,
)
from clew.errors import ConfigurationError
from clew.rules import Captured
from clew.settings import Settings

LENGTHS = st.integers(1, 65_536)
SIMPLE: st.SearchStrategy[Rule] = st.one_of(
    st.builds(Identifier, LENGTHS),
    st.builds(Opaque, LENGTHS),
    st.builds(Hex, LENGTHS),
    st.builds(Uuid),
    st.builds(Flag),
    st.builds(KeyedDigest),
    st.builds(Captured),
    st.lists(st.text(max_size=8), min_size=1, max_size=5).flatmap(
        lambda values: st.builds(
            lambda other: Closed(*values, other=other), st.none() | st.text(max_size=8)
        )
    ),
    st.tuples(st.integers(-(2**63), 0), st.integers(0, 2**63 - 1)).map(lambda pair: Number(*pair)),
    st.floats(0, 1e9).map(lambda high: Number(0, high)),
)
RULES = SIMPLE | st.builds(
    Each, SIMPLE, max_items=st.integers(1, 999), fill=st.none() | st.just("_OTHER")
)
LISTS = st.builds(
    AllowList,
    st.dictionaries(st.text(min_size=1, max_size=20), RULES, max_size=6),
    resource=st.dictionaries(st.text(min_size=1, max_size=20), RULES, max_size=3),
)
VALUES = st.one_of(
    st.text(max_size=12),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.lists(st.text(max_size=4) | st.integers(), max_size=4),
)


@given(LISTS, VALUES)
def test_a_list_made_from_its_own_data_is_equal_and_decides_alike(
    allow_list: AllowList, value: Any
) -> None:
    """The data says everything: also after JSON, each rule answers as the original does."""
    again = AllowList.from_data(json.loads(json.dumps(allow_list.to_data())))
    assert allow_list == again
    for key, rule in allow_list.bound(lambda text: "d" + text).spans.items():
        expected = rule.apply(value)
        actual = again.bound(lambda text: "d" + text).spans[key].apply(value)
        assert (expected is DROPPED) == (actual is DROPPED)
        assert expected is DROPPED or expected == actual


def test_the_default_list_can_be_written_as_data() -> None:
    """What a collector's list is generated from has every key of the list in force."""
    default = AllowList.default()
    data = default.to_data()
    assert set(default.spans) == set(data["spans"])
    assert set(default.resource) == set(data["resource"])
    assert default == AllowList.from_data(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
        ),
    )
)
def test_data_that_is_no_list_is_refused_in_words(data: Any) -> None:
    """Whatever a file holds, it is a list or a `ConfigurationError`, never another error."""
    for given_data in (data, {"spans": data}, {"spans": {"a": data}}, {"resource": {"a": data}}):
        try:
            AllowList.from_data(given_data)
        except ConfigurationError:
            continue


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"spans": {"acme.plan": "free text"}}, "'acme.plan'.*'free text' is not a rule"),
        ({"spans": {"acme.plan": {"rule": "closed_set"}}}, "closed_set needs `values`"),
        ({"spans": {"a": {"rule": "closed_set", "values": [1]}}}, "1 in `values` is not a text"),
        ({"spans": {"a": {"rule": "identifier", "length": 3}}}, "no parameter 'length'"),
        ({"spans": {"a": {"rule": "identifier", "max_length": 0}}}, "from 1 to"),
        ({"spans": {"a": {"rule": "number_range", "low": 2, "high": 1}}}, "nothing would pass"),
        ({"spans": {"a": {"rule": "number_range", "low": "x"}}}, "give a number"),
        ({"span": {}}, "no part 'span'"),
        ({"version": 2}, "version 2 is unknown"),
        ([], "is a mapping"),
    ],
)
def test_a_mistake_is_named(data: Any, words: str) -> None:
    """The message names the key and says what to write instead."""
    with pytest.raises(ConfigurationError, match=words):
        AllowList.from_data(data)


YAML = """
spans:
  acme.plan: {rule: closed_set, values: [free, paid]}
  acme.customer: keyed_digest
resource:
  acme.cell: {rule: identifier, max_length: 8}
"""


@pytest.mark.parametrize("name", ["list.json", "list.yaml"])
def test_a_file_extends_the_list(tmp_path: Path, name: str) -> None:
    """CLEW_ALLOW_LIST names a file whose keys are added to the list of the settings."""
    import yaml

    path = tmp_path / name
    text = YAML if name.endswith("yaml") else json.dumps(yaml.safe_load(YAML))
    path.write_text(text)
    found = Settings.from_environment({"CLEW_ALLOW_LIST": str(path)}).effective_allow_list()
    assert "paid" == found.spans["acme.plan"].apply("paid")
    assert DROPPED is found.spans["acme.plan"].apply("other")
    assert "eu-1" == found.resource["acme.cell"].apply("eu-1")
    assert set(AllowList.default().spans) < set(found.spans)


def test_a_file_that_is_wrong_stops_the_configuration(tmp_path: Path) -> None:
    """A list that cannot be read is said at once: a service never starts with half a list."""
    import clew

    for content in ("{", "[]", '{"spans": {"a": "b"}}'):
        path = tmp_path / "list.json"
        path.write_text(content)
        settings = Settings.from_environment({"CLEW_ALLOW_LIST": str(path)})
        with pytest.raises(ConfigurationError, match=r"list\.json"):
            clew.configure(settings=settings, span_exporters=[])
    missing = Settings.from_environment({"CLEW_ALLOW_LIST": str(tmp_path / "none.json")})
    with pytest.raises(ConfigurationError, match="cannot be read"):
        missing.effective_allow_list()


def test_a_keyed_digest_needs_a_key() -> None:
    """Without a key nothing passes; with one, only the digest; what fails while making it drops."""

    def broken(_: str) -> str:
        raise RuntimeError("no key")

    listed = AllowList({"user.id": KeyedDigest(), "ids": Each(KeyedDigest())})
    assert DROPPED is listed.spans["user.id"].apply("alice")
    bound = listed.bound(lambda text: f"<{len(text)}>")
    assert "<5>" == bound.spans["user.id"].apply("alice")
    assert ("<5>",) == bound.spans["ids"].apply(["alice"])
    assert DROPPED is bound.spans["user.id"].apply(7)
    assert DROPPED is listed.bound(broken).spans["user.id"].apply("alice")
