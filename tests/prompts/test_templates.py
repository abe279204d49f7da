"""Prompts from templates: which blocks a template has, and in which forms it may come."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
from cutting import TEMPLATE, cut, render

from clew.errors import ConfigurationError, MissingExtraError
from clew.prompts import Block, Prompt, Section
from clew.prompts.blocks import tiles
from clew.prompts.sections import kind_of


@pytest.mark.parametrize("identity", ["Ann", "", None, "ä🎈\n\nline", "  ", "{{ x }}"])
@pytest.mark.parametrize("memory", ["of yesterday", None, "x" * 5000])
@pytest.mark.parametrize("limit", [5, 0, [1, {"é": "ü"}]])
def test_the_text_is_the_plain_render(identity, memory, limit):
    """With the marks taken out the text is what the template gives without marks, to the byte."""
    prompt = Prompt.from_jinja(
        "triage",
        TEMPLATE,
        sections={"identity_context": identity, "working_memory": memory},
        inline={"limit": limit},
    )
    plain = render(
        TEMPLATE, identity_context=identity or "", working_memory=memory or "", limit=limit
    )
    assert prompt == plain
    assert "".join(text for _, text in cut(prompt)) == plain
    assert tiles(prompt.blocks, len(plain.encode()))


def test_a_template_with_sections_is_cut_at_them():
    """Prose, section, prose with the inline value in it, section; offsets are bytes, not chars."""
    prompt = Prompt.from_jinja(
        "triage",
        TEMPLATE,
        sections={"identity_context": "Änn", "working_memory": "old"},
        inline={"limit": 5},
    )
    assert cut(prompt) == [
        ("template:triage", "You are é.\n\n"),
        ("identity_context", "Änn"),
        ("template:triage", "\nAt most 5.\n\n"),
        ("working_memory", "old"),
    ]
    assert prompt.blocks[1] == Block(
        id="identity_context",
        layer="identity",
        stability="epoch",
        source="file",
        start=13,
        end=17,
        chars=3,
    )
    assert (prompt.blocks[1].bytes, prompt.blocks[1].tokens) == (4, 1)
    assert (prompt.blocks[0].bytes, prompt.blocks[0].tokens) == (13, 4)


def test_prose_has_the_kind_of_a_contract():
    """What the template itself says is contract, static, template."""
    block = Prompt.from_jinja("t", "prose {{ a }}", sections={"a": "x"}).blocks[0]
    assert (block.layer, block.stability, block.source) == ("contract", "static", "template")


def test_whitespace_between_sections_is_a_block():
    """Prose of nothing but whitespace is kept: the blocks tile."""
    prompt = Prompt.from_jinja("t", "{{ a }}\n\n{{ b }}", sections={"a": "x", "b": "y"})
    assert cut(prompt) == [("a", "x"), ("template:t", "\n\n"), ("b", "y")]


def test_an_absent_section_has_no_block():
    """None and empty text are absent: nothing is marked, and a condition on them is false."""
    template = "a{% if b %} with {{ b }}{% endif %}{{ c }}"
    for absent in (None, "", Section(text=None, kind=kind_of("b"))):
        prompt = Prompt.from_jinja("t", template, sections={"b": absent, "c": absent})
        assert cut(prompt) == [("template:t", "a")]


def test_a_section_used_twice_is_two_blocks():
    """Each place where a section stands is a block of its own."""
    prompt = Prompt.from_jinja("t", "{{ a }}-{{ a }}", sections={"a": "x"})
    assert cut(prompt) == [("a", "x"), ("template:t", "-"), ("a", "x")]


def test_a_template_without_inputs_is_one_block():
    """No sections, no inline values: one template block over the whole text, and mapped."""
    prompt = Prompt.from_jinja("t", "All prose.")
    assert prompt.mapped
    assert cut(prompt) == [("template:t", "All prose.")]


def test_without_sections_nothing_is_rendered_twice():
    """Where no section has text all of it is prose, even if it would come out differently again."""
    calls: list[int] = []

    def renderer(values):
        calls.append(1)
        return f"{len(calls)} {values['n']}"

    prompt = Prompt.from_render("clock", renderer, sections={"a": None}, inline={"n": 5})
    assert (cut(prompt), len(calls)) == ([("template:clock", "1 5")], 1)
    assert Prompt.from_render("t", "{}\ud800".format).dropped


def test_an_empty_render_has_no_blocks():
    """Of nothing there is no map, and none was dropped."""
    prompt = Prompt.from_jinja("t", "{{ a }}", sections={"a": None})
    assert (prompt, prompt.blocks, prompt.dropped) == ("", (), False)


def test_inline_values_stay_prose():
    """Paths, flags and lists are part of the prose around them."""
    prompt = Prompt.from_jinja(
        "t",
        "In {{ path }}{% for tool in tools %}, {{ tool }}{% endfor %}. {{ a }}",
        sections={"a": "x"},
        inline={"path": Path("é"), "tools": ["grep", "ls"]},
    )
    assert cut(prompt) == [("template:t", "In é, grep, ls. "), ("a", "x")]


def test_an_environment_of_ones_own():
    """A compiled template brings its environment: filters, includes, autoescaping."""
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({"main": "{% include 'head' %}{{ a }}", "head": "<{{ b }}>"}),
        autoescape=True,
    )
    prompt = Prompt.from_jinja(
        "main", environment.get_template("main"), sections={"a": "1 < 2", "b": "x"}
    )
    assert cut(prompt) == [
        ("template:main", "<"),
        ("b", "x"),
        ("template:main", ">"),
        ("a", "1 &lt; 2"),
    ]


def test_a_variable_that_is_not_given_is_an_error():
    """The template's own error reaches the caller, as it would without blocks."""
    with pytest.raises(jinja2.UndefinedError):
        Prompt.from_jinja("t", "{{ missing }}")


def test_a_name_may_not_be_both():
    """A value is a section or inline."""
    with pytest.raises(ConfigurationError, match="'a' is given as a section and inline"):
        Prompt.from_jinja("t", "{{ a }}", sections={"a": "x"}, inline={"a": "y"})


def test_without_jinja_the_extra_is_named(monkeypatch):
    """Where Jinja2 is not installed, the error says what to install."""
    from clew.prompts import templates

    templates._compiled.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"clew\[prompts\]"):
        Prompt.from_jinja("t", "not compiled before {{ a }}", sections={"a": "x"})


def test_named_fields():
    """A template of `str.format` has the same blocks; a conversion or format stays prose."""
    prompt = Prompt.from_format(
        "f",
        "You are {identity_context}. {{braces}} {limit:,} {path!r} {identity_context}",
        sections={"identity_context": "Änn"},
        inline={"limit": 1000, "path": "p"},
    )
    assert cut(prompt) == [
        ("template:f", "You are "),
        ("identity_context", "Änn"),
        ("template:f", ". {braces} 1,000 'p' "),
        ("identity_context", "Änn"),
    ]
    with pytest.raises(KeyError):
        Prompt.from_format("f", "{missing}")


def test_an_f_string():
    """Any function can put the text together."""
    prompt = Prompt.from_render(
        "f",
        lambda given: (
            f"I: {given['identity_context']}\nM: {given['working_memory']} ({given['n']})"
        ),
        sections={"identity_context": "Ann", "working_memory": "old"},
        inline={"n": 3},
    )
    assert cut(prompt) == [
        ("template:f", "I: "),
        ("identity_context", "Ann"),
        ("template:f", "\nM: "),
        ("working_memory", "old"),
        ("template:f", " (3)"),
    ]
