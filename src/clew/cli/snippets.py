"""`clew snippets`: look at snippets and skills, check them, and put files into the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from msgspec.structs import replace

from clew.cli import output
from clew.cli.output import clean, print_json, print_table, say
from clew.errors import ClewError
from clew.prompts import forms
from clew.prompts.checking import Finding
from clew.prompts.checking import check as check_library
from clew.prompts.files import FileRepository, Scan, scan
from clew.prompts.repository import Repository
from clew.prompts.skills import Skill, checksum
from clew.prompts.snippets import Snippet, unmatched
from clew.store.paths import store_path
from clew.store.snippets import SqliteRepository

snippets = typer.Typer(no_args_is_help=True)

_From = Annotated[
    Path | None,
    typer.Option("--from", help="A file or folder of snippets. [default: the store]"),
]
_Folder = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder of the store. [default: CLEW_DATA_DIR]")
]
_IN_STATE: Final = frozenset({"reference", "active", "hidden", "enabled", "orphaned"})
"""Members that the state or others say already."""
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@snippets.command("list")
def list_(
    tag: Annotated[str | None, typer.Option(help="Only snippets with this tag.")] = None,
    skills: Annotated[bool, typer.Option("--skills", help="List skills instead.")] = False,
    source: _From = None,
    data_dir: _Folder = None,
    json: _Json = False,
) -> None:
    """List snippets in the order in which they get into a prompt; or skills."""
    repository = _repository(source, data_dir)
    if skills:
        _list_skills(repository.skills(), json=json)
        return
    known = repository.snippets()
    found = [each for each in known if tag is None or each.has_tag(tag)]
    if json:
        print_json({"snippets": [forms.snippet_form(each, text=False) for each in found]})
        return
    if not found:
        say(_nothing(known, tag))
        return
    print_table(
        ("snippet", "name", "tags", "state", "sorting", "bytes", "data class"),
        [
            (
                each.identifier,
                each.name,
                ", ".join(each.tag_list),
                forms.snippet_state(each),
                str(each.sorting),
                str(len(each.text.encode("utf-8", "surrogatepass"))),
                each.data_class,
            )
            for each in found
        ],
        right=(4, 5),
    )


@snippets.command()
def show(
    identifier: Annotated[
        str, typer.Argument(help="Identifier of a snippet or skill; source#identifier of a skill.")
    ],
    raw: Annotated[bool, typer.Option("--raw", help="Print its text alone, as it is.")] = False,
    source: _From = None,
    data_dir: _Folder = None,
    json: _Json = False,
) -> None:
    """Show one snippet or skill with its text."""
    repository = _repository(source, data_dir)
    found = repository.find(identifier) or repository.find_skill(identifier)
    if found is None:
        raise ClewError(f"there is no snippet and no skill {identifier!r}")
    text = found.text if isinstance(found, Snippet) else found.body
    if json:
        print_json(
            forms.snippet_form(found) if isinstance(found, Snippet) else forms.skill_form(found)
        )
        return
    if not raw:
        _print_members(_members(found))
        print()
    for line in text.strip("\n").split("\n"):
        print(line if raw else clean(line))


@snippets.command()
def tags(source: _From = None, data_dir: _Folder = None, json: _Json = False) -> None:
    """List the tags that snippets carry, and what each gets into a prompt."""
    found = forms.tag_forms(_repository(source, data_dir).snippets())
    if json:
        print_json({"tags": found})
        return
    if not found:
        say("no snippet has a tag")
        return
    print_table(
        ("tag", "snippets", "used", "carried by"),
        [
            (
                each["tag"],
                ", ".join(each["snippets"]),
                str(len(each["snippets"])),
                str(each["carried_by"]),
            )
            for each in found
        ],
        right=(2, 3),
    )


@snippets.command()
def check(
    configurations: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Configurations whose tags and skills to check.", metavar="[CONFIG]..."
        ),
    ] = None,
    source: _From = None,
    data_dir: _Folder = None,
    json: _Json = False,
) -> None:
    """Find unknown tags, identifiers that are there twice, bad metadata and wrong checksums.

    The exit code is 1 where a problem was found; notes alone leave it 0.
    """
    library = scan(source) if source is not None else _repository(None, data_dir)
    findings = check_library(library, configurations or ())
    problems = [each for each in findings if each.problem]
    if json:
        print_json(
            {
                "problems": [_finding_form(each) for each in problems],
                "notes": [_finding_form(each) for each in findings if not each.problem],
            }
        )
    else:
        _print_findings(findings, library, len(configurations or ()))
    if problems:
        raise typer.Exit(1)


@snippets.command("import")
def import_(
    path: Annotated[
        Path, typer.Argument(help="A YAML or Markdown file, or a folder.", metavar="PATH")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    data_dir: _Folder = None,
    json: _Json = False,
) -> None:
    """Put the snippets and skills of files into the store.

    What is there already and equal changes nothing, so files may be imported again; what is only
    in the store stays. A skill without a checksum gets that of its text. Nothing is stored where
    a file is wrong.
    """
    files = FileRepository(path)
    pinned = [_pinned(skill) for skill in files.skills()]
    wrong = [each for each in pinned if forms.skill_state(each) == "changed"]
    if wrong:
        names = ", ".join(each.reference for each in wrong)
        raise ClewError(f"nothing was imported: another checksum than that of the text: {names}")
    store = SqliteRepository(store_path(data_dir))
    changes = store.put(files.snippets(), pinned, dry_run=dry_run)
    if json:
        print_json(
            {
                "store": str(store.path),
                "dry_run": dry_run,
                "added": list(changes.added),
                "changed": list(changes.changed),
                "unchanged": list(changes.unchanged),
            }
        )
        return
    for word, names in (("added", changes.added), ("changed", changes.changed)):
        for name in names:
            print(f"{word}  {clean(name)}")
    would = "would be " if dry_run else ""
    say(
        f"{len(changes.added)} {would}added, {len(changes.changed)} {would}changed, "
        f"{len(changes.unchanged)} unchanged in {store.path}"
    )


def _repository(source: Path | None, data_dir: Path | None) -> Repository:
    return FileRepository(source) if source is not None else SqliteRepository(store_path(data_dir))


def _nothing(known: Sequence[Snippet], tag: str | None) -> str:
    if not known:
        return "no snippets yet: `clew snippets import PATH` puts files into the store"
    return str(unmatched(tag or "", known))


def _list_skills(found: Sequence[Skill], *, json: bool) -> None:
    if json:
        print_json({"skills": [forms.skill_form(each, body=False) for each in found]})
        return
    if not found:
        say("no skills yet")
        return
    print_table(
        ("skill", "name", "trust", "state", "bytes", "data class"),
        [
            (
                each.reference,
                each.name,
                each.trust,
                forms.skill_state(each),
                str(len(each.body.encode("utf-8", "surrogatepass"))),
                each.data_class,
            )
            for each in found
        ],
        right=(4,),
    )


def _members(found: Snippet | Skill) -> list[tuple[str, str]]:
    form: dict[str, Any] = (
        forms.snippet_form(found, text=False)
        if isinstance(found, Snippet)
        else forms.skill_form(found, body=False)
    )
    if isinstance(found, Snippet):
        form |= {"tags": ", ".join(found.tag_list), "metadata": found.metadata}
    return [
        (name.replace("_", " "), str(value))
        for name, value in form.items()
        if name not in _IN_STATE and value not in (None, "")
    ]


def _print_members(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    if not output.is_terminal():
        for name, value in rows:
            print(f"{name.ljust(width)}  {clean(value)}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(clean(value)))
    Console(highlight=False).print(table)


def _pinned(skill: Skill) -> Skill:
    return skill if skill.checksum else replace(skill, checksum=checksum(skill.body))


def _finding_form(finding: Finding) -> dict[str, Any]:
    return {"code": finding.code, "where": finding.where, "message": finding.message}


def _print_findings(
    findings: Sequence[Finding], library: Repository | Scan, configurations: int
) -> None:
    for each in findings:
        kind = "problem" if each.problem else "note"
        print(f"{kind}  {clean(each.where)}  {clean(each.message)}")
    if isinstance(library, Scan):
        counts = (len(library.snippets), len(library.skills))
    else:
        counts = (len(library.snippets()), len(library.skills()))
    problems = sum(each.problem for each in findings)
    say(
        f"{_count(counts[0], 'snippet')}, {_count(counts[1], 'skill')}, "
        f"{_count(configurations, 'configuration')}: {_count(problems, 'problem')}"
    )


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
