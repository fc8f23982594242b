"""tvm.tir: what sizes are, for scripts that make unknown ones and ask about those of a type. There is no TIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any as AnyValue

from nimblevm.arguments import explain_arguments, shown
from nimblevm.errors import InvalidInputType
from nimblevm.relay import dims
from nimblevm.tvm.absent import TIR, explain_absent


class _Kind(type):
    """A class that stands for values of other classes: isinstance asks `holds`."""

    holds: Callable[[object], bool]

    def __instancecheck__(cls, value: object) -> bool:
        return cls.holds(value)


class Any(metaclass=_Kind):
    """A size that a run decides. Any() is another one wherever a type has it; every size of a type that is no number
    is one of these, also one with a name and an expression."""

    holds = staticmethod(lambda value: isinstance(value, dims.DimExpr))

    def __new__(cls, span: AnyValue = None) -> dims.DimVar:  # type: ignore[misc]
        return dims.AnyDim()


class IntImm(metaclass=_Kind):
    """A size that is known: an int of Python. `int(size)` reads it; it has no `value`."""

    holds = staticmethod(lambda value: isinstance(value, int) and not isinstance(value, bool))

    def __new__(cls, dtype: str, value: int, span: AnyValue = None) -> int:  # type: ignore[misc]
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidInputType(f"IntImm: value must be a whole number, not {shown(value)}")
        return value


class Var(metaclass=_Kind):
    """A size with a name, as te.var makes them: the same wherever it stands."""

    holds = staticmethod(lambda value: isinstance(value, dims.DimVar) and value.name is not None)

    def __new__(cls, name: str, dtype: str = "int32", span: AnyValue = None) -> dims.DimVar:  # type: ignore[misc]
        return dims.DimVar(name)


SizeVar = Var


class PrimExpr(metaclass=_Kind):
    """Any size of a type."""

    holds = staticmethod(lambda value: IntImm.holds(value) or Any.holds(value))


__all__ = ["Any", "IntImm", "PrimExpr", "SizeVar", "Var"]

explain_arguments(globals(), __all__)

__getattr__ = explain_absent(__name__, TIR, __all__)
