"""A tree as tables: what vm.linearize gives, and which of a type's fields it has.

    for each constructor in turn:
        int32 (levels,)         how many of its nodes are on each level
        for each field:
          the type itself:      int32 (nodes,), which row each child is
          a tensor of static
          size, rank < 8:       its tensors, stacked: (nodes, ...)
          else:                 nothing

A node without children is on level 0, any other one level above its highest child. Rows are numbered by level, on a
level by constructor; the tables of a constructor have its nodes in this order. So children have smaller numbers than
their parents, and the root has the largest. Only types without parameters.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from nimblevm.abi import MAX_RANK
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Constructor
from nimblevm.relay.types import TensorType, TypeCall

SIZES = -1  # in the place of a field: the sizes of levels


class FieldKind(enum.Enum):
    """What becomes of a field."""

    CHILD = "numbers of rows"
    TABLE = "stacked tensors"
    SKIPPED = "nothing"


def kind_of_field(constructor: Constructor, index: int) -> FieldKind:
    match constructor.inputs[index]:
        case TypeCall(func=func, args=args) if func == constructor.belong_to and not args:
            return FieldKind.CHILD
        case TensorType(shape=shape) if len(shape) < MAX_RANK and all(
            isinstance(d, int) for d in shape
        ):
            return FieldKind.TABLE
    return FieldKind.SKIPPED


def tables_of(constructors: Sequence[Constructor], levels: Dim) -> list[dict[int, TensorType]]:
    """For each constructor the types of its tables, by field or SIZES; how many nodes it has is a new dim."""
    found: list[dict[int, TensorType]] = []
    for constructor in constructors:
        nodes = DimVar()
        tables = {SIZES: TensorType((levels,), "int32")}
        for index, type_ in enumerate(constructor.inputs):
            kind = kind_of_field(constructor, index)
            if kind is FieldKind.CHILD:
                tables[index] = TensorType((nodes,), "int32")
            elif kind is FieldKind.TABLE and isinstance(type_, TensorType):
                tables[index] = TensorType((nodes, *type_.shape), type_.dtype)
        found.append(tables)
    return found


__all__ = ["SIZES", "FieldKind", "kind_of_field", "tables_of"]
