"""Rows of a loop as one batch: what a trip computes of row i of a tensor, for all rows at once.

A node of a trip is lifted if it is row i of a batch that can be computed before the loop: row i itself (`take` of an
invariant tensor by the counter, or by n - 1 less the counter), reshapes of a row that only add or drop axes of size 1,
total elementwise operators of rows and invariants, products of a row with an invariant weight, rows of a table at a
lifted index, pieces of a row. Batches have the shape (n, width), or (n) where the node is a scalar.

A batch is written in the loop's own terms: variables from outside of the loop and its invariant parameters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np

from nimblevm.compiler.dataflow import Dataflow, is_op, is_total_call, row_width, static_shape
from nimblevm.compiler.loops import Loop, LoopFinder
from nimblevm.compiler.rewrite import (
    Rewriter,
    op_call,
    postorder,
    type_of,
    typed,
    with_children,
)
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Call, Constant, Expr, Let, Tuple, TupleGetItem, Var, children
from nimblevm.relay.op.registry import Op, OpPattern
from nimblevm.relay.op.strided_slice import slice_of
from nimblevm.relay.types import TensorType, TupleType, Type, substitute


@dataclass(frozen=True, eq=False, slots=True)
class Lifted:
    """batch: the value for all rows. index: the expression that says which row the node is. backward: whether that
    is n - 1 less the counter. product: whether a product is part of it, so that lifting pays.
    """

    batch: Expr
    index: Expr
    backward: bool
    product: bool


class Region(Protocol):
    """The part of a recursive function that is lifted: trip, evaluated in `block`; body: the block of the function;
    invariant: its parameters that all calls from inside pass on.
    """

    @property
    def trip(self) -> Expr: ...
    @property
    def block(self) -> int: ...
    @property
    def body(self) -> int: ...
    @property
    def invariant(self) -> frozenset[Var]: ...


class RowLifter:
    """lifted[node] of the nodes that one trip always evaluates. known: nodes that are rows, besides those that a loop
    takes by its counter.
    """

    def __init__(
        self,
        flow: Dataflow,
        finder: LoopFinder,
        region: Region,
        known: Mapping[Expr, Lifted] = MappingProxyType({}),
    ) -> None:
        self.flow = flow
        self.finder = finder
        self.region = region
        self.loop = region if isinstance(region, Loop) else None
        self.lifted: dict[Expr, Lifted] = dict(known)
        self._invariant: dict[Expr, Expr | None] = {}
        for node in Dataflow(region.trip).order:
            if finder.place.home.get(node) == region.block and node not in self.lifted:
                found = self._lift(node)
                if found is not None:
                    self.lifted[node] = found

    def of(self, node: Expr) -> Lifted | None:
        return self.lifted.get(self.flow.resolve(node))

    def invariant(self, node: Expr) -> Expr | None:
        """A node that has one value in all trips, in the loop's own terms: a variable, a constant, or total operators
        of such.
        """
        root = self.flow.resolve(node)
        memo = self._invariant
        stack = [root]
        while stack:
            item = stack[-1]
            parts = [self.flow.resolve(c) for c in _operands(item)]
            missing = [p for p in parts if p not in memo] if item not in memo else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if item not in memo:
                memo[item] = self._invariant_of(item, [memo[p] for p in parts])
        return memo[root]

    def _invariant_of(self, item: Expr, parts: list[Expr | None]) -> Expr | None:
        match item:
            case Constant():
                return item
            case Var():
                outside = not self.finder.is_inside(item, self.region.body)
                return item if outside or item in self.region.invariant else None
            case Call(op=Op()) if is_total_call(item):
                new = [p for p in parts if p is not None]
                return with_children(item, (item.op, *new)) if len(new) == len(parts) else None
            case Tuple() | TupleGetItem():
                new = [p for p in parts if p is not None]
                return with_children(item, tuple(new)) if len(new) == len(parts) else None
        return None

    # --- rules ----------------------------------------------------------------------------------

    def _lift(self, node: Expr) -> Lifted | None:
        if isinstance(node, TupleGetItem):
            source = self.of(node.tuple_value)
            if source is None:
                return None
            part = type_of(source.batch)
            field = part.fields[node.index] if isinstance(part, TupleType) else None
            return _made(typed(TupleGetItem(source.batch, node.index), field), source)
        if isinstance(node, Let):
            return self.of(node.body)
        if not isinstance(node, Call) or not isinstance(node.op, Op):
            return None
        rule = _RULES.get(node.op.name)
        if rule is not None:
            return rule(self, node)
        return self._elementwise(node)

    def _take(self, node: Call) -> Lifted | None:
        attrs, source = node.attrs, self.flow.resolve(node.args[0])
        if attrs.mode == "fast" or attrs.batch_dims:
            return None
        if isinstance(source, Call) and is_op(source, "vm.match_type"):
            # The check that the axis has an element; the trips prove it.
            source = self.flow.resolve(source.args[0])
        table = self.invariant(source)
        type_ = type_of(source)
        if table is None or not isinstance(type_, TensorType):
            return None
        if attrs.axis not in (0, -len(type_.shape)) and (
            attrs.axis is not None or len(type_.shape) > 1
        ):
            return None
        position = self.of(node.args[1])
        if position is not None:
            return self._row_of_table(node, table, position)
        if self.loop is None:
            return None
        found = self._position(node.args[1], self.loop)
        if found is None or not self.finder.covers(self.loop, table):
            return None
        return self._row_of_source(node, table, *found)

    def _row_of_table(self, node: Call, table: Expr, position: Lifted) -> Lifted | None:
        """take(table, index of this row): the rows of the table at all indices."""
        type_, width = type_of(table), row_width(type_of(node))
        shape = static_shape(type_)
        if shape is None or len(shape) != 2 or not shape[0] or width != shape[1]:
            return None
        numbers = _reshaped(position.batch, None)
        if numbers is None or not isinstance(type_, TensorType):
            return None
        result = TensorType((*_rows(numbers), width), type_.dtype)
        batch = op_call("take", (table, numbers), result, axis=0, mode=node.attrs.mode)
        return Lifted(batch, position.index, position.backward, product=False)

    def _row_of_source(self, node: Call, table: Expr, index: Expr, backward: bool) -> Lifted | None:
        type_, width = type_of(table), row_width(type_of(node))
        if not isinstance(type_, TensorType) or width is None:
            return None
        tail = row_width(TensorType(type_.shape[1:], type_.dtype))
        if tail != width:
            return None
        scalar = len(type_.shape) == 1
        batch = table if len(type_.shape) <= 2 else _reshaped(table, width)
        if batch is None:
            return None
        if scalar and static_shape(type_of(node)) != ():
            batch = _reshaped(batch, 1)
        return None if batch is None else Lifted(batch, index, backward, product=False)

    def _position(self, node: Expr, loop: Loop) -> tuple[Expr, bool] | None:
        """(index expression, backward) of an index that is the counter, or n - 1 less the counter."""
        index = self.flow.resolve(node)
        while isinstance(index, Call) and is_op(index, "cast", "reshape", "expand_dims"):
            if row_width(type_of(index)) != 1:
                return None
            index = self.flow.resolve(index.args[0])
        if static_shape(type_of(index)) != ():
            return None
        if index is loop.counter:
            return index, False
        return (index, True) if self._is_backward(index, loop) else None

    def _is_backward(self, index: Expr, loop: Loop) -> bool:
        """(n - 1) - i, however its two subtractions are grouped."""
        if not isinstance(index, Call) or not is_op(index, "subtract"):
            return False
        left, right = map(self.flow.resolve, index.args)
        limit = self.finder.number(loop.limit)
        if right is loop.counter and isinstance(left, Call) and is_op(left, "subtract"):
            whole, one = left.args
        elif isinstance(left, Call) and is_op(left, "subtract"):
            whole, one = left.args[0], right
            if self.flow.resolve(left.args[1]) is not loop.counter:
                return False
        else:
            return False
        number = self.finder.number(whole)
        return (
            limit is not None
            and number is not None
            and bool(dims.compare(number, limit))
            and self.finder.number(one) == 1
        )

    def _view(self, node: Call) -> Lifted | None:
        source, width = self.of(node.args[0]), row_width(type_of(node))
        if source is None or width is None:
            return None
        batch = _reshaped(source.batch, None if static_shape(type_of(node)) == () else width)
        return None if batch is None else _made(batch, source)

    def _dense(self, node: Call) -> Lifted | None:
        source, weight = self.of(node.args[0]), self.invariant(node.args[1])
        result = type_of(node)
        width = row_width(result)
        if source is None or weight is None or width is None or not isinstance(result, TensorType):
            return None
        shape = static_shape(type_of(weight))
        rows = type_of(source.batch)
        if shape is None or not isinstance(rows, TensorType) or rows.shape[1:] != shape[1:]:
            return None
        type_ = TensorType((rows.shape[0], width), result.dtype)
        batch = typed(Call(node.op, (source.batch, weight), node.attrs, span=node.span), type_)
        return Lifted(batch, source.index, source.backward, product=True)

    def _split(self, node: Call) -> Lifted | None:
        source, type_ = self.of(node.args[0]), type_of(node.args[0])
        parts = type_of(node)
        if source is None or not isinstance(type_, TensorType) or not isinstance(parts, TupleType):
            return None
        if not type_.shape or node.attrs.axis % len(type_.shape) != len(type_.shape) - 1:
            return None
        rows, fields = _rows(source.batch), []
        for part in parts.fields:
            if not isinstance(part, TensorType):
                return None
            fields.append(TensorType((*rows, part.shape[-1]), part.dtype))
        batch = op_call(
            "split", (source.batch,), TupleType(fields),
            indices_or_sections=node.attrs.indices_or_sections, axis=1,
        )  # fmt: skip
        return _made(batch, source)

    def _slice(self, node: Call) -> Lifted | None:
        source, type_, result = self.of(node.args[0]), type_of(node.args[0]), type_of(node)
        if (
            source is None
            or not isinstance(type_, TensorType)
            or not isinstance(result, TensorType)
        ):
            return None
        last, attrs = len(type_.shape) - 1, node.attrs
        axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
        width = row_width(result)
        if width is None or [a % (last + 1) for a in axes] != [last]:
            return None
        begin, end, stride = slice_of(attrs, 0)
        batch = op_call(
            "strided_slice", (source.batch,), TensorType((*_rows(source.batch), width), result.dtype),
            begin=(begin,), end=(2**31 - 1 if end is None else end,), strides=(stride,), axes=(1,),
        )  # fmt: skip
        return _made(batch, source) if stride > 0 else None

    def _elementwise(self, node: Call) -> Lifted | None:
        op, result = node.op, type_of(node)
        if not isinstance(op, Op) or op.pattern > OpPattern.BROADCAST or not node.args:
            return None
        if op.attrs is not None and (op.pattern is not OpPattern.ELEMWISE or len(node.args) != 1):
            return None
        width = row_width(result)
        if width is None or not isinstance(result, TensorType):
            return None
        scalar = result.shape == ()
        args: list[Expr] = []
        rows: list[Lifted] = []
        for arg in node.args:
            row = self.of(arg)
            if row is not None and rows and row.backward != rows[0].backward:
                return None
            fits = self._row_operand(row, scalar) if row is not None else self.fixed(arg)
            if fits is None:
                return None
            args.append(fits)
            rows += [row] if row is not None else []
        if not rows:
            return None
        shape = _rows(rows[0].batch) if scalar else (*_rows(rows[0].batch), width)
        batch = typed(
            Call(op, tuple(args), node.attrs, span=node.span), TensorType(shape, result.dtype)
        )
        if not is_total_call(batch):
            return None
        return Lifted(batch, rows[0].index, rows[0].backward, any(r.product for r in rows))

    def _row_operand(self, row: Lifted, scalar: bool) -> Expr | None:
        type_ = type_of(row.batch)
        if not isinstance(type_, TensorType):
            return None
        return row.batch if scalar or len(type_.shape) == 2 else _reshaped(row.batch, 1)

    def fixed(self, arg: Expr) -> Expr | None:
        """An operand that is the same for all rows, if it may stand beside a batch as it is."""
        shape = static_shape(type_of(arg))
        if shape is None or row_width(type_of(arg)) is None or len(shape) > 2:
            return None
        return self.invariant(arg)


def _operands(item: Expr) -> tuple[Expr, ...]:
    match item:
        case Call(op=Op()):
            return item.args
        case Tuple() | TupleGetItem():
            return children(item)
    return ()


def _made(batch: Expr, source: Lifted) -> Lifted:
    return Lifted(batch, source.index, source.backward, source.product)


def _rows(batch: Expr) -> tuple[Dim]:
    type_: Type = type_of(batch)
    if not isinstance(type_, TensorType):
        raise TypeError(f"a batch of type {type_!r}")
    return (type_.shape[0],)


def _reshaped(batch: Expr, width: int | None) -> Expr | None:
    """A batch as (n, width), or (n) for width None."""
    type_ = type_of(batch)
    if not isinstance(type_, TensorType):
        return None
    have = 1
    for dim in type_.shape[1:]:
        if not isinstance(dim, int):
            return None
        have *= dim
    if not have or have != (1 if width is None else width):
        return None
    shape: tuple[Dim, ...] = (type_.shape[0],) if width is None else (type_.shape[0], width)
    if shape == type_.shape:
        return batch
    new = (-1,) if width is None else (-1, width)
    return op_call("reshape", (batch,), TensorType(shape, type_.dtype), newshape=new)


class _AtEntry(Rewriter):
    """A batch with variables replaced by what an entry passes for them."""

    def __init__(self, given: Mapping[Var, Expr]) -> None:
        super().__init__()
        self.dims: dict[DimVar, Dim] = {}
        for param, arg in given.items():
            self.memo[param] = arg
            want, have = type_of(param), type_of(arg)
            if isinstance(want, TensorType) and isinstance(have, TensorType):
                for q, p in zip(want.shape, have.shape, strict=True):
                    if isinstance(q, DimVar):
                        self.dims.setdefault(q, p)

    def visit(self, node: Expr, new: Expr) -> Expr:
        type_ = substitute(type_of(node), dim_vars=self.dims)
        return new if type_ is new.checked_type else dataclasses.replace(new, checked_type=type_)


def at_entry(batches: Iterable[Expr], given: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    """Batches in terms of an entry's arguments; one that reads no variable of `given` stays the same node."""
    work = _AtEntry(given)
    return tuple([work.rewrite(b) if any(n in given for n in postorder(b)) else b for b in batches])


def row_of(batch: Expr, index: Expr, type_: Type) -> Expr:
    """Row `index` of a batch (n, width) or (n), of a type with as many elements; the index is known to be in range."""
    whole = type_of(batch)
    if not isinstance(whole, TensorType) or not isinstance(type_, TensorType):
        raise TypeError(f"a row of {whole!r}")
    line = TensorType(whole.shape[1:], whole.dtype)
    taken = op_call("take", (batch, index), line, axis=0)
    return taken if type_ is line else op_call("reshape", (taken,), type_, newshape=type_.shape)


def row_view(batch: Expr, index: Expr, type_: Type) -> Expr:
    """The same where the row is kept and not read at once: on the batch's memory."""
    if not isinstance(type_, TensorType):
        raise TypeError(f"a row of type {type_!r}")
    return op_call("vm.rows", (batch, index), type_, shape=type_.shape)


def with_row(table: Expr, row: Expr) -> Expr:
    """A table (n, width) with one more row, whose axes but the last are of size 1."""
    whole = type_of(table)
    if not isinstance(whole, TensorType):
        raise TypeError(f"a table of type {whole!r}")
    flat = TensorType((1, *whole.shape[1:]), whole.dtype)
    if row.checked_type is not flat:
        row = op_call("reshape", (row,), flat, newshape=flat.shape)
    result = TensorType((dims.add(whole.shape[0], 1), *whole.shape[1:]), whole.dtype)
    parts = typed(Tuple((table, row)), TupleType([whole, flat]))
    return op_call("concatenate", (parts,), result, axis=0)


def empty_table(type_: Type) -> Constant:
    """No rows, of a table's width and dtype."""
    if not isinstance(type_, TensorType):
        raise TypeError(f"a table of type {type_!r}")
    return Constant(np.zeros((0, *(d for d in type_.shape[1:] if isinstance(d, int))), type_.dtype))


_RULES: dict[str, Callable[[RowLifter, Call], Lifted | None]] = {
    "take": RowLifter._take,
    "reshape": RowLifter._view,
    "expand_dims": RowLifter._view,
    "squeeze": RowLifter._view,
    "nn.dense": RowLifter._dense,
    "split": RowLifter._split,
    "strided_slice": RowLifter._slice,
}

__all__ = [
    "Lifted",
    "Region",
    "RowLifter",
    "at_entry",
    "empty_table",
    "row_of",
    "row_view",
    "with_row",
]
