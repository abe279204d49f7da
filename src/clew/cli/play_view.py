"""How `clew play` shows a run: each step when it happens, in colour on a terminal."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from clew.cli.output import clean, is_terminal
from clew.loop.showing import WORDS, figures_of, lines_of, parts_of

if TYPE_CHECKING:
    from clew.loop import DryRun, LoopResult, Step, Trace

_STYLES: Final = {
    "context": "dim",
    "request": "blue",
    "llm": "bold",
    "tool": "cyan",
    "dropped": "yellow",
    "approval": "magenta",
    "input": "magenta",
}


class View:
    """Shows steps as lines: what happened, in which round, and the figures.

    Args:
        quiet: show nothing while the run goes on.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console: Any = None
        self._status: Any = None
        self._heard = False
        if is_terminal() and not quiet:
            from rich.console import Console

            self._console = Console(highlight=False)

    def trace(self) -> Trace:
        """Return a trace whose steps are shown."""
        from clew.loop import Trace

        if self._quiet:
            return Trace()
        return Trace(self.step, on_text=self.hear)

    def hear(self, number: int, text: str) -> None:
        """Show a piece of a streamed answer, on a terminal."""
        if self._console is None:
            return
        if self._status is not None:
            self._status.stop()
            self._status = None
        self._console.out(clean_piece(text), end="", style="italic", highlight=False)
        self._heard = True

    def step(self, step: Step) -> None:
        """Show a step."""
        self._wait(step)
        word = WORDS.get(step.kind, step.kind)
        number = str(step.round) if step.round else ""
        for place, text in enumerate(lines_of(step)):
            head = f"{word:8} {number:>2}" if place == 0 else " " * 11
            self.line(head, clean(text), step.kind, failed=bool(step.error_type))

    def line(self, head: str, text: str, kind: str, *, failed: bool = False) -> None:
        """Show one line."""
        if self._console is None:
            print(f"{head}  {text}".rstrip(), flush=True)
            return
        from rich.text import Text

        style = "bold red" if failed else _STYLES.get(kind, "")
        self._console.print(Text.assemble((head, style), "  ", text))

    def _wait(self, step: Step) -> None:
        """Show that the model is asked, on a terminal."""
        if self._console is None:
            return
        if self._heard:
            self._console.print()
            self._heard = False
        if self._status is not None:
            self._status.stop()
            self._status = None
        if step.kind == "request":
            self._status = self._console.status("the model is asked")
            self._status.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def end(self, result: LoopResult) -> None:
        """Show what the run came to."""
        self.line(
            "end        ",
            figures_of(result),
            "context",
            failed=not result.ok and not result.waiting,
        )
        if result.error is not None:
            self.line(" " * 11, clean(str(result.error)), "context")
        if result.text:
            print()
            print("\n".join(clean(line) for line in result.text.splitlines()), flush=True)


def clean_piece(text: str) -> str:
    """Return a piece of text for a terminal; its line breaks stay."""
    return "\n".join(clean(line) for line in text.split("\n"))


def print_dry(dry: DryRun, trace: Trace) -> None:
    """Print what would be sent: its parts for people, and the body as it would leave."""
    for role, text in parts_of(trace):
        print(f"{clean(role)}:")
        print("\n".join(f"  {clean(line)}" for line in text.split("\n")))
    if dry.tools:
        print(f"tools: {', '.join(map(clean, dry.tools))}")
    if dry.wire is not None:
        print(f"\n{len(dry.wire):,} bytes would be sent:")
        print(clean(dry.wire.decode("utf-8", "replace")))
