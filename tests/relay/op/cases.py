"""Inputs for every operator: arrays and attributes that fit it, with rank 0, sizes 0 and 1 among them.

    cases("nn.dense", "float32", count=20)     the same cases every time
    case_strategy("nn.dense", "float32")       a hypothesis strategy of Case

Reused by tests of compiled kernels: `Case.inputs` are the operator's arguments (arrays, or a tuple of arrays for a
variadic operator), `Case.attrs` its attributes or None. Families of operators have files of their own,
cases_<family>.py with a table CASES of generators by operator name, which are found here.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nimblevm.relay.op import (
    arange,
    batch_matmul,
    bias_add,
    broadcast_to,
    cast,
    clip,
    concatenate,
    dense,
    dense_pack,
    expand_dims,
    full,
    get,
    layer_norm,
    reduce,
    reshape,
    shape_of,
    softmax,
    split,
    squeeze,
    stack,
    strided_slice,
    take,
    transpose,
    vm,
)
from nimblevm.relay.types import TensorType
from tests.relay import op as here
from tests.relay.op.draw import (
    SIZES,
    Case,
    DrawSource,
    SeededSource,
    Source,
    array,
    flag,
    operands,
    other_dtype,
    pick,
    product_dtype,
    shape,
    stretched,
)

# --- one generator an operator ----------------------------------------------------------------------


def _binary(source: Source, dtype: str, divides: bool = False) -> Case:
    shapes = operands(source, 2)
    swap = flag(source)
    first, second = reversed(shapes) if swap else shapes
    nonzero = divides and np.dtype(dtype).kind in "iu"
    return Case((array(source, first, dtype), array(source, second, dtype, nonzero=nonzero)))


def _divide(source: Source, dtype: str) -> Case:
    return _binary(source, dtype, divides=True)


def _power(source: Source, dtype: str) -> Case:
    a, b = operands(source, 2)
    return Case((array(source, a, dtype), array(source, b, dtype)))


def _unary(source: Source, dtype: str) -> Case:
    return Case((array(source, shape(source), dtype),))


def _cast(source: Source, dtype: str) -> Case:
    return Case(
        (array(source, shape(source), dtype),), cast.CastAttrs(pick(source, get("cast").dtypes[0]))
    )


def _clip(source: Source, dtype: str) -> Case:
    low = float(source.integer(-6, 2))
    attrs = clip.ClipAttrs(low, low + source.integer(0, 6))
    return Case((array(source, shape(source), dtype),), attrs)


def _dense_pack(source: Source, dtype: str) -> Case:
    depth = pick(source, (0, 1, 3, 8))
    units = pick(source, (1, 3, 15, 16, 17, 33, 70, 150))
    rows = pick(source, (0, 1, 2, 5, 6, 7, 13, 25))
    layout = pick(
        source,
        [w for w in dense_pack.WIDTHS if dtype == "float32" or w != dense_pack.PAIRED],
    )
    weight = dense_pack.panels_of(
        array(source, (units, depth), dtype, special=False), dense_pack.WIDTHS[layout]
    )
    if dtype == "float32":
        half = pick(source, (None, None, np.float16, dense_pack.to_bfloat16))
        if layout == dense_pack.PAIRED:
            weight = dense_pack.in_pairs(dense_pack.to_bfloat16(weight))
        elif half is not None:
            weight = half(weight)
    outer = pick(source, ((rows,), (), (2, rows)))
    attrs = dense_pack.DensePackAttrs(layout, units)
    if flag(source):
        block = pick(source, [n for n in range(1, units + 1) if units % n == 0])
        pieces = pick(source, (1, 2, 5))
        attrs = dense_pack.DensePackAttrs(
            dense_pack.NARROW, units, "", (source.integer(0, pieces - 1), pieces, block)
        )
        columns = [array(source, (units, depth), dtype, special=False) for _ in range(pieces)]
        weight = dense_pack.shared_panels(columns, block)
    return Case((array(source, (*outer, depth), dtype, special=False), weight), attrs)


def _dense(source: Source, dtype: str) -> Case:
    depth, units = pick(source, (0, 1, 3, 7, 33)), pick(source, (0, 1, 4, 17))
    data = array(source, (*shape(source, 0, 2), depth), dtype, special=False)
    out_dtype = product_dtype(source, dtype)
    second = other_dtype(source, dtype, out_dtype)
    weight = array(source, (units, depth), second, special=False)
    given = units if flag(source) else None
    return Case((data, weight), dense.DenseAttrs(given, out_dtype))


def _batch_matmul(source: Source, dtype: str) -> Case:
    m, k, n = (pick(source, SIZES) for _ in range(3))
    batch = pick(source, SIZES)
    ta, tb = flag(source), flag(source)
    ba, bb = pick(source, ((batch, batch), (1, batch), (batch, 1)))
    a = array(source, (ba, k, m) if ta else (ba, m, k), dtype, special=False)
    out_dtype = product_dtype(source, dtype)
    second = other_dtype(source, dtype, out_dtype)
    b = array(source, (bb, n, k) if tb else (bb, k, n), second, special=False)
    attrs = batch_matmul.BatchMatmulAttrs(out_dtype, ta, tb)
    return Case((a, b), attrs)


def _bias_add(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    return Case(
        (array(source, dims, dtype), array(source, (dims[axis],), dtype)),
        bias_add.BiasAddAttrs(axis),
    )


def _concatenate(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    parts = []
    for _ in range(source.integer(1, 4)):
        size = list(dims)
        size[axis] = pick(source, SIZES)
        parts.append(array(source, tuple(size), dtype))
    return Case((tuple(parts),), concatenate.ConcatenateAttrs(axis))


def _stack(source: Source, dtype: str) -> Case:
    dims = shape(source)
    parts = tuple(array(source, dims, dtype) for _ in range(source.integer(1, 4)))
    return Case((parts,), stack.StackAttrs(source.integer(-len(dims) - 1, len(dims))))


def _split(source: Source, dtype: str) -> Case:
    dims = list(shape(source, 1))
    axis = source.integer(-len(dims), len(dims) - 1)
    if flag(source):
        where: Any = source.integer(1, 4)
        dims[axis] = where * pick(source, (0, 1, 3))
    else:
        where = tuple(sorted(source.integer(0, dims[axis]) for _ in range(source.integer(0, 3))))
    return Case((array(source, tuple(dims), dtype),), split.SplitAttrs(where, axis))


def _take(source: Source, dtype: str) -> Case:
    mode = pick(source, take.MODES)
    index_dtype = pick(source, get("take").dtypes[1])
    batch = source.integer(0, 1)
    data_dims = shape(source, 1 + batch, 3, (1, 2, 3, 5))
    axis: int | None = source.integer(batch, len(data_dims) - 1)
    index_dims = data_dims[:batch] + shape(source, 0, 2)
    if batch == 0 and source.integer(0, 3) == 0:
        axis = None
    size = int(np.prod(data_dims)) if axis is None else data_dims[axis]
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    low = 0 if mode == "fast" or np.dtype(index_dtype).kind == "u" else -2 * size
    high = size if mode == "fast" else 2 * size + 2
    indices = np.asarray(rng.integers(low, high, index_dims)).astype(index_dtype)
    if axis is not None and flag(source):
        axis -= len(data_dims)
    attrs = take.TakeAttrs(batch_dims=batch, axis=axis, mode=mode)
    return Case((array(source, data_dims, dtype), indices), attrs)


RESHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((), ()), ((), (1, 1)), ((1,), ()), ((2, 3, 4), (4, 0, 2)), ((2, 3, 4), (6, 1, -1)), ((2, 3, 4), (3, -1, 8)),
    ((2, 3, 4), (-1,)), ((2, 3, 4), (4, -2)), ((2, 3, 4), (2, -2)), ((2, 3, 4), (-2, 1, 1)), ((2, 3, 4), (-3, 4)),
    ((2, 3, 4, 5), (-3, -3)), ((2, 3, 4), (0, -3)), ((2, 3, 4), (-4, 1, 2, -2)), ((2, 3, 4), (2, -4, -1, 3, -2)),
    ((0, 3), (3, 0, 0)), ((0, 3), (-1, 3)), ((0, 3), (0, -1, 3)), ((1, 1), (-1, 1)), ((5,), (5, -4, 1, 1)),
)  # fmt: skip


def _reshape(source: Source, dtype: str) -> Case:
    usable = [(d, n) for d, n in RESHAPES if (d, n) not in _REFUSED]
    dims, newshape = pick(source, usable)
    if flag(source):
        return Case((array(source, dims, dtype),), reshape.ReshapeAttrs(newshape))
    dims = shape(source)
    count = int(np.prod(dims))
    newshape = pick(source, ((count,), (-1,) if count else (0, *dims[1:]) if dims else (), dims))
    return Case((array(source, dims, dtype),), reshape.ReshapeAttrs(newshape, allowzero=True))


# Entries of RESHAPES that are errors, kept beside the others for the tests of errors.
_REFUSED = {
    ((2, 3, 4), (4, -2)),
    ((5,), (5, -4, 1, 1)),
    ((0, 3), (3, 0, 0)),
}


def _transpose(source: Source, dtype: str) -> Case:
    dims = shape(source, 0, 4, (0, 1, 2, 3))
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    axes = None if flag(source) else tuple(int(a) for a in rng.permutation(len(dims)))
    return Case((array(source, dims, dtype),), transpose.TransposeAttrs(axes))


def _expand_dims(source: Source, dtype: str) -> Case:
    dims = shape(source)
    axis = source.integer(-len(dims) - 1, len(dims))
    return Case(
        (array(source, dims, dtype),), expand_dims.ExpandDimsAttrs(axis, source.integer(0, 2))
    )


def _squeeze(source: Source, dtype: str) -> Case:
    dims = shape(source, sizes=(1, 1, 2, 0))
    ones = [a - len(dims) if flag(source) else a for a, size in enumerate(dims) if size == 1]
    axis = None if flag(source) else tuple(ones[: source.integer(0, len(ones))])
    return Case((array(source, dims, dtype),), squeeze.SqueezeAttrs(axis))


def _reduce(source: Source, dtype: str, row_name: str) -> Case:
    row = next(r for r in reduce.TABLE if r.name == row_name)
    sizes = (1, 2, 3, 5) if dtype in row.needs else SIZES
    dims = shape(source, sizes=sizes)
    axes = tuple(a - len(dims) if flag(source) else a for a in range(len(dims)) if flag(source))
    axis = None if flag(source) else axes
    keepdims, exclude = flag(source), flag(source)
    data = array(source, dims, dtype, special=row_name not in ("sum", "prod", "mean"))
    if row.find is None:
        return Case((data,), reduce.ReduceAttrs(axis, keepdims, exclude))
    return Case((data,), reduce.ArgReduceAttrs(axis, keepdims, flag(source), exclude))


def _where(source: Source, dtype: str) -> Case:
    a, b, c = operands(source, 3)
    condition = array(source, b, pick(source, ("bool", "float32", "int32")))
    return Case((condition, array(source, a, dtype), array(source, c, dtype)))


def _init(source: Source, dtype: str) -> Case:
    return Case((), full.InitOpAttrs(shape(source), dtype))


def _full(source: Source, dtype: str) -> Case:
    target = "" if flag(source) else pick(source, ("float32", "int32", "bool", "int8"))
    return Case((array(source, (), dtype),), full.InitOpAttrs(shape(source), target))


def _shape_of(source: Source, dtype: str) -> Case:
    attrs = shape_of.ShapeOfAttrs(pick(source, ("int32", "int64")))
    return Case((array(source, shape(source), dtype),), attrs)


def _strided_slice(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    rng = np.random.default_rng(source.integer(0, 2**31 - 1))
    axes = tuple(int(a) for a in rng.permutation(len(dims))[: source.integer(1, len(dims))])
    if flag(source):
        named: tuple[int, ...] | None = axes
    else:
        named, axes = None, tuple(range(len(axes)))
    begin = tuple(source.integer(-dims[a] - 2, dims[a] + 2) for a in axes)
    if source.integer(0, 3) == 0:
        begin = tuple(source.integer(-dims[a], dims[a]) for a in axes)
        end = tuple(source.integer(-1, 4) for _ in axes)
        attrs = strided_slice.StridedSliceAttrs(begin, end, None, "size", named)
    else:
        end = tuple(source.integer(-dims[a] - 2, dims[a] + 2) for a in axes)
        strides = tuple(pick(source, (1, 2, 3, -1, -2)) for _ in axes) if flag(source) else None
        attrs = strided_slice.StridedSliceAttrs(begin, end, strides, "end", named)
    return Case((array(source, dims, dtype),), attrs)


def _broadcast_to(source: Source, dtype: str) -> Case:
    result = shape(source)
    return Case(
        (array(source, stretched(source, result), dtype),), broadcast_to.BroadcastToAttrs(result)
    )


def _arange(source: Source, dtype: str) -> Case:
    unsigned = np.dtype(dtype).kind == "u"
    start, stop = (
        source.integer(0 if unsigned else -5, 5),
        source.integer(0 if unsigned else -9, 20),
    )
    step = source.integer(1, 4) * (1 if unsigned or flag(source) else -1)
    scale = 0.5 if np.dtype(dtype).kind == "f" else 1
    values = tuple(np.asarray(np.asarray(v * scale).astype(dtype)) for v in (start, stop, step))
    return Case(values, arange.ArangeAttrs(dtype))


def _softmax(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    return Case((array(source, dims, dtype, special=False),), softmax.SoftmaxAttrs(axis))


def _layer_norm(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    axis = source.integer(-len(dims), len(dims) - 1)
    vectors = (array(source, (dims[axis],), dtype, special=False) for _ in range(2))
    attrs = layer_norm.LayerNormAttrs(axis, 1e-3, flag(source), flag(source))
    return Case((array(source, dims, dtype, special=False), *vectors), attrs)


def _match_type(source: Source, dtype: str) -> Case:
    data = array(source, shape(source), dtype)
    return Case((data,), vm.MatchTypeAttrs(TensorType(data.shape, dtype), "here"))


def _check_broadcast(source: Source, dtype: str) -> Case:
    result = shape(source)
    return Case((array(source, stretched(source, result), dtype),), vm.CheckBroadcastAttrs(result))


def _dim_of(source: Source, dtype: str) -> Case:
    dims = shape(source, 1)
    return Case((array(source, dims, dtype),), vm.DimOfAttrs(source.integer(0, len(dims) - 1)))


def _dim_value(source: Source, dtype: str) -> Case:
    return Case((), vm.DimValueAttrs(source.integer(0, 9)))


def _reshape_tensor(source: Source, dtype: str) -> Case:
    data = array(source, shape(source), dtype)
    return Case((data,), vm.ShapeAttrs((data.size,)))


_GENERATORS: dict[str, Callable[[Source, str], Case]] = {
    **{r.name: functools.partial(_reduce, row_name=r.name) for r in reduce.TABLE},
    "divide": _divide, "floor_divide": _divide, "floor_mod": _divide, "trunc_divide": _divide, "trunc_mod": _divide,
    "mod": _divide, "power": _power, "cast": _cast, "clip": _clip, "nn.dense": _dense,
    "nn.contrib_dense_pack": _dense_pack,
    "nn.batch_matmul": _batch_matmul, "nn.bias_add": _bias_add, "concatenate": _concatenate, "stack": _stack,
    "split": _split, "take": _take, "reshape": _reshape, "transpose": _transpose, "expand_dims": _expand_dims,
    "squeeze": _squeeze, "where": _where, "zeros": _init, "ones": _init, "full": _full, "shape_of": _shape_of,
    "strided_slice": _strided_slice, "broadcast_to": _broadcast_to, "arange": _arange, "nn.softmax": _softmax,
    "nn.layer_norm": _layer_norm, "vm.match_type": _match_type, "vm.check_broadcast": _check_broadcast,
    "vm.dim_of": _dim_of, "vm.dim_value": _dim_value, "vm.reshape_tensor": _reshape_tensor,
}  # fmt: skip

for _module in pkgutil.iter_modules(here.__path__):
    if _module.name.startswith("cases_"):
        _GENERATORS.update(importlib.import_module(f"{here.__name__}.{_module.name}").CASES)

# Operators that compute nothing by themselves: tests of passes and of the interpreter cover them.
WITHOUT_CASES = frozenset(
    (
        "memory.alloc_storage",
        "memory.alloc_tensor",
        "memory.kill",
        "vm.bind_dim",
        "vm.call_kernel",
        "vm.linearize",
    )
)


def generate(name: str, dtype: str, source: Source) -> Case:
    """One case of an operator on operands of `dtype` (of the first argument, for most). LookupError: it has none."""
    found = _GENERATORS.get(name)
    if found is None:
        op = get(name)
        plain = {("lhs", "rhs"): _binary, ("data",): _unary, ("condition",): _unary}
        if op.attrs is not None or op.args not in plain:
            raise LookupError(
                f"{name} has attributes or operands of its own, and no generator of cases"
            )
        found = plain[op.args]
    return found(source, dtype)


def cases(name: str, dtype: str, count: int = 10) -> Iterator[Case]:
    """`count` cases, the same ones every time."""
    for number in range(count):
        yield generate(name, dtype, SeededSource(zlib.crc32(f"{name} {dtype} {number}".encode())))


def case_strategy(name: str, dtype: str) -> st.SearchStrategy[Case]:
    """Hypothesis's choice of cases."""

    @st.composite
    def build(draw: Any) -> Case:
        return generate(name, dtype, DrawSource(draw))

    return build()
