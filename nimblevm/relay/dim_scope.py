"""The numbers that dim variables have while a program runs in the interpreter."""

from __future__ import annotations

import dataclasses
from typing import Any

from nimblevm.errors import ShapeMismatch
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr, DimVar


class DimScope:
    """The numbers of dim variables in one activation; looks into the enclosing ones.

    own     variables that are not those of an enclosing activation, whatever number that has
    """

    __slots__ = ("numbers", "own", "parent")

    def __init__(self, parent: DimScope | None = None, own: tuple[DimVar, ...] = ()) -> None:
        self.numbers: dict[DimVar, int] = {}
        self.own = own
        self.parent = parent

    def find(self, var: DimVar) -> int | None:
        scope: DimScope | None = self
        while scope is not None:
            number = scope.numbers.get(var)
            if number is not None:
                return number
            if var in scope.own:
                return None
            scope = scope.parent
        return None

    def value(self, dim: Dim) -> int | None:
        """The number of a dim, None if a variable has none.

        Raises DivisionByZero, DimOverflow, ShapeMismatch (bcast).
        """
        if isinstance(dim, int):
            return dim
        if isinstance(dim, DimVar):
            return self.find(dim)
        env: dict[DimVar, int] = {}
        for var in dims.free_vars(dim):
            number = self.find(var)
            if number is None:
                return None
            env[var] = number
        return dims.evaluate(dim, env)

    def ground(self, attrs: Any) -> Any:
        """An operator's attributes with every dim expression replaced by its number. Raises as `value` does, and
        ShapeMismatch for a dim without one.
        """
        names = _dim_fields(type(attrs)) if attrs is not None else ()
        changed = {name: self._number(getattr(attrs, name)) for name in names}
        return dataclasses.replace(attrs, **changed) if changed else attrs

    def _number(self, dim: Any) -> Any:
        if isinstance(dim, tuple):
            return tuple(self._number(d) for d in dim)
        if not isinstance(dim, DimExpr):
            return dim
        found = self.value(dim)
        if found is None:
            raise ShapeMismatch(f"dim {dim!r} has no value at this place")
        return found


_DIM_FIELDS: dict[type, tuple[str, ...]] = {}


def _dim_fields(attrs: type) -> tuple[str, ...]:
    """The fields of an attribute class that may hold dim expressions."""
    found = _DIM_FIELDS.get(attrs)
    if found is None:
        names = [f.name for f in dataclasses.fields(attrs) if "Dim" in str(f.type)]
        found = _DIM_FIELDS[attrs] = tuple(names)
    return found
