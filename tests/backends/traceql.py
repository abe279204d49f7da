"""A parser for the part of TraceQL that the dashboards use.

By the grammar of https://grafana.com/docs/tempo/latest/traceql/construct-traceql-queries/: spansets
of comparisons joined by `&&` and `||`, and the pipeline stage `select(...)`. Attributes are scoped
(`span.`, `resource.`), intrinsics are not.

    query      = spanset { "|" "select" "(" attribute { "," attribute } ")" }
    spanset    = "{" [ or ] "}"
    or         = and { "||" and }
    and        = term { "&&" term }
    term       = "(" or ")" | operand operator operand
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "=~" | "!~"
    operand    = attribute | intrinsic | string | number | duration | "true" | "false" | "nil" | status
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*"|`[^`]*`)
      | (?P<attribute>(?:span|resource|event|link|instrumentation)\.[A-Za-z_][\w.-]*)
      | (?P<duration>\d+(?:\.\d+)?(?:ns|us|ms|s|m|h)\b)
      | (?P<number>-?\d+(?:\.\d+)?)
      | (?P<word>[A-Za-z][\w:]*)
      | (?P<operator>=~|!~|!=|<=|>=|&&|\|\||[=<>{}()|,])
    )""",
    re.VERBOSE,
)
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "=~", "!~")
_INTRINSICS = ("duration", "name", "status", "statusMessage", "kind", "rootName",
               "rootServiceName", "traceDuration", "span:duration", "span:name", "trace:id")  # fmt: skip
_CONSTANTS = ("true", "false", "nil", "error", "ok", "unset", "server", "client", "internal")


class TraceQLError(ValueError):
    """This is no query."""


@dataclass
class Query:
    """What a query names."""

    attributes: list[tuple[str, str]] = field(default_factory=list)
    """Scope and key of each attribute."""
    comparisons: list[tuple[str, str, str]] = field(default_factory=list)
    """What is compared: attribute or intrinsic, operator, operand."""

    def holds(self, attributes: dict[str, Any]) -> bool:
        """Tell whether a span fits a query of `=` and `!=` alone, all joined by `&&`."""
        for name, operator, operand in self.comparisons:
            wanted = None if operand == "nil" else json.loads(operand)
            same = attributes.get(name.removeprefix("span.")) == wanted
            if same != (operator == "="):
                return False
        return True


def parse(text: str) -> Query:
    """Read a query.

    Raises:
        TraceQLError: it does not follow the grammar.
    """
    return _Parser(text).query()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise TraceQLError(f"no token at {text[at:][:20]!r}")
            kind = found.lastgroup or ""
            self.tokens.append((kind, found[kind]))
            at = found.end()
        self.at = 0
        self.found = Query()

    def query(self) -> Query:
        self.take("{")
        if self.peek() != "}":
            self.either()
        self.take("}")
        while self.at < len(self.tokens):
            self.take("|")
            self.take("select")
            self.take("(")
            self.attribute()
            while self.peek() == ",":
                self.take(",")
                self.attribute()
            self.take(")")
        return self.found

    def either(self) -> None:
        self.both()
        while self.peek() == "||":
            self.take("||")
            self.both()

    def both(self) -> None:
        self.term()
        while self.peek() == "&&":
            self.take("&&")
            self.term()

    def term(self) -> None:
        if self.peek() == "(":
            self.take("(")
            self.either()
            self.take(")")
            return
        _, left = self.operand()
        _, operator = self.next()
        if operator not in _COMPARISONS:
            raise TraceQLError(f"{operator!r} is no comparison")
        kind, value = self.operand()
        self.found.comparisons.append((left, operator, value))
        if operator in ("=~", "!~"):
            if kind != "string":
                raise TraceQLError("a pattern is a string")
            try:
                re.compile(re.sub(r"\$\{[^}]*\}", "x", value[1:-1]))
            except re.error as error:
                raise TraceQLError(f"{value} is no pattern: {error}") from None

    def operand(self) -> tuple[str, str]:
        kind, value = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        if kind == "attribute":
            return kind, self.attribute()
        if kind in ("string", "number", "duration"):
            return self.next()
        if kind == "word" and value in (*_INTRINSICS, *_CONSTANTS):
            return self.next()
        raise TraceQLError(f"{value!r} is nothing to compare")

    def attribute(self) -> str:
        kind, value = self.next()
        if kind != "attribute":
            raise TraceQLError(f"{value!r} is no attribute")
        scope, _, name = value.partition(".")
        self.found.attributes.append((scope, name))
        return value

    def take(self, wanted: str) -> None:
        _, value = self.next()
        if value != wanted:
            raise TraceQLError(f"{value!r} stands where {wanted!r} belongs")

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def next(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise TraceQLError("it ends too early")
        self.at += 1
        return self.tokens[self.at - 1]
