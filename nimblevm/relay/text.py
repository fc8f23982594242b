"""Types and dims as Relay text: one writer for the printer and for every error message. Imports no expressions."""

from __future__ import annotations

from typing import Any

from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr, DimVar
from nimblevm.relay.types import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    register_type_writer,
)


class Names:
    """How dims and type variables are called. The printer's subclass makes names unique.

    `opaque_dims`: every dim that is no number is `?`, which is all that TVM can read.
    """

    opaque_dims = False

    def dim_var(self, var: DimVar) -> str:
        return f"?{var.name or ''}"

    def type_var(self, var: TypeVar) -> str:
        return var.name_hint


PLAIN = Names()
_STR_LIMIT = 20_000  # characters

# A piece is finished text or something still to be written.
Piece = str | Type | DimExpr


def dim_text(dim: Dim, names: Names = PLAIN) -> str:
    """`?n + 1` and the like; `?` for an unknown without a name."""
    return str(dim) if isinstance(dim, int) else _write([dim], names)


def shape_text(shape: tuple[Dim, ...], names: Names = PLAIN) -> str:
    """`(2, ?n)`, as it stands inside a tensor type."""
    return _write(["(", *_separated([_dim_piece(d) for d in shape]), ")"], names)


def type_text(type_: Type | None, names: Names = PLAIN) -> str:
    """A type as Relay text; `_` for None and for a hole."""
    return "_" if type_ is None else _write([type_], names)


def _short_text(type_: Type) -> str:
    """str() of a type: cut, because a type that shares its parts may be huge as text."""
    return _write([type_], PLAIN, _STR_LIMIT)


def _write(pieces: list[Piece], names: Names, limit: int | None = None) -> str:
    out: list[str] = []
    size = 0
    stack: list[Piece] = pieces[::-1]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            out.append(piece)
            size += len(piece)
            if limit is not None and size > limit:
                return "".join([*out, "..."])
        elif isinstance(piece, DimExpr):
            stack.extend(reversed(_dim_pieces(piece, names)))
        else:
            stack.extend(reversed(_type_pieces(piece, names)))
    return "".join(out)


def _separated(pieces: list[Piece], separator: str = ", ") -> list[Piece]:
    out: list[Piece] = []
    for piece in pieces:
        if out:
            out.append(separator)
        out.append(piece)
    return out


def _type_pieces(type_: Type, names: Names) -> list[Piece]:
    match type_:
        case TensorType(shape=(), dtype=dtype):
            return [dtype]
        case TensorType(shape=shape, dtype=dtype):
            return ["Tensor[(", *_separated([_dim_piece(d) for d in shape]), f"), {dtype}]"]
        case TupleType(fields=(field,)):
            return ["(", field, ",)"]
        case TupleType(fields=fields):
            return ["(", *_separated(list(fields)), ")"]
        case FuncType(arg_types=args, ret_type=ret, type_params=params):
            generic = f"[{', '.join(names.type_var(p) for p in params)}]" if params else ""
            return [f"fn {generic}(", *_separated(list(args)), ") -> ", ret]
        case RefType(value=value):
            return ["ref(", value, ")"]
        case TypeCall(func=func, args=()):
            return [func.name_hint]
        case TypeCall(func=func, args=args):
            return [f"{func.name_hint}[", *_separated(list(args)), "]"]
        case GlobalTypeVar(name_hint=name):
            return [name]
        case TypeVar():
            return [names.type_var(type_)]
        case IncompleteType():
            return ["_"]
    raise TypeError(f"unknown type {type(type_).__name__}")


def _dim_piece(dim: Dim) -> Piece:
    return str(dim) if isinstance(dim, int) else dim


def _dim_pieces(dim: DimExpr, names: Names) -> list[Piece]:
    if names.opaque_dims:
        return ["?"]
    match dim:
        case DimVar():
            return [names.dim_var(dim)]
        case dims.DimOp(op="add", args=args):
            return _sum_pieces(args)
        case dims.DimOp(op="mul", args=args):
            negative, pieces = _product_pieces(args)
            return ["-", *pieces] if negative else pieces
        case dims.DimOp(op=op, args=args):
            return [f"{op}(", *_separated([_dim_piece(a) for a in args]), ")"]
    raise TypeError(f"unknown dim {type(dim).__name__}")


def _is_op(dim: Dim, op: str) -> bool:
    return isinstance(dim, dims.DimOp) and dim.op == op


def _product_pieces(args: tuple[Any, ...]) -> tuple[bool, list[Piece]]:
    """Whether the product has a negative coefficient, and its pieces without the sign."""
    coefficient, factors = 1, []
    for arg in args:
        if isinstance(arg, int):
            coefficient *= arg
        else:
            factors.append(arg)
    pieces: list[Piece] = [] if abs(coefficient) == 1 and factors else [str(abs(coefficient))]
    for factor in factors:
        if pieces:
            pieces.append(" * ")
        pieces.extend(["(", factor, ")"] if _is_op(factor, "add") else [factor])
    return coefficient < 0, pieces


def _sum_pieces(args: tuple[Any, ...]) -> list[Piece]:
    """Terms joined by + and -; a positive term goes first where there is one."""
    terms: list[tuple[bool, list[Piece]]] = []
    for arg in args:
        if isinstance(arg, int):
            terms.append((arg < 0, [str(abs(arg))]))
        elif _is_op(arg, "mul"):
            terms.append(_product_pieces(arg.args))
        else:
            terms.append((False, [arg]))
    first = next((i for i, (negative, _) in enumerate(terms) if not negative), 0)
    terms.insert(0, terms.pop(first))
    pieces: list[Piece] = []
    for negative, term in terms:
        if pieces:
            pieces.append(" - " if negative else " + ")
        elif negative:
            pieces.append("-")
        pieces.extend(term)
    return pieces


register_type_writer(_short_text)
