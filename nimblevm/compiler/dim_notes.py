"""What entries of functions compare, and how messages name what was demanded of a dim.

Shared by emit, which makes instructions of it, and by dim_report, which tells people.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimOp, DimVar
from nimblevm.relay.ir import Var
from nimblevm.relay.text import PLAIN, Names, dim_text
from nimblevm.relay.types import TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class EntryDim:
    """One axis of a parameter, seen from the function's entry.

    path    field numbers from the parameter to the tensor, through tuples
    binds   the axis gives the variable `dim` its number; else the entry compares it (a static size only where
            the caller is not known)
    """

    param: Var
    path: tuple[int, ...]
    axis: int
    dim: Dim
    binds: bool

    @property
    def place(self) -> str:
        """`%x` or, inside of tuples, `%x.0.1`."""
        return f"%{self.param.name_hint}{''.join(f'.{i}' for i in self.path)}"


def tensor_paths(type_: Type) -> Iterator[tuple[tuple[int, ...], TensorType]]:
    """The tensors that a value has for certain, through tuples and from left to right, with their field numbers."""
    stack: list[tuple[Type, tuple[int, ...]]] = [(type_, ())]
    while stack:
        current, path = stack.pop()
        if isinstance(current, TupleType):
            stack.extend((f, (*path, i)) for i, f in reversed(list(enumerate(current.fields))))
        elif isinstance(current, TensorType):
            yield path, current


def entry_dims(params: Sequence[Var], known: Container[object]) -> Iterator[EntryDim]:
    """Every axis of the parameters; `known` are the dims that have numbers before the entry (captured ones)."""
    first: set[DimVar] = set()
    for param in params:
        type_ = param.checked_type
        for path, tensor in tensor_paths(type_) if type_ is not None else ():
            for axis, dim in enumerate(tensor.shape):
                binds = isinstance(dim, DimVar) and dim not in first and dim not in known
                if isinstance(dim, DimVar) and binds:
                    first.add(dim)
                yield EntryDim(param, path, axis, dim, binds)


def _one_at_most(dim: Dim) -> bool:
    """Whether a dim is 1 or min(1, something): see op.common.require_nonempty."""
    return dim == 1 or (isinstance(dim, DimOp) and dim.op == "min" and 1 in dim.args)


def _means_not_empty(dim: Dim) -> bool:
    return isinstance(dim, DimOp) and dim.op == "max" and any(_one_at_most(a) for a in dim.args)


def named(dim: Dim) -> str:
    """How a message names a demanded dim: " (?n + 1)", nothing for a size or for an unknown without a name."""
    if _means_not_empty(dim):
        return " (which must not be empty)"
    if isinstance(dim, DimOp) and dim.op == "mul" and len(dim.args) == 2:
        first, second = dim.args
        if isinstance(second, DimOp) and second.op == "floordiv" and second.args[1] == first:
            return f" (which must be a multiple of {first})"
    if isinstance(dim, int) or any(v.name is None for v in dims.free_vars(dim)):
        return ""
    return f" ({dim_text(dim)})"


def demand_text(actual: Dim, expected: Dim, names: Names = PLAIN) -> str:
    """What `actual` == `expected` demands, as a sentence: "must be 4", "?k * ?d must be a multiple of 2"."""
    if _means_not_empty(expected):
        return "must not be empty"
    difference = dims.sub(actual, expected)
    for atoms, coefficient in dims.polynomial(difference).items():
        atom = atoms[0] if len(atoms) == 1 else None
        if not isinstance(atom, DimOp) or atom.op != "floordiv":
            continue
        whole, divisor = atom.args
        rest = dims.sub(difference, dims.mul(coefficient, atom))
        multiple = whole if coefficient < 0 else dims.neg(whole)
        if abs(coefficient) == divisor and dims.compare(rest, multiple):
            what = "" if whole is actual else f"{dim_text(whole, names)} "
            return f"{what}must be a multiple of {divisor}"
    return f"must be {dim_text(expected, names)}"


__all__ = ["EntryDim", "demand_text", "entry_dims", "named", "tensor_paths"]
