"""Building programs in Python: the operators that move elements, with TVM's argument order and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as AnyValue

from nimblevm.errors import InvalidInputType
from nimblevm.relay import ir, op
from nimblevm.relay.builder_sizes import (
    dims_of,
    given,
    ints_of,
    is_computed,
    numbers,
    operand,
    vector,
)
from nimblevm.relay.call import (
    Operand,
    TupleWrapper,
    as_expr,
    call_op,
    constant,
    fields_of,
    pair,
    plain,
)


def tile(data: Operand, reps: AnyValue) -> ir.Call:
    """data repeated as a whole along each axis; reps may be an expression."""
    if is_computed(reps):
        return call_op("dyn.tile", data, vector(reps))
    return call_op("tile", data, attrs=op.tile.TileAttrs(dims_of(reps)))


def repeat(data: Operand, repeats: int, axis: int) -> ir.Call:
    """Every slice along an axis several times in a row."""
    return call_op("repeat", data, attrs=op.repeat.RepeatAttrs(repeats, axis))


def reverse(data: Operand, axis: int) -> ir.Call:
    """The order along an axis turned round."""
    return call_op("reverse", data, attrs=op.reverse.ReverseAttrs(axis))


def reverse_sequence(
    data: Operand, seq_lengths: Operand, seq_axis: int = 1, batch_axis: int = 0
) -> ir.Call:
    """The first seq_lengths[b] elements along seq_axis turned round."""
    attrs = op.reverse.ReverseSequenceAttrs(seq_axis, batch_axis)
    return call_op("reverse_sequence", data, seq_lengths, attrs=attrs)


def meshgrid(data: AnyValue, indexing: str = "ij") -> TupleWrapper:
    """Coordinate grids of vectors; data is a tuple expression or a sequence of expressions."""
    fields = fields_of(data)
    attrs = op.meshgrid.MeshgridAttrs(indexing)
    if isinstance(fields, ir.Tuple):
        count = len(fields.fields)
    elif isinstance(data, TupleWrapper):
        count = data.size
    else:
        raise TypeError("meshgrid: give a tuple, a list or the result of an operator like split")
    return TupleWrapper(call_op("meshgrid", fields, attrs=attrs), count)


def trilu(data: Operand, k: Operand, upper: bool = True) -> ir.Call:
    """The upper or lower triangle of the last two axes, zeros elsewhere."""
    return call_op("trilu", data, k, attrs=op.trilu.TriluAttrs(upper))


def sequence_mask(
    data: Operand, valid_length: Operand, mask_value: float = 0, axis: int = 0
) -> ir.Call:
    """Everything behind a sequence's end set to one value."""
    attrs = op.sequence_mask.SequenceMaskAttrs(float(mask_value), axis)
    return call_op("sequence_mask", data, valid_length, attrs=attrs)


def one_hot(
    indices: Operand, on_value: Operand, off_value: Operand, depth: AnyValue, axis: int, dtype: str
) -> ir.Call:
    """A row of off_value with one on_value for each index; numbers take `dtype`. depth may be an expression."""
    on, off = (v if isinstance(v, ir.Expr) else constant(v, dtype) for v in (on_value, off_value))
    if is_computed(depth):
        attrs = op.dyn.DynOneHotAttrs(axis, dtype)
        return call_op("dyn.one_hot", indices, on, off, depth, attrs=attrs)
    (size,) = dims_of(depth)
    return call_op("one_hot", indices, on, off, attrs=op.one_hot.OneHotAttrs(size, axis, dtype))


def gather(data: Operand, axis: int, indices: Operand) -> ir.Call:
    """Elements of data chosen along an axis by a tensor of indices."""
    return call_op("gather", data, indices, attrs=op.gather.GatherAttrs(axis))


def gather_nd(
    data: Operand, indices: Operand, batch_dims: int = 0, index_rank: int | None = None
) -> ir.Call:
    """Elements or slices of data; indices[:, y...] names the first axes."""
    attrs = op.gather.GatherNDAttrs(batch_dims, index_rank)
    return call_op("gather_nd", data, indices, attrs=attrs)


def adv_index(inputs: AnyValue) -> ir.Call:
    """The first axes of data indexed with tensors; inputs is a tuple (expression) of data and the indices."""
    return call_op("adv_index", fields_of(inputs))


def scatter_elements(
    data: Operand, indices: Operand, updates: Operand, axis: int = 0, reduction: str = "update"
) -> ir.Call:
    """data with elements replaced or combined along an axis."""
    attrs = op.scatter.ScatterElementsAttrs(axis, reduction)
    return call_op("scatter_elements", data, indices, updates, attrs=attrs)


def scatter_nd(data: Operand, indices: Operand, updates: Operand, mode: str = "update") -> ir.Call:
    """data with elements or slices replaced or combined; indices[:, y...] names the first axes."""
    return call_op("scatter_nd", data, indices, updates, attrs=op.scatter.ScatterNDAttrs(mode))


def invert_permutation(data: Operand) -> ir.Call:
    """The permutation that undoes data."""
    return call_op("invert_permutation", data)


def _vector(values: AnyValue) -> ir.Expr:
    """A bound of strided_set: an expression, or numbers as an int32 constant."""
    if isinstance(values, ir.Expr):
        return values
    return ir.Constant(numbers(values, "int32").reshape(-1))


def strided_set(
    data: Operand,
    v: Operand,
    begin: AnyValue,
    end: AnyValue,
    strides: AnyValue | None = None,
) -> ir.Call:
    """data with a slice replaced by v; bounds are expressions or sequences of ints."""
    bounds = (_vector(begin), _vector(end), _vector((1,) if strides is None else strides))
    return call_op("strided_set", data, v, *bounds)


def broadcast_to_like(data: Operand, broadcast_type: Operand) -> ir.Call:
    """data stretched to another tensor's shape."""
    return call_op("broadcast_to_like", data, broadcast_type)


def reshape_like(
    data: Operand,
    shape_like: Operand,
    lhs_begin: int = 0,
    lhs_end: int | None = None,
    rhs_begin: int = 0,
    rhs_end: int | None = None,
) -> ir.Call:
    """data in another tensor's shape, or with some axes replaced by some of its axes."""
    attrs = op.like.ReshapeLikeAttrs(lhs_begin, lhs_end, rhs_begin, rhs_end)
    return call_op("reshape_like", data, shape_like, attrs=attrs)


def slice_like(
    data: Operand, shape_like: Operand, axes: int | Sequence[int] | None = None
) -> ir.Call:
    """The first elements of data, as many as another tensor has."""
    axes = plain(axes)
    named = (axes,) if isinstance(axes, int) else None if axes is None else tuple(axes)
    return call_op("slice_like", data, shape_like, attrs=op.like.SliceLikeAttrs(named))


def full_like(data: Operand, fill_value: Operand) -> ir.Call:
    """One value in data's shape and dtype."""
    return call_op("full_like", *pair(data, fill_value))


def collapse_sum_like(data: Operand, collapse_type: Operand) -> ir.Call:
    """The sum that undoes a broadcast from another tensor's shape."""
    return call_op("collapse_sum_like", data, collapse_type)


def collapse_sum_to(data: Operand, shape: AnyValue) -> ir.Call:
    """The sum that undoes a broadcast from a shape."""
    return call_op("collapse_sum_to", data, attrs=op.like.CollapseSumToAttrs(dims_of(shape)))


def unravel_index(indices: Operand, shape: Operand) -> ir.Call:
    """Flat positions as indices of a tensor of `shape`."""
    return call_op("unravel_index", indices, shape)


def pad(
    data: Operand,
    pad_width: AnyValue,
    pad_value: Operand = 0,
    pad_mode: str = "constant",
) -> ir.Call:
    """Elements around a tensor: relay.nn.pad. pad_width may be an expression."""
    if is_computed(pad_width):
        attrs = op.dyn.DynPadAttrs(pad_mode)
        return call_op("dyn.nn.pad", data, operand(pad_width), as_expr(pad_value), attrs=attrs)
    width = given(pad_width)
    return call_op("nn.pad", data, as_expr(pad_value), attrs=op.pad.PadAttrs(width, pad_mode))


def mirror_pad(
    data: Operand, pad_width: Sequence[Sequence[int]], mode: str = "SYMMETRIC"
) -> ir.Call:
    """The edges of a tensor mirrored outside: relay.nn.mirror_pad."""
    width = tuple((before, after) for before, after in pad_width)
    return call_op("nn.mirror_pad", data, attrs=op.pad.MirrorPadAttrs(mode, width))


def layout_transform(data: Operand, src_layout: str, dst_layout: str) -> ir.Call:
    """data's axes in another order, some split into blocks."""
    attrs = op.layout_transform.LayoutTransformAttrs(src_layout, dst_layout)
    return call_op("layout_transform", data, attrs=attrs)


def sliding_window(data: Operand, axis: int, window_shape: AnyValue, strides: AnyValue) -> ir.Call:
    """All windows over the axes from `axis` on."""
    shape, steps = (ints_of("sliding_window", value) for value in (window_shape, strides))
    attrs = op.sliding_window.SlidingWindowAttrs(axis, shape, steps)
    return call_op("sliding_window", data, attrs=attrs)


def sparse_to_dense(
    sparse_indices: Operand,
    output_shape: AnyValue,
    sparse_values: Operand,
    default_value: Operand = 0,
) -> ir.Call:
    """sparse_values at their places, default_value elsewhere."""
    attrs = op.sparse_to_dense.SparseToDenseAttrs(dims_of(output_shape))
    return call_op("sparse_to_dense", sparse_indices, sparse_values, default_value, attrs=attrs)


def reverse_reshape(data: Operand, newshape: AnyValue) -> ir.Call:
    """data in another shape, whose entries are read from right to left."""
    attrs = op.reshape.ReshapeAttrs(ints_of("reverse_reshape", newshape))
    return call_op("contrib_reverse_reshape", data, attrs=attrs)


def matrix_set_diag(
    data: Operand, diagonal: Operand, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> ir.Call:
    """Matrices with the diagonals k (one, or from one to another) replaced."""
    found = ints_of("matrix_set_diag", k)
    sides = align.split("_")
    if len(sides) != 2 or not {*sides} <= {"LEFT", "RIGHT"} or len(found) not in (1, 2):
        raise InvalidInputType(
            "matrix_set_diag: k must be one or two integers, align RIGHT_LEFT, LEFT_RIGHT, LEFT_LEFT or RIGHT_RIGHT, "
            f"not {k!r} and {align!r}"
        )
    right = (side == "RIGHT" for side in sides)
    attrs = op.matrix_set_diag.MatrixSetDiagAttrs(found[0], found[-1], *right)
    return call_op("matrix_set_diag", data, diagonal, attrs=attrs)


def segment_sum(
    data: Operand, segment_ids: Operand, num_segments: int | ir.Expr | None = None
) -> ir.Call:
    """Rows of data with equal segment_ids added up; num_segments rows, or as many as the greatest id asks for."""
    data, ids = as_expr(data), as_expr(segment_ids)
    if num_segments is None:
        top = call_op("max", ids, attrs=op.reduce.ReduceAttrs())
        last = call_op("cast", top, attrs=op.cast.CastAttrs("int64"))
        count = call_op("add", last, constant(1, "int64"))
    else:
        count = call_op("cast", operand(num_segments), attrs=op.cast.CastAttrs("int64"))
    shape = call_op("shape_of", data, attrs=op.shape_of.ShapeOfAttrs("int64"))
    behind = op.strided_slice.StridedSliceAttrs((1,), (2**31 - 1,))
    row = call_op("strided_slice", shape, attrs=behind)
    first = call_op("reshape", count, attrs=op.reshape.ReshapeAttrs((1,)))
    whole = call_op("concatenate", ir.Tuple((first, row)), attrs=op.concatenate.ConcatenateAttrs(0))
    zeros = call_op("dyn.zeros", whole, attrs=op.dyn.DynInitAttrs("float32"))
    start = call_op("cast_like", zeros, data)
    where = call_op("expand_dims", ids, attrs=op.expand_dims.ExpandDimsAttrs(0))
    return call_op("scatter_nd", start, where, data, attrs=op.scatter.ScatterNDAttrs("add"))


def sparse_reshape(
    sparse_indices: Operand, prev_shape: Operand, new_shape: Operand
) -> TupleWrapper:
    """(indices, shape) of a sparse tensor in another shape; one size of it may be -1."""
    return TupleWrapper(call_op("sparse_reshape", sparse_indices, prev_shape, new_shape), 2)


def sparse_fill_empty_rows(
    sparse_indices: Operand,
    sparse_values: Operand,
    dense_shape: Operand,
    default_value: Operand,
) -> ir.Tuple:
    """(indices, values, whether each row was empty), default_value in each row of the tensor without an element."""
    indices, values = as_expr(sparse_indices), as_expr(sparse_values)
    call = call_op("sparse_fill_empty_rows", indices, values, dense_shape, default_value)
    places, found, empty = TupleWrapper(call, 3)
    made = (call_op("cast_like", places, indices), call_op("cast_like", found, values))
    return ir.Tuple((*made, call_op("cast", empty, attrs=op.cast.CastAttrs("bool"))))
