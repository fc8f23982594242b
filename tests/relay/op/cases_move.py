"""Cases of the operators that move elements by shape, by mask and by index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm.relay.op import (
    gather,
    like,
    meshgrid,
    one_hot,
    pad,
    repeat,
    reverse,
    scatter,
    sequence_mask,
    tile,
    trilu,
)
from tests.relay.op.draw import (
    SIZES,
    Case,
    Source,
    array,
    flag,
    operands,
    pick,
    shape,
    stretched,
)


def _indices(source: Source, dims: tuple[int, ...], size: int, dtype: str) -> np.ndarray:
    """Indices into an axis of `size` elements, negative ones among them where the dtype has such."""
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    low = 0 if np.dtype(dtype).kind == "u" else -size
    return np.asarray(rng.integers(low, max(size, 1), dims)).astype(dtype)


def _index_dtype(source: Source) -> str:
    return pick(source, ("int32", "int64", "int8", "uint8", "uint64"))


def _scalar(value: Any, dtype: str) -> np.ndarray:
    return np.asarray(np.asarray(value).astype(dtype))


def _tile(source: Source, dtype: str) -> Case:
    data = array(source, shape(source), dtype)
    reps = tuple(pick(source, (0, 1, 2, 3)) for _ in range(source.integer(0, 3)))
    return Case((data,), tile.TileAttrs(reps))


def _repeat(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    return Case((array(source, dims, dtype),), repeat.RepeatAttrs(source.integer(1, 3), axis))


def _reverse(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    return Case((array(source, dims, dtype),), reverse.ReverseAttrs(axis))


def _reverse_sequence(source: Source, dtype: str) -> Case:
    dims = shape(source, 2)
    sequence = source.integer(0, len(dims) - 1)
    batch = (sequence + source.integer(1, len(dims) - 1)) % len(dims)
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    lengths = np.asarray(rng.integers(-1, 8, (dims[batch],))).astype(pick(source, reverse.LENGTHS))
    if flag(source):
        batch -= len(dims)
    attrs = reverse.ReverseSequenceAttrs(sequence, batch)
    return Case((array(source, dims, dtype), lengths), attrs)


def _pad(source: Source, dtype: str) -> Case:
    mode = pick(source, pad.PAD_MODES)
    dims = shape(source, sizes=SIZES if mode == "constant" else (1, 2, 3, 5))
    mosts = [n - 1 if mode == "reflect" else 3 for n in dims]
    width = tuple((source.integer(0, most), source.integer(0, most)) for most in mosts)
    value = array(source, (), pick(source, (dtype, "float32", "int32")))
    return Case((array(source, dims, dtype), value), pad.PadAttrs(width, mode))


def _mirror_pad(source: Source, dtype: str) -> Case:
    mode = pick(source, pad.MIRROR_MODES)
    dims = shape(source, sizes=(1, 2, 3, 5))
    less = mode == "REFLECT"
    width = tuple((source.integer(0, n - less), source.integer(0, n - less)) for n in dims)
    return Case((array(source, dims, dtype),), pad.MirrorPadAttrs(mode, width))


def _meshgrid(source: Source, dtype: str) -> Case:
    parts = tuple(array(source, shape(source, 0, 1), dtype) for _ in range(source.integer(1, 3)))
    return Case((parts,), meshgrid.MeshgridAttrs(pick(source, ("ij", "xy"))))


def _trilu(source: Source, dtype: str) -> Case:
    k = _scalar(source.integer(-3, 3), pick(source, trilu.DIAGONALS))
    return Case((array(source, shape(source, 2), dtype), k), trilu.TriluAttrs(flag(source)))


def _sequence_mask(source: Source, dtype: str) -> Case:
    dims = shape(source, 2)
    axis = source.integer(0, 1)
    kind = _index_dtype(source)
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    low = 0 if np.dtype(kind).kind == "u" else -1
    lengths = np.asarray(rng.integers(low, 7, (dims[1 - axis],))).astype(kind)
    attrs = sequence_mask.SequenceMaskAttrs(float(source.integer(-2, 2)), axis)
    return Case((array(source, dims, dtype), lengths), attrs)


def _one_hot(source: Source, dtype: str) -> Case:
    dims = shape(source, 0, 2)
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    low = 0 if np.dtype(dtype).kind == "u" else -2
    indices = np.asarray(rng.integers(low, 6, dims)).astype(dtype)
    target = pick(source, ("float32", "int32", "bool", "int8", "float16"))
    values = (_scalar(source.integer(1, 3), "float32"), _scalar(source.integer(-1, 0), target))
    axis = source.integer(-len(dims) - 1, len(dims))
    return Case((indices, *values), one_hot.OneHotAttrs(pick(source, SIZES), axis, target))


def _gather(source: Source, dtype: str) -> Case:
    dims = shape(source, 1, 3, (1, 2, 3, 5))
    axis = source.integer(-len(dims), len(dims) - 1)
    size = list(dims)
    size[axis] = pick(source, SIZES)
    indices = _indices(source, tuple(size), dims[axis], _index_dtype(source))
    return Case((array(source, dims, dtype), indices), gather.GatherAttrs(axis))


def _gather_nd(source: Source, dtype: str) -> Case:
    dims = shape(source, 1, 3, (1, 2, 3))
    batch = source.integer(0, min(1, len(dims)))
    named = source.integer(0, len(dims) - batch)
    if source.integer(0, 3) == 0 and batch + named < len(dims):
        dims = (*dims[:-1], 0)
    rest = dims[:batch] + shape(source, 0, 2)
    kind = _index_dtype(source)
    parts = [_indices(source, rest, dims[batch + n], kind) for n in range(named)]
    indices = np.stack(parts) if parts else np.zeros((0, *rest), kind)
    attrs = gather.GatherNDAttrs(batch, named)
    return Case((array(source, dims, dtype), indices), attrs)


def _scatter_elements(source: Source, dtype: str) -> Case:
    dims = shape(source, 1, 3, (1, 2, 3, 5))
    axis = source.integer(-len(dims), len(dims) - 1)
    size = [source.integer(1, each) for each in dims]
    size[axis] = pick(source, SIZES)
    indices = _indices(source, tuple(size), dims[axis], _index_dtype(source))
    mode = "update" if dtype == "bool" else pick(source, scatter.REDUCTIONS)
    exact = mode in ("update", "min", "max")
    data, updates = array(source, dims, dtype, exact), array(source, tuple(size), dtype, exact)
    return Case((data, indices, updates), scatter.ScatterElementsAttrs(axis, mode))


def _scatter_nd(source: Source, dtype: str) -> Case:
    dims = shape(source, 1, 3, (1, 2, 3))
    named = source.integer(0, len(dims))
    rest = shape(source, 0, 2)
    kind = _index_dtype(source)
    parts = [_indices(source, rest, dims[n], kind) for n in range(named)]
    indices = np.stack(parts) if parts else np.zeros((0, *rest), kind)
    mode = "update" if dtype == "bool" else pick(source, scatter.MODES)
    exact = mode in ("update", "min", "max")
    updates = array(source, rest + dims[named:], dtype, exact)
    return Case((array(source, dims, dtype, exact), indices, updates), scatter.ScatterNDAttrs(mode))


def _invert_permutation(source: Source, dtype: str) -> Case:
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    size = pick(source, SIZES)
    order = rng.permutation(size) if flag(source) else rng.integers(-size, max(size, 1), size)
    return Case((np.asarray(order).astype(dtype),))


def _strided_set(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    count, kind = source.integer(0, len(dims)), pick(source, ("int32", "int64"))
    begin = [source.integer(-n - 2, n + 2) for n in dims[:count]]
    end = [source.integer(-n - 2, n + 2) for n in dims[:count]]
    strides = [pick(source, (1, 2, 3, -1, -2)) for _ in range(source.integer(0, count))]
    steps = strides + [1] * (count - len(strides))
    target = tuple(map(slice, begin, end, steps))
    size = np.empty(dims, "int8")[target].shape
    extra = source.integer(0, 1)
    v = array(source, tuple(n + extra for n in size), dtype)
    vectors = (np.asarray(part, kind).reshape(-1) for part in (begin, end, strides))
    return Case((array(source, dims, dtype), v, *vectors))


def _broadcast_like(source: Source, dtype: str) -> Case:
    result = shape(source)
    wanted = array(source, result, pick(source, ("float32", "bool")))
    return Case((array(source, stretched(source, result), dtype), wanted))


def _slice_like(source: Source, dtype: str) -> Case:
    dims = shape(source)
    wanted = tuple(source.integer(0, n) for n in dims)
    axes: tuple[int, ...] | None = None
    if flag(source):
        axes = tuple(a - len(dims) if flag(source) else a for a in range(len(dims)) if flag(source))
    data = array(source, dims, dtype)
    return Case((data, array(source, wanted, "int8")), like.SliceLikeAttrs(axes))


_RESHAPES: tuple[tuple[Any, ...], ...] = (
    ((6, 2), (3, 4), 0, None, 0, None), ((2, 3, 4), (6, 5), 0, 2, 0, 1), ((12, 5), (2, 6, 7), 0, -1, 0, -1),
    ((), (1, 1), 0, None, 0, None), ((0, 3), (5, 0), 0, None, 0, None), ((4,), (2, 2, 9), 0, 1, -3, 2),
)  # fmt: skip


def _reshape_like(source: Source, dtype: str) -> Case:
    dims, wanted, *bounds = pick(source, _RESHAPES)
    data, other = array(source, dims, dtype), array(source, wanted, "bool")
    return Case((data, other), like.ReshapeLikeAttrs(*bounds))


def _full_like(source: Source, dtype: str) -> Case:
    value = array(source, (), pick(source, (dtype, "float32", "int32")))
    return Case((array(source, shape(source), dtype), value))


def _collapse_like(source: Source, dtype: str) -> Case:
    dims = shape(source)
    data = array(source, dims, dtype, special=False)
    return Case((data, array(source, stretched(source, dims), "int8")))


def _collapse_to(source: Source, dtype: str) -> Case:
    dims = shape(source)
    attrs = like.CollapseSumToAttrs(stretched(source, dims))
    return Case((array(source, dims, dtype, special=False),), attrs)


def _unravel_index(source: Source, dtype: str) -> Case:
    sizes = np.asarray([source.integer(1, 5) for _ in range(source.integer(1, 3))], dtype)
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    return Case((np.asarray(rng.integers(-5, 130, shape(source, 0, 1))).astype(dtype), sizes))


def _adv_index(source: Source, dtype: str) -> Case:
    dims = shape(source, 1, 3, (1, 2, 3))
    count = source.integer(1, len(dims))
    parts = operands(source, count)
    indices = (
        _indices(source, part, size, _index_dtype(source))
        for part, size in zip(parts, dims, strict=False)
    )
    return Case(((array(source, dims, dtype), *indices),))


CASES: dict[str, Callable[[Source, str], Case]] = {
    "tile": _tile, "repeat": _repeat, "reverse": _reverse, "reverse_sequence": _reverse_sequence,
    "nn.pad": _pad, "nn.mirror_pad": _mirror_pad, "meshgrid": _meshgrid, "trilu": _trilu,
    "sequence_mask": _sequence_mask, "one_hot": _one_hot, "gather": _gather, "gather_nd": _gather_nd,
    "scatter_elements": _scatter_elements, "scatter_nd": _scatter_nd, "invert_permutation": _invert_permutation,
    "strided_set": _strided_set, "broadcast_to_like": _broadcast_like, "slice_like": _slice_like,
    "reshape_like": _reshape_like, "full_like": _full_like, "collapse_sum_like": _collapse_like,
    "collapse_sum_to": _collapse_to, "unravel_index": _unravel_index, "adv_index": _adv_index,
}  # fmt: skip

# Operators with a vector operand whose length must be known.
NEEDS_LENGTHS = frozenset(("sparse_reshape", "strided_set", "unravel_index"))
