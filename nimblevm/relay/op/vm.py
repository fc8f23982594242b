"""The operators that passes write: explicit checks, dims as values, and after manifest_alloc memory.

    vm.match_type(x)            out = x, checked against attrs.type; binds the dims of the type that are still unbound
    vm.check_broadcast(x)       out = x; each axis of x, aligned right, must be 1 or the dim in attrs.shape
    vm.dim_of(x)                out = x.shape[axis]                      rank-0 int64
    vm.dim_value()              out = the value of attrs.dim             rank-0 int64
    vm.bind_dim(x)              out = x, a rank-0 int64 that is the value of the unknown attrs.dim from here on
    vm.read_int(x)              out = x.flat[attrs.index] of an int32 or int64 tensor, as int64
    vm.reshape_tensor(x)        out = x in attrs.shape, a view
    vm.shrink(x)                out = the first attrs.shape[0] elements of x's first axis, a view
    vm.rows(x, begin)           out = the elements of x from row `begin` on, in attrs.shape, a view; IndexOutOfRange if
                                x has not all of them, DimOverflow if the row's first element has no int64 number
    vm.read_at(x, index)        out = x[index] of a rank-1 int32 or int64 tensor, as int64; IndexOutOfRange if x has no
                                such element
    vm.linearize(t)             out = the nodes of a tree as tables (relay/linearize.py), of attrs.type
    vm.append(x, tail)          out = x and tail joined on attrs.axis, before which all sizes are 1; where there is
                                room, x's memory with tail written behind it
    vm.device_copy(x)           out = x on device attrs.device of the executable; x itself if it is there
    memory.alloc_storage()      a block of attrs.size bytes (any dim expression)
    memory.alloc_tensor(s)      a tensor of attrs.shape and attrs.dtype at byte attrs.offset of block s
    vm.call_kernel(f, ins, outs)    run kernel f on the tensors of tuple `ins`, write those of tuple `outs`; out = outs
    memory.kill(x)              x is dead from here; out = ()

They print, parse and infer as other operators do, but have no Python function. Errors: ShapeMismatch from
the checks. match_type, dim_value, call_kernel and memory.* have no meaning without the dims and functions
around them, so that the interpreter evaluates them; the reference of match_type checks only the dims that
are numbers.
Differs from numpy: numpy has no such functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nimblevm import dtypes
from nimblevm.errors import IndexOutOfRange, ShapeMismatch, Unsupported
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim
from nimblevm.relay.op.common import (
    ALL,
    Array,
    Attrs,
    axis_index,
    dtype_name,
    require_same,
    set_axes,
    tensor_of,
)
from nimblevm.relay.op.full import concrete_shape
from nimblevm.relay.op.registry import Effect, Op, OpPattern, TypeContext, register
from nimblevm.relay.types import (
    UNIT,
    FuncType,
    GlobalTypeVar,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    scalar_type,
)

STORAGE = TypeCall(GlobalTypeVar("Storage"))


@dataclass(frozen=True, slots=True)
class MatchTypeAttrs(Attrs):
    """type: the type that x must have. where: the human place for the message ("parameter %x of @main")."""

    type: Type
    where: str = ""


@dataclass(frozen=True, slots=True)
class ShapeAttrs(Attrs):
    """shape: dims that are known at this place."""

    shape: tuple[Dim, ...]

    def __post_init__(self) -> None:
        set_axes(self, "shape")
        Attrs.__post_init__(self)


@dataclass(frozen=True, slots=True)
class CheckBroadcastAttrs(ShapeAttrs):
    """shape: as above. where: the human place for the message ("argument lhs of add")."""

    where: str = ""


@dataclass(frozen=True, slots=True)
class DimOfAttrs(Attrs):
    """axis: which axis, 0 <= axis < rank."""

    axis: int


@dataclass(frozen=True, slots=True)
class DimValueAttrs(Attrs):
    """dim: an expression of dims that are known at this place."""

    dim: Dim


@dataclass(frozen=True, slots=True)
class BindDimAttrs(Attrs):
    """dim: the unknown. where: the human place; if it is there, a negative value is a ShapeMismatch."""

    dim: Dim
    where: str = ""


@dataclass(frozen=True, slots=True)
class AppendAttrs(Attrs):
    """axis: where to join, 0 <= axis < rank; all axes before it have size 1."""

    axis: int = 0


@dataclass(frozen=True, slots=True)
class ReadIntAttrs(Attrs):
    """index: row-major position of the element."""

    index: int


@dataclass(frozen=True, slots=True)
class LinearizeAttrs(Attrs):
    """type: of the tables, a tuple."""

    type: Type


@dataclass(frozen=True, slots=True)
class DeviceAttrs(Attrs):
    """device: index in the executable's device table (0 = host)."""

    device: int


@dataclass(frozen=True, slots=True)
class AllocStorageAttrs(Attrs):
    """size: bytes. alignment: bytes, a power of two. device: index in the executable's device table (0 = host)."""

    size: Dim
    alignment: int = 64
    device: int = 0


@dataclass(frozen=True, slots=True)
class AllocTensorAttrs(Attrs):
    """offset: byte offset in the block. shape, dtype: of the tensor."""

    shape: tuple[Dim, ...]
    dtype: str
    offset: Dim = 0


@dataclass(frozen=True, slots=True)
class CallKernelAttrs(Attrs):
    """dims: the unknown dims whose numbers the kernel finds, in the order of its out-dims."""

    dims: tuple[Dim, ...] = ()


def _same_kind(ctx: TypeContext, found: Type, wanted: Type) -> None:
    """dtype and rank of every tensor must agree; only dims are left to the run-time check."""
    stack: list[tuple[Type, Type]] = [(found, wanted)]
    while stack:
        match stack.pop():
            case TensorType(dtype=a, shape=s), TensorType(dtype=b, shape=t):
                if a != b or len(s) != len(t):
                    raise ctx.fail(f"a value of type {found!r} can't be {wanted!r}", 0)
            case TupleType(fields=a), TupleType(fields=b):
                if len(a) != len(b):
                    raise ctx.fail(f"a value of type {found!r} can't be {wanted!r}", 0)
                stack.extend(zip(a, b, strict=True))


def _match_type(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: MatchTypeAttrs) -> Type:
    _same_kind(ctx, arg_types[0], attrs.type)
    return attrs.type


def _match_type_reference(inputs: tuple[Any, ...], attrs: MatchTypeAttrs, result: Type) -> Any:
    stack: list[tuple[Any, Type]] = [(inputs[0], attrs.type)]
    while stack:
        match stack.pop():
            case (np.ndarray() as value, TensorType(shape=shape, dtype=dtype) as wanted):
                fits = value.ndim == len(shape) and dtype_name(value) == dtype
                if not fits or any(
                    isinstance(d, int) and d != n for d, n in zip(shape, value.shape, strict=True)
                ):
                    raise ShapeMismatch(
                        f"{attrs.where}: expected {wanted!r}, got {value.dtype} {value.shape}"
                    )
            case (tuple() as value, TupleType(fields=fields)):
                stack.extend(zip(value, fields, strict=True))
    return inputs[0]


def _check_broadcast(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ShapeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if len(data.shape) > len(attrs.shape):
        raise ctx.fail(
            f"the tensor has rank {len(data.shape)}, more than the {len(attrs.shape)} dims", 0
        )
    return data


def _check_broadcast_reference(inputs: tuple[Array, ...], attrs: ShapeAttrs, result: Type) -> Array:
    (data,) = inputs
    wanted = concrete_shape("vm.check_broadcast", attrs.shape)[len(attrs.shape) - data.ndim :]
    for axis, (size, dim) in enumerate(zip(data.shape, wanted, strict=True)):
        if size not in (1, dim):
            raise ShapeMismatch(
                f"axis {axis} of shape {data.shape} must be 1 or {dim} to be broadcast"
            )
    return data


def _dim_of(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DimOfAttrs) -> Type:
    axis_index(ctx, attrs.axis, len(tensor_of(ctx, arg_types, 0).shape))
    return scalar_type("int64")


def _dim_of_reference(inputs: tuple[Array, ...], attrs: DimOfAttrs, result: Type) -> Array:
    return np.asarray(inputs[0].shape[attrs.axis], "int64")


def _dim_value(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DimValueAttrs) -> Type:
    return scalar_type("int64")


def _dim_value_reference(inputs: tuple[Any, ...], attrs: DimValueAttrs, result: Type) -> Array:
    return np.asarray(concrete_shape("vm.dim_value", (attrs.dim,))[0], "int64")


def _bind_dim(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: BindDimAttrs) -> Type:
    return scalar_type("int64")


def _bind_dim_reference(inputs: tuple[Array, ...], attrs: BindDimAttrs, result: Type) -> Array:
    if attrs.where and inputs[0] < 0:
        raise ShapeMismatch(f"{attrs.where}: {int(inputs[0])} is negative")
    return inputs[0]


def _read_int(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ReadIntAttrs) -> Type:
    tensor_of(ctx, arg_types, 0, ("int32", "int64"))
    if attrs.index < 0:
        raise ctx.fail(f"index must not be negative, got {attrs.index}")
    return scalar_type("int64")


def _read_int_reference(inputs: tuple[Array, ...], attrs: ReadIntAttrs, result: Type) -> Array:
    if attrs.index >= inputs[0].size:
        raise ShapeMismatch(f"a tensor of shape {inputs[0].shape} has no element {attrs.index}")
    return np.asarray(inputs[0].reshape(-1)[attrs.index], "int64")


def _alloc_storage(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: AllocStorageAttrs) -> Type:
    if attrs.alignment < 1 or attrs.alignment & (attrs.alignment - 1):
        raise ctx.fail(f"alignment must be a power of two, not {attrs.alignment}")
    return STORAGE


def _alloc_storage_reference(
    inputs: tuple[Any, ...], attrs: AllocStorageAttrs, result: Type
) -> Array:
    return np.zeros(concrete_shape("memory.alloc_storage", (attrs.size,)), "uint8")


def _alloc_tensor(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: AllocTensorAttrs) -> Type:
    if arg_types[0] is not STORAGE:
        raise ctx.fail(f"argument 0 must be a storage, not {arg_types[0]!r}", 0)
    return TensorType(attrs.shape, attrs.dtype)


def _alloc_tensor_reference(
    inputs: tuple[Array, ...], attrs: AllocTensorAttrs, result: Type
) -> Array:
    (storage,) = inputs
    offset, *shape = concrete_shape("memory.alloc_tensor", (attrs.offset, *attrs.shape))
    count = int(np.prod(shape, dtype=np.int64)) * dtypes.dtype(attrs.dtype).itemsize
    if offset < 0 or count > storage.size - offset:
        raise ShapeMismatch(
            f"a tensor of {count} bytes at {offset} does not fit a storage of {storage.size}"
        )
    return storage[offset : offset + count].view(attrs.dtype).reshape(shape)


def _call_kernel(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: CallKernelAttrs) -> Type:
    function, ins, outs = arg_types
    if not isinstance(function, FuncType):
        raise ctx.fail(f"argument 0 must be a function, not {function!r}", 0)
    if not isinstance(ins, TupleType) or not isinstance(outs, TupleType):
        raise ctx.fail("arguments 1 and 2 must be tuples of tensors", 1)
    if len(ins.fields) != len(function.arg_types):
        raise ctx.fail(
            f"the kernel takes {len(function.arg_types)} tensors, not {len(ins.fields)}", 1
        )
    return outs


def _reshape_tensor(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ShapeAttrs) -> Type:
    return TensorType(attrs.shape, tensor_of(ctx, arg_types, 0).dtype)


def _reshape_tensor_reference(inputs: tuple[Array, ...], attrs: ShapeAttrs, result: Type) -> Array:
    shape = concrete_shape("vm.reshape_tensor", attrs.shape)
    if int(np.prod(shape, dtype=np.int64)) != inputs[0].size:
        raise ShapeMismatch(f"a tensor of shape {inputs[0].shape} has not the elements of {shape}")
    return inputs[0].reshape(shape)


def _shrink(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ShapeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    if not data.shape or len(data.shape) != len(attrs.shape):
        raise ctx.fail(f"{data!r} can't shrink to {attrs.shape}", 0)
    return TensorType(attrs.shape, data.dtype)


def _shrink_reference(inputs: tuple[Array, ...], attrs: ShapeAttrs, result: Type) -> Array:
    size = concrete_shape("vm.shrink", attrs.shape)[0]
    if size > len(inputs[0]):
        raise IndexOutOfRange(f"a first axis of size {len(inputs[0])} can't shrink to {size}")
    return inputs[0][:size]


def _index(ctx: TypeContext, arg_types: tuple[Type, ...]) -> None:
    if tensor_of(ctx, arg_types, 1, ("int32", "int64")).shape:
        raise ctx.fail("the index must have rank 0", 1)


def _rows(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: ShapeAttrs) -> Type:
    data = tensor_of(ctx, arg_types, 0)
    _index(ctx, arg_types)
    if not data.shape or not all(isinstance(d, int) for d in data.shape[1:]):
        raise ctx.fail("rows must have a size that is known", 0)
    return TensorType(attrs.shape, data.dtype)


def _rows_reference(inputs: tuple[Array, Array], attrs: ShapeAttrs, result: Type) -> Array:
    data, begin = inputs
    shape = concrete_shape("vm.rows", attrs.shape)
    start = int(begin) * int(np.prod(data.shape[1:], dtype=np.int64))
    count = int(np.prod(shape, dtype=np.int64))
    if not 0 <= start <= start + count <= data.size:
        raise IndexOutOfRange(f"a tensor of shape {data.shape} has no {shape} at row {begin}")
    return data.reshape(-1)[start : start + count].reshape(shape)


def _read_at(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    if len(tensor_of(ctx, arg_types, 0, ("int32", "int64")).shape) != 1:
        raise ctx.fail("the tensor must have rank 1", 0)
    _index(ctx, arg_types)
    return scalar_type("int64")


def _read_at_reference(inputs: tuple[Array, Array], attrs: Any, result: Type) -> Array:
    data, index = inputs
    if not 0 <= index < len(data):
        raise IndexOutOfRange(f"index {index} is outside of a tensor of {len(data)} elements")
    return np.asarray(data[int(index)], "int64")


def _linearize(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: LinearizeAttrs) -> Type:
    found = arg_types[0]
    if not isinstance(found, TypeCall) or found.args or not isinstance(attrs.type, TupleType):
        raise ctx.fail(f"a value of type {found!r} has no tables {attrs.type!r}", 0)
    return attrs.type


def _linearize_reference(inputs: tuple[Any, ...], attrs: LinearizeAttrs, result: Type) -> Any:
    raise Unsupported("vm.linearize needs the type's definition: only the VM evaluates it")


def _append(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: AppendAttrs) -> Type:
    data, tail = tensor_of(ctx, arg_types, 0), tensor_of(ctx, arg_types, 1)
    rank = len(data.shape)
    if data.dtype != tail.dtype or rank != len(tail.shape):
        raise ctx.fail(f"{tail!r} can't be appended to {data!r}", 1)
    axis = axis_index(ctx, attrs.axis, rank)
    shape = list(data.shape)
    for at, size in enumerate(tail.shape):
        if at == axis:
            shape[at] = dims.add(shape[at], size)
            continue
        require_same(ctx, (0, at, shape[at]), (1, at, size))
        if isinstance(size, int):
            shape[at] = size
    return TensorType(shape, data.dtype)


def _append_reference(inputs: tuple[Array, Array], attrs: AppendAttrs, result: Type) -> Array:
    try:
        return np.concatenate(inputs, axis=attrs.axis)
    except ValueError:
        shapes = " and ".join(str(part.shape) for part in inputs)
        raise ShapeMismatch(
            f"vm.append: shapes {shapes} differ outside axis {attrs.axis}"
        ) from None


def _device_copy(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: DeviceAttrs) -> Type:
    if attrs.device < 0:
        raise ctx.fail(f"there is no device {attrs.device}")
    return tensor_of(ctx, arg_types, 0)


def _device_copy_reference(inputs: tuple[Array, ...], attrs: DeviceAttrs, result: Type) -> Array:
    return inputs[0]


def _kill(ctx: TypeContext, arg_types: tuple[Type, ...], attrs: Any) -> Type:
    return UNIT


def _kill_reference(inputs: tuple[Any, ...], attrs: Any, result: Type) -> tuple[()]:
    return ()


def _call_kernel_reference(inputs: tuple[Any, ...], attrs: CallKernelAttrs, result: Type) -> Any:
    raise Unsupported("vm.call_kernel needs the function's body: only the interpreter evaluates it")


def _register(
    name: str,
    args: tuple[str, ...],
    attrs: type | None,
    relation: Callable[..., Type],
    reference: Callable[..., Any],
    effect: Effect = Effect.TOTAL,
    views: bool = False,
    allowed: tuple[str, ...] = ALL,
) -> Op:
    return register(
        Op(
            name=name,
            args=args,
            attrs=attrs,
            relation=relation,
            reference=reference,
            pattern=OpPattern.OPAQUE,
            effect=effect,
            dtypes=(allowed,),
            doc=__doc__ or "",
            views=views,
        )
    )


MATCH_TYPE = _register(
    "vm.match_type", ("x",), MatchTypeAttrs, _match_type, _match_type_reference, Effect.MAY_FAIL
)
CHECK_BROADCAST = _register(
    "vm.check_broadcast",
    ("x",),
    CheckBroadcastAttrs,
    _check_broadcast,
    _check_broadcast_reference,
    Effect.MAY_FAIL,
)
DIM_OF = _register("vm.dim_of", ("x",), DimOfAttrs, _dim_of, _dim_of_reference)
DIM_VALUE = _register("vm.dim_value", (), DimValueAttrs, _dim_value, _dim_value_reference)
BIND_DIM = _register("vm.bind_dim", ("x",), BindDimAttrs, _bind_dim, _bind_dim_reference)
READ_INT = _register(
    "vm.read_int", ("x",), ReadIntAttrs, _read_int, _read_int_reference, Effect.MAY_FAIL,
    allowed=("int32", "int64"),
)  # fmt: skip
RESHAPE_TENSOR = _register(
    "vm.reshape_tensor", ("x",), ShapeAttrs, _reshape_tensor, _reshape_tensor_reference,
    Effect.MAY_FAIL, views=True,
)  # fmt: skip
SHRINK = _register(
    "vm.shrink", ("x",), ShapeAttrs, _shrink, _shrink_reference, Effect.MAY_FAIL, views=True
)
ROWS = _register(
    "vm.rows", ("x", "begin"), ShapeAttrs, _rows, _rows_reference, Effect.MAY_FAIL, views=True
)
READ_AT = _register(
    "vm.read_at", ("x", "index"), None, _read_at, _read_at_reference, Effect.MAY_FAIL,
    allowed=("int32", "int64"),
)  # fmt: skip
LINEARIZE = _register(
    "vm.linearize", ("t",), LinearizeAttrs, _linearize, _linearize_reference, Effect.MAY_FAIL
)
APPEND = _register("vm.append", ("x", "tail"), AppendAttrs, _append, _append_reference)
DEVICE_COPY = _register("vm.device_copy", ("x",), DeviceAttrs, _device_copy, _device_copy_reference)
ALLOC_STORAGE = _register(
    "memory.alloc_storage",
    (),
    AllocStorageAttrs,
    _alloc_storage,
    _alloc_storage_reference,
    Effect.MAY_FAIL,
)
ALLOC_TENSOR = _register(
    "memory.alloc_tensor", ("storage",), AllocTensorAttrs, _alloc_tensor, _alloc_tensor_reference,
    Effect.MAY_FAIL,
)  # fmt: skip
CALL_KERNEL = _register(
    "vm.call_kernel", ("func", "ins", "outs"), CallKernelAttrs, _call_kernel, _call_kernel_reference,
    Effect.MAY_FAIL,
)  # fmt: skip
KILL = _register("memory.kill", ("x",), None, _kill, _kill_reference)
