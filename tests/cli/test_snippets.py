"""`clew snippets`: list, show, tags, check and import, for people and as JSON."""

# ruff: noqa: SIM300 - expected == actual, in this order
from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Clew

from clew.cli import output
from clew.prompts.skills import checksum
from clew.store.snippets import SqliteRepository

LIBRARY = """\
snippets:
  - identifier: nova
    name: Nova
    text: |
      You are Nova.
      Be friendly.
    tags: persona
    metadata: {voice: nova}
    data_class: editor_content
  - identifier: brief
    name: Brief
    text: Be brief.
    tags: [Style, tone_of_voice]
    sorting: -10
  - identifier: old
    text: Old.
    tags: legacy
    active: false
skills:
  - identifier: pdf
    source: acme
    description: Reads PDFs
    body: Read PDFs.
    trust: verified
"""


@pytest.fixture
def clew(clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clew:
    """Run a command of `clew snippets` in a folder with a library: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_DATA_DIR", "data")
    Path("lib.yaml").write_text(LIBRARY, "utf-8")
    return partial(clew, "snippets")


def form(answer: tuple[int, str, str]) -> Any:
    assert (0, "") == (answer[0], answer[2])
    return json.loads(answer[1])


def test_files_are_imported_and_listed(clew: Clew):
    """In the order of a prompt; the second import changes nothing."""
    assert (
        0,
        "added  snippet brief\nadded  snippet old\nadded  snippet nova\nadded  skill acme#pdf\n",
        "4 added, 0 changed, 0 unchanged in data/clew.db\n",
    ) == clew("import", "lib.yaml")
    assert (0, "", "0 added, 0 changed, 4 unchanged in data/clew.db\n") == clew(
        "import", "lib.yaml"
    )
    assert (
        0,
        (
            "SNIPPET  NAME   TAGS                  STATE     SORTING  BYTES  DATA CLASS\n"
            "brief    Brief  style, tone_of_voice  active        -10      9\n"
            "old             legacy                inactive        0      4\n"
            "nova     Nova   persona               active          0     26  editor_content\n"
        ),
        "",
    ) == clew("list")


def test_an_import_tells_what_it_did(clew: Clew):
    """A dry run first, which makes no store; then a changed file."""
    empty = {"store": "data/clew.db", "added": [], "changed": [], "unchanged": []}
    added = ["snippet brief", "snippet old", "snippet nova", "skill acme#pdf"]
    assert {**empty, "dry_run": True, "added": added} == form(
        clew("import", "lib.yaml", "--dry-run", "--json")
    )
    assert (
        "4 would be added, 0 would be changed, 0 unchanged in data/clew.db\n"
        == clew("import", "lib.yaml", "--dry-run")[2]
    )
    assert not Path("data").exists()
    clew("import", "lib.yaml")
    Path("lib.yaml").write_text(LIBRARY.replace("Be brief.", "Be very brief."), "utf-8")
    assert {
        **empty,
        "dry_run": False,
        "changed": ["snippet brief"],
        "unchanged": ["snippet old", "snippet nova", "skill acme#pdf"],
    } == form(clew("import", "lib.yaml", "--json"))


def test_an_import_pins_skills_to_their_text(clew: Clew):
    """One without a checksum gets it; one with another stops everything."""
    clew("import", "lib.yaml")
    assert checksum("Read PDFs.") == SqliteRepository(Path("data/clew.db")).skills()[0].checksum
    Path("lib.yaml").write_text(f"{LIBRARY}    checksum: '{'0' * 64}'\n", "utf-8")
    code, out, err = clew("import", "lib.yaml", "--data-dir", "other")
    assert (
        1,
        "",
        "clew: nothing was imported: another checksum than that of the text: acme#pdf\n",
    ) == (code, out, err)
    assert not Path("other").exists()


def test_a_wrong_file_is_not_imported(clew: Clew):
    """Nothing of it is, and the message has the line."""
    Path("lib.yaml").write_text(LIBRARY.replace("name: Brief", "nam: Brief"), "utf-8")
    assert (1, "", "clew: lib.yaml:11: 'nam' is unknown; is it 'name'?\n") == clew(
        "import", "lib.yaml"
    )
    assert not Path("data").exists()


def test_the_list_as_json_is_without_texts(clew: Clew):
    """Of files as of the store; each text is a request of its own."""
    listed = form(clew("list", "--from", "lib.yaml", "--json"))
    assert ["brief", "old", "nova"] == [each["identifier"] for each in listed["snippets"]]
    assert {
        "identifier": "nova",
        "name": "Nova",
        "description": "",
        "tags": ["persona"],
        "state": "active",
        "active": True,
        "hidden": False,
        "sorting": 0,
        "data_class": "editor_content",
        "bytes": 26,
        "metadata": {"voice": "nova"},
    } == listed["snippets"][2]
    clew("import", "lib.yaml")
    assert listed == form(clew("list", "--json"))


def test_the_list_of_a_tag(clew: Clew):
    """Whole tags without regard to case; an unknown one names the nearest, on stderr."""
    listed = clew("list", "--from", "lib.yaml", "--tag", "STYLE", "--json")
    assert ["brief"] == [each["identifier"] for each in form(listed)["snippets"]]
    assert (0, "", "no snippet is tagged 'styl'; the nearest known tag is 'style'\n") == clew(
        "list", "--from", "lib.yaml", "--tag", "styl"
    )


def test_without_snippets_the_way_to_some_is_named(clew: Clew):
    """An empty store is no error; as JSON it is an empty list."""
    assert (
        0,
        "",
        "no snippets yet: `clew snippets import PATH` puts files into the store\n",
    ) == clew("list")
    assert {"snippets": []} == form(clew("list", "--json"))
    assert (0, "", "no skills yet\n") == clew("list", "--skills")
    assert (0, "", "no snippet has a tag\n") == clew("tags")
    assert not Path("data").exists()


def test_skills_are_listed_with_their_state(clew: Clew):
    """A file without a checksum is not pinned; in the store it is."""
    assert (
        0,
        (
            "SKILL     NAME  TRUST     STATE     BYTES  DATA CLASS\n"
            "acme#pdf        verified  unpinned     10\n"
        ),
        "",
    ) == clew("list", "--skills", "--from", "lib.yaml")
    clew("import", "lib.yaml")
    listed = form(clew("list", "--skills", "--json"))
    assert [("acme#pdf", "enabled", False)] == [
        (each["reference"], each["state"], "body" in each) for each in listed["skills"]
    ]


def test_a_snippet_is_shown_with_its_text(clew: Clew):
    """Its members, a blank line, the text; any case of its identifier."""
    assert (
        0,
        (
            "identifier  nova\n"
            "name        Nova\n"
            "tags        persona\n"
            "state       active\n"
            "sorting     0\n"
            "data class  editor_content\n"
            "bytes       26\n"
            'metadata    {"voice": "nova"}\n'
            "\n"
            "You are Nova.\nBe friendly.\n"
        ),
        "",
    ) == clew("show", "NOVA", "--from", "lib.yaml")
    assert (0, "You are Nova.\nBe friendly.\n", "") == clew(
        "show", "nova", "--raw", "--from", "lib.yaml"
    )
    shown = form(clew("show", "nova", "--json", "--from", "lib.yaml"))
    assert ("You are Nova.\nBe friendly.", '{"voice": "nova"}') == (
        shown["text"],
        shown["metadata_text"],
    )


def test_a_skill_is_shown_by_either_name(clew: Clew):
    """A snippet of the same name would come first."""
    clew("import", "lib.yaml")
    for name in ("pdf", "acme#pdf"):
        shown = form(clew("show", name, "--json"))
        assert ("acme#pdf", "Read PDFs.") == (shown["reference"], shown["body"])
    assert "description  Reads PDFs\n" in clew("show", "pdf")[1]
    assert (1, "", "clew: there is no snippet and no skill 'x'\n") == clew("show", "x")


def test_control_characters_of_a_text_do_not_reach_the_terminal(clew: Clew):
    """They are shown as escapes; `--raw` is for programs and leaves the text as it is."""
    Path("a.yaml").write_text('snippets:\n  - {identifier: a, text: "x\\e[31m\\u202Ey"}\n', "utf-8")
    assert "\nx\\x1b[31m\\u202ey\n" in clew("show", "a", "--from", "a.yaml")[1]
    assert "x\x1b[31m\u202ey\n" == clew("show", "a", "--raw", "--from", "a.yaml")[1]


def test_tags_say_what_they_get_into_a_prompt(clew: Clew):
    """Snippets that are off carry a tag, and it gets nothing."""
    assert (
        0,
        (
            "TAG            SNIPPETS  USED  CARRIED BY\n"
            "legacy                      0           1\n"
            "persona        nova         1           1\n"
            "style          brief        1           1\n"
            "tone_of_voice  brief        1           1\n"
        ),
        "",
    ) == clew("tags", "--from", "lib.yaml")
    assert {"tag": "style", "snippets": ["brief"], "carried_by": 1} == form(
        clew("tags", "--from", "lib.yaml", "--json")
    )["tags"][2]


CONFIGURATION = "provider: openai\nmodel: gpt-4o\nsnippet_tags: persona, styl, legacy\n"


def test_a_check_finds_problems_and_exits_with_one(clew: Clew):
    """Unknown tags, identifiers that are there twice, bad metadata; a note is none."""
    Path("c.yaml").write_text(CONFIGURATION, "utf-8")
    text = LIBRARY.replace("identifier: old", "identifier: Nova\n    metadata: '[]'")
    text += f"    checksum: {checksum('Read PDFs.')}\n"
    Path("lib.yaml").write_text(text, "utf-8")
    assert (
        1,
        (
            "problem  lib.yaml:15  the snippet 'nova' is there twice, first at lib.yaml:2\n"
            "problem  lib.yaml:15  the metadata of 'Nova' is no JSON object; programs see none\n"
            "problem  c.yaml:3  no snippet is tagged 'styl'; the nearest known tag is 'style'\n"
            "problem  c.yaml:3  no snippet is tagged 'legacy'; known tags are 'persona', 'style', "
            "'tone_of_voice'\n"
        ),
        "3 snippets, 1 skill, 1 configuration: 4 problems\n",
    ) == clew("check", "c.yaml", "--from", "lib.yaml")


def test_a_library_in_the_place_of_a_configuration_is_told_so(clew: Clew):
    """Who asks for a check of a library by its name alone learns how."""
    code, out, _ = clew("check", "lib.yaml")
    assert 1 == code
    assert "snippets: is a library's, not a configuration's: give the file by `--from`" in out


def test_a_check_of_the_store(clew: Clew):
    """What was imported, against configurations; notes alone are success."""
    clew("import", "lib.yaml")
    Path("c.yaml").write_text(CONFIGURATION.replace("styl,", "style,"), "utf-8")
    note = "every snippet tagged 'legacy' is inactive, hidden or empty"
    assert (
        0,
        f"note  c.yaml:3  {note}\n",
        "3 snippets, 1 skill, 1 configuration: no problems\n",
    ) == clew("check", "c.yaml")
    assert (0, "", "3 snippets, 1 skill, no configurations: no problems\n") == clew("check")
    Path("d.yaml").write_text("modle: x\n", "utf-8")
    code, out, err = clew("check", "c.yaml", "d.yaml", "--json")
    assert (1, "") == (code, err)
    assert {
        "problems": [
            {
                "code": "configuration",
                "where": "d.yaml:1",
                "message": "modle: is unknown; is it 'model'?",
            }
        ],
        "notes": [{"code": "unused_tag", "where": "c.yaml:3", "message": note}],
    } == json.loads(out)


def test_a_check_of_nothing_is_a_problem(clew: Clew):
    """A path that is not there must not pass for one that is in order."""
    assert (
        1,
        "problem  gone  cannot be read: there is no such file or folder\n",
        "no snippets, no skills, no configurations: 1 problem\n",
    ) == clew("check", "--from", "gone")


@pytest.mark.parametrize(
    "arguments",
    [("list", "--from", "gone"), ("show", "a", "--from", "gone"), ("import", "gone")],
)
def test_a_path_that_is_not_there_is_an_error(clew: Clew, arguments: tuple[str, ...]):
    """One sentence on stderr."""
    assert (1, "", "clew: gone: cannot be read: there is no such file or folder\n") == clew(
        *arguments
    )


def test_a_store_that_cannot_be_read_is_an_error(clew: Clew):
    """Not an empty list."""
    Path("data").mkdir()
    Path("data/clew.db").write_bytes(b"this is not a database, whatever its name says" * 10)
    assert (1, "", "clew: the store data/clew.db is not a database of Clew\n") == clew("list")


def test_on_a_terminal_the_table_is_drawn(clew: Clew, monkeypatch: pytest.MonkeyPatch):
    """With the same cells; the header is not in capitals there."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    lines = clew("list", "--from", "lib.yaml")[1].splitlines()
    assert ["snippet", "name", "tags", "state", "sorting", "bytes", "data", "class"] == lines[
        0
    ].split()
    assert ["brief", "Brief", "style,", "tone_of_voice", "active", "-10", "9"] == lines[1].split()


def test_on_a_terminal_long_members_are_wrapped(
    clew: Clew, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Nothing of them is cut, however narrow it is."""
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    words = " ".join(f"word{number:02}" for number in range(20))
    (tmp_path / "a.md").write_text(f"---\ndescription: {words}\n---\nText.\n", "utf-8")
    shown = clew("show", "a", "--from", "a.md")[1]
    assert words.split() == [each for each in shown.split() if each.startswith("word")]
    assert all(len(line) <= 40 for line in shown.splitlines())
