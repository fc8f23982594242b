"""Building programs in Python: TVM's functions with TVM's argument order and defaults.

    x = relay.var("x", shape=(relay.Any(), 300))
    y = relay.nn.dense(x, w) + relay.const(1.0)
    mod = IRModule.from_expr(relay.Function([x], y))

Where an expression is expected, a Python number becomes a constant of the other operand's dtype where
that is known (an annotated variable, a constant, or operators on such), else int32, float32 or bool; a
numpy array becomes a constant as it is. Importing this module gives expressions their operators (+ - * /
< > <= >= and unary -) and `astype`. `==` stays identity, as in TVM. Functions named like builtins (sum,
max, all...) are meant to be used as relay.sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any as AnyValue

import numpy as np

from nimblevm import dtypes
from nimblevm.arguments import refuse_mask, shown
from nimblevm.errors import InvalidInputType
from nimblevm.relay import ir, op
from nimblevm.relay.builder_sizes import dims_of, given, ints_of, is_computed, vector
from nimblevm.relay.call import Operand, TupleWrapper, as_expr, call_op, fields_of, pair, plain
from nimblevm.relay.dims import AnyDim, Dim, DimVar
from nimblevm.relay.types import TensorType, Type
from nimblevm.relay.visitor import rewrite

_DTYPES = frozenset(
    map(np.dtype, dtypes.BY_NAME)
)  # asked first: an array's dtype.name takes microseconds


def Any() -> DimVar:
    """An unknown dim, printed `?`: as in TVM another one wherever a type has it. A DimVar is one size everywhere."""
    return AnyDim()


def var(
    name_hint: str,
    type_annotation: Type | str | None = None,
    shape: Sequence[Dim] | None = None,
    dtype: str = "float32",
    span: ir.Span | None = None,
) -> ir.Var:
    """A new local variable, its type given as such, by shape and dtype, or by a dtype name (a scalar)."""
    if type_annotation is not None and shape is not None:
        raise ValueError("give type_annotation or shape, not both")
    if isinstance(type_annotation, str):
        type_annotation = TensorType((), type_annotation)
    if shape is not None:
        if not isinstance(shape, Iterable) or isinstance(shape, str):
            raise TypeError(f"shape must be a tuple of dims, not {shape!r}; a vector's is (n,)")
        name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
        type_annotation = TensorType(shape, name)
    return ir.Var(name_hint, type_annotation, span=span)


def const(
    value: AnyValue, dtype: str | TensorType | None = None, span: ir.Span | None = None
) -> ir.Constant:
    """A constant: arrays keep their dtype; Python numbers and lists become int32, float32 or bool unless dtype (a
    name, or a type that has it) says otherwise (an integer that needs it becomes int64)."""
    dtype = dtype.dtype if isinstance(dtype, TensorType) else dtype
    refuse_mask(value, lambda: "const")
    try:
        array = np.asarray(value, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        wanted = "number or array" if dtype is None else f"{dtype} number or array"
        raise InvalidInputType(f"const: {shown(value)} is no {wanted}: {error}") from None
    if array.dtype not in _DTYPES and array.dtype.name not in dtypes.BY_NAME:
        advice = (
            'it does not fit int64; const(value, "float32") rounds it'
            if isinstance(value, int)
            else f"it takes {', '.join(dtypes.BY_NAME)}"
        )
        raise InvalidInputType(f"const: {shown(value)} is no number or array of Relay: {advice}")
    if dtype is None and not hasattr(value, "dtype"):
        if array.dtype == np.float64:
            array = array.astype("float32")
        elif array.dtype == np.int64 and bool(np.all(array == array.astype("int32"))):
            array = array.astype("int32")
    return ir.Constant(array, span=span)


def bind(expr: ir.Expr, binds: Mapping[ir.Var | str, AnyValue]) -> ir.Expr:
    """Replace free variables, and parameters if `expr` is a function, which then loses them.

    Keys are variables or the names of parameters; values are expressions, arrays or numbers.
    """
    named = {p.name_hint: p for p in expr.params} if isinstance(expr, ir.Function) else {}
    mapping: dict[ir.Expr, ir.Expr] = {}
    for key, value in binds.items():
        if isinstance(key, str) and key not in named:
            raise KeyError(f"the function has no parameter {key!r}; it has: {', '.join(named)}")
        found = named[key] if isinstance(key, str) else key
        mapping[found] = as_expr(value, found)

    def replaced(node: ir.Expr) -> ir.Expr:
        return mapping.get(node, node)

    if not isinstance(expr, ir.Function):
        return rewrite(expr, replaced)
    params = tuple(p for p in expr.params if p not in mapping)
    ret_type = expr.ret_type if len(params) == len(expr.params) else None
    return ir.Function(params, rewrite(expr.body, replaced), ret_type, expr.type_params, expr.attrs)


# --- elementwise ------------------------------------------------------------------------------------


def log(data: Operand) -> ir.Call:
    """Natural logarithm."""
    return call_op("log", data)


def exp(data: Operand) -> ir.Call:
    """e ** data."""
    return call_op("exp", data)


def sqrt(data: Operand) -> ir.Call:
    """Square root."""
    return call_op("sqrt", data)


def rsqrt(data: Operand) -> ir.Call:
    """1 / sqrt(data)."""
    return call_op("rsqrt", data)


def sigmoid(data: Operand) -> ir.Call:
    """1 / (1 + exp(-data))."""
    return call_op("sigmoid", data)


def tanh(data: Operand) -> ir.Call:
    """Hyperbolic tangent."""
    return call_op("tanh", data)


def floor(data: Operand) -> ir.Call:
    """The greatest integer <= data."""
    return call_op("floor", data)


def ceil(data: Operand) -> ir.Call:
    """The least integer >= data."""
    return call_op("ceil", data)


def round(data: Operand) -> ir.Call:
    """The nearest integer, half away from zero."""
    return call_op("round", data)


def abs(data: Operand) -> ir.Call:
    """Absolute value."""
    return call_op("abs", data)


def sign(data: Operand) -> ir.Call:
    """1, 0 or -1."""
    return call_op("sign", data)


def negative(data: Operand) -> ir.Call:
    """-data."""
    return call_op("negative", data)


def logical_not(data: Operand) -> ir.Call:
    """not data (bool)."""
    return call_op("logical_not", data)


def copy(data: Operand) -> ir.Call:
    """data itself."""
    return call_op("copy", data)


def add(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs + rhs, broadcast."""
    return call_op("add", *pair(lhs, rhs))


def subtract(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs - rhs, broadcast."""
    return call_op("subtract", *pair(lhs, rhs))


def multiply(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs * rhs, broadcast."""
    return call_op("multiply", *pair(lhs, rhs))


def divide(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs / rhs, broadcast; integers towards zero."""
    return call_op("divide", *pair(lhs, rhs))


def floor_divide(lhs: Operand, rhs: Operand) -> ir.Call:
    """floor(lhs / rhs), broadcast."""
    return call_op("floor_divide", *pair(lhs, rhs))


def trunc_divide(lhs: Operand, rhs: Operand) -> ir.Call:
    """trunc(lhs / rhs), broadcast."""
    return call_op("trunc_divide", *pair(lhs, rhs))


def power(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs ** rhs, broadcast."""
    return call_op("power", *pair(lhs, rhs))


def mod(lhs: Operand, rhs: Operand) -> ir.Call:
    """The remainder with the sign of lhs, broadcast."""
    return call_op("mod", *pair(lhs, rhs))


def floor_mod(lhs: Operand, rhs: Operand) -> ir.Call:
    """The remainder with the sign of rhs, broadcast."""
    return call_op("floor_mod", *pair(lhs, rhs))


def trunc_mod(lhs: Operand, rhs: Operand) -> ir.Call:
    """The remainder with the sign of lhs, broadcast."""
    return call_op("trunc_mod", *pair(lhs, rhs))


def maximum(lhs: Operand, rhs: Operand) -> ir.Call:
    """The greater of two elements, broadcast."""
    return call_op("maximum", *pair(lhs, rhs))


def minimum(lhs: Operand, rhs: Operand) -> ir.Call:
    """The lesser of two elements, broadcast."""
    return call_op("minimum", *pair(lhs, rhs))


def logical_and(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs and rhs (bool), broadcast."""
    return call_op("logical_and", *pair(lhs, rhs))


def logical_or(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs or rhs (bool), broadcast."""
    return call_op("logical_or", *pair(lhs, rhs))


def logical_xor(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs != rhs (bool), broadcast."""
    return call_op("logical_xor", *pair(lhs, rhs))


def equal(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs == rhs, broadcast."""
    return call_op("equal", *pair(lhs, rhs))


def not_equal(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs != rhs, broadcast."""
    return call_op("not_equal", *pair(lhs, rhs))


def less(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs < rhs, broadcast."""
    return call_op("less", *pair(lhs, rhs))


def less_equal(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs <= rhs, broadcast."""
    return call_op("less_equal", *pair(lhs, rhs))


def greater(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs > rhs, broadcast."""
    return call_op("greater", *pair(lhs, rhs))


def greater_equal(lhs: Operand, rhs: Operand) -> ir.Call:
    """lhs >= rhs, broadcast."""
    return call_op("greater_equal", *pair(lhs, rhs))


def clip(a: Operand, a_min: float, a_max: float) -> ir.Call:
    """Every element limited to [a_min, a_max]."""
    return call_op("clip", a, attrs=op.clip.ClipAttrs(a_min, a_max))


def cast(data: Operand, dtype: str) -> ir.Call:
    """Every element converted."""
    return call_op("cast", data, attrs=op.cast.CastAttrs(dtype))


def where(condition: Operand, x: Operand, y: Operand) -> ir.Call:
    """x where condition holds, else y; broadcast."""
    return call_op("where", as_expr(condition), *pair(x, y))


# --- making tensors -----------------------------------------------------------------------------------


def _init(name: str, args: tuple[Operand, ...], shape: AnyValue, dtype: str) -> ir.Call:
    if is_computed(shape):
        attrs: AnyValue = op.dyn.DynInitAttrs(dtype)
        return call_op(f"dyn.{name}", *args, vector(shape), attrs=attrs)
    return call_op(name, *args, attrs=op.full.InitOpAttrs(dims_of(shape), dtype))


def zeros(shape: AnyValue, dtype: str) -> ir.Call:
    """A tensor of zeros; the shape may be an expression."""
    return _init("zeros", (), shape, dtype)


def zeros_like(data: Operand) -> ir.Call:
    """Zeros in data's shape and dtype."""
    return call_op("zeros_like", data)


def ones(shape: AnyValue, dtype: str) -> ir.Call:
    """A tensor of ones; the shape may be an expression."""
    return _init("ones", (), shape, dtype)


def ones_like(data: Operand) -> ir.Call:
    """Ones in data's shape and dtype."""
    return call_op("ones_like", data)


def full(fill_value: Operand, shape: AnyValue = (), dtype: str = "") -> ir.Call:
    """A tensor of one value; the shape may be an expression."""
    return _init("full", (fill_value,), shape, dtype)


def arange(
    start: Operand, stop: Operand | None = None, step: Operand | None = None, dtype: str = "float32"
) -> ir.Call:
    """start, start + step, ... below stop; with one argument 0, 1, ... below it."""
    if stop is None:
        start, stop = 0, start
    operands = (start, stop, 1 if step is None else step)
    made = tuple(const(o, dtype) if not isinstance(o, ir.Expr) else o for o in operands)
    return call_op("arange", *made, attrs=op.arange.ArangeAttrs(dtype))


def shape_of(data: Operand, dtype: str = "int32") -> ir.Call:
    """The sizes of data as a vector."""
    return call_op("shape_of", data, attrs=op.shape_of.ShapeOfAttrs(dtype))


# --- moving elements ------------------------------------------------------------------------------------


def concatenate(data: AnyValue, axis: int) -> ir.Call:
    """Tensors joined along an axis; data is a tuple expression or a sequence of expressions."""
    return call_op("concatenate", fields_of(data), attrs=op.concatenate.ConcatenateAttrs(axis))


def stack(data: AnyValue, axis: int) -> ir.Call:
    """Tensors joined along a new axis."""
    return call_op("stack", fields_of(data), attrs=op.stack.StackAttrs(axis))


def split(data: Operand, indices_or_sections: int | Sequence[int], axis: int = 0) -> TupleWrapper:
    """data cut along an axis; the result can be indexed, iterated and has a length."""
    where: int | tuple[int, ...] = plain(indices_or_sections)
    count = where if isinstance(where, int) else len(where) + 1
    return TupleWrapper(call_op("split", data, attrs=op.split.SplitAttrs(where, axis)), count)


def take(
    data: Operand,
    indices: Operand,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
) -> ir.Call:
    """Elements of data by index."""
    return call_op("take", data, indices, attrs=op.take.TakeAttrs(batch_dims, axis, mode))


def reshape(data: Operand, newshape: AnyValue, allowzero: bool = False) -> ir.Call:
    """data in another shape; see op/reshape.py for 0, -1, -2, -3 and -4. newshape may be an expression."""
    if is_computed(newshape):
        attrs = op.dyn.DynReshapeAttrs(allowzero)
        return call_op("dyn.reshape", data, vector(newshape), attrs=attrs)
    sizes = ints_of("reshape", newshape)
    return call_op("reshape", data, attrs=op.reshape.ReshapeAttrs(sizes, allowzero))


def transpose(data: Operand, axes: Sequence[int] | None = None) -> ir.Call:
    """The axes permuted, or reversed."""
    return call_op(
        "transpose", data, attrs=op.transpose.TransposeAttrs(None if axes is None else tuple(axes))
    )


def expand_dims(data: Operand, axis: AnyValue, num_newaxis: int = 1) -> ir.Call:
    """Axes of size 1 inserted; the axis may be an expression."""
    if is_computed(axis):
        attrs = op.dyn.DynExpandDimsAttrs(num_newaxis)
        return call_op("dyn.expand_dims", data, axis, attrs=attrs)
    place = given(axis)
    return call_op("expand_dims", data, attrs=op.expand_dims.ExpandDimsAttrs(place, num_newaxis))


def squeeze(data: Operand, axis: AnyValue = None) -> ir.Call:
    """Axes of size 1 removed; the axes may be an expression."""
    if is_computed(axis):
        return call_op("dyn.squeeze", data, vector(axis))
    named = None if axis is None else ints_of("squeeze", axis)
    return call_op("squeeze", data, attrs=op.squeeze.SqueezeAttrs(named))


def broadcast_to(data: Operand, shape: AnyValue) -> ir.Call:
    """data stretched to a shape, which may be an expression."""
    if is_computed(shape):
        return call_op("dyn.broadcast_to", data, vector(shape))
    return call_op("broadcast_to", data, attrs=op.broadcast_to.BroadcastToAttrs(dims_of(shape)))


def strided_slice(
    data: Operand,
    begin: AnyValue,
    end: AnyValue,
    strides: AnyValue | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> ir.Call:
    """A part of data, as Python's slices. begin, end and strides may be expressions, then of the first axes."""
    if is_computed(begin) or is_computed(end) or is_computed(strides):
        return _computed_slice(data, begin, end, strides, axes, slice_mode)
    steps = None if strides is None else ints_of("strided_slice", strides)
    first, last = ints_of("strided_slice", begin), ints_of("strided_slice", end)
    attrs = op.strided_slice.StridedSliceAttrs(first, last, steps, slice_mode, _axes(axes))
    return call_op("strided_slice", data, attrs=attrs)


def _computed_slice(
    data: Operand,
    begin: AnyValue,
    end: AnyValue,
    strides: AnyValue | None,
    axes: Sequence[int] | None,
    slice_mode: str,
) -> ir.Call:
    if axes is not None:
        raise TypeError("strided_slice: axes can't be given beside computed bounds")
    first, last = vector(begin), vector(end)
    if strides is None:
        # One for each bound, whose number only the type knows.
        strides = call_op("ones_like", last if isinstance(first, ir.Constant) else first)
    attrs = op.dyn.DynSliceAttrs(slice_mode)
    return call_op("dyn.strided_slice", data, first, last, vector(strides), attrs=attrs)


# --- reductions -----------------------------------------------------------------------------------------


Axes = int | Sequence[int] | None


def _axes(axis: Axes) -> tuple[int, ...] | None:
    if axis is None:
        return None
    axis = plain(axis)
    return (axis,) if isinstance(axis, int) else tuple(axis)


def _reduce(name: str, data: Operand, axis: Axes, keepdims: bool, exclude: bool) -> ir.Call:
    return call_op(name, data, attrs=op.reduce.ReduceAttrs(_axes(axis), keepdims, exclude))


def sum(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> ir.Call:
    """The sum over axes."""
    return _reduce("sum", data, axis, keepdims, exclude)


def prod(
    data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False
) -> ir.Call:
    """The product over axes."""
    return _reduce("prod", data, axis, keepdims, exclude)


def mean(
    data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False
) -> ir.Call:
    """The mean over axes."""
    return _reduce("mean", data, axis, keepdims, exclude)


def max(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> ir.Call:
    """The greatest element over axes."""
    return _reduce("max", data, axis, keepdims, exclude)


def min(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> ir.Call:
    """The least element over axes."""
    return _reduce("min", data, axis, keepdims, exclude)


def all(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> ir.Call:
    """Whether all elements hold (bool)."""
    return _reduce("all", data, axis, keepdims, exclude)


def any(data: Operand, axis: Axes = None, keepdims: bool = False, exclude: bool = False) -> ir.Call:
    """Whether an element holds (bool)."""
    return _reduce("any", data, axis, keepdims, exclude)


def argmax(
    data: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    select_last_index: bool = False,
) -> ir.Call:
    """The position of the greatest element (int32)."""
    attrs = op.reduce.ArgReduceAttrs(_axes(axis), keepdims, select_last_index, exclude)
    return call_op("argmax", data, attrs=attrs)


def argmin(
    data: Operand,
    axis: Axes = None,
    keepdims: bool = False,
    exclude: bool = False,
    select_last_index: bool = False,
) -> ir.Call:
    """The position of the least element (int32)."""
    attrs = op.reduce.ArgReduceAttrs(_axes(axis), keepdims, select_last_index, exclude)
    return call_op("argmin", data, attrs=attrs)


# --- operators of expressions ---------------------------------------------------------------------------


def _install() -> None:
    """Give every expression the operators that TVM's have; `==` and `!=` stay identity."""
    methods: dict[str, AnyValue] = {
        "__add__": lambda a, b: add(a, b),
        "__radd__": lambda a, b: add(b, a),
        "__sub__": lambda a, b: subtract(a, b),
        "__rsub__": lambda a, b: subtract(b, a),
        "__mul__": lambda a, b: multiply(a, b),
        "__rmul__": lambda a, b: multiply(b, a),
        "__truediv__": lambda a, b: divide(a, b),
        "__rtruediv__": lambda a, b: divide(b, a),
        "__neg__": lambda a: negative(a),
        "__lt__": lambda a, b: less(a, b),
        "__gt__": lambda a, b: greater(a, b),
        "__le__": lambda a, b: less_equal(a, b),
        "__ge__": lambda a, b: greater_equal(a, b),
        "astype": cast,
        # numpy must not take over `array + expression` element by element.
        "__array_ufunc__": None,
    }
    for name, method in methods.items():
        setattr(ir.Expr, name, method)


_install()
