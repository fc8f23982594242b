"""nn.cross_entropy, nn.cross_entropy_with_logits, nn.nll_loss: sums of products in the wide dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nimblevm.kernels.compute.common import guarded, tensor_type, wide
from nimblevm.kernels.compute.gather import operand_of
from nimblevm.kernels.expr import INDEX
from nimblevm.kernels.tensor_expr import (
    Compute,
    Emitter,
    Index,
    Steps,
    TensorExpr,
    Tensors,
    register_compute,
    single,
)


def _entropy(logarithm: bool) -> Compute:
    def compute(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
        predictions, targets = (single(arg) for arg in args)
        b, dtype = em.b, wide(predictions.dtype)

        def term(turn: Index) -> Steps:
            value = yield predictions, turn
            target = yield targets, turn
            value = b.cast(value, dtype)
            return b.mul(b.cast(target, dtype), b.unary("log", value) if logarithm else value)

        def at(index: Index) -> Steps:
            zero = b.const(0, dtype)
            total = yield from em.accumulate("add", zero, index, predictions.shape, term)
            count = b.cast(em.dim(predictions.shape[0]), dtype)
            return b.cast(b.binary("div", b.unary("neg", total), count), predictions.dtype)

        return TensorExpr((), predictions.dtype, at, 1 << 20, costly=True)

    return compute


def _nll(em: Emitter, args: Sequence[Tensors], attrs: Any, out: Any) -> Tensors:
    predictions, targets, weights = (single(arg) for arg in args)
    b, dtype = em.b, wide(predictions.dtype)
    operand = operand_of(targets)

    def weight(index: Index) -> Steps:
        target = yield targets, index
        label = b.check_index(b.cast(target, INDEX), em.dim(weights.shape[0]), operand)
        factor = yield weights, (label,)
        return b.cast(b.keep_check(label, factor), dtype)

    def loss(index: Index) -> Steps:
        target = yield targets, index
        label = b.check_index(b.cast(target, INDEX), em.dim(weights.shape[0]), operand)
        factor = yield weights, (label,)
        value = yield predictions, (*index[:1], label, *index[1:])
        value = b.keep_check(label, value)
        return b.mul(b.unary("neg", b.cast(value, dtype)), b.cast(factor, dtype))

    terms = [TensorExpr(targets.shape, dtype, at, 8) for at in (loss, weight)]

    def used(term: TensorExpr, index: Index) -> Steps:
        """The term where the target counts, else 0."""
        target = yield targets, index
        counts = b.compare("ne", b.cast(target, INDEX), b.i64(attrs.ignore_index))
        return (yield from guarded(em, index, [counts], term, index, b.const(0, dtype)))

    def at(index: Index) -> Steps:
        if attrs.reduction == "none":
            value = yield from used(terms[0], index)
            return b.cast(value, predictions.dtype)
        totals = []
        for term in terms if attrs.reduction == "mean" else terms[:1]:

            def one(turn: Index, term: TensorExpr = term) -> Steps:
                return (yield from used(term, turn))

            zero = b.const(0, dtype)
            total = yield from em.accumulate("add", zero, index, targets.shape, one)
            totals.append(total)
        found = totals[0] if len(totals) == 1 else b.binary("div", *totals)
        return b.cast(found, predictions.dtype)

    return TensorExpr(tensor_type(out).shape, predictions.dtype, at, 1 << 20, costly=True)


register_compute("nn.cross_entropy", _entropy(logarithm=True))
register_compute("nn.cross_entropy_with_logits", _entropy(logarithm=False))
register_compute("nn.nll_loss", _nll)
