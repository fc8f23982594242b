"""The parser's foundation: a cursor over tokens, lexical scopes, and the trampoline that runs grammar rules.

A rule that may nest is a generator: it yields the rule it needs and is sent that rule's value. The trampoline keeps
the suspended rules on a list, so nesting costs heap, not Python stack. Rules that can't nest are plain methods.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Generator, Iterable
from importlib import resources
from typing import Any, NoReturn, TypeAlias, TypeVar

from nimblevm.relay.ir import Span
from nimblevm.relay.lexer import NESTING_LIMIT, Token, tokenize
from nimblevm.relay.source import SourceText

_DEFINED = re.compile(r"(?m)^(?:def |type |  (?=[A-Z]))(@?\w+)")
"""What Relay text defines: functions, types and the constructors that stand on lines of their own."""

T = TypeVar("T")
Rule: TypeAlias = Generator[Any, Any, T]

# A bracket suspends at most four rules; what nests without brackets (`fn () -> fn () -> ...`) meets this limit alone.
_FRAME_LIMIT = 4 * NESTING_LIMIT + 16

_KIND_NAMES = {
    "number": "a number", "name": "a name", "local": "a local variable (%name)", "graph": "a graph variable (%0)",
    "global": "a global (@name)", "string": "a string", "dim": "a dim (?)", "projection": "a projection (.0)",
    "end": "the end of the text", "metadata": "#[metadata]", "version": "the version header",
}  # fmt: skip


def kind_text(kind: str) -> str:
    """How messages call a kind of token."""
    return _KIND_NAMES.get(kind, f"'{kind}'")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" or nothing."""
    close = difflib.get_close_matches(name, list(known), 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def where_defined(name: str, known: Iterable[str]) -> str:
    """A hint for a constructor, type or @function that is not there: it may be the prelude's, which is not loaded."""
    text = resources.files("nimblevm.relay").joinpath("prelude.rly").read_text(encoding="utf-8")
    if name in re.findall(_DEFINED, text):
        return "; the prelude has it: parse(text, init_module=relay.prelude.Prelude().mod)"
    return did_you_mean(name, known)


class Scope:
    """Names in a dictionary with an undo log: leaving a scope costs what was bound in it."""

    def __init__(self) -> None:
        self.names: dict[Any, Any] = {}
        self._undo: list[tuple[Any, Any]] = []

    def bind(self, name: Any, value: Any) -> None:
        self._undo.append((name, self.names.get(name)))
        self.names[name] = value

    def mark(self) -> int:
        return len(self._undo)

    def leave(self, mark: int) -> None:
        """Undo all bindings since `mark()` returned `mark`."""
        while len(self._undo) > mark:
            name, old = self._undo.pop()
            if old is None:
                del self.names[name]
            else:
                self.names[name] = old


class Cursor:
    """The current token as `kind` and `token`, steps, spans and errors."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.position = 0
        self.token = self.tokens[0]
        self.kind = self.token.kind

    def seek(self, position: int) -> None:
        """Make tokens[position] the current token."""
        self.position = position
        self.token = self.tokens[position]
        self.kind = self.token.kind

    def advance(self) -> Token:
        """Step over the current token and return it; the "end" token stays."""
        token = self.token
        if self.position + 1 < len(self.tokens):
            self.position += 1
            self.token = self.tokens[self.position]
            self.kind = self.token.kind
        return token

    def peek(self, ahead: int = 1) -> str:
        """The kind of a later token."""
        return self.tokens[min(self.position + ahead, len(self.tokens) - 1)].kind

    def accept(self, kind: str) -> bool:
        """Step over the current token if it is of that kind."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def expect(self, kind: str, where: str = "") -> Token:
        """Step over a token that must be of that kind."""
        if self.kind != kind:
            self.fail_expected(kind_text(kind), where)
        return self.advance()

    def span_from(self, start: Token) -> Span:
        """From a token to the end of the one before the current one."""
        return self.source.span(start.start, self.tokens[max(self.position - 1, 0)].end)

    def span_of(self, token: Token) -> Span:
        return self.source.span(token.start, token.end)

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        """Raise a located RelaySyntaxError at a token, the current one if none is given."""
        at = token or self.token
        raise self.source.error(message, at.start, max(at.end, at.start + 1))

    def fail_expected(self, what: str, where: str = "") -> NoReturn:
        """Raise "expected ... but found ..." at the current token."""
        names_kind = self.kind in ("end", "metadata", "version")
        found = kind_text(self.kind) if names_kind else f"'{self.token.text}'"
        place = f" {where}" if where else ""
        at = self.token if self.kind != "metadata" else self.token._replace(text="#")
        if self.kind == "end" and self.position:
            at = at._replace(start=self.tokens[self.position - 1].end)  # show the line that goes on
        self.fail(f"expected {what}{place}, but found {found}", at)

    def items(self, close: str, item: Callable[[], Rule[T]], where: str) -> Rule[list[T]]:
        """Items separated by commas, up to and with the closing bracket; a trailing comma is allowed."""
        found: list[T] = []
        while not self.accept(close):
            found.append((yield item()))
            if not self.accept(",") and self.kind != close:
                self.fail_expected(f"',' or '{close}'", where)
        return found

    def run(self, rule: Rule[T]) -> T:
        """Run a rule with all the rules that it needs, and return its value."""
        stack: list[Rule[Any]] = [rule]
        push, pop = stack.append, stack.pop
        value: Any = None
        while stack:
            try:
                needed = stack[-1].send(value)
            except StopIteration as stop:
                pop()
                value = stop.value
            else:
                push(needed)
                value = None
                if len(stack) > _FRAME_LIMIT:
                    self.fail(f"this nests deeper than {NESTING_LIMIT:,}")
        result: T = value
        return result
