"""The elements of small integer tensors as scalar expressions: shape arithmetic without kernels.

`shape_of(x)` has the elements `vm.dim_of(x, 0)`, `vm.dim_of(x, 1)`...; an operator that moves elements, or
works element by element on such tensors, has elements that follow from its operands'. Where only
elements are asked for, the tensors themselves are dead, and emit makes integer instructions of the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nimblevm.compiler.op_class import SCALAR_OPS, is_int
from nimblevm.compiler.rewrite import op_call, type_of, typed
from nimblevm.errors import NimbleError
from nimblevm.relay.ir import Call, Constant, Expr, Tuple, TupleGetItem, is_known
from nimblevm.relay.op.reduce import reduced_rows
from nimblevm.relay.op.registry import Effect, Op, get
from nimblevm.relay.types import TensorType, TupleType, scalar_type

Elements = tuple[Expr, ...]
Array = npt.NDArray[Any]

MAX_ELEMENTS = 32
"""Longer vectors are no shapes."""

# Operators whose result's elements are elements of these operands; the others must be constants.
MOVES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "reshape", "expand_dims", "squeeze", "copy", "concatenate", "stack", "take", "strided_slice", "transpose",
            "reverse", "repeat", "tile", "broadcast_to", "gather", "gather_nd", "nn.mirror_pad", "split",
        ),
        (0,),
    ),
    "nn.pad": (0, 1), "strided_set": (0, 1), "scatter_elements": (0, 2), "scatter_nd": (0, 2),
}  # fmt: skip
REDUCTIONS = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "mean": "add", "all": "logical_and",
    "any": "logical_or",
}  # fmt: skip
SCANS = {"cumsum": "add", "cumprod": "multiply"}
FILLS = {"zeros_like": 0, "ones_like": 1}
INT = scalar_type("int64")


def number(value: int, dtype: str = "int64") -> Constant:
    """A scalar constant."""
    return Constant(np.asarray(value, dtype))


def scalar(name: str, *args: Expr, **attrs: object) -> Expr:
    """A scalar operator on integers, evaluated if the operands are constants."""
    op = get(name)
    made = op.attrs(**attrs) if op.attrs is not None else None
    return scalar_call(op, args, made)


def scalar_call(op: Op, args: tuple[Expr, ...], attrs: Any) -> Expr:
    """As `scalar`, with the attributes made."""
    first = type_of(args[1 if op.name == "where" else 0])
    dtype = first.dtype if isinstance(first, TensorType) else "int64"
    if op.name == "cast":
        dtype = attrs.dtype
        if first is scalar_type(dtype):
            return args[0]
    elif op.name in _BOOL:
        dtype = "bool"
    constants = [a.data for a in args if is_known(a)]
    if len(constants) == len(args):
        try:
            return Constant(np.asarray(op.reference(tuple(constants), attrs, scalar_type(dtype))))
        except NimbleError:
            pass  # the error belongs to the run
    return typed(Call(op, args, attrs), scalar_type(dtype))


_BOOL = frozenset(
    ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_not")
)


def static_shape(expr: Expr) -> tuple[int, ...] | None:
    """The shape of an integer tensor of few elements; None for other values."""
    type_ = expr.checked_type
    if not isinstance(type_, TensorType) or not is_int(scalar_type(type_.dtype)):
        return None
    sizes = tuple(d for d in type_.shape if isinstance(d, int))
    if len(sizes) != len(type_.shape) or np.prod(sizes, dtype=np.int64) > MAX_ELEMENTS:
        return None
    return sizes


class ShapeValues:
    """What is known of the tensors of one function. `known` may be told more (variables of lets)."""

    def __init__(self) -> None:
        self.known: dict[Expr, Elements] = {}
        self.fields: dict[Expr, tuple[Elements, ...]] = {}  # of a tuple, field by field

    def of(self, expr: Expr) -> Elements | None:
        """The elements in row-major order, each of the tensor's dtype; None if nothing is known."""
        found = self.known.get(expr)
        if found is not None:
            return found
        shape = static_shape(expr)
        if shape is None:
            return None
        if is_known(expr):
            return tuple([Constant(np.asarray(v)) for v in expr.data.reshape(-1)])
        return (expr,) if shape == () else None

    def elements(self, expr: Expr) -> Elements:
        """The elements as int64; those of a tensor that the program computes are read from it."""
        found = self.of(expr)
        if found is None:
            count = int(np.prod(static_shape(expr) or (), dtype=np.int64))
            return tuple([op_call("vm.read_int", (expr,), INT, index=i) for i in range(count)])
        return tuple([scalar("cast", e, dtype="int64") for e in found])

    def derive(self, call: Call) -> Elements | None:
        """The elements of an operator's result, from what is known of its operands. Those of a tuple are noted."""
        if not isinstance(call.op, Op):
            return None
        name = call.op.name
        if name == "split":
            self._split(call, call.op)
            return None
        shape = static_shape(call)
        if shape is None:
            return None
        if name == "shape_of":
            return self._sizes(call)
        if name in MOVES:
            return self._moved(call, call.op)
        if name in SCALAR_OPS:
            return self._elementwise(call, call.op, shape)
        if name in REDUCTIONS:
            return self._reduced(call, REDUCTIONS[name])
        if name in SCANS and len(shape) == 1:
            return self._scanned(call, SCANS[name])
        if name in FILLS:
            dtype = _dtype_of(call)
            return tuple([number(FILLS[name], dtype)] * int(np.prod(shape, dtype=np.int64)))
        return None

    def field(self, item: TupleGetItem) -> Elements | None:
        """The elements of a field, if its tuple's are known."""
        found = self.fields.get(item.tuple_value)
        return None if found is None else found[item.index]

    def _sizes(self, call: Call) -> Elements:
        (data,) = call.args
        source = type_of(data)
        shape = source.shape if isinstance(source, TensorType) else ()
        return tuple(
            [
                scalar("cast", dim_of(data, axis), dtype=call.attrs.dtype)
                for axis in range(len(shape))
            ]
        )

    def _places(self, call: Call, op: Op) -> tuple[list[Expr], Any] | None:
        """The elements of the moved operands, and the operator's reference of their positions in that list."""
        pool: list[Expr] = []
        operands: list[Any] = []
        for position, arg in enumerate(call.args):
            if position not in MOVES[op.name]:
                if not is_known(arg):
                    return None
                operands.append(arg.data)
                continue
            parts: list[Array] = []
            for part in arg.fields if isinstance(arg, Tuple) else (arg,):
                found, size = self.of(part), static_shape(part)
                if found is None or size is None:
                    return None
                parts.append(np.arange(len(pool), len(pool) + len(found)).reshape(size))
                pool.extend(found)
            operands.append(tuple(parts) if isinstance(arg, Tuple) else parts[0])
        try:
            return pool, op.reference(tuple(operands), call.attrs, call.checked_type)
        except NimbleError:
            return None

    def _moved(self, call: Call, op: Op) -> Elements | None:
        """Ask the operator's reference where each element comes from."""
        if getattr(call.attrs, "reduction", getattr(call.attrs, "mode", "update")) != "update" and (
            op.name in ("scatter_elements", "scatter_nd")
        ):
            return None
        found = self._places(call, op)
        if found is None:
            return None
        pool, places = found
        return _picked(pool, places, _dtype_of(call))

    def _split(self, call: Call, op: Op) -> None:
        type_ = type_of(call)
        found = self._places(call, op) if isinstance(type_, TupleType) else None
        if found is not None:
            pool, parts = found
            dtype = _dtype_of(call.args[0])
            self.fields[call] = tuple([_picked(pool, part, dtype) for part in parts])

    def _elementwise(self, call: Call, op: Op, shape: tuple[int, ...]) -> Elements | None:
        columns: list[list[Expr]] = []
        for arg in call.args:
            found, size = self.of(arg), static_shape(arg)
            if found is None or size is None:
                return None
            places = np.broadcast_to(np.arange(len(found)).reshape(size), shape).reshape(-1)
            columns.append([found[int(p)] for p in places])
        if shape != () and _may_fail(call, op, columns):
            return None  # an element that nobody asks for would not fail
        if shape == () and all(e is a for (e,), a in zip(columns, call.args, strict=True)):
            return None  # a scalar operator already
        return tuple([scalar_call(op, args, call.attrs) for args in zip(*columns, strict=True)])

    def _reduced(self, call: Call, combine: str) -> Elements | None:
        found, size = self.of(call.args[0]), static_shape(call.args[0])
        if not found or size is None:
            return None
        rows, _ = reduced_rows(np.arange(len(found)).reshape(size), call.attrs)
        if rows.shape[-1] == 0:
            return None
        totals: list[Expr] = []
        for row in rows.reshape(-1, rows.shape[-1]):
            total = found[int(row[0])]
            for place in row[1:]:
                total = scalar(combine, total, found[int(place)])
            if call.op is get("mean"):  # at most MAX_ELEMENTS: the count fits every dtype
                total = scalar("trunc_divide", total, number(len(row), _dtype_of(call)))
            totals.append(total)
        return tuple(totals)

    def _scanned(self, call: Call, combine: str) -> Elements | None:
        """Running totals over a vector."""
        found = self.of(call.args[0])
        dtype = _dtype_of(call)
        if not found or not is_int(scalar_type(dtype)) or dtype == "bool":
            return None
        neutral = number(int(combine == "multiply"), dtype)
        totals: list[Expr] = [neutral]
        for element in found:
            value = scalar("cast", element, dtype=dtype)
            totals.append(value if len(totals) == 1 else scalar(combine, totals[-1], value))
        return tuple(totals[:-1] if call.attrs.exclusive else totals[1:])


def _dtype_of(expr: Expr) -> str:
    type_ = type_of(expr)
    return type_.dtype if isinstance(type_, TensorType) else "int64"


def _picked(pool: list[Expr], places: Any, dtype: str) -> Elements:
    """Elements by position, in the result's dtype."""
    return tuple(
        [scalar("cast", pool[int(p)], dtype=dtype) for p in np.asarray(places).reshape(-1)]
    )


def _may_fail(call: Call, op: Op, columns: list[list[Expr]]) -> bool:
    """Whether an element may fail: an integer division by what is not known, or by 0."""
    if op.effect_of(tuple([type_of(a) for a in call.args]), call.attrs) is Effect.TOTAL:
        return False
    return not all(isinstance(e, Constant) and e.data.item() != 0 for e in columns[-1])


def dim_of(data: Expr, axis: int) -> Expr:
    """The size of an axis of a tensor as int64."""
    type_ = type_of(data)
    size = type_.shape[axis] if isinstance(type_, TensorType) else None
    if isinstance(size, int):
        return number(size)
    return op_call("vm.dim_of", (data,), INT, axis=axis)
