"""YAML documents that know on which line each of their parts stands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.errors import ConfigurationError, MissingExtraError


class Document(NamedTuple):
    """What a YAML text says, and where it says it."""

    path: Path
    data: Any
    root: Any
    """The node of the YAML library; None for an empty text."""
    offset: int
    """Lines of the file before the text."""

    def line(self, place: Sequence[str | int] = ()) -> int:
        """Return the line, from 1, of the value at a place: keys and indexes from the top."""
        node = self.root
        line = 0 if node is None else node.start_mark.line
        for step in place:
            for key, value in _members(node):
                if key == step:
                    line, node = value[0], value[1]
                    break
            else:
                break
        return self.offset + line + 1

    def where(self, place: Sequence[str | int] = ()) -> str:
        """Return `file:line` of the value at a place."""
        return f"{self.path}:{self.line(place)}"


def parse(text: str, path: Path, *, offset: int = 0) -> Document:
    r"""Read a YAML text.

    Args:
        text: the text, with `\n` as line break.
        path: the file that it is from, for errors.
        offset: lines of the file before it.

    Raises:
        ConfigurationError: it is no YAML, or a mapping has a key twice.
        MissingExtraError: PyYAML is not installed.
    """
    try:
        import yaml  # pyright: ignore[reportMissingModuleSource]
    except ImportError:
        raise MissingExtraError("reading YAML", "yaml") from None
    loader: Any = yaml.SafeLoader(text)
    try:
        root: Any = loader.get_single_node()
        document = Document(path, None, root, offset)
        _refuse_twice(document, root)
        data: Any = None if root is None else loader.construct_document(root)
    except ConfigurationError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = offset + (0 if mark is None else mark.line) + 1
        raise ConfigurationError(f"{path}:{line}: no YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: no YAML: {type(error).__name__}") from None
    finally:
        loader.dispose()
    return document._replace(data=data)


def read_text(path: Path) -> str:
    r"""Return the text of a file, with `\n` as line break and without a byte order mark.

    Raises:
        ConfigurationError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: it is not UTF-8: byte {error.start}") from None


def _members(node: Any) -> list[tuple[Any, tuple[int, Any]]]:
    kind = getattr(node, "id", None)
    if kind == "mapping":
        return [(key.value, (key.start_mark.line, value)) for key, value in node.value]
    if kind == "sequence":
        return [(at, (value.start_mark.line, value)) for at, value in enumerate(node.value)]
    return []


def _refuse_twice(document: Document, root: Any) -> None:
    """Refuse a key that a mapping has twice: YAML's reader would take the last in silence."""
    waiting = [root]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        keys: set[Any] = set()
        for key, (line, value) in _members(node):
            if node.id == "mapping" and not isinstance(key, list):
                if key in keys and key != "<<":
                    raise ConfigurationError(
                        f"{document.path}:{document.offset + line + 1}: {key!r} is there twice"
                    )
                keys.add(key)
            waiting.append(value)
