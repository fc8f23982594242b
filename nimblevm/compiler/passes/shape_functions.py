"""Compute the sizes that depend on data.

before:  arange(0, %n, 1, dtype="int32")                                  (type: Tensor[(?d),
int32])
after:   let %size = maximum(cast(%n), 0i64);
         let %d = vm.bind_dim(%size, dim=?d);
         arange(0, %n, 1, dtype="int32")

For most operators the type relation's dim expressions are the shape function. Where a size depends
on values, this pass writes it in scalar operators, which become integer instructions, and binds the
result's dim to it.

before:  dyn.zeros(shape_of(%x), dtype="float32")                (type: Tensor[(?d), float32])
after:   let %a = cast(vm.dim_of(%x, axis=0), dtype="int32"); let %s = cast(%a, dtype="int64");
         let %d = vm.bind_dim(%s, dim=?d); zeros(shape=[?d], dtype="float32")

Arithmetic on shapes (take(shape_of(x), 0), products, joined scalars) is written on its elements, so that
no kernel runs for it (compiler/shape_values.py); dyn.* operators become static ones
(compiler/dyn_lowering.py; dyn.topk here).

Needs: inferred types. Keeps: them. Cost: O(nodes). A size that is infinite ends as an allocation that
fails.
"""

from __future__ import annotations

import numpy as np

from nimblevm import dtypes
from nimblevm.compiler.dyn_lowering import (
    LOWERINGS,
    MOST,
    ZERO,
    choose,
    high,
    less,
    low,
    lower_dyn,
    sub,
)
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    fresh_var,
    located,
    map_functions,
    op_call,
    type_of,
    with_body,
)
from nimblevm.compiler.shape_values import Elements, ShapeValues, scalar, static_shape
from nimblevm.relay.dims import DimVar
from nimblevm.relay.ir import (
    Call,
    Constant,
    Expr,
    Function,
    Leaf,
    Let,
    Span,
    TupleGetItem,
    Var,
    is_known,
)
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op, get
from nimblevm.relay.op.topk import TopkAttrs
from nimblevm.relay.types import TensorType, TupleType, scalar_type, value_tensors

_INT = scalar_type("int64")
_FLOAT = scalar_type("float64")
_BOOL = scalar_type("bool")


def _number(value: int) -> Constant:
    return Constant(np.asarray(value, "int64"))


def _arange_size(args: tuple[Expr, ...], dtype: str) -> Expr:
    """max(0, ceil((stop - start) / step)); DivisionByZero for step 0."""
    if dtypes.dtype(dtype).is_float:
        return _float_arange_size(args)
    from_zero = is_known(args[0]) and int(args[0].data) == 0
    if dtype == "uint64":
        start, stop, step = args
        most = Constant(np.asarray(2**63 - 1, dtype))
        span: Expr = scalar("subtract", scalar("maximum", stop, start), start)
        span, step = (scalar("cast", e, dtype="int64") for e in (span, low(step, most)))
    else:
        start, stop, step = (scalar("cast", a, dtype="int64") for a in args)
        up, down = high(stop, start), sub(start, low(stop, start))
        span = choose(less(ZERO, step), up if from_zero else sub(up, start), down)
        step = scalar("abs", high(step, sub(ZERO, MOST)))
    count = span
    if not is_known(step) or int(step.data) != 1:
        count = sub(ZERO, scalar("floor_divide", sub(ZERO, span), step))
    if dtype not in ("int64", "uint64") or (from_zero and dtype == "int64"):
        return count
    # A difference that is no int64 has wrapped to a negative one.
    return choose(less(span, ZERO), MOST, count)


def _float_arange_size(args: tuple[Expr, ...]) -> Expr:
    start, stop, step = (op_call("cast", (a,), _FLOAT, dtype="float64") for a in args)
    zero = Constant(np.asarray(0, "float64"))
    quotient = op_call("divide", (op_call("subtract", (stop, start), _FLOAT), step), _FLOAT)
    count = op_call("cast", (op_call("ceil", (quotient,), _FLOAT),), _INT, dtype="int64")
    given = op_call("cast", (op_call("not_equal", (step, zero), _BOOL),), _INT, dtype="int64")
    # 0 / given is 0, or the error that a step of 0 has to be.
    checked = op_call("add", (count, op_call("floor_divide", (_number(0), given), _INT)), _INT)
    return op_call("maximum", (checked, _number(0)), _INT)


def _arange(call: Call, lets: list[tuple[Var, Expr]]) -> Expr:
    type_ = type_of(call)
    dim = type_.shape[0] if isinstance(type_, TensorType) else None
    if not isinstance(dim, DimVar):
        return call
    args = tuple([_named(a, lets) for a in call.args])
    _bound_dim(dim, _arange_size(args, call.attrs.dtype), lets)
    return Call(call.op, args, call.attrs, span=call.span, checked_type=type_)


def _topk(call: Call, lets: list[tuple[Var, Expr]]) -> Expr:
    """dyn.topk as topk of a dim: the number, or the axis for a number < 1."""
    type_, data, attrs = type_of(call), type_of(call.args[0]), call.attrs
    first = value_tensors(type_)[0]
    if not isinstance(data, TensorType):
        raise TypeError(f"dyn.topk of {data!r}")
    axis = attrs.axis % len(data.shape)
    dim = first.shape[axis]
    operand = _named(call.args[0], lets)
    if isinstance(dim, DimVar):
        k = _named(call.args[1], lets)
        k_type = type_of(k)
        if isinstance(k_type, TensorType) and k_type.shape:
            k = op_call("reshape", (k,), scalar_type(k_type.dtype), newshape=())
        number = fresh_var("k", _INT)
        lets.append((number, op_call("cast", (k,), _INT, dtype="int64")))
        whole = op_call("vm.dim_of", (operand,), _INT, axis=axis)
        some = op_call("less", (number, _number(1)), _BOOL)
        _bound_dim(dim, op_call("where", (some, whole, number), _INT), lets)
    static = TopkAttrs(dim, attrs.axis, attrs.ret_type, attrs.is_ascend, attrs.dtype)
    return Call(get("topk"), (operand,), static, span=call.span, checked_type=type_)


def _first(data: Expr, axis: int) -> Expr:
    """The first elements along an axis."""
    type_ = type_of(data)
    if not isinstance(type_, TensorType):
        raise TypeError(f"the first elements of {type_!r}")
    shape = (*type_.shape[:axis], *type_.shape[axis + 1 :])
    return op_call("take", (data, _number(0)), TensorType(shape, type_.dtype), axis=axis)


def _fill_empty_rows(call: Call, lets: list[tuple[Var, Expr]]) -> Expr:
    """The rows are dense_shape[0]; the elements are those given, and one more for each row that is none of theirs."""
    type_ = type_of(call)
    count, _, empty = (found.shape[0] for found in value_tensors(type_))
    args = tuple([_named(a, lets) for a in call.args])
    rows = fresh_var("rows", _INT)
    lets.append((rows, op_call("cast", (_first(args[2], 0),), _INT, dtype="int64")))
    if isinstance(empty, DimVar):
        _bound_dim(empty, rows, lets)
    if isinstance(count, DimVar):
        of_rows = _first(args[0], 1)
        (vector,) = value_tensors(type_of(of_rows))
        found = TensorType((DimVar(None),), vector.dtype)
        places, number = TensorType(found.shape, "int32"), TensorType((1,), "int32")
        kinds = TupleType((found, places, TensorType(vector.shape, "int32"), number))
        distinct = op_call("unique", (of_rows,), kinds)
        some = _first(TupleGetItem(distinct, 3, checked_type=number), 0)
        filled = op_call("cast", (some,), _INT, dtype="int64")
        given = op_call("vm.dim_of", (args[0],), _INT, axis=0)
        size = op_call("add", (given, op_call("subtract", (rows, filled), _INT)), _INT)
        _bound_dim(count, op_call("maximum", (size, _number(0)), _INT), lets)
    return Call(call.op, args, call.attrs, span=call.span, checked_type=type_)


_SIZED = {"arange": _arange, "dyn.topk": _topk, "sparse_fill_empty_rows": _fill_empty_rows}


class _Binder(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.values = ShapeValues()

    def bind(self, let: Let, value: Expr) -> None:
        known = self.values.of(value)
        if known is not None and known != (value,):
            self.values.known[let.var] = known
        fields = self.values.fields.get(value)
        if fields is not None:
            self.values.fields[let.var] = fields

    def visit(self, node: Expr, new: Expr) -> Expr:
        if isinstance(new, TupleGetItem):
            return self._noted(new, self.values.field(new))
        if not isinstance(new, Call) or not isinstance(new.op, Op):
            return new
        if new.op.name in LOWERINGS:
            return lower_dyn(new, self.values)
        if new.op.name not in _SIZED:
            return self._arithmetic(new)
        lets: list[tuple[Var, Expr]] = []
        body = _SIZED[new.op.name](new, lets)
        for var, value in reversed(lets):
            _place(value, new.span)
            body = Let(var, value, body, span=new.span, checked_type=type_of(new))
        return body

    def _arithmetic(self, new: Call) -> Expr:
        return self._noted(new, self.values.derive(new))

    def _noted(self, new: Expr, found: Elements | None) -> Expr:
        """Note the elements of a shape; a single element takes its place."""
        if found is None:
            return new
        if static_shape(new) == ():
            return found[0]
        self.values.known[new] = found
        return new


def _bound_dim(dim: DimVar, size: Expr, lets: list[tuple[Var, Expr]]) -> None:
    """Bind a dim to a size."""
    var = fresh_var("size", _INT)
    lets.append((var, size))
    lets.append((fresh_var("d", _INT), op_call("vm.bind_dim", (var,), _INT, dim=dim)))


def _place(value: Expr, span: Span | None) -> None:
    """Give the operators of a size the place of the call that it is for (the nodes are new)."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, TupleGetItem):
            stack.append(node.tuple_value)
        elif isinstance(node, Call) and node.span is None:
            stack.extend(located(node, span).args)


def _named(arg: Expr, lets: list[tuple[Var, Expr]]) -> Expr:
    if isinstance(arg, Leaf):
        return arg
    var = fresh_var("a", type_of(arg))
    lets.append((var, arg))
    return var


def _bind(function: Function) -> Function:
    return with_body(function, _Binder().rewrite(function.body))


def shape_functions(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _bind)


SHAPE_FUNCTIONS = Pass("shape_functions", shape_functions, required=True)
