"""Cases of the dyn operators: static cases whose attributes are operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nimblevm.relay.op import dyn, dyn_image, pad, resize, vm, window
from tests.relay.op.draw import SIZES, Case, Source, array, flag, pick, shape, stretched


def _values(source: Source, values: Any) -> np.ndarray:
    return np.asarray(values, pick(source, dyn.SIZES))


def _vector(source: Source, values: Any) -> np.ndarray:
    return _values(source, values).reshape(-1)


_RESHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()), ((), (1, 1)), ((1,), ()), ((2, 3, 4), (6, 4)), ((2, 3, 4), (0, -1)), ((2, 3, 4), (3, -1, 8)),
    ((2, 3, 4), (-1,)), ((2, 3, 4), (0, 0, 4)), ((0, 3), (-1, 3)), ((0, 3), (0, 7)), ((0, 3), (0, -1)),
    ((2, 3, 4), (-3, -1)), ((2, 3, 4), (0, -3)), ((2, 3), (-1, -1)),
    ((2, 3), (4,)), ((2, 3), (-2, 3)), ((2, 3), (2, 3, 0)), ((2, 3), (-6, -1)),
)  # fmt: skip


def _reshape(source: Source, dtype: str) -> Case:
    dims, newshape = pick(source, [r for r in _RESHAPES if r not in _REFUSED])
    return Case((array(source, dims, dtype), _vector(source, newshape)), dyn.DynReshapeAttrs())


# Entries of _RESHAPES that are errors, for the test of errors.
_REFUSED = frozenset(_RESHAPES[13:])


def _broadcast_to(source: Source, dtype: str) -> Case:
    result = shape(source)
    return Case((array(source, stretched(source, result), dtype), _vector(source, result)))


def _init(source: Source, dtype: str) -> Case:
    kind = pick(source, ("float32", "int8", "bool"))
    return Case((np.asarray(shape(source), dtype).reshape(-1),), dyn.DynInitAttrs(kind))


def _full(source: Source, dtype: str) -> Case:
    target = "" if flag(source) else pick(source, ("float32", "int32", "bool", "int8"))
    value = array(source, (), dtype)
    return Case((value, _vector(source, shape(source))), dyn.DynInitAttrs(target))


def _tile(source: Source, dtype: str) -> Case:
    reps = tuple(pick(source, (0, 1, 2, 3)) for _ in range(source.integer(0, 3)))
    return Case((array(source, shape(source), dtype), _vector(source, reps)))


def _one_hot(source: Source, dtype: str) -> Case:
    dims = shape(source, 0, 2)
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    indices = np.asarray(rng.integers(0, 6, dims)).astype(dtype)
    target = pick(source, ("float32", "int32", "bool"))
    values = (np.asarray(1, "int32"), np.asarray(0, "float32"))
    axis = source.integer(-len(dims) - 1, len(dims))
    depth = _values(source, pick(source, SIZES))
    return Case((indices, *values, depth), dyn.DynOneHotAttrs(axis, target))


def _strided_slice(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    count = source.integer(0, len(dims))
    size = source.integer(0, 3) == 0
    begin = [source.integer(-n - (not size), n + 1) for n in dims[:count]]
    if size:
        end = [source.integer(-1, 4) for _ in range(count)]
    else:
        end = [source.integer(-n - 2, n + 2) for n in dims[:count]]
    strides = [pick(source, (1, 2, 3, -1, -2)) if not size else 1 for _ in range(count)]
    vectors = (_vector(source, part) for part in (begin, end, strides))
    attrs = dyn.DynSliceAttrs("size" if size else "end")
    return Case((array(source, dims, dtype), *vectors), attrs)


def _squeeze(source: Source, dtype: str) -> Case:
    dims = shape(source, sizes=(1, 1, 2, 0))
    ones = [a - len(dims) if flag(source) else a for a, size in enumerate(dims) if size == 1]
    axes = ones[: source.integer(0, len(ones))]
    return Case((array(source, dims, dtype), _vector(source, axes)))


def _expand_dims(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis = _values(source, source.integer(-len(dims) - 1, len(dims)))
    return Case((array(source, dims, dtype), axis), dyn.DynExpandDimsAttrs(source.integer(0, 2)))


def _pad(source: Source, dtype: str) -> Case:
    mode = pick(source, pad.PAD_MODES)
    dims = shape(source, sizes=SIZES if mode == "constant" else (1, 2, 3, 5))
    width = [[source.integer(0, n - 1 if mode == "reflect" else 3) for _ in range(2)] for n in dims]
    pairs = _values(source, width).reshape(len(dims), 2)
    value = array(source, (), pick(source, (dtype, "float32")))
    return Case((array(source, dims, dtype), pairs, value), dyn.DynPadAttrs(mode))


def _window(source: Source, dtype: str) -> Case:
    dims = shape(source, sizes=(1, 2, 3, 5))
    starts, up, down, sizes = list[int](), list[int](), list[int](), list[int]()
    for n in dims:
        stride = pick(source, (0, 1, 2, -1))
        start = source.integer(0, n - 1)
        reach = 3 if stride == 0 else 1 + ((n - 1 - start) // stride if stride > 0 else start)
        starts.append(start)
        up.append(max(stride, 0))
        down.append(max(-stride, 0))
        sizes.append(source.integer(0, reach))
    attrs = window.WindowAttrs(tuple(starts), tuple(up), tuple(down), tuple(sizes))
    return Case((array(source, dims, dtype),), attrs)


def _image(source: Source, dtype: str, layout: str) -> np.ndarray:
    dims = {
        "N": source.integer(0, 2),
        "C": 2,
        "H": pick(source, (1, 2, 5)),
        "W": pick(source, (1, 3, 4)),
    }
    return array(source, tuple(dims[letter] for letter in layout), dtype, special=False)


def _resize2d(source: Source, dtype: str) -> Case:
    layout = pick(source, ("NCHW", "NHWC"))
    method, mode = pick(source, resize.METHODS), pick(source, resize.MODES[:-1])
    attrs = dyn_image.DynResizeAttrs(layout, method, mode)
    size = _vector(source, (source.integer(1, 6), source.integer(1, 6)))
    roi = np.asarray((0, 0.25, 1, 0.75), "float32")
    return Case((_image(source, dtype, layout), size, roi), attrs)


def _upsampling(source: Source, dtype: str) -> Case:
    layout = pick(source, ("NCHW", "NHWC"))
    method = pick(source, ("nearest_neighbor", "bilinear", "bicubic"))
    scales = (np.asarray(pick(source, (1, 2, 1.5, 3)), "float32") for _ in range(2))
    attrs = dyn_image.DynUpSamplingAttrs(layout, method, flag(source))
    return Case((_image(source, dtype, layout), *scales), attrs)


def _read_int(source: Source, dtype: str) -> Case:
    data = array(source, shape(source, sizes=(1, 2, 3)), dtype)
    return Case((data,), vm.ReadIntAttrs(source.integer(0, data.size - 1)))


CASES: dict[str, Callable[[Source, str], Case]] = {
    "dyn.reshape": _reshape, "dyn.broadcast_to": _broadcast_to, "dyn.zeros": _init, "dyn.ones": _init,
    "dyn.full": _full, "dyn.tile": _tile, "dyn.one_hot": _one_hot, "dyn.strided_slice": _strided_slice,
    "dyn.squeeze": _squeeze, "dyn.expand_dims": _expand_dims, "dyn.nn.pad": _pad, "dyn.window": _window,
    "vm.read_int": _read_int,
    "dyn.image.resize2d": _resize2d, "dyn.nn.upsampling": _upsampling,
}  # fmt: skip

# Their vectors say the rank of the result, so their length must be known; compiled, they are other operators.
LOWERED = frozenset((*dyn.STATIC, "dyn.image.resize2d", "dyn.nn.upsampling"))
EDGES = _RESHAPES
