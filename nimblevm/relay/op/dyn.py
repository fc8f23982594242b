"""dyn.*: operators whose result's shape is computed by the program.

    dyn.reshape(data, newshape, allowzero)          as reshape with entries n > 0, 0, -1 and -3; -2 and -4, with which
                                                    the rank would depend on the run, are refused
    dyn.broadcast_to(data, shape)                   as broadcast_to
    dyn.zeros(shape, dtype), dyn.ones(shape, dtype), dyn.full(fill_value, shape, dtype)
    dyn.tile(data, reps)                            as tile
    dyn.one_hot(indices, on_value, off_value, depth, axis, dtype)     as one_hot
    dyn.strided_slice(data, begin, end, strides, slice_mode)          as strided_slice of the first axes
    dyn.squeeze(data, axis)                         as squeeze; axis: a vector
    dyn.expand_dims(data, axis, num_newaxis)        as expand_dims; axis: a scalar
    dyn.nn.pad(data, pad_width, pad_value, pad_mode)                  as nn.pad; pad_width: (rank, 2)

out = the operator without dyn., its attribute taken from the values of an operand. That operand (newshape,
shape, reps, depth, begin, end, strides, axis, pad_width) is an int32 or int64 tensor whose size is known:
it says the rank of the result. The sizes are known where it is a constant, else each is an unknown of its
own. Errors: ShapeMismatch for values that do not fit. Source: Relay's dyn operators.
Differs from numpy: numpy has no such operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm.errors import NimbleError, ShapeMismatch
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.broadcast_to import BroadcastToAttrs
from nimblevm.relay.op.common import ALL, INTEGERS, Array, Attrs, axis_index, tensor_of
from nimblevm.relay.op.concrete import ConcreteContext, concrete_type
from nimblevm.relay.op.expand_dims import MOST_AXES, ExpandDimsAttrs
from nimblevm.relay.op.full import InitOpAttrs
from nimblevm.relay.op.one_hot import OneHotAttrs
from nimblevm.relay.op.pad import PAD_MODES, PadAttrs
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, get, register
from nimblevm.relay.op.reshape import ReshapeAttrs
from nimblevm.relay.op.squeeze import SqueezeAttrs
from nimblevm.relay.op.strided_slice import StridedSliceAttrs
from nimblevm.relay.op.tile import TileAttrs
from nimblevm.relay.types import TensorType, Type

SIZES = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class DynReshapeAttrs(Attrs):
    """allowzero: 0 means an empty axis."""

    allowzero: bool = False


@dataclass(frozen=True, slots=True)
class DynInitAttrs(Attrs):
    """dtype: of the result; "" is allowed in dyn.full only: fill_value's."""

    dtype: str = ""


@dataclass(frozen=True, slots=True)
class DynOneHotAttrs(Attrs):
    """axis: place of the new axis in the result. dtype: of the result."""

    axis: int = -1
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class DynSliceAttrs(Attrs):
    """slice_mode: "end" or "size"."""

    slice_mode: str = "end"


@dataclass(frozen=True, slots=True)
class DynExpandDimsAttrs(Attrs):
    """num_newaxis: how many axes of size 1."""

    num_newaxis: int = 1


@dataclass(frozen=True, slots=True)
class DynPadAttrs(Attrs):
    """pad_mode: constant, edge or reflect."""

    pad_mode: str = "constant"


@dataclass(frozen=True, slots=True)
class Static:
    """The operator without dyn.: its name, its operands, its attributes."""

    name: str
    args: tuple[Any, ...]
    attrs: Any


def _ints(values: Array) -> tuple[int, ...]:
    return tuple(int(v) for v in values.reshape(-1))


def _slice(args: tuple[Any, ...], attrs: DynSliceAttrs) -> Static:
    begin, end, strides = (_ints(v) for v in args[1:])
    found = StridedSliceAttrs(begin, end, strides, attrs.slice_mode)
    return Static("strided_slice", args[:1], found)


def _reshaped(args: tuple[Any, ...], attrs: DynReshapeAttrs) -> Static:
    newshape = _ints(args[1])
    for place, entry in enumerate(newshape):
        if entry < -1 and entry != -3:
            raise ShapeMismatch(
                f"entry {place} of newshape is {entry}: dyn.reshape takes sizes, 0, -1 and -3, which leave the rank "
                "as it is; the static reshape, reshape(data, newshape=[...]), takes -2 and -4 too"
            )
    return Static("reshape", args[:1], ReshapeAttrs(newshape, attrs.allowzero))


def _pairs(values: Array) -> tuple[tuple[int, int], ...]:
    flat = _ints(values)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


# name -> (operands with values of sizes as arrays, attributes) -> the static operator. Other operands pass through:
# they are arrays for the reference, expressions for dynamic_to_static.
STATIC: dict[str, Callable[[tuple[Any, ...], Any], Static]] = {
    "dyn.reshape": _reshaped,
    "dyn.broadcast_to": lambda a, x: Static("broadcast_to", a[:1], BroadcastToAttrs(_ints(a[1]))),
    "dyn.zeros": lambda a, x: Static("zeros", (), InitOpAttrs(_ints(a[0]), x.dtype)),
    "dyn.ones": lambda a, x: Static("ones", (), InitOpAttrs(_ints(a[0]), x.dtype)),
    "dyn.full": lambda a, x: Static("full", a[:1], InitOpAttrs(_ints(a[1]), x.dtype)),
    "dyn.tile": lambda a, x: Static("tile", a[:1], TileAttrs(_ints(a[1]))),
    "dyn.one_hot": lambda a, x: Static(
        "one_hot", a[:3], OneHotAttrs(int(a[3].item()), x.axis, x.dtype)
    ),
    "dyn.strided_slice": _slice,
    "dyn.squeeze": lambda a, x: Static("squeeze", a[:1], SqueezeAttrs(_ints(a[1]))),
    "dyn.expand_dims": lambda a, x: Static(
        "expand_dims", a[:1], ExpandDimsAttrs(int(a[1].item()), x.num_newaxis)
    ),
    "dyn.nn.pad": lambda a, x: Static(
        "nn.pad", (a[0], a[2]), PadAttrs(_pairs(a[1]), x.pad_mode)
    ),
}  # fmt: skip


def _vector(ctx: TypeContext, arg_types: tuple[Type, ...], index: int) -> int:
    """The known length of a vector of sizes."""
    found = tensor_of(ctx, arg_types, index, SIZES)
    if len(found.shape) != 1 or not isinstance(found.shape[0], int):
        raise ctx.fail(
            f"argument {index} must be a vector whose length is known, not {found!r}: its length says the "
            "rank of the result",
            index,
        )
    if found.shape[0] > MOST_AXES:
        raise ctx.fail(
            f"argument {index} has {found.shape[0]} sizes, one an axis; it may have at most {MOST_AXES}",
            index,
        )
    return found.shape[0]


def _scalar(ctx: TypeContext, arg_types: tuple[Type, ...], index: int) -> None:
    if tensor_of(ctx, arg_types, index, SIZES).shape:
        raise ctx.fail(f"argument {index} must be a scalar", index)


def _check_dtype(ctx: TypeContext, dtype: str) -> str:
    if dtype not in ALL:
        raise ctx.fail(f"dtype must be one of {', '.join(ALL)}, not {dtype!r}")
    return dtype


def _reshape(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    return _vector(ctx, args, 1), tensor_of(ctx, args, 0).dtype


def _broadcast_to(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    data, rank = tensor_of(ctx, args, 0), _vector(ctx, args, 1)
    if rank < len(data.shape):
        raise ctx.fail(f"shape has {rank} axes, fewer than data's {len(data.shape)}", 0)
    return rank, data.dtype


def _init(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    return _vector(ctx, args, 0), _check_dtype(ctx, attrs.dtype)


def _full(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    value = tensor_of(ctx, args, 0)
    if value.shape:
        raise ctx.fail(f"fill_value must be a scalar, not of rank {len(value.shape)}", 0)
    return _vector(ctx, args, 1), _check_dtype(ctx, attrs.dtype or value.dtype)


def _tile(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    data = tensor_of(ctx, args, 0)
    return max(len(data.shape), _vector(ctx, args, 1)), data.dtype


def _one_hot(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[tuple[Dim, ...], str]:
    indices = tensor_of(ctx, args, 0, INTEGERS)
    for index in (1, 2):
        if tensor_of(ctx, args, index).shape:
            raise ctx.fail("on_value and off_value must be scalars", index)
    _scalar(ctx, args, 3)
    axis = axis_index(ctx, attrs.axis, len(indices.shape) + 1)
    shape = (*indices.shape[:axis], ctx.fresh_dim(), *indices.shape[axis:])
    return shape, _check_dtype(ctx, attrs.dtype)


def _strided_slice(
    ctx: TypeContext, args: tuple[Type, ...], attrs: Any
) -> tuple[tuple[Dim, ...], str]:
    data = tensor_of(ctx, args, 0)
    begin, end, strides = (_vector(ctx, args, index) for index in (1, 2, 3))
    if begin != end or strides != begin or begin > len(data.shape):
        raise ctx.fail(
            f"begin, end and strides have {begin}, {end} and {strides} entries: they must have equally many, at "
            f"most data's rank {len(data.shape)}",
            1,
        )
    if attrs.slice_mode not in ("end", "size"):
        raise ctx.fail(f"slice_mode must be 'end' or 'size', not {attrs.slice_mode!r}")
    return (*(ctx.fresh_dim() for _ in range(begin)), *data.shape[begin:]), data.dtype


def _squeeze(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    data, count = tensor_of(ctx, args, 0), _vector(ctx, args, 1)
    if count > len(data.shape):
        raise ctx.fail(f"axis names {count} axes, data has {len(data.shape)}", 1)
    return len(data.shape) - count, data.dtype


def _expand_dims(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    data = tensor_of(ctx, args, 0)
    _scalar(ctx, args, 1)
    if attrs.num_newaxis < 0:
        raise ctx.fail(f"num_newaxis must be >= 0, not {attrs.num_newaxis}")
    if attrs.num_newaxis > MOST_AXES:
        raise ctx.fail(f"num_newaxis must be at most {MOST_AXES}, not {attrs.num_newaxis}")
    return len(data.shape) + attrs.num_newaxis, data.dtype


def _pad(ctx: TypeContext, args: tuple[Type, ...], attrs: Any) -> tuple[int, str]:
    data, width, value = (tensor_of(ctx, args, index) for index in range(3))
    tensor_of(ctx, args, 1, SIZES)
    if width.shape != (len(data.shape), 2):
        raise ctx.fail(f"pad_width must have the shape ({len(data.shape)}, 2), not {width!r}", 1)
    if value.shape:
        raise ctx.fail(f"pad_value must be a scalar, not of rank {len(value.shape)}", 2)
    if attrs.pad_mode not in PAD_MODES:
        raise ctx.fail(f"pad_mode must be one of {', '.join(PAD_MODES)}, not {attrs.pad_mode!r}")
    return len(data.shape), data.dtype


class _Known:
    """The context of a dyn operator, asked by the static operator that constants make of it."""

    def __init__(self, ctx: TypeContext, places: tuple[int, ...]) -> None:
        self._ctx = ctx
        self._places = places

    def fail(self, message: str, arg: int | None = None) -> Exception:
        return self._ctx.fail(message, None if arg is None else self._places[arg])

    def require_dim(self, arg: Any, axis: int, dim: Dim) -> Dim:
        return self._ctx.require_dim(self._places[arg], axis, dim)

    def broadcast(self, shapes: Any) -> tuple[Dim, ...]:
        return self._ctx.broadcast([(self._places[arg], shape) for arg, shape in shapes])

    def fresh_dim(self, name: str | None = None) -> Dim:
        return self._ctx.fresh_dim(name)

    def constant(self, arg: int) -> Array | None:
        return self._ctx.constant(self._places[arg])


def _register(
    name: str,
    args: tuple[str, ...],
    values: tuple[int, ...],
    shape: Callable[[TypeContext, tuple[Type, ...], Any], tuple[Any, str]],
    attrs: type | None = None,
    first: tuple[str, ...] = ALL,
) -> None:
    """`values`: the operands whose values decide sizes. `shape`: the result's rank or shape, and its dtype."""
    make = STATIC[name]

    def relation(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
        sizes, dtype = shape(ctx, arg_types, attrs)
        known = {index: ctx.constant(index) for index in values}
        if any(value is None for value in known.values()):
            dims = (ctx.fresh_dim() for _ in range(sizes)) if isinstance(sizes, int) else sizes
            return TensorType(dims, dtype)
        places = tuple(known.get(index, index) for index in range(len(arg_types)))
        try:
            static = make(places, attrs)
        except ShapeMismatch as error:
            raise ctx.fail(str(error), values[0]) from None
        inner = _Known(ctx, static.args)
        types = tuple(arg_types[index] for index in static.args)
        return get(static.name).relation(inner, types, static.attrs)

    def reference(inputs: tuple[Array, ...], attrs: Any, result: Type) -> Any:
        try:
            static = make(inputs, attrs)
            op, types = get(static.name), tuple(concrete_type(value) for value in static.args)
            found = op.relation(ConcreteContext(op, types), types, static.attrs)  # type: ignore[arg-type]
        except NimbleError as error:
            raise ShapeMismatch(f"{name}: {error}") from None
        return np.array(op.reference(static.args, static.attrs, found))

    register(
        Op(
            name=name,
            args=args,
            attrs=attrs,
            relation=relation,
            reference=reference,
            pattern=OpPattern.OPAQUE,
            effect=Effect.MAY_FAIL,
            dtypes=tuple(
                SIZES if i in values else first if not i else ALL for i in range(len(args))
            ),
            doc=__doc__ or "",
            shape_values=values,
        )
    )


_register("dyn.reshape", ("data", "newshape"), (1,), _reshape, DynReshapeAttrs)
_register("dyn.broadcast_to", ("data", "shape"), (1,), _broadcast_to)
_register("dyn.zeros", ("shape",), (0,), _init, DynInitAttrs)
_register("dyn.ones", ("shape",), (0,), _init, DynInitAttrs)
_register("dyn.full", ("fill_value", "shape"), (1,), _full, DynInitAttrs)
_register("dyn.tile", ("data", "reps"), (1,), _tile)
_register(
    "dyn.one_hot", ("indices", "on_value", "off_value", "depth"), (3,), _one_hot, DynOneHotAttrs,
    INTEGERS,
)  # fmt: skip
_register(
    "dyn.strided_slice", ("data", "begin", "end", "strides"), (1, 2, 3), _strided_slice, DynSliceAttrs
)  # fmt: skip
_register("dyn.squeeze", ("data", "axis"), (1,), _squeeze)
_register("dyn.expand_dims", ("data", "axis"), (1,), _expand_dims, DynExpandDimsAttrs)
_register("dyn.nn.pad", ("data", "pad_width", "pad_value"), (1,), _pad, DynPadAttrs)
