"""Names in printed text: unique, readable by the lexer, and the user's own where possible."""

from __future__ import annotations

from collections.abc import Iterable

from nimblevm.relay import types
from nimblevm.relay.dims import Dim, DimOp, DimVar
from nimblevm.relay.lexer import is_global_name, is_local_name
from nimblevm.relay.text import Names
from nimblevm.relay.types import HAS_DIM, TensorType, Type, TypeVar


def _clean(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)


def local_name(name: str) -> str:
    """`name` if it can stand behind %, else the nearest name that can."""
    if is_local_name(name):
        return name
    clean = _clean(name)
    return clean if clean[:1].isalpha() or clean[:1] == "_" else f"v{clean}"


def global_name(name: str) -> str:
    """`name` if it can stand behind @, else the nearest name that can."""
    return name if is_global_name(name) else _clean(name) or "_"


class Unique:
    """Hands out names, with a numeric suffix where one is taken. Constant time a name."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def reserve(self, name: str) -> None:
        self._taken.add(name)

    def take(self, wish: str, numbered: bool = False) -> str:
        """`wish`, or `wish` with the next free number; with `numbered`, always a number."""
        number = self._next.get(wish, 0)
        stem = wish if numbered else f"{wish}_"
        name = f"{stem}{number}" if numbered else wish
        while name in self._taken:
            number += 1
            name = f"{stem}{number}"
        self._next[wish] = number
        self._taken.add(name)
        return name


class DefinitionNames(Names):
    """Names of dims and type variables within one definition.

    An unnamed dim that occurs once is `?`, one that recurs is `?d0`; count occurrences with `note_*` first.
    """

    def __init__(self) -> None:
        self._occurrences: dict[DimVar, int] = {}
        self._dims: dict[DimVar, str] = {}
        self._given: set[str] = set()
        self._type_vars: dict[TypeVar, str] = {}
        self._unique_dims = Unique()
        self._unique_types = Unique()

    def note_type(self, root: Type | None) -> None:
        """Count the dims of a type that will be printed; its user-given names are spoken for."""
        stack: list[Type] = [root] if root is not None and root.flags & HAS_DIM else []
        while stack:
            current = stack.pop()
            if isinstance(current, TensorType):
                self.note_dims(current.shape)
            stack.extend(part for part in types.parts(current) if part.flags & HAS_DIM)

    def note_dims(self, shape: Iterable[Dim]) -> None:
        """Count the dims of a shape that will be printed."""
        stack: list[Dim] = list(shape)
        while stack:
            dim = stack.pop()
            if isinstance(dim, DimVar):
                self._occurrences[dim] = self._occurrences.get(dim, 0) + 1
                if dim.name:
                    self._unique_dims.reserve(_clean(dim.name))
            elif isinstance(dim, DimOp):
                stack.extend(dim.args)

    def dim_var(self, var: DimVar) -> str:
        if not var.name and self._occurrences.get(var, 0) <= 1:
            return "?"
        if var not in self._dims:
            self._dims[var] = self._dim_name(var)
        return f"?{self._dims[var]}"

    def _dim_name(self, var: DimVar) -> str:
        if not var.name:
            return self._unique_dims.take("d", numbered=True)
        clean = _clean(var.name)
        if clean in self._given:
            return self._unique_dims.take(clean)
        # note_dims has kept the name from generated ones; its first owner gets it as it is.
        self._given.add(clean)
        self._unique_dims.reserve(clean)
        return clean

    def type_var(self, var: TypeVar) -> str:
        if var not in self._type_vars:
            self._type_vars[var] = self._unique_types.take(_clean(var.name_hint) or "T")
        return self._type_vars[var]


class OpaqueNames(DefinitionNames):
    """For TVM: every unknown dim, and every expression of them, is `?`."""

    opaque_dims = True


__all__ = ["DefinitionNames", "OpaqueNames", "Unique", "global_name", "local_name"]
