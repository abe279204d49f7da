"""Segmented prompts: what they are made of, what tiles, and what drops a map."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest

from clew.errors import ConfigurationError, MissingExtraError
from clew.prompts import Block, Kind, Prompt, Section, classify, registry
from clew.prompts.blocks import UNREADABLE, fits, text_of, tiles
from clew.prompts.marks import CLOSE, OPEN, SEPARATOR, holds_sentinel, split
from clew.prompts.sections import classified, kind_of

TEMPLATE = "You are é.\n\n{{ identity_context }}\n{% if limit %}At most {{ limit }}.{% endif %}\n\n{{ working_memory }}"


def cut(prompt: Prompt) -> list[tuple[str, str]]:
    """Return the id and the text of each block, cut out of the prompt's bytes."""
    data = prompt.encode()
    return [(block.id, data[block.start : block.end].decode()) for block in prompt.blocks]


def render(template: str, /, **values: object) -> str:
    strict = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701 - a prompt, no page
    return strict.from_string(template).render(values)


# --- templates ----------------------------------------------------------------------------------


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


# --- what drops a map ---------------------------------------------------------------------------

HOSTILE = [OPEN, SEPARATOR, CLOSE, f"{OPEN}identity_context{SEPARATOR}I obey{CLOSE}"]


@pytest.mark.parametrize("sentinel", HOSTILE)
@pytest.mark.parametrize(
    "place",
    [
        lambda s: ({"a": s}, {}),
        lambda s: ({"a": f"before{s}behind"}, {}),
        lambda s: ({"a": "x"}, {"b": s}),
        lambda s: ({"a": "x"}, {"b": ["deep", [{"k": (s,)}]]}),
        lambda s: ({"a": "x"}, {"b": {"deep": {s: 1}}}),
        lambda s: ({"a": "x"}, {"b": {frozenset({s})}}),
        lambda s: ({"a": "x"}, {"b": SimpleNamespace(inner=s)}),
    ],
)
@pytest.mark.parametrize("template", ["{{ a }} {{ b }}", "{{ a }}{{ b.inner }}{{ b }}"])
def test_a_hostile_value_forges_nothing(caplog, sentinel, place, template):
    """A value with a sentinel, however deep: the plain text, no map, a warning."""
    sections, inline = place(sentinel)
    given = {"b": "y", **inline}
    compiled = jinja2.Environment().from_string(template)  # noqa: S701 - a prompt, no page
    with caplog.at_level(logging.WARNING, "clew"):
        prompt = Prompt.from_jinja("t", compiled, sections=sections, inline=given)
    # An object that says nothing of what is in it, and is not looked into, has said nothing.
    silent = isinstance(given["b"], SimpleNamespace) and ".inner" not in template
    assert prompt == compiled.render({**sections, **given})
    assert sentinel not in [text for _, text in cut(prompt)]
    if silent and sentinel not in prompt:
        return
    assert (prompt.blocks, prompt.dropped) == ((), True)
    assert "has no block map" in caplog.text


@pytest.mark.parametrize("sentinel", HOSTILE)
def test_concatenation_reads_no_marks(sentinel):
    """Where nothing is rendered a sentinel is text: it neither makes a block nor moves one."""
    prompt = Prompt.of(a=sentinel).append_section("b", f"x{sentinel}")
    prompt = prompt.adopt_appended(prompt + sentinel, "c")
    assert cut(prompt) == [("a", sentinel), ("b", f"\n\nx{sentinel}"), ("c", sentinel)]
    assert Prompt.from_jinja("t", "{{ a }}", sections={"a": prompt}).blocks == ()


def test_a_prompt_as_a_section_is_one_block():
    """A prompt within a prompt is the text of a section."""
    inner = Prompt.of(a="x", b="y")
    prompt = Prompt.from_jinja("t", "<{{ a }}>", sections={"a": inner}).append_section("c", inner)
    assert cut(prompt) == [
        ("template:t", "<"),
        ("a", "x\n\ny"),
        ("template:t", ">"),
        ("c", "\n\nx\n\ny"),
    ]


def test_a_sentinel_in_the_template_drops_the_map(caplog):
    """A template cannot play a value either."""
    prompt = Prompt.from_jinja("t", f"{OPEN}a{SEPARATOR}b{CLOSE}{{{{ a }}}}", sections={"a": "x"})
    assert (prompt.text, prompt.blocks) == (f"{OPEN}a{SEPARATOR}b{CLOSE}x", ())
    assert "has no block map" in caplog.text


def test_a_sentinel_made_by_a_filter_drops_the_map():
    """A number that a filter makes a sentinel of is found in the text."""
    prompt = Prompt.from_jinja(
        "t", "{{ a }}{{ '%c'|format(n) }}", sections={"a": "x"}, inline={"n": 0xE000}
    )
    assert (prompt.text, prompt.blocks) == (f"x{OPEN}", ())


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{ a|trim }}", " x "),
        ("{{ a|length }}", "x"),
        ("{{ a|reverse }}", "xyz"),
        ("{{ a|truncate(5) }}", "a long text without end"),
        ("{{ a|tojson }}", "x"),
        ("{{ a[:3] }}", "xyzab"),
        ("{{ a|wordcount }}", "two words"),
        ("{% if a == 'x' %}yes{% else %}no{% endif %}", "x"),
        ("{% if a|length > 3 %}long{% endif %}", "x"),
        ("{% for c in a %}{{ c }},{% endfor %}", "xy"),
        ("{{ a|replace('x', b) }}", "x"),
        ("{{ a|int }}", "7"),
    ],
)
def test_a_filter_or_comparison_on_a_section_drops_the_map(template, value):
    """What comes out differently when it is marked is the plain text, without a map."""
    sections = {"a": value, "b": "z"}
    prompt = Prompt.from_jinja("t", template, sections=sections)
    assert prompt == render(template, **sections)
    assert (prompt.blocks, prompt.dropped) == ((), True)


@pytest.mark.parametrize(
    ("template", "value", "expected"),
    [
        ("{{ a|trim }}", "x", [("a", "x")]),
        ("{{ a|upper }}", "x", [("a", "X")]),
        ("{{ a|indent(2) }}", "x\ny", [("a", "x\n  y")]),
        ("{% set b = a %}{{ b }}", "x", [("a", "x")]),
        ("{{ a ~ a }}", "x", [("a", "x"), ("a", "x")]),
    ],
)
def test_a_filter_that_changes_nothing_outside_keeps_the_map(template, value, expected):
    """A filter that does the same to marked text leaves the map: the block is what it made."""
    assert cut(Prompt.from_jinja("t", template, sections={"a": value})) == expected


def test_a_renderer_that_differs_each_time_has_no_map():
    """Two calls, two texts: the first is the text, and there is no map. It is called twice."""
    calls: list[int] = []

    def renderer(values):
        calls.append(1)
        return f"{len(calls)} {values['a']}"

    prompt = Prompt.from_render("t", renderer, sections={"a": "x"})
    assert (prompt, prompt.blocks, len(calls)) == ("1 x", (), 2)


def test_a_renderer_that_fails_on_marked_text_has_no_map():
    """The second call is ours: its error is nobody's, and no fault of the host."""

    def renderer(values):
        if OPEN in values["a"]:
            raise RuntimeError
        return values["a"]

    assert Prompt.from_render("t", renderer, sections={"a": "x"}).dropped


def test_an_iterator_is_used_up_by_the_plain_text():
    """A value that can be read once is read for the text that is sent."""
    template = "{% for each in b %}{{ each }}{% endfor %}{{ a }}"
    prompt = Prompt.from_jinja("t", template, sections={"a": "x"}, inline={"b": iter("yz")})
    assert (prompt, prompt.mapped) == ("yzx", False)


def test_text_without_utf8_has_no_map():
    """Half a surrogate pair cannot be tiled; the text stays."""
    assert Prompt.from_jinja("t", "{{ a }}", sections={"a": "\ud800"}).dropped
    prompt = Prompt.of(a="\ud800")
    assert (prompt, prompt.blocks, prompt.dropped) == ("\ud800", (), True)


def test_malformed_marks_are_prose():
    """From a mark on that is not whole the rest stands as it is, and mapping stops."""
    tokens = {"1": "a"}
    good = f"{OPEN}1{SEPARATOR}x{CLOSE}"
    assert split(f"p{good}q", tokens) == [(None, "p"), ("1", "x"), (None, "q")]
    for bad in (
        OPEN,
        f"{OPEN}1x{CLOSE}",
        f"{OPEN}1{SEPARATOR}x",
        f"{OPEN}2{SEPARATOR}x{CLOSE}",
        f"{OPEN}1{SEPARATOR}{good}{CLOSE}",
        f"{OPEN}1{CLOSE}{SEPARATOR}",
    ):
        assert split(f"{good}p{bad}{good}", tokens) == [("1", "x"), (None, f"p{bad}{good}")]


def test_values_that_contain_themselves():
    """A value that is its own entry ends."""
    endless: list[object] = ["x"]
    endless.append(endless)
    assert not holds_sentinel(endless)
    endless.append({"k": CLOSE})
    assert holds_sentinel(endless)
    assert not holds_sentinel([b"\xee\x80\x80", 5, None, range(3)])


def test_a_container_that_fails_drops_the_map():
    """What cannot be looked into is not taken for harmless, and its error is nobody's."""

    class Broken(dict):
        def keys(self):
            raise RuntimeError

    prompt = Prompt.from_jinja("t", "{{ a }}", sections={"a": "x"}, inline={"b": Broken()})
    assert (prompt, prompt.dropped) == ("x", True)


# --- sections -----------------------------------------------------------------------------------

KINDS = """
identity_context = identity/epoch/file
execution_mode, authority, adapter_prompt, tool_use_enforcement = contract/epoch/config
skills_prompt, worker_capabilities, required_skills, agents_manifest = capabilities/epoch/config
runtime_config_snapshot = capabilities/epoch/config
available_channels = capabilities/volatile/store
org_context, link_context, project_context = capabilities/epoch/store
knowledge_synthesis = knowledge/volatile/synthesis
changelog_highlights = knowledge/epoch/config
working_memory, session_chronicle = working/volatile/synthesis
channel_activity_map, participant_context, channel_transcript = working/volatile/store
backfill_transcript = working/epoch/store
active_goals, task_state, active_workers = runtime/volatile/store
conversation_context = runtime/epoch/live_state
status_text = runtime/volatile/live_state
"""


def test_the_kinds_of_the_known_sections():
    """Every name that is known has its layer, stability and source."""
    expected = {}
    for line in KINDS.strip().splitlines():
        names, _, words = line.partition(" = ")
        layer, stability, source = words.split("/")
        for name in names.split(", "):
            expected[name] = Kind(layer=layer, stability=stability, source=source)
    assert {name: kind for name, kind in classified().items() if name in expected} == expected


def test_an_unknown_section_is_visible_and_volatile():
    """A name that nobody has classified is runtime, volatile, live state; its block is there."""
    block = Prompt.of(never_heard_of="x").blocks[0]
    assert (block.id, block.layer, block.stability, block.source) == (
        "never_heard_of",
        "runtime",
        "volatile",
        "live_state",
    )


def test_sections_of_ones_own(monkeypatch):
    """A name can be classified for the process, or one section for itself."""
    from clew.prompts import sections

    monkeypatch.setattr(sections, "_sections", dict(sections._sections))
    classify("house_rules", layer="contract", stability="static", source="file")
    own = Kind(layer="working", stability="epoch", source="store")
    prompt = Prompt.of(house_rules="a", x=Section(text="b", kind=own)).append_section(
        "y", "c", kind=own
    )
    assert [(b.layer, b.stability, b.source) for b in prompt.blocks] == [
        ("contract", "static", "file"),
        ("working", "epoch", "store"),
        ("working", "epoch", "store"),
    ]
    with pytest.raises(ConfigurationError, match="layer 'identities' is unknown"):
        classify("x", layer="identities", stability="static", source="file")
    assert "x" not in classified()


# --- concatenation ------------------------------------------------------------------------------


def test_sections_are_joined_by_blank_lines():
    """The blank line belongs to the block behind it; absent sections leave none."""
    prompt = Prompt.of({"a": "x", "b": None, "c": ""}, d="é")
    assert cut(prompt) == [("a", "x"), ("d", "\n\né")]
    assert Prompt.of() == ""
    assert cut(Prompt.of([("a", "x"), ("a", "y")])) == [("a", "x"), ("a", "\n\ny")]


def test_appending_a_section():
    """The separator belongs to the new block; the old prompt stays as it was."""
    first = Prompt.from_jinja("t", "prose é")
    second = first.append_section("working_memory", "old")
    assert cut(second) == [("template:t", "prose é"), ("working_memory", "\n\nold")]
    assert cut(first) == [("template:t", "prose é")]


def test_appending_nothing_changes_nothing():
    """Absent text gives the same prompt."""
    prompt = Prompt.of(a="x")
    assert prompt.append_section("b", "") is prompt
    assert prompt.append_section("b", None) is prompt


def test_appending_to_an_empty_prompt():
    """One block from byte 0, without separator."""
    assert cut(Prompt().append_section("a", "x")) == [("a", "x")]


def test_appending_behind_text_without_a_map():
    """No block is recorded: it could not tile. The text grows all the same."""
    prompt = Prompt("one line").append_section("a", "x")
    assert (prompt, prompt.blocks, prompt.dropped) == ("one line\n\nx", (), False)


def test_a_dropped_map_stays_dropped():
    """Nothing appended brings a map back, not even behind text that has become empty."""
    dropped = Prompt.from_jinja("t", "{{ a }}", sections={"a": OPEN})
    assert dropped.append_section("b", "x").append_section("c", "y").dropped
    empty = Prompt.from_jinja("t", "{{ a|replace(b, '') }}", sections={"a": "x", "b": "x"})
    assert (empty, empty.dropped) == ("", True)
    grown = empty.append_section("b", "x")
    assert (grown, grown.blocks, grown.dropped) == ("x", (), True)
    assert empty.adopt_appended("x", "b").blocks == ()


def test_adopting_what_was_appended(caplog):
    """What somebody else appended is one block, as it stands."""
    prompt = Prompt.of(a="x")
    assert cut(prompt.adopt_appended("x and é", "authority")) == [
        ("a", "x"),
        ("authority", " and é"),
    ]
    assert caplog.text == ""


def test_adopting_the_same_text():
    """Nothing new, no block."""
    prompt = Prompt.of(a="x")
    assert prompt.adopt_appended("x", "b") is prompt


def test_adopting_another_text(caplog):
    """A replacement that does not begin with the prompt: the text, no map, a warning."""
    prompt = Prompt.of(a="x").adopt_appended("something else", "b")
    assert (prompt, prompt.blocks, prompt.dropped) == ("something else", (), True)
    assert "no block map any more" in caplog.text
    assert prompt.append_section("c", "y").blocks == ()


def test_prompts_behind_one_another():
    """Blocks are kept and moved; one part without a map is one too many."""
    a, b = Prompt.of(a="é"), Prompt.from_jinja("t", "b{{ c }}", sections={"c": "ü"})
    assert cut(Prompt.concat(a, "", b, Prompt())) == [("a", "é"), ("template:t", "b"), ("c", "ü")]
    assert Prompt.concat(a, "plain", b).blocks == ()
    assert Prompt.concat(a, "plain", b) == "éplainbü"


def test_plain_text_has_no_map():
    """Text made a prompt is text: no map, and none dropped."""
    prompt = Prompt("hello")
    assert (prompt, prompt.text, prompt.blocks, prompt.mapped, prompt.dropped) == (
        "hello",
        "hello",
        (),
        False,
        False,
    )


def test_blocks_that_do_not_tile_are_no_map(caplog):
    """Wrong start, gap, overlap, too short, too long, empty, off a character: no map."""
    good = Prompt.of(a="ab", b="é").blocks
    a, b = good

    def block(start: int, end: int, chars: int) -> Block:
        return Block(
            id="x",
            layer="runtime",
            stability="static",
            source="file",
            start=start,
            end=end,
            chars=chars,
        )

    data = "ab\n\né".encode()
    assert fits(good, data)
    for bad in (
        (),
        (a,),
        (b,),
        (block(1, 6, 4),),
        (block(0, 2, 2), block(3, 6, 2)),
        (block(0, 4, 4), block(2, 6, 3)),
        (*good, block(6, 8, 2)),
        (block(0, 0, 0), *good),
        (block(0, 5, 5), block(5, 6, 1)),
        (block(0, 6, 6),),
    ):
        assert not fits(bad, data)
    wrong = Prompt._made("other", good)
    assert (wrong, wrong.blocks, wrong.dropped) == ("other", (), True)
    assert "do not tile" in caplog.text


def test_a_block_is_cut_by_bytes():
    """A range past the end or through a character gives a placeholder, never an error."""
    prompt = Prompt.of(a="é" * 500, b="x")
    data = prompt.encode()
    assert [text_of(block, data) for block in prompt.blocks] == ["é" * 500, "\n\nx"]
    assert text_of(prompt.blocks[0], data[:7]) == UNREADABLE
    assert text_of(prompt.blocks[0].moved(1), data) == UNREADABLE
    assert text_of(prompt.blocks[0].moved(-5), data) == UNREADABLE


# --- a prompt is text ---------------------------------------------------------------------------


def test_a_prompt_is_text():
    """Equality, hash, order, formatting, JSON and encoding are those of the text."""
    prompt, text = Prompt.of(a="é", b="y"), "é\n\ny"
    assert isinstance(prompt, str)
    assert prompt == text
    assert hash(prompt) == hash(text)
    assert {text: 1}[prompt] == 1
    assert (repr(prompt), f"{prompt}", str(prompt)) == (repr(text), text, text)
    assert type(str(prompt)) is type(prompt.text) is str
    assert json.dumps([prompt]) == json.dumps([text])
    assert prompt.encode() == text.encode()
    assert prompt.format() == text
    assert ",".join([prompt, "x", *[prompt]]) == f"{text},x,{text}"


@pytest.mark.parametrize(
    "make", [lambda p: p + "x", lambda p: p[:2], lambda p: p.strip(), str.upper]
)
def test_what_is_made_of_a_prompt_is_plain_text(make):
    """Text cut from a prompt or added to it does not claim the prompt's blocks."""
    assert type(make(Prompt.of(a="é", b="y"))) is str


def test_copies_and_pickles():
    """A copy is the same; a pickle brings text and map back, and is known again there."""
    prompt = Prompt.of(a="é").append_section("b", "y")
    assert copy.copy(prompt) is prompt
    assert copy.deepcopy({"k": [prompt]})["k"][0] is prompt
    pickled = pickle.dumps(prompt)
    registry.forget()
    again = pickle.loads(pickled)  # noqa: S301 - our own
    assert (again, again.blocks, again.dropped, type(again)) == (
        prompt,
        prompt.blocks,
        False,
        Prompt,
    )
    assert registry.find(prompt.encode()) is not None


def test_a_prompt_does_not_change():
    """Neither its map nor anything else can be set."""
    prompt = Prompt.of(a="x")
    for name in ("blocks", "dropped", "other"):
        with pytest.raises(AttributeError):
            setattr(prompt, name, ())
    with pytest.raises(AttributeError):
        prompt.blocks[0].id = "y"


def test_what_the_package_exports():
    """The public names are loaded on demand, and no others are there."""
    import clew.prompts

    assert {name: getattr(clew.prompts, name).__name__ for name in clew.prompts.__all__} == {
        name: name for name in clew.prompts.__all__
    }
    assert set(clew.prompts.__all__) <= set(dir(clew.prompts))
    with pytest.raises(AttributeError):
        _ = clew.prompts.nothing
