"""How type errors read: where, what was expected, what came, and the place that the expectation
came from.

demo.rly:4:12: dim mismatch on axis 1 of argument %w of nn.dense: expected 300, got 200
  demo.rly:4:22: argument %w has type Tensor[(512, 200), float32]
  demo.rly:3:11: %x has type Tensor[(?n, 300), float32]
"""

from __future__ import annotations

from collections.abc import Iterable

from nimblevm.errors import RelayTypeError
from nimblevm.relay.ir import Call, Constant, Constructor, Expr, Function, GlobalVar, Span, Var
from nimblevm.relay.op.registry import Op
from nimblevm.relay.text import type_text
from nimblevm.relay.types import Type

Note = tuple[Span | None, str]


def show(type_: Type) -> str:
    """A type as Relay text."""
    return type_text(type_)


def place(span: Span | None) -> str:
    """A span as the start of a line."""
    return f"{span}: " if span is not None else ""


def name_of(expr: Expr) -> str:
    """How a message calls an expression."""
    match expr:
        case Var(name_hint=name):
            return f"%{name}"
        case GlobalVar(name_hint=name):
            return f"@{name}"
        case Op(name=name):
            return name
        case Constructor(name_hint=name):
            return name
        case Constant():
            return "a constant"
        case Call(op=op):
            return f"the result of {name_of(op)}" if not isinstance(op, Call) else "a call's result"
    return f"this {type(expr).__name__.lower()}"


def count_text(count: int, noun: str) -> str:
    """`1 argument`, `2 arguments`; a remark in parentheses after the noun stays behind it."""
    word, _, rest = noun.partition(" ")
    return f"{count} {word}{'' if count == 1 else 's'}{' ' + rest if rest else ''}"


def type_error(message: str, span: Span | None, notes: Iterable[Note] = ()) -> RelayTypeError:
    """The exception; notes without a place still say their text."""
    lines = [place(span) + message]
    lines.extend(f"  {place(where)}{text}" for where, text in notes)
    return RelayTypeError("\n".join(lines))


def call_error(
    node: Call, position: int, reason: str, function: Function | None, wanted: Type, given: Note
) -> RelayTypeError:
    """An argument that does not fit its parameter; `function` is the callee where it is known."""
    if function is not None:
        param = function.params[position]
        name, where = f"parameter %{param.name_hint}", param.span or function.span
    else:
        name, where = f"argument {position}", node.op.span
    expected = f"{name} of {name_of(node.op)} has type {show(wanted)}"
    message = f"{reason}, for {name} of {name_of(node.op)}"
    return type_error(message, node.span, [given, (where, expected)])
