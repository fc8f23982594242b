"""What many operator files share: dtype groups, attribute base, axis and shape helpers, numpy helpers.

Relations below work on types and dim expressions; the numpy helpers are for references only.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from nimblevm import dtypes
from nimblevm.errors import ShapeMismatch, UnknownAttribute
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimExpr
from nimblevm.relay.op.registry import Effect, TypeContext, tensor
from nimblevm.relay.types import TensorType, TupleType, Type

Array = npt.NDArray[Any]

FLOATS: tuple[str, ...] = tuple(row.name for row in dtypes.DTYPES if row.is_float)
INTEGERS: tuple[str, ...] = tuple(row.name for row in dtypes.DTYPES if row.is_integer)
NUMERIC: tuple[str, ...] = INTEGERS + FLOATS
ALL: tuple[str, ...] = tuple(row.name for row in dtypes.DTYPES)
BOOL: tuple[str, ...] = ("bool",)

# Sums over many elements: order of summation and FMA may differ from the reference.
ACCUMULATED: dict[str, tuple[float, float]] = {
    "float16": (1e-2, 1e-2),
    "float32": (1e-4, 1e-5),
    "float64": (1e-10, 1e-12),
}


@dataclass(frozen=True, slots=True)
class Attrs:
    """Base of attribute classes: lists become tuples, so that every instance can be hashed and compared.
    Dtypes by a short name become those that they mean."""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, list | tuple):
                object.__setattr__(self, entry.name, _frozen(value))
            elif entry.name.endswith("dtype") and isinstance(value, str) and value in dtypes.SHORT:
                object.__setattr__(self, entry.name, dtypes.SHORT[value])

    def keys(self) -> list[str]:
        """The names, as TVM's Attrs have them."""
        return [entry.name for entry in fields(self)]

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise UnknownAttribute(
                f"there is no attribute {name!r}; there are: {', '.join(self.keys())}"
            )
        return getattr(self, name)

    def get_int(self, name: str) -> int:
        """An attribute that is a number."""
        return int(self[name])

    def get_str(self, name: str) -> str:
        """An attribute that is text."""
        return str(self[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of numbers."""
        return tuple(int(one) for one in self[name])


def _frozen(value: Sequence[Any]) -> tuple[Any, ...]:
    """A nested list of attribute values (padding pairs and the like) as tuples."""
    return tuple(tuple(v) if isinstance(v, list) else v for v in value)


def set_axes(attrs: Attrs, name: str = "axis") -> None:
    """Turn an attribute that is one int into the tuple that TVM stores (for __post_init__)."""
    value = getattr(attrs, name)
    if isinstance(value, int):
        object.__setattr__(attrs, name, (value,))


# --- relations ----------------------------------------------------------------------------------


def check_dtype(ctx: TypeContext, found: TensorType, allowed: tuple[str, ...], index: int) -> None:
    """A located error unless argument `index` has one of the dtypes."""
    if found.dtype not in allowed:
        raise ctx.fail(f"argument {index} must be {group_name(allowed)}, not {found.dtype}", index)


def group_name(allowed: tuple[str, ...]) -> str:
    """The human name of a dtype group."""
    names = {
        FLOATS: "a float tensor", INTEGERS: "an integer tensor", NUMERIC: "a numeric tensor", BOOL: "a bool tensor",
    }  # fmt: skip
    return names.get(allowed, "one of " + ", ".join(allowed))


def tensor_of(
    ctx: TypeContext, arg_types: tuple[Type, ...], index: int, allowed: tuple[str, ...] = ALL
) -> TensorType:
    """Argument `index` as a tensor of one of the dtypes."""
    found = tensor(ctx, arg_types, index)
    check_dtype(ctx, found, allowed, index)
    return found


def same_dtype(ctx: TypeContext, first: TensorType, other: TensorType, index: int) -> None:
    """A located error unless argument `index` (type `other`) has the dtype of `first`."""
    if first.dtype != other.dtype:
        shown = None if index else 0  # all arguments, or the one tuple
        raise ctx.fail(f"dtypes differ: {first.dtype} and {other.dtype}; cast one of them", shown)


def tensor_fields(ctx: TypeContext, arg_types: tuple[Type, ...]) -> tuple[TensorType, ...]:
    """The fields of the one tuple argument of a variadic operator: tensors of one dtype, at least one."""
    found = arg_types[0]
    if not isinstance(found, TupleType):
        raise ctx.fail(f"argument 0 must be a tuple of tensors, not {found!r}", 0)
    parts: list[TensorType] = []
    for position, part in enumerate(found.fields):
        if not isinstance(part, TensorType):
            raise ctx.fail(f"field {position} of the tuple must be a tensor, not {part!r}", 0)
        if parts:
            same_dtype(ctx, parts[0], part, 0)
        parts.append(part)
    if not parts:
        raise ctx.fail("the tuple must have at least one tensor", 0)
    return tuple(parts)


def common_shape(
    ctx: TypeContext, parts: Sequence[TensorType], joined: int | None = None
) -> list[Dim]:
    """The shape of all fields of the tuple, each size as the field has it that knows it best; the axis `joined` has the
    sum of theirs.
    """
    shape = list(parts[0].shape)
    # The check of an axis is against the first part that knows it best.
    known = [0] * len(shape)
    for position, part in enumerate(parts[1:], 1):
        if len(part.shape) != len(shape):
            raise ctx.fail(
                f"ranks differ: field 0 has rank {len(shape)}, field {position} rank {len(part.shape)}",
                0,
            )
        for at, size in enumerate(part.shape):
            if at == joined:
                continue
            require_same(ctx, ((0, known[at]), at, shape[at]), ((0, position), at, size))
            if isinstance(size, int) and not isinstance(shape[at], int):
                shape[at], known[at] = size, position
    if joined is not None:
        shape[joined] = dims.total([part.shape[joined] for part in parts])
    return shape


def axis_index(ctx: TypeContext, axis: object, rank: int, index: int | None = 0) -> int:
    """`axis` (negative counts from the end) as 0 <= axis < rank, or a located error."""
    try:
        number = operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise ctx.fail(f"axis must be an integer, not {axis!r}", index) from None
    if not -rank <= number < rank:
        raise ctx.fail(f"axis {number} is out of range for rank {rank}", index)
    return number % rank


def axis_list(ctx: TypeContext, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Several axes, each at most once."""
    found = tuple(axis_index(ctx, axis, rank) for axis in axes)
    if len(set(found)) != len(found):
        raise ctx.fail(f"an axis occurs twice in {tuple(axes)}", 0)
    return found


def product(sizes: Sequence[Dim]) -> Dim:
    """The number of elements of a shape."""
    total: Dim = 1
    for size in sizes:
        total = dims.mul(total, size)
    return total


def require_nonempty(
    ctx: TypeContext, arg: int, axis: int, size: Dim, what: str, reads: Dim = 1
) -> None:
    """Demand that an axis has an element if `reads`, the number of elements asked for, is not 0: refused if it is
    statically empty, else checked at run time.
    """
    needed = dims.min_(reads, 1)
    if size == 0 and needed == 1:
        raise ctx.fail(f"{what} needs a non-empty axis, but axis {axis} has size 0", arg)
    wanted = dims.max_(size, needed)
    if wanted != size:
        ctx.require_dim(arg, axis, wanted)


def require_multiple(
    ctx: TypeContext, arg: int, axis: int, size: Dim, factor: int, what: str, more: int = 0
) -> Dim:
    """Demand that `size` of an axis, plus `more`, is a multiple of `factor`; returns how many times it is."""
    whole = dims.add(size, more)
    parts = dims.floordiv(whole, factor)
    if factor == 1:
        return parts
    if isinstance(size, int):
        if (size + more) % factor:
            padded = f" and {more} more" if more else ""
            raise ctx.fail(
                f"{what}: axis {axis} of size {size}{padded} is no multiple of {factor}", arg
            )
        return parts
    ctx.require_dim(arg, axis, dims.sub(dims.mul(parts, factor), more))
    return parts


def require_same(
    ctx: TypeContext,
    first: tuple[int | tuple[int, int], int, Dim],
    second: tuple[int | tuple[int, int], int, Dim],
) -> Dim:
    """Demand that two axes, each (argument, axis, dim), are equal; the axis that is less known gets the check."""
    if isinstance(first[2], int) and not isinstance(second[2], int):
        first, second = second, first
    return ctx.require_dim(first[0], first[1], second[2])


def unless_one(first: Dim, second: Dim) -> Dim:
    """0 if two dims are equal or one of them is 1: that as one expression, since demands are equations between dims."""
    return dims.mul(dims.sub(first, second), dims.mul(dims.sub(first, 1), dims.sub(second, 1)))


def is_empty(shape: Sequence[Dim]) -> bool:
    """Whether a dim is statically 0."""
    return any(isinstance(size, int) and size == 0 for size in shape)


def shape_attr(ctx: TypeContext, shape: object) -> tuple[Dim, ...]:
    """A shape given as attribute: ints >= 0 or dim expressions."""
    if isinstance(shape, int | DimExpr):
        shape = (shape,)
    if not isinstance(shape, tuple):
        raise ctx.fail(f"shape must be a tuple of dims, not {shape!r}")
    for size in shape:
        if not isinstance(size, int | DimExpr) or (isinstance(size, int) and size < 0):
            raise ctx.fail(f"shape must hold integers >= 0, not {size!r}")
    return shape


# Data and weight of a quantized layer: activations are often unsigned, weights signed.
BYTES: tuple[str, ...] = ("int8", "uint8")


def product_dtype(ctx: TypeContext, first: TensorType, second: TensorType, out_dtype: str) -> str:
    """The dtype of a product: `out_dtype`, or the operands' if it is empty; float stays float, integer integer.

    Operands have one dtype, or are int8 and uint8 with a signed `out_dtype` that holds both; else a located error.
    """
    given = out_dtype not in ("", "void")
    if first.dtype != second.dtype and {first.dtype, second.dtype} == set(BYTES):
        if not given:
            raise ctx.fail(
                f"dtypes differ: {first.dtype} and {second.dtype}; give out_dtype, say int32", 1
            )
        if out_dtype not in ("int16", "int32", "int64"):
            raise ctx.fail(
                f"out_dtype {out_dtype!r} does not hold int8 and uint8; int16, int32 and int64 do",
                1,
            )
        return out_dtype
    same_dtype(ctx, first, second, 1)
    if not given:
        return first.dtype
    if (
        out_dtype not in NUMERIC
        or dtypes.dtype(out_dtype).is_float != dtypes.dtype(first.dtype).is_float
    ):
        raise ctx.fail(f"out_dtype {out_dtype!r} does not fit operands of {first.dtype}")
    return out_dtype


def divides_integers(arg_types: tuple[Type, ...], attrs: object) -> Effect:
    """Effect of the division operators: integers may divide by zero, floats can't fail."""
    first = arg_types[0]
    is_float = isinstance(first, TensorType) and dtypes.dtype(first.dtype).is_float
    return Effect.TOTAL if is_float else Effect.MAY_FAIL


# --- references ---------------------------------------------------------------------------------


_HALF = np.dtype("float16")
_NAMES: dict[np.dtype[Any], str] = {np.dtype(row.numpy): row.name for row in dtypes.DTYPES}


def dtype_name(value: Array) -> str:
    """The dtype's name. numpy computes `dtype.name` anew each time, which was a third of an oracle run."""
    return _NAMES.get(value.dtype) or value.dtype.name


def as_compute(value: Array) -> Array:
    """`value` in the dtype that elementwise arithmetic happens in: float16 is computed in float32."""
    return value.astype("float32") if value.dtype == _HALF else value


def as_wide(value: Array) -> Array:
    """`value` in the dtype that references accumulate in: floats in float64."""
    return value.astype("float64") if value.dtype.kind == "f" else value


def rounded(value: Any, dtype: str) -> Array:
    """A computed value (array or numpy scalar) as an array of `dtype`, rounded or wrapped."""
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(dtype, copy=False)


def check_broadcastable(op: str, *arrays: Array) -> None:
    """ShapeMismatch with all shapes unless numpy would broadcast them."""
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        shapes = " and ".join(str(a.shape) for a in arrays)
        raise ShapeMismatch(f"{op}: shapes {shapes} do not broadcast") from None


__all__ = [
    "ACCUMULATED", "ALL", "BOOL", "FLOATS", "INTEGERS", "NUMERIC", "Array", "Attrs", "as_compute", "as_wide",
    "axis_index", "axis_list", "check_broadcastable", "check_dtype", "common_shape", "divides_integers", "dtype_name",
    "group_name", "is_empty", "product", "product_dtype", "require_multiple", "require_nonempty", "require_same",
    "rounded", "same_dtype", "set_axes", "shape_attr", "tensor_fields", "tensor_of",
    "unless_one",
]  # fmt: skip
