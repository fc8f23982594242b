"""Make the products that attention reads of one input one product.

before:  let %q = reshape(nn.dense(%x, meta[relay.Constant][0]) + meta[relay.Constant][1], ...);     (weights: (8, 4))
         let %k = reshape(nn.dense(%x, meta[relay.Constant][2]) + meta[relay.Constant][3], ...);
         nn.batch_matmul(%q, %k) ... nn.softmax ...
after:   %0 = nn.dense(%x, meta[relay.Constant][0]) + meta[relay.Constant][1];                       (weight: (16, 4))
         let %q = reshape(strided_slice(%0, begin=[0], end=[8], axes=[1]), ...);
         let %k = reshape(strided_slice(%0, begin=[8], end=[16], axes=[1]), ...);
         nn.batch_matmul(%q, %k) ... nn.softmax ...

One kernel instead of three has one hand-over to other threads, reads the input once, and its weights follow each other.
The kernel of attention (fuse_attention.py) reads rows of the slices where they lie. Other readers of such products
would copy them, or have split_products to undo this, so only products are combined whose results move (reshape,
transpose...) to matrix products of which one has a softmax behind it.

Only products of one block, so that none is computed for a branch or a function that does not run, and only where
weights are constants that nothing else reads and whose elements are known, in one float dtype with the input, and
either all or none have a constant bias of one number a column.

The name is TVM's (CombineParallelDense), which makes a batch of such products.
Needs: inferred types, named effects. Keeps: both. Cost: O(nodes + bytes of such weights).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nimblevm.compiler.dataflow import FLOATS, Dataflow, is_op, is_total_call
from nimblevm.compiler.fuse_attention import MOVES
from nimblevm.compiler.home_blocks import HomeBlocks
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
from nimblevm.relay.ir import Call, Constant, Expr, Function, Tuple, is_known
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.registry import Op, OpPattern
from nimblevm.relay.types import TensorType

MAX_PATH = 32
"""Operators between a matrix product and its softmax that are looked at."""


@dataclass(frozen=True, eq=False, slots=True)
class _Product:
    """dense, and what stands for it in the program: itself, or the sum with its bias."""

    dense: Call
    value: Call
    weight: Constant
    bias: Constant | None

    @property
    def units(self) -> int:
        return int(self.weight.data.shape[0])


class _Finder:
    """found: the products that are combined, by the value of each."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.found: dict[Expr, list[_Product]] = {}
        readers: dict[_Product, set[Expr]] = {}
        for node in flow.order:
            product = self._product(node)
            into = self._matrix_products(product.value) if product is not None else None
            if product is not None and into:
                readers[product] = into
        if len(readers) < 2:
            return
        home = HomeBlocks(flow.root).home
        groups: dict[tuple[Expr, int, str, bool], list[_Product]] = {}
        for product in readers:
            dense = product.dense
            key = (dense.args[0], home[dense], _dtype(dense), product.bias is not None)
            groups.setdefault(key, []).append(product)
        for group in groups.values():
            into = set().union(*(readers[product] for product in group))
            if len(group) > 1 and any(self._has_softmax(node) for node in into):
                self.found.update({p.value: group for p in group})

    def _product(self, node: Expr) -> _Product | None:
        """A product that may be combined with others."""
        if not isinstance(node, Call) or not is_op(node, "nn.dense"):
            return None
        weight, dtype = node.args[1], _dtype(node)
        if not is_known(weight) or len(self.flow.readers(weight)) != 1 or dtype not in FLOATS:
            return None
        if weight.data.dtype.name != dtype or _dtype(node.args[0]) != dtype or not weight.data.size:
            return None
        readers = self.flow.readers(node)
        bias = self._bias(node, readers[0]) if len(readers) == 1 else None
        value = readers[0] if bias is not None else node
        assert isinstance(value, Call)
        return _Product(node, value, weight, bias)

    def _bias(self, dense: Call, reader: Expr) -> Constant | None:
        """The constant that a product's only reader adds to its columns."""
        if not isinstance(reader, Call) or not is_op(reader, "add", "nn.bias_add"):
            return None
        type_ = type_of(dense)
        if type_of(reader) is not type_ or not isinstance(type_, TensorType):
            return None
        rank = len(type_.shape)
        if is_op(reader, "nn.bias_add") and reader.attrs.axis % rank != rank - 1:
            return None
        for bias in reader.args:
            if is_known(bias) and bias.data.shape == type_.shape[-1:]:
                return bias
        return None

    def _matrix_products(self, value: Expr) -> set[Expr] | None:
        """The matrix products that read a value through moves; None if anything else reads it."""
        found: set[Expr] = set()
        seen = {value}
        todo = [value]
        while todo:
            for reader in self.flow.readers(todo.pop()):
                if is_op(reader, "nn.batch_matmul"):
                    found.add(reader)
                elif isinstance(reader, Tuple):
                    sums = self.flow.readers(reader)
                    if not all(is_op(node, "einsum") for node in sums):
                        return None
                    found.update(sums)
                elif not is_op(reader, *MOVES):
                    return None
                elif reader not in seen:
                    seen.add(reader)
                    todo.append(reader)
        return found

    def _has_softmax(self, product: Expr) -> bool:
        """Whether a softmax is computed from a product's result, in place but for moves."""
        seen = {product}
        todo = [product]
        while todo and len(seen) <= MAX_PATH:
            for reader in self.flow.readers(todo.pop()):
                if is_op(reader, "nn.softmax", "nn.fast_softmax"):
                    return True
                if reader not in seen and _keeps_elements(reader):
                    seen.add(reader)
                    todo.append(reader)
        return False


def _dtype(node: Expr) -> str:
    type_ = type_of(node)
    return type_.dtype if isinstance(type_, TensorType) else ""


def _keeps_elements(node: Expr) -> bool:
    if not isinstance(node, Call) or not isinstance(node.op, Op) or not is_total_call(node):
        return False
    return node.op.pattern <= OpPattern.BROADCAST or node.op.name in MOVES


class _Combiner(Rewriter):
    def __init__(self, finder: _Finder) -> None:
        super().__init__()
        self.finder = finder
        self.made: dict[Expr, Expr] = {}  # by the first product of a group

    def visit(self, node: Expr, new: Expr) -> Expr:
        group = self.finder.found.get(node)
        if group is None:
            return new
        whole = self.made.get(group[0].dense)
        if whole is None:
            whole = self.made[group[0].dense] = self._whole(group)
        at = next(n for n, product in enumerate(group) if product.value is node)
        begin = sum(product.units for product in group[:at])
        type_ = type_of(node)
        assert isinstance(type_, TensorType)
        return op_call(
            "strided_slice", (whole,), type_, node.span,
            begin=(begin,), end=(begin + group[at].units,), strides=(1,), axes=(len(type_.shape) - 1,),
        )  # fmt: skip

    def _whole(self, group: Sequence[_Product]) -> Expr:
        """All products side by side, with their biases."""
        first = group[0].dense
        type_, attrs = type_of(first), first.attrs
        assert isinstance(type_, TensorType)
        units = sum(product.units for product in group)
        type_ = TensorType((*type_.shape[:-1], units), type_.dtype)
        if attrs is not None and attrs.units is not None:
            attrs = type(attrs)(units, attrs.out_dtype)
        data = first.args[0]
        args = (self.memo.get(data, data), _joined([p.weight for p in group]))
        dense = typed(Call(first.op, args, attrs, span=first.span), type_)
        biases = [p.bias for p in group if p.bias is not None]
        if not biases:
            return dense
        return op_call("add", (dense, _joined(biases)), type_, group[0].value.span)


def _joined(parts: Sequence[Constant]) -> Constant:
    data = np.concatenate([part.data for part in parts])
    return typed(Constant(data, span=parts[0].span), TensorType(data.shape, data.dtype.name))


def _combine(function: Function) -> Function:
    if is_primitive(function):
        return function
    finder = _Finder(Dataflow(function.body))
    if not finder.found:
        return function
    return with_body(function, _Combiner(finder).rewrite(function.body))


def combine_parallel_dense(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    return map_functions(mod, _combine)


COMBINE_PARALLEL_DENSE = Pass("combine_parallel_dense", combine_parallel_dense)
