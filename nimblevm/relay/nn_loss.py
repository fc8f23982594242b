"""relay.nn: losses, with TVM's argument order and defaults."""

from __future__ import annotations

from nimblevm.relay import ir, op
from nimblevm.relay.call import Operand, call_op


def cross_entropy(predictions: Operand, targets: Operand) -> ir.Call:
    """How far rows of probabilities are from those of targets."""
    return call_op("nn.cross_entropy", predictions, targets)


def cross_entropy_with_logits(predictions: Operand, targets: Operand) -> ir.Call:
    """As cross_entropy, of logarithms of probabilities."""
    return call_op("nn.cross_entropy_with_logits", predictions, targets)


def nll_loss(
    predictions: Operand,
    targets: Operand,
    weights: Operand,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> ir.Call:
    """The negated prediction for the class of each target, weighted."""
    attrs = op.loss.NLLLossAttrs(reduction, ignore_index)
    return call_op("nn.nll_loss", predictions, targets, weights, attrs=attrs)


__all__ = ["cross_entropy", "cross_entropy_with_logits", "nll_loss"]
