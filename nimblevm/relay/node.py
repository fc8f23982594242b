"""What all nodes of Relay share: a place in a source, Relay text, and lists where a tuple is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from typing import TypeVar as PyTypeVar

from nimblevm.arguments import shown
from nimblevm.errors import InvalidInputType
from nimblevm.relay.immutable import Immutable


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source: 1-based lines and columns; the end is exclusive."""

    source: str
    line: int
    column: int
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


class SourceName(str):
    """The name of a source, as TVM writes it: `Span(SourceName("model.rly"), 1, 1)`. It is the string."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


# relay/printer.py registers itself here, so that str(node) is Relay text without an import cycle.
_TEXT_WRITERS: list[Callable[..., str]] = []


def register_text_writer(text: Callable[[Any], str], astext: Callable[..., str]) -> None:
    """Install the functions behind `str(node)` and `node.astext(...)` (called once, by relay/printer.py)."""
    _TEXT_WRITERS[:] = [text, astext]


def _text(node: object) -> str:
    if _TEXT_WRITERS:
        return _TEXT_WRITERS[0](node)
    return f"<{type(node).__name__} at {id(node):#x}>"


class HasText:
    """What has Relay text: `str(x)` is the plain one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _text(self)

    def astext(self, show_meta_data: bool = True, annotate: Any = None, **options: bool) -> str:
        """Relay text with header and metadata, which relay.parse reads back; see printer.astext for options."""
        if not _TEXT_WRITERS:
            raise RuntimeError("import nimblevm.relay first: its printer writes the text")
        return _TEXT_WRITERS[1](self, show_meta_data, annotate, **options)

    def show(self) -> None:
        """Print the text, without metadata."""
        print(self.astext(show_meta_data=False))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Node(HasText, Immutable):
    """Base of everything with a place in a source: each kind has a field `span`, where its constructor takes it."""

    if TYPE_CHECKING:

        @property
        def span(self) -> Span | None: ...


E = PyTypeVar("E", covariant=True)
Many: TypeAlias = Iterable[E] | None
"""What TVM's constructors take where a node holds a tuple."""


# What fields hold that can be told apart from other nodes; the others hold expressions, patterns or types.
_HELD = {"params": "Var", "clauses": "Clause"}


def as_tuples(node: Node, *names: str) -> None:
    """Let lists stand where tuples are meant, and None for no elements, as TVM's constructors allow.

    What stands in a list is a user's and looked at; passes give tuples, which are taken as they are but for what
    means an expression.
    """
    for name in names:
        value = getattr(node, name)
        if type(value) is tuple:
            for part in value:
                if not isinstance(part, Immutable):
                    object.__setattr__(node, name, tuple([meant(part) for part in value]))
                    break
        else:
            if not isinstance(value, Iterable | None) or isinstance(value, str):
                kinds = type(node).__name__, type(value).__name__
                raise TypeError(f"{name} of a {kinds[0]} must be a list or tuple, not {kinds[1]}")
            parts = () if value is None else tuple([meant(part) for part in value])
            for part in parts:
                _check_part(node, name, part)
            object.__setattr__(node, name, parts)


def meant(value: Any) -> Any:
    """The node that stands behind a Python object: what has `asobject`, as TVM's objects for Python alone do."""
    made = None if isinstance(value, Node) else getattr(value, "asobject", None)
    return value if made is None else made()


def _check_part(node: Node, name: str, part: object) -> None:
    held = _HELD.get(name)
    known = (
        any(kind.__name__ == held for kind in type(part).__mro__)
        if held
        else isinstance(part, Immutable)
    )
    if not known:
        wanted = f"{held}s" if held else "expressions, patterns or types"
        raise InvalidInputType(
            f"{name} of a {type(node).__name__} must be {wanted}, not {no_expression(part)}"
        )


def no_expression(value: object) -> str:
    """What stands where a node was expected, and what makes one of it."""
    advice = ""
    if isinstance(value, int | float):
        advice = f"; relay.const({value!r}) makes an expression of it"
    elif type(value).__name__ == "IRModule":
        advice = '; mod["main"] is a module\'s function'
    return f"{shown(value)}{advice}"


__all__ = [
    "HasText", "Many", "Node", "SourceName", "Span", "as_tuples", "meant", "no_expression", "register_text_writer",
]  # fmt: skip
