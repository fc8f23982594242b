"""Patterns against values."""

from __future__ import annotations

from nimblevm.errors import InternalError, ValueKindError
from nimblevm.relay import ir
from nimblevm.relay.values import ADTValue, Value, describe


def matched(pattern: ir.Pattern, value: Value) -> list[tuple[ir.Var, Value]] | None:
    """The bindings of a pattern that matches, else None. Iterative."""
    bound: list[tuple[ir.Var, Value]] = []
    stack: list[tuple[ir.Pattern, Value]] = [(pattern, value)]
    while stack:
        match stack.pop():
            case (ir.PatternWildcard(), _):
                pass
            case (ir.PatternVar(var=var), part):
                bound.append((var, part))
            case (ir.PatternConstructor(constructor=wanted, patterns=patterns), part):
                if (
                    not isinstance(part, ADTValue)
                    or part.constructor.belong_to is not wanted.belong_to
                ):
                    raise ValueKindError(
                        f"a pattern of {wanted.belong_to.name_hint} meets {describe(part)}"
                    )
                if part.constructor.tag != wanted.tag:
                    return None
                stack.extend(reversed(list(zip(patterns, part.fields, strict=True))))
            case (ir.PatternTuple(patterns=patterns), part):
                if not isinstance(part, tuple) or len(part) != len(patterns):
                    raise ValueKindError(
                        f"a pattern of {len(patterns)} fields meets {describe(part)}"
                    )
                stack.extend(reversed(list(zip(patterns, part, strict=True))))
            case (other, _):
                raise InternalError(f"unknown pattern {type(other).__name__}")
    return bound
