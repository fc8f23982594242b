"""Whether an operator's attributes have the types that its record says: what a builder was given may be anything.

Relations then only ask for ranges. Text can't go wrong here, its parser reads by the same hints.
"""

from __future__ import annotations

import functools
import numbers
import types
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm.relay.dims import DimExpr
from nimblevm.relay.types import Type

Check = Callable[[Any], bool]
BITS = 63


def _integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and -(2**BITS) <= value < 2**BITS


def _flag(value: Any) -> bool:
    """TVM's users write 0 and 1 too."""
    return isinstance(value, bool | np.bool_) or (_integer(value) and value in (0, 1))


_PLAIN: dict[Any, tuple[Check, str]] = {
    int: (_integer, "an integer of 64 bits"),
    bool: (_flag, "a bool"),
    float: (lambda v: isinstance(v, numbers.Real | np.number), "a number"),
    str: (lambda v: isinstance(v, str), "a string"),
    type(None): (lambda v: v is None, "None"),
    DimExpr: (lambda v: isinstance(v, DimExpr), "a dim"),
    Type: (lambda v: isinstance(v, Type), "a type"),
}


def _checks(hints: tuple[Any, ...]) -> tuple[list[Check], list[str]]:
    made = [_check(hint) for hint in hints]
    return [check for check, _ in made], [name for _, name in made]


def _check(hint: Any) -> tuple[Check, str]:
    """The test of a hint and its words. Hints nest a few levels deep, so this recurses."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        checks, names = _checks(parts)
        if DimExpr in parts:  # sizes may be products that overflow: that is the run's error
            checks.append(lambda v: isinstance(v, int))
        return lambda v: any(check(v) for check in checks), " or ".join(dict.fromkeys(names))
    if typing.get_origin(hint) is tuple and parts[-1:] == (...,):
        item, name = _check(parts[0])
        # One value may stand for a tuple of it.
        return (
            lambda v: all(map(item, v)) if isinstance(v, tuple | list) else item(v),
            f"a tuple, each {name}",
        )
    if typing.get_origin(hint) is tuple:
        checks, names = _checks(parts)
        return (
            lambda v: (
                isinstance(v, tuple | list)
                and len(v) == len(checks)
                and all(check(item) for check, item in zip(checks, v, strict=True))
            ),
            f"({', '.join(names)})",
        )
    raise TypeError(f"no test for attributes of type {hint!r}")


@functools.cache
def _fields(attrs_class: type) -> tuple[tuple[str, Check, str], ...]:
    return tuple((name, *_check(hint)) for name, hint in typing.get_type_hints(attrs_class).items())


def attribute_fault(attrs_class: type | None, attrs: Any) -> str | None:
    """What is wrong with the types of `attrs` for an operator whose record has `attrs_class`; None if nothing is."""
    if attrs_class is None:
        return None if attrs is None else f"it takes no attributes, got {attrs!r}"
    if not isinstance(attrs, attrs_class):
        return f"its attributes must be a {attrs_class.__name__}, not {attrs!r}"
    for name, check, words in _fields(attrs_class):
        value = getattr(attrs, name)
        if not check(value):
            return f"{name} must be {words}, not {value!r}"
    return None
