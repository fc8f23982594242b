"""What the builder's functions are made of: operands from Python values, and calls of operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from operator import is_
from typing import Any

import numpy as np

from nimblevm.arguments import refuse_mask, shown
from nimblevm.errors import InvalidInputType
from nimblevm.relay import ir, op
from nimblevm.relay.types import TensorType

Number = bool | int | float


class TupleWrapper:
    """An expression whose value is a tuple of known length: index, iterate or take its length. Where an expression is
    asked for it stands for that."""

    def __init__(self, tuple_value: ir.Expr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> ir.Tuple:
        """A tuple expression of the fields."""
        return ir.Tuple(tuple(self))

    def asobject(self) -> ir.Expr:
        """The wrapped expression; what nodes take for it (node.meant)."""
        return self.tuple_value

    def astext(self) -> str:
        """The text of the wrapped expression."""
        return str(self.tuple_value)

    def __getitem__(self, index: int) -> ir.TupleGetItem:
        if not -self.size <= index < self.size:
            raise IndexError(f"index {index} of a tuple of {self.size} fields")
        return ir.TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[ir.TupleGetItem]:
        return (self[index] for index in range(self.size))

    def __repr__(self) -> str:
        return f"TupleWrapper({self.tuple_value!r}, {self.size})"


Operand = ir.Expr | TupleWrapper | np.ndarray[Any, Any] | np.generic | Number

# Result dtypes that are not the first argument's.
_FIXED = {"argmax": "int32", "argmin": "int32", "vm.dim_of": "int64", "vm.dim_value": "int64"}
_FIXED["argwhere"] = "int32"
_FIXED.update((row.name, row.result) for row in op.unary.TABLE if row.result)
# Tuples of values, of argument 0's dtype, and of positions: which field the values are.
_VALUES = {"topk": 0, "dyn.topk": 0, "unique": 0, "vision.get_valid_counts": 1}
_LIKE_SECOND = frozenset({"where", "cast_like"})
_BINARY = frozenset(row.name for row in op.binary.TABLE)
_BOOL = frozenset(row.name for row in op.compare.TABLE)


def dtype_of(expr: ir.Expr) -> str | None:
    """The dtype of an expression as far as it is known without inference; iterative over first operands."""
    while True:
        known = expr.checked_type
        if isinstance(known, TensorType):
            return known.dtype
        match expr:
            case ir.Call(op=op.Op(name=name), args=args, attrs=attrs):
                if name in _VALUES and getattr(attrs, "ret_type", "") == "values":
                    expr = args[0]
                    continue
                if name in _BOOL or name in _FIXED:
                    return _FIXED.get(name, "bool")
                declared = getattr(attrs, "dtype", "") or getattr(attrs, "out_dtype", "")
                if declared:
                    return str(declared)
                if not args:
                    return None
                # Of two operands of one dtype the one that is known ends the walk: numbers in a long chain stay cheap.
                second = len(args) == 2 and name in _BINARY and args[1].checked_type is not None
                expr = args[1] if name in _LIKE_SECOND or second else args[0]
            case ir.Tuple(fields=fields) if fields:
                expr = fields[0]
            case ir.TupleGetItem(tuple_value=ir.Call(op=op.Op(name=name)) as call, index=index) if (
                name in _VALUES
            ):
                if index != _VALUES[name]:
                    return str(getattr(call.attrs, "dtype", "int32"))
                expr = call.args[0]
            case ir.TupleGetItem(tuple_value=value):
                expr = value
            case ir.Let(body=body):
                expr = body
            case ir.If(true_branch=branch):
                expr = branch
            case _:
                return None


def constant(value: Any, dtype: str | None) -> ir.Constant:
    """A Python number or array as a constant; a number takes `dtype`, which must be able to hold it."""
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        refuse_mask(value, lambda: "an array as an operand")
        return ir.Constant(np.asarray(value))
    if not isinstance(value, Number):
        raise TypeError(f"expected an expression, an array or a number, got {type(value).__name__}")
    if dtype is None:
        dtype = (
            "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
        )
    try:
        array = np.asarray(value).astype(dtype)
    except (
        OverflowError,
        TypeError,
    ):  # Python's integers are longer, and an unknown dtype holds nothing
        array = None
    if array is None or (np.dtype(dtype).kind in "iub" and array != value):
        raise InvalidInputType(f"{shown(value)} is no {dtype}: write relay.const({value}, dtype)")
    return ir.Constant(array)


def as_expr(value: Any, like: ir.Expr | None = None) -> ir.Expr:
    """`value` as an expression; a number takes the dtype of `like`."""
    if isinstance(value, ir.Expr):
        return value
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    return constant(value, None if like is None else dtype_of(like))


def pair(lhs: Any, rhs: Any) -> tuple[ir.Expr, ir.Expr]:
    """Two operands of one dtype: a number takes the other's."""
    if isinstance(lhs, ir.Expr):
        return lhs, as_expr(rhs, lhs)
    if isinstance(rhs, ir.Expr):
        return as_expr(lhs, rhs), rhs
    left = as_expr(lhs)
    return left, as_expr(rhs, left)


def fields_of(data: Any) -> ir.Expr:
    """The tuple operand of a variadic operator: a tuple expression, or a sequence of operands."""
    if isinstance(data, ir.Expr | TupleWrapper):
        return as_expr(data)
    if not isinstance(data, Sequence):
        raise TypeError(
            f"expected a tuple expression or a sequence of expressions, got {type(data).__name__}"
        )
    return ir.Tuple(tuple(as_expr(part) for part in data))


def plain(value: Any) -> Any:
    """An attribute in Python's own values: numpy's numbers, arrays and dtypes stand for them, lists for tuples."""
    match value:
        case int() | float() | str() | None:
            return value.item() if isinstance(value, np.generic) else value
        case list() | tuple():
            parts = tuple(plain(part) for part in value)  # nests a few levels deep
            same = type(value) is tuple and all(map(is_, parts, value))
            return value if same else parts
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case np.dtype():
            return value.name
        case type() if issubclass(value, np.generic):
            return np.dtype(value).name
    return value


def _plain_attrs(attrs: Any) -> Any:
    if not is_dataclass(attrs) or isinstance(attrs, type):
        return attrs
    changed = {}
    for field in fields(attrs):
        old = getattr(attrs, field.name)
        new = plain(old)
        if new is not old:
            changed[field.name] = new
    return replace(attrs, **changed) if changed else attrs


def call_op(name: str, *args: Any, attrs: Any = None) -> ir.Call:
    """A call of an operator by name."""
    return ir.Call(op.get(name), tuple(as_expr(arg) for arg in args), _plain_attrs(attrs))
