"""The numbers that dim variables have while a program runs in the interpreter."""

from __future__ import annotations

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar


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
