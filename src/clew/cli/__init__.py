"""The `clew` command.

`COMMANDS` is the whole list. A new command is **one file and one line**: write a function in
`clew/cli/<file>.py` whose parameters are typer options and whose docstring is its help, and add
`Command("name", "clew.cli.file", "function", "one line for --help")` below. A command with
sub-commands names a `typer.Typer` object instead of a function.

Nothing is imported for a command that was not asked for: `clew --help` needs typer alone.

What a command may rely on:

- A `ClewError` that leaves it is printed as one sentence on stderr; the exit code is 1.
- Wrong usage is exit code 2, with the usage line on stderr.
- Data goes to stdout, talk to stderr (`clew.cli.output` has both).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from clew.errors import ClewError, MissingExtraError

if TYPE_CHECKING:
    import typer


class Command(NamedTuple):
    """One line of the command table."""

    name: str
    """What the user types."""
    module: str
    attribute: str
    """A function, or a `typer.Typer` with sub-commands."""
    help: str
    """One line, shown by `clew --help`."""


COMMANDS: Final = (
    Command("demo", "clew.cli.demo", "demo", "Run a real agent and look at its timeline."),
    Command("replay", "clew.cli.replay", "replay", "Send recorded provider traffic again."),
    Command("play", "clew.cli.play", "play", "Run a configuration, or see what it would send."),
    Command("serve", "clew.cli.serve", "serve", "Receive OTLP/HTTP and show runs in the browser."),
    Command("token", "clew.cli.token", "token", "Make and remove tokens for `clew serve`."),
    Command("runs", "clew.cli.runs", "runs", "List runs, newest first."),
    Command("show", "clew.cli.show", "show", "Show one run as a tree."),
    Command("diff", "clew.cli.diff", "diff", "Compare two runs."),
    Command(
        "verify",
        "clew.cli.verify",
        "command",
        "Prove that nothing of a run is missing or altered.",
    ),
    Command("doctor", "clew.cli.doctor", "doctor", "Say what is wrong with a set-up."),
    Command("audit", "clew.cli.audit", "audit", "Ask what the record says, and keep the proof."),
    Command("policy", "clew.cli.policy", "policy", "Look at the allow-list, and try it out."),
    Command(
        "collector-config",
        "clew.cli.collector_config",
        "collector_config",
        "Print a configuration for the OpenTelemetry Collector.",
    ),
    Command("approvals", "clew.cli.approvals", "approvals", "Decide on calls that wait for it."),
    Command(
        "snippets",
        "clew.cli.snippets",
        "snippets",
        "Look at snippets and skills, check and import them.",
    ),
    Command("prompt", "clew.cli.prompt", "prompt", "Look at recorded model calls."),
    Command("import", "clew.cli.import_", "import_", "Store the spans of an OTLP JSON file."),
    Command("load", "clew.cli.load", "load", "Send made-up runs to a receiver of this machine."),
    Command("prices", "clew.cli.prices", "prices", "Show what a model costs, and why."),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (the `clew` script) and exit; `arguments` default to `sys.argv`."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if find_spec("typer") is None or find_spec("rich") is None:
        _complain("The command line is an optional part: install it with `pip install 'clew[cli]'`")
        sys.exit(2)
    from typer.main import get_command

    try:
        get_command(build(arguments)).main(args=list(arguments), prog_name="clew")
    except MissingExtraError as error:
        _complain(str(error))
        sys.exit(2)
    except ClewError as error:
        _complain(str(error))
        sys.exit(1)


def build(arguments: Sequence[str]) -> typer.Typer:
    """Return the app for these arguments: one real command, the others by their help line only."""
    import typer

    app = typer.Typer(
        name="clew",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(  # pyright: ignore[reportUnusedFunction] - registered by the decorator
        version: bool = typer.Option(
            False, "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ) -> None:
        """See what your agents did: runs, rounds, tools, decisions, tokens and cost."""

    chosen = next((each for each in arguments if not each.startswith("-")), None)
    for command in COMMANDS:
        if command.name != chosen:
            app.command(command.name, help=command.help)(_not_chosen)
            continue
        target = _load(command)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=command.name, help=command.help)
        else:
            app.command(command.name)(target)
    return app


def _load(command: Command) -> Any:
    from importlib import import_module

    return getattr(import_module(command.module), command.attribute)


def _not_chosen() -> None:
    """Stand in for a command that was not asked for; only its help line is ever used."""


def _print_version(wanted: bool) -> None:
    if wanted:
        import typer

        from clew.semconv import CONTRACT_VERSION

        print(f"clew {_version()} (attribute contract {CONTRACT_VERSION})")
        raise typer.Exit


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("clew")
    except PackageNotFoundError:
        return "unknown"


def _complain(message: str) -> None:
    print(f"clew: {' '.join(message.split())}", file=sys.stderr)
