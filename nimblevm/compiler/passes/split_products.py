"""Split products by columns where their results are cut into pieces.

before:  let %g = split(nn.dense(%h, meta[relay.Constant][0]) + %b, indices_or_sections=2, axis=1);    (weight: (8, 4))
         sigmoid(%g.0) * tanh(%g.1)
after:   sigmoid(nn.dense(%h, meta[relay.Constant][0]) + strided_slice(%b, begin=[0], end=[4], axes=[1]))
         * tanh(nn.dense(%h, meta[relay.Constant][1]) + strided_slice(%b, begin=[4], end=[8], axes=[1]))

The gates of a recurrent cell are pieces of one product. Products of the pieces have the shape of what follows, so that
a cell becomes one kernel: several products, each with its rows of the weight, and the arithmetic of the gates.

A split along the last axis sinks through elementwise operators that nothing else reads, down to products with constant
weights: of these each piece takes its own rows. Constants are sliced here, other operands get a strided_slice. Slices
along the last axis with constant bounds, which do not overlap, count as a split if they are all that reads a value.

Only where there is such a product, and every piece is read by elementwise operators, or passed to a loop, alone.

Needs: inferred types, named effects. Keeps: both. Cost: O(n log n + bytes of sliced constants), times the pieces.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from nimblevm.compiler.constants import sliced
from nimblevm.compiler.dataflow import Dataflow, is_op, is_total_call
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
from nimblevm.relay.ir import Call, Constant, Expr, Function, TupleGetItem, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op, OpPattern
from nimblevm.relay.op.strided_slice import slice_of
from nimblevm.relay.types import TensorType

MAX_PIECES = 16


@dataclass(eq=False, slots=True)
class _Cut:
    """A value that is cut into pieces. tree: its operators and products, operands first; they end in the value.
    width: of its last axis.
    """

    tree: list[Call]
    width: int
    made: dict[tuple[int, int], dict[Expr, Expr]] = field(default_factory=dict)


def _width(node: Expr) -> int | None:
    type_ = type_of(node)
    last = type_.shape[-1] if isinstance(type_, TensorType) and type_.shape else None
    return last if isinstance(last, int) else None


def _is_elementwise(call: Call) -> bool:
    op = call.op
    if not isinstance(op, Op) or op.pattern > OpPattern.BROADCAST or not call.args:
        return False
    if op.name == "nn.bias_add":
        return True
    return op.attrs is None or (op.pattern is OpPattern.ELEMWISE and len(call.args) == 1)


def _is_weighted(call: Call) -> bool:
    return is_op(call, "nn.dense") and isinstance(call.args[1], Constant)


class _Finder:
    """Finds what may be cut, and where: pieces[node] = (cut, begin, end) of each node that is a piece."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.pieces: dict[Expr, tuple[_Cut, int, int]] = {}
        self.place = {node: at for at, node in enumerate(flow.order)}
        done: set[Expr] = set()
        for node in flow.order:
            value = flow.resolve(node.args[0]) if isinstance(node, Call) and node.args else None
            if value is None or value in done or not is_op(node, "split", "strided_slice"):
                continue
            done.add(value)
            self._try(value)

    def _try(self, value: Expr) -> None:
        width = _width(value) if isinstance(value, Call) else None
        readers = self.flow.readers(value)
        if width is None or not readers:
            return
        found = list(self._cuts(readers, width))
        bounds = sorted({(begin, end) for _, begin, end in found})
        overlap = any(later[0] < earlier[1] for earlier, later in pairwise(bounds))
        if len(bounds) < 2 or len(bounds) > MAX_PIECES or overlap:
            return
        if not all(end > begin and self._only_fused(node) for node, begin, end in found):
            return
        tree = self._tree(value, width, set(readers))
        if any(_is_weighted(node) for node in tree):
            cut = _Cut(tree, width)
            self.pieces.update({node: (cut, begin, end) for node, begin, end in found})

    def _cuts(self, readers: list[Expr], width: int) -> Iterator[tuple[Expr, int, int]]:
        """(piece, begin, end) of a value's readers; one that is not within the value if a reader is anything else."""
        refused = (readers[0], 0, 0)
        for reader in readers:
            if not isinstance(reader, Call) or not is_op(reader, "split", "strided_slice"):
                yield refused
            elif is_op(reader, "strided_slice"):
                yield self._slice(reader, width) or refused
            else:
                yield from self._split(reader, width) or [refused]

    def _slice(self, call: Call, width: int) -> tuple[Expr, int, int] | None:
        source, attrs = type_of(call.args[0]), call.attrs
        rank = len(source.shape) if isinstance(source, TensorType) else 0
        axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
        if [a % rank for a in axes] != [rank - 1]:
            return None
        begin, stop, stride = slice_of(attrs, 0)
        start, end, _ = slice(begin, stop, stride).indices(width)
        return (call, start, end) if stride == 1 else None

    def _split(self, call: Call, width: int) -> list[tuple[Expr, int, int]] | None:
        source, where = type_of(call.args[0]), call.attrs.indices_or_sections
        rank = len(source.shape) if isinstance(source, TensorType) else 0
        if call.attrs.axis % rank != rank - 1:
            return None
        if isinstance(where, int):
            step = width // where  # 0 for an empty axis, whose pieces are as many
            bounds = [(at * step, (at + 1) * step) for at in range(where)]
        else:
            bounds = list(pairwise((0, *where, width)))
        fields = self.flow.readers(call)
        if not all(isinstance(f, TupleGetItem) for f in fields):
            return None
        return [(f, *bounds[f.index]) for f in fields if isinstance(f, TupleGetItem)]

    def _only_fused(self, piece: Expr) -> bool:
        """Whether elementwise operators, or calls of local functions, are all that reads a piece."""
        readers = self.flow.readers(piece)
        return bool(readers) and all(
            isinstance(r, Call)
            and (_is_elementwise(r) or (isinstance(r.op, Var) and r.op is not piece))
            for r in readers
        )

    def _tree(self, root: Expr, width: int, readers: set[Expr]) -> list[Call]:
        """The elementwise operators and weighted products that only the value is made from."""
        inside: set[Expr] = set(readers)
        tree: list[Call] = []
        queued = {root}
        heap = [(-self.place[root], root)]
        while heap:
            _, node = heapq.heappop(heap)
            if not isinstance(node, Call) or not self._opens(node, width, inside):
                continue
            inside.add(node)
            tree.append(node)
            for arg in () if is_op(node, "nn.dense") else map(self.flow.resolve, node.args):
                if arg not in queued:
                    queued.add(arg)
                    heapq.heappush(heap, (-self.place[arg], arg))
        return tree[::-1] if all(self._may_move(n, inside) for n in tree) else []

    def _opens(self, node: Call, width: int, inside: set[Expr]) -> bool:
        if _width(node) != width or not (_is_weighted(node) or _is_elementwise(node)):
            return False
        return is_total_call(node) and all(r in inside for r in self.flow.readers(node))

    def _may_move(self, node: Call, inside: set[Expr]) -> bool:
        """Whether what an operator reads from outside of the tree may be evaluated where the pieces are."""
        return all(self.flow.resolve(a) in inside or self.flow.is_total(a) for a in node.args)


class _Cutter(Rewriter):
    def __init__(self, finder: _Finder) -> None:
        super().__init__()
        self.finder = finder
        self.slices: dict[tuple[Constant, int, int, int], Constant] = {}

    def visit(self, node: Expr, new: Expr) -> Expr:
        found = self.finder.pieces.get(node)
        if found is None:
            return new
        cut, begin, end = found
        made = cut.made.get((begin, end))
        if made is None:
            made = cut.made[begin, end] = {}
            for item in cut.tree:
                made[item] = self._piece(item, cut, begin, end, made)
        return made[cut.tree[-1]]

    def _piece(self, item: Call, cut: _Cut, begin: int, end: int, made: dict[Expr, Expr]) -> Expr:
        old = type_of(item)
        if not isinstance(old, TensorType):
            raise TypeError(f"a piece of {old!r}")
        type_ = TensorType((*old.shape[:-1], end - begin), old.dtype)
        attrs = item.attrs
        if is_op(item, "nn.dense"):
            weight = self._constant(item.args[1], 0, begin, end)
            args: tuple[Expr, ...] = (self.memo.get(item.args[0], item.args[0]), weight)
            if attrs is not None and attrs.units is not None:
                attrs = type(attrs)(end - begin, attrs.out_dtype)
        else:
            args = tuple([self._operand(a, cut, begin, end, made) for a in item.args])
            if is_op(item, "nn.bias_add") and attrs.axis % len(old.shape) != len(old.shape) - 1:
                args = (args[0], self.memo.get(item.args[1], item.args[1]))
        return typed(Call(item.op, args, attrs, span=item.span), type_)

    def _operand(self, arg: Expr, cut: _Cut, begin: int, end: int, made: dict[Expr, Expr]) -> Expr:
        inner = made.get(self.finder.flow.resolve(arg))
        if inner is not None:
            return inner
        old, new = type_of(arg), self.memo.get(arg, arg)
        if not isinstance(old, TensorType) or _width(arg) != cut.width:
            return new  # the same for all columns
        if isinstance(arg, Constant):
            return self._constant(arg, arg.data.ndim - 1, begin, end)
        return op_call(
            "strided_slice", (new,), TensorType((*old.shape[:-1], end - begin), old.dtype),
            begin=(begin,), end=(end,), strides=(1,), axes=(len(old.shape) - 1,),
        )  # fmt: skip

    def _constant(self, value: Expr, axis: int, begin: int, end: int) -> Constant:
        if not isinstance(value, Constant):
            raise TypeError("a constant is sliced")
        key = (value, axis, begin, end)
        if key not in self.slices:
            self.slices[key] = sliced(value, axis, begin, end)
        return self.slices[key]


def _split(function: Function) -> Function:
    if is_primitive(function):
        return function
    finder = _Finder(Dataflow(function.body))
    if not finder.pieces:
        return function
    return with_body(function, _Cutter(finder).rewrite(function.body))


def split_products(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _split)


SPLIT_PRODUCTS = Pass("split_products", split_products)
