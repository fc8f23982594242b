"""nn.sparse_dense: sums over the elements of a row; nn.sparse_add: writes one after the other in each row;
nn.sparse_transpose: a C kernel.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from nimblevm.kernels.c_rules import CCall, register_c_call
from nimblevm.kernels.compute.common import named, tensor_type, wide, widened
from nimblevm.kernels.compute.dense import product
from nimblevm.kernels.compute.gather import operand_of
from nimblevm.kernels.compute.scatter import filled
from nimblevm.kernels.compute.sort import operand
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.loop_ir import Store, Value
from nimblevm.kernels.tensor_expr import (
    Emitter,
    Filling,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)
from nimblevm.relay.ir import Call


class _Matrix:
    """The tensors of a sparse matrix of `columns` columns (of blocks)."""

    def __init__(self, em: Emitter, parts: Sequence[TensorExpr], columns: Value) -> None:
        self.em, self.columns = em, columns
        self.data, self.indices, self.indptr = parts

    def cheap(self) -> Generator[Any, Value, None]:
        for tensor in (self.data, self.indices, self.indptr):
            yield from self.em.cheap(tensor)

    def row(self, row: Value, index: Index) -> Generator[Any, Value, tuple[Value, Value]]:
        """The first element of a row, and how many there are; both are known where `index` is."""
        b, ends = self.em.b, []
        bound = b.add(self.em.dim(self.data.shape[0]), b.i64(1))
        for place in (row, b.add(row, b.i64(1))):
            value = yield self.indptr, (place,)
            end = b.check_index(b.cast(value, INDEX), bound, operand_of(self.indptr))
            ends.append(named(self.em, end, index))
        return ends[0], named(self.em, b.binary("max", b.sub(ends[1], ends[0]), b.i64(0)), index)

    def column(self, place: Value) -> Steps:
        """The column of an element, checked."""
        value = yield self.indices, (place,)
        b = self.em.b
        return b.check_index(b.cast(value, INDEX), self.columns, operand_of(self.indices))


def _dense(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    b, type_ = em.b, tensor_type(out)
    dense, *parts = (single(arg) for arg in args)
    blocks = parts[0].shape[1:] if parts[0].rank == 3 else ()
    height, width = (em.dim(size) for size in blocks) if blocks else (b.i64(1), b.i64(1))
    columns = b.binary("floordiv", em.dim(dense.shape[1]), width)
    matrix = _Matrix(em, parts, columns)

    def at(index: Index) -> Steps:
        yield from em.cheap(dense)
        yield from matrix.cheap()
        m, n = reversed(index) if attrs.sparse_lhs else index
        block_row = b.binary("floordiv", n, height)
        start, count = yield from matrix.row(block_row, (n,))

        def term(turn: Index) -> Steps:
            place = b.add(start, turn[0])
            column = yield from matrix.column(place)
            if blocks:
                column = b.add(b.mul(column, width), turn[1])
                inside = b.binary("floormod", n, height)
                w = yield matrix.data, (place, inside, turn[1])
            else:
                w = yield matrix.data, (place,)
            x = yield dense, (m, column)
            return product(em, x, w, type_.dtype)

        extents = (count, blocks[1]) if blocks else (count,)
        zero = b.const(0, wide(type_.dtype))
        total = yield from em.accumulate("add", zero, index, extents, term)
        return b.cast(total, type_.dtype)

    return TensorExpr(type_.shape, type_.dtype, at, 1 << 20, costly=True)


def _add(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    dense, *parts = (single(arg) for arg in args)
    matrix = _Matrix(em, parts, em.dim(dense.shape[1]))
    add = widened(em, dense.dtype, em.b.add)

    def fill(buffer: int) -> Filling:
        yield from matrix.cheap()
        with em.loops(dense.shape, parallel=True) as index:
            value = yield dense, index
            em.emit(Store(buffer, index, value))
        with em.loops(dense.shape[:1], parallel=True) as row:
            start, count = yield from matrix.row(row[0], row)
            with em.loop(count) as turn:
                place = em.b.add(start, turn)
                column = yield from matrix.column(place)
                where = (*row, named(em, column, (*row, turn)))
                value = yield matrix.data, (place,)
                em.emit(Store(buffer, where, add(em.b.load(buffer, dense.dtype, where), value)))

    return filled(tensor_type(out), fill)


def _transpose(call: Call) -> CCall:
    data, indices, indptr = (operand(call, n) for n in range(3))
    wide_ = "64" if indices.dtype == "int64" else ""
    shapes = (data.shape, data.shape, indptr.shape)
    sizes = (data.shape[0], indptr.shape[0])
    return CCall(f"sparse_transpose{wide_}_{data.dtype}", sizes, (), shapes * 2)


register_compute("nn.sparse_dense", _dense)
register_compute("nn.sparse_add", _add)
register_c_call("nn.sparse_transpose", _transpose, only=True)
