"""Multiply a table once, instead of the rows that are taken from it.

before:  nn.dense(reshape(take(meta[relay.Constant][0], %last, axis=0), newshape=[1, 128]), meta[relay.Constant][1])
after:   reshape(take(meta[relay.Constant][2], %last, axis=0), newshape=[1, 384])

An embedding followed by a product, as in a decoder that reads its own predictions, becomes a table of products. Only
where table and weight are constants of one float dtype, the product of both takes no more memory than they do, and is
at most MAX_WORK multiplications. The product is computed as a run would (the context's evaluator).

Needs: inferred types. Keeps: them. Cost: O(nodes) and the products.
"""

from __future__ import annotations

import numpy as np

from nimblevm.compiler.dataflow import FLOATS, Dataflow, is_op
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    is_primitive,
    map_functions,
    op_call,
    type_of,
    typed,
    with_body,
)
from nimblevm.errors import NimbleError
from nimblevm.relay.ir import Call, Constant, Expr, Function, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.types import TensorType

MAX_WORK = 1 << 27
_VIEWS = ("reshape", "expand_dims", "squeeze")
Projections = dict[tuple[Constant, Constant], Constant | None]


class _Projector(Rewriter):
    def __init__(self, flow: Dataflow, ctx: PassContext, known: Projections) -> None:
        super().__init__()
        self.flow = flow
        self.ctx = ctx
        self.known = known

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(node, Call) or not is_op(node, "nn.dense"):
            return new
        taken, weight, result = self._taken(node), node.args[1], type_of(node)
        if taken is None or not isinstance(weight, Constant) or not isinstance(result, TensorType):
            return new
        table = self._projection(taken.args[0], weight, node)
        if table is None:
            return new
        index = type_of(taken.args[1])
        unknown = [d for d in result.shape if not isinstance(d, int)]
        if not isinstance(index, TensorType) or len(unknown) > 1:
            return new
        row = TensorType((*index.shape, table.data.shape[1]), result.dtype)
        numbers = self.memo.get(taken.args[1], taken.args[1])
        rows = op_call("take", (table, numbers), row, node.span, axis=0, mode=taken.attrs.mode)
        if row is result:
            return rows
        shape = tuple([d if isinstance(d, int) else -1 for d in result.shape])
        return op_call("reshape", (rows,), result, newshape=shape)

    def _taken(self, node: Call) -> Call | None:
        """The rows of a constant table that a product reads, through views that keep the rows."""
        data = self.flow.resolve(node.args[0])
        width = _last(data)
        while isinstance(data, Call) and is_op(data, *_VIEWS) and _last(data) == width:
            data = self.flow.resolve(data.args[0])
        if not isinstance(data, Call) or not is_op(data, "take") or not self.flow.is_total(data):
            return None
        table = data.args[0]
        plain = data.attrs.axis in (0, -2) and not data.attrs.batch_dims
        if not plain or not isinstance(table, Constant) or table.data.ndim != 2:
            return None
        return data if table.data.shape[1] == width and table.data.size else None

    def _projection(self, table: Expr, weight: Constant, node: Call) -> Constant | None:
        """The product of table and weight, if it is worth its memory."""
        if not isinstance(table, Constant):
            return None
        key = (table, weight)
        if key not in self.known:
            self.known[key] = self._evaluated(table, weight, node)
        return self.known[key]

    def _evaluated(self, table: Constant, weight: Constant, node: Call) -> Constant | None:
        if not is_known(table) or not is_known(weight):
            return None
        rows, units, result = table.data.shape[0], weight.data.shape[0], type_of(node)
        if not isinstance(result, TensorType) or self.ctx.evaluate is None:
            return None
        dtypes = {table.data.dtype.name, weight.data.dtype.name, result.dtype}
        size = rows * units * table.data.itemsize
        if len(dtypes) > 1 or result.dtype not in FLOATS or weight.data.ndim != 2:
            return None
        if size > table.data.nbytes + weight.data.nbytes or rows * weight.data.size > MAX_WORK:
            return None
        call = typed(
            Call(node.op, (table, weight), node.attrs), TensorType((rows, units), result.dtype)
        )
        try:
            return Constant(np.asarray(self.ctx.evaluate(call, (table.data, weight.data))))
        except NimbleError:
            return None


def _last(node: Expr) -> int | None:
    type_ = type_of(node)
    last = type_.shape[-1] if isinstance(type_, TensorType) and type_.shape else None
    return last if isinstance(last, int) else None


def project_tables(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    known: Projections = {}

    def project(function: Function) -> Function:
        if is_primitive(function) or ctx.evaluate is None:
            return function
        work = _Projector(Dataflow(function.body), ctx, known)
        return with_body(function, work.rewrite(function.body))

    return map_functions(mod, project)


PROJECT_TABLES = Pass("project_tables", project_tables)
