"""`Prompt`: text that knows its blocks, and is text to everybody else.

A prompt is put together from named sections, from a template or by appending. Its blocks tile its
UTF-8 bytes exactly, or it has none (`mapped` is False). It is a `str`: every library takes it as
the text that it is, and what is made of it by slicing, adding or formatting is plain text.

    prompt = Prompt.from_jinja(
        "triage",
        "You sort tickets, at most {{ limit }} at once. {{ identity_context }}",
        sections={"identity_context": identity},
        inline={"limit": 5},
    )
    prompt = prompt.append_section("working_memory", memory)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from msgspec import Struct

from clew._guard import logger
from clew.errors import ConfigurationError
from clew.prompts import marks, registry, templates
from clew.prompts.blocks import Block, fits
from clew.prompts.marks import Piece, Rendered, tile
from clew.prompts.sections import Kind, kind_of

if TYPE_CHECKING:
    from typing import Self

    import jinja2

BETWEEN: Final = "\n\n"
"""What stands between sections that are appended; it belongs to the later one."""


class Section(Struct, frozen=True, kw_only=True):
    """The text of a section whose kind its name does not tell."""

    text: str | None
    kind: Kind


SectionText = str | Section | None
"""What a section may be given as; None and empty text are absent."""


class Prompt(str):
    """Text with a map of its blocks.

    `Prompt("text")` is text without a map. The ways to one with a map are `of`, `from_jinja`,
    `from_format`, `from_render`, `concat`, `append_section` and `adopt_appended`. A prompt does not
    change: the last two return a new one. Equality, hash and `repr` are those of the text.
    """

    __slots__ = ("__weakref__", "blocks", "dropped")

    blocks: tuple[Block, ...]
    """The blocks, which tile the text's UTF-8 bytes exactly; empty where there is no map."""
    dropped: bool
    """True where a map was asked for and could not be kept; nothing appended brings it back."""

    def __new__(cls, text: str = "") -> Self:
        """Make a prompt without a map."""
        return cls._made(text, ())

    @classmethod
    def _made(cls, text: str, blocks: Sequence[Block], *, dropped: bool = False) -> Self:
        """Make a prompt; blocks that do not tile its text are dropped."""
        prompt = str.__new__(cls, text)
        kept = tuple(blocks)
        if kept:
            data = text.encode("utf-8", "surrogatepass")
            if fits(kept, data):
                registry.register(data, kept, prompt)
            else:
                kept, dropped = (), True
                logger.warning("A prompt has no block map: the blocks given do not tile its text")
        object.__setattr__(prompt, "blocks", kept)
        object.__setattr__(prompt, "dropped", dropped)
        return prompt

    # --- how prompts are put together ------------------------------------------------------------
    @classmethod
    def of(
        cls,
        sections: Mapping[str, SectionText] | Sequence[tuple[str, SectionText]] = (),
        /,
        **named: SectionText,
    ) -> Self:
        """Join sections, in the order given, with a blank line between them.

        The blank line belongs to the block behind it. None and empty text are absent.

        Args:
            sections: text by section name, or pairs of these (then a name may come twice).
            named: further sections, by their names.
        """
        pairs = sections.items() if isinstance(sections, Mapping) else sections
        pieces: list[Piece] = []
        for name, given in (*pairs, *named.items()):
            text, kind = _section(name, given)
            if text:
                between = BETWEEN if pieces else ""
                pieces.append(Piece(id=name, kind=kind, text=between + text))
        return cls._of_pieces("", (), pieces)

    @classmethod
    def from_jinja(
        cls,
        name: str,
        template: str | jinja2.Template,
        *,
        sections: Mapping[str, SectionText] | None = None,
        inline: Mapping[str, Any] | None = None,
    ) -> Self:
        """Render a Jinja2 template.

        It is rendered twice, once with the sections marked. The text is that of the first time;
        where the second differs in more than the marks, there is no map.

        Args:
            name: what the template is called: its own prose is the block `template:<name>`.
            template: its source (compiled with Jinja2's defaults, except that a variable that is
                not given is an error), or a template of an environment of your own.
            sections: text that becomes blocks, by variable name. None and empty text are given to
                the template as empty text.
            inline: values that stay prose (paths, flags, lists), by variable name.

        Raises:
            MissingExtraError: Jinja2 is not installed.
            ConfigurationError: a name is both a section and inline.
        """
        return cls.from_render(name, templates.jinja(template), sections=sections, inline=inline)

    @classmethod
    def from_format(
        cls,
        name: str,
        template: str,
        *,
        sections: Mapping[str, SectionText] | None = None,
        inline: Mapping[str, Any] | None = None,
    ) -> Self:
        """Fill in a template with named fields, as `str.format_map` does.

        Args:
            name: what the template is called.
            template: text with fields like `{persona}` or `{limit:,}`.
            sections: text that becomes blocks, by field name; None and empty text are absent.
            inline: values that stay prose, by field name.

        Raises:
            KeyError: a field is not given.
            ConfigurationError: a name is both a section and inline.
        """
        renderer = templates.named_fields(template)
        return cls.from_render(name, renderer, sections=sections, inline=inline)

    @classmethod
    def from_render(
        cls,
        name: str,
        renderer: Callable[[Mapping[str, Any]], str],
        *,
        sections: Mapping[str, SectionText] | None = None,
        inline: Mapping[str, Any] | None = None,
    ) -> Self:
        """Let any function put the text together: an f-string, another template library.

        Args:
            name: what the template is called.
            renderer: takes the values by name and returns the text. It is called twice and its
                answers are compared, so it should do nothing else.
            sections: text that becomes blocks, by name; None and empty text are given as "".
            inline: values that stay prose, by name.

        Raises:
            ConfigurationError: a name is both a section and inline.
        """
        marked = {key: _section(key, given) for key, given in (sections or {}).items()}
        values = inline or {}
        both = sorted(marked.keys() & values.keys())
        if both:
            raise ConfigurationError(f"{both[0]!r} is given as a section and inline; choose one")
        return cls._rendered(marks.render(name, renderer, marked, values))

    @classmethod
    def concat(cls, *prompts: str) -> Self:
        """Put prompts one behind the other, with nothing between, and keep their blocks.

        There is a map where each of them that is not empty has one.
        """
        blocks: list[Block] = []
        at = 0
        mapped = True
        for prompt in prompts:
            own = prompt.blocks if isinstance(prompt, Prompt) else ()
            mapped = mapped and (bool(own) or not prompt)
            blocks += [block.moved(at) for block in own]
            at = blocks[-1].end if blocks else 0
        dropped = any(isinstance(prompt, Prompt) and prompt.dropped for prompt in prompts)
        return cls._made("".join(prompts), blocks if mapped else (), dropped=dropped)

    def append_section(self, name: str, text: SectionText, *, kind: Kind | None = None) -> Self:
        """Return this prompt with a section at its end, behind a blank line.

        The blank line belongs to the new block; there is none behind an empty prompt. Absent text
        changes nothing. Behind text without a map no block is recorded.

        Args:
            name: the section's name, the id of its block.
            text: the section's text.
            kind: what it is, where its name does not tell.
        """
        given, found = _section(name, text)
        if not given:
            return self
        new = BETWEEN + given if self else given
        return self._grown(Piece(id=name, kind=kind or found, text=new))

    def adopt_appended(self, replacement: str, name: str, *, kind: Kind | None = None) -> Self:
        """Return the prompt that somebody else has appended to: what is new is one block.

        Args:
            replacement: the whole text as it is now. If it does not begin with this prompt, the
                map is dropped, with a warning.
            name: the id of the new block.
            kind: what it is, where its name does not tell.
        """
        if replacement == self:
            return self
        if not replacement.startswith(self):
            if self.blocks:
                logger.warning(
                    "A prompt has no block map any more: what was to be appended as %r has "
                    "replaced its text",
                    name,
                )
            return self._made(replacement, (), dropped=True)
        new = replacement[len(self) :]
        return self._grown(Piece(id=name, kind=kind or kind_of(name), text=new))

    def _grown(self, piece: Piece) -> Self:
        if self.dropped or (self and not self.blocks):
            return self._made(str(self) + piece.text, (), dropped=self.dropped)
        return self._of_pieces(str(self), self.blocks, [piece])

    @classmethod
    def _of_pieces(cls, text: str, blocks: tuple[Block, ...], pieces: Sequence[Piece]) -> Self:
        """Make a prompt of a mapped beginning and pieces behind it."""
        text += "".join([piece.text for piece in pieces])
        at = blocks[-1].end if blocks else 0
        try:
            new = [block.moved(at) for block in tile(pieces)]
        except UnicodeEncodeError:
            logger.warning("A prompt has no block map: its text has no UTF-8")
            return cls._made(text, (), dropped=True)
        return cls._made(text, (*blocks, *new))

    @classmethod
    def _rendered(cls, rendered: Rendered) -> Self:
        return cls._made(rendered.text, rendered.blocks, dropped=rendered.dropped)

    # --- what it knows ---------------------------------------------------------------------------
    @property
    def text(self) -> str:
        """The text as a plain `str`."""
        return str(self)

    @property
    def mapped(self) -> bool:
        """Whether there is a map."""
        return bool(self.blocks)

    # --- what text has to do ---------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"a prompt does not change; {name!r} cannot be set")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), str(self), self.blocks, self.dropped)


def _restored(cls: type[Prompt], text: str, blocks: tuple[Block, ...], dropped: bool) -> Prompt:
    """Unpickle a prompt; its blocks must tile its text here, too."""
    return cls._made(text, blocks, dropped=dropped)


def _section(name: str, given: SectionText) -> tuple[str, Kind]:
    """Return the text and the kind of a section."""
    if isinstance(given, Section):
        return given.text or "", given.kind
    return given or "", kind_of(name)
