"""Cases of losses, diagonals, fixed point numbers and shapes that are read from right to left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nimblevm.relay.op import fixed_point_multiply, loss, matrix_set_diag, reshape
from tests.relay.op.draw import SIZES, Case, Source, array, flag, pick, shape


def _entropy(source: Source, dtype: str) -> Case:
    dims = (pick(source, (1, 2, 5)), pick(source, SIZES))
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    predictions, targets = (np.asarray(rng.uniform(0.1, 1, dims)).astype(dtype) for _ in range(2))
    return Case((predictions, targets))


def _nll(source: Source, dtype: str) -> Case:
    classes, outer = pick(source, (1, 2, 5)), shape(source, 0, 3, (1, 2, 3))
    dims = (*outer[:1], classes, *outer[1:])
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    ignored = pick(source, (-100, 0))
    targets = np.asarray(rng.integers(0, classes, outer)).astype(pick(source, loss.INDICES))
    targets = np.where(rng.integers(0, 4, outer) == 0, np.asarray(ignored, targets.dtype), targets)
    if targets.size:
        # A mean has something to be of.
        targets.reshape(-1)[0] = classes - 1
    weights = np.asarray(rng.uniform(0.5, 2, (classes,))).astype(dtype)
    if ignored == 0 and classes == 1:
        ignored = -100
        targets = np.abs(targets) * 0
    attrs = loss.NLLLossAttrs(pick(source, loss.REDUCTIONS), ignored)
    return Case((array(source, dims, dtype, special=False), np.asarray(targets), weights), attrs)


def _set_diag(source: Source, dtype: str) -> Case:
    dims = (*shape(source, 0, 1), pick(source, (0, 1, 3, 4)), pick(source, (0, 1, 2, 5)))
    first = source.integer(-3, 3)
    last = first + (source.integer(1, 3) if flag(source) else 0)
    count = matrix_set_diag.length(dims[-2], dims[-1], first, last)
    inner = (count,) if first == last else (last - first + 1, count)
    attrs = matrix_set_diag.MatrixSetDiagAttrs(first, last, flag(source), flag(source))
    data, diagonal = (array(source, d, dtype) for d in (dims, (*dims[:-2], *inner)))
    return Case((data, diagonal), attrs)


def _fixed(source: Source, dtype: str) -> Case:
    multiplier = source.integer(-(2**31), 2**31 - 1)
    attrs = fixed_point_multiply.FixedPointMultiplyAttrs(multiplier, source.integer(-31, 31))
    return Case((array(source, shape(source), dtype),), attrs)


TURNED: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()), ((), (1, 1)), ((10, 5, 4), (-1, 0)), ((2, 3, 4), (-1,)), ((2, 3, 4), (6, -1)),
    ((2, 3, 4), (-3, 0)), ((2, 3, 4), (0, -3)), ((0, 3), (-1, 3)), ((6, 2), (3, -1, 0)), ((2, 3, 4), (-2,)),
)  # fmt: skip


def _turned(source: Source, dtype: str) -> Case:
    dims, newshape = pick(source, TURNED)
    return Case((array(source, dims, dtype),), reshape.ReshapeAttrs(newshape))


CASES: dict[str, Callable[[Source, str], Case]] = {
    "nn.cross_entropy": _entropy, "nn.cross_entropy_with_logits": _entropy, "nn.nll_loss": _nll,
    "matrix_set_diag": _set_diag, "fixed_point_multiply": _fixed, "contrib_reverse_reshape": _turned,
}  # fmt: skip
