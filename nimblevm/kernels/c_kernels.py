"""The kernels written in C and their signatures: ONE table. Standard library only.

A row is one C function for several dtypes; `variants()` spells out the names that a file's kernel table uses, and
native/gen_tables.py writes the registry that the runtime compares a file's signature with. Their rank is fixed: the
compiler collapses axes with View, most often to (outer, axis, inner). A kernel's function is `nvm_kernel_<name>` in
native/kernels/<family>.c; its body order is: attribute ranges, loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nimblevm.dtypes import DTYPES
from nimblevm.dtypes import dtype as dtype_row


@dataclass(frozen=True, slots=True)
class COperand:
    """`dtype`: a name, or "T" for the variant's. Each axis: a size, or the name of one of the kernel's dims."""

    role: Literal["in", "out", "scratch"]
    dtype: str
    axes: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class CKernel:
    """A row. `dims` are passed by the call, `attrs` are constants of the kernel table entry behind them."""

    name: str
    family: str
    dtypes: tuple[str, ...]
    operands: tuple[COperand, ...]
    dims: tuple[str, ...]
    attrs: tuple[str, ...] = ()
    out_dims: int = 0
    may_fail: bool = False

    def __post_init__(self) -> None:
        known = (*self.dims, *self.attrs)
        for operand in self.operands:
            if operand.dtype != "T":
                dtype_row(operand.dtype)
            for axis in operand.axes:
                if isinstance(axis, str) and axis not in known:
                    raise ValueError(f"C kernel {self.name}: no dim {axis!r} among {known}")

    def variant(self, dtype: str) -> str:
        """Name in the file and in the registry."""
        return f"{self.name}_{dtype}"


_ARG_DTYPES = ("float32", "float64", "int32", "int64")


def _arg_reduce(name: str) -> CKernel:
    """Index of the extreme element along `axis`: the first one, or the last if select_last_index is 1.

    The first NaN wins. Fails with IndexOutOfRange if the axis is empty and the output is not.
    """
    return CKernel(
        name,
        "argreduce",
        _ARG_DTYPES,
        (
            COperand("in", "T", ("outer", "axis", "inner")),
            COperand("out", "int32", ("outer", "inner")),
        ),
        ("outer", "axis", "inner"),
        ("select_last_index",),
        may_fail=True,
    )


_ALL = tuple(row.name for row in DTYPES)
_FLOATS = tuple(row.name for row in DTYPES if row.is_float)


def _sort_scratch(axis: str) -> COperand:
    """Two buffers of keys and two of positions."""
    return COperand("scratch", "uint64", (4, axis))


def _top_k(name: str, outputs: tuple[str, ...]) -> CKernel:
    """The first `k` of the elements along `axis` in stable order, and their positions.

    Order: ascending with NaN last, or descending with NaN first. Fails with ShapeMismatch for k > axis.
    """
    results = tuple(COperand("out", dtype, ("outer", "k", "inner")) for dtype in outputs)
    return CKernel(
        name,
        "sort",
        _ALL,
        (COperand("in", "T", ("outer", "axis", "inner")), *results, _sort_scratch("axis")),
        ("outer", "axis", "inner", "k"),
        ("is_ascend",),
        may_fail=True,
    )


def _search_sorted(name: str, index: str) -> CKernel:
    """The place of each value in its row of a sorted matrix: before its equals, or with `right` behind them."""
    operands = (
        COperand("in", "T", ("outer", "axis")),
        COperand("in", "T", ("outer", "count")),
        COperand("out", index, ("outer", "count")),
    )
    return CKernel(
        name, "search", _ALL, operands, ("outer", "axis", "count"), ("right",), may_fail=True
    )


def _unique(name: str, counts: bool) -> CKernel:
    """Distinct elements, where each occurs first, which one each element is, their number, perhaps how often.

    The out-dim is their number; outputs of `size` elements are filled up to it, the inverse wholly.
    """
    operands = (
        COperand("in", "T", ("size",)),
        COperand("out", "T", ("size",)),
        COperand("out", "int32", ("size",)),
        COperand("out", "int32", ("size",)),
        COperand("out", "int32", (1,)),
        *((COperand("out", "int32", ("size",)),) if counts else ()),
        _sort_scratch("size"),
    )
    return CKernel(
        name, "unique", _ALL, operands, ("size",), ("is_sorted",), out_dims=1, may_fail=True
    )


_AXES = tuple(f"d{axis}" for axis in range(8))

_ARGWHERE = CKernel(
    "argwhere",
    "search",
    _ALL,
    (COperand("in", "T", ("size",)), COperand("out", "int32", ("size", "rank"))),
    ("size", "rank", *_AXES),
    out_dims=1,
    may_fail=True,
)
"""Coordinates of the elements that are not zero, in a shape of `rank` axes d0, d1...; the out-dim is their number."""

_VALID_COUNTS = CKernel(
    "get_valid_counts",
    "vision",
    _FLOATS,
    (
        COperand("in", "T", ("batch", "boxes", "fields")),
        COperand("in", "float32", ()),
        COperand("out", "int32", ("batch",)),
        COperand("out", "T", ("batch", "boxes", "fields")),
        COperand("out", "int32", ("batch", "boxes")),
    ),
    ("batch", "boxes", "fields"),
    ("id_index", "score_index"),
    may_fail=True,
)


def _suppression(name: str, outputs: tuple[COperand, ...]) -> CKernel:
    """Non-maximum suppression: the indices of the kept boxes and their number, or the boxes."""
    operands = (
        COperand("in", "T", ("batch", "boxes", "fields")),
        COperand("in", "int32", ("batch",)),
        COperand("in", "int32", ("batch", "boxes")),
        COperand("in", "int32", ()),
        COperand("in", "float32", ()),
        *outputs,
        COperand("scratch", "uint64", (10, "boxes")),
    )
    attrs = ("force_suppress", "top_k", "coord_start", "score_index", "id_index", "to_bottom")
    return CKernel(
        name, "vision", _FLOATS, operands, ("batch", "boxes", "fields"), attrs, may_fail=True
    )


def _all_classes(name: str, outputs: tuple[COperand, ...]) -> CKernel:
    """Non-maximum suppression of every class by itself: the boxes that are kept, and how many."""
    operands = (
        COperand("in", "T", ("batch", "boxes", 4)),
        COperand("in", "T", ("batch", "classes", "boxes")),
        COperand("in", "int32", ()),
        COperand("in", "float32", ()),
        COperand("in", "float32", ()),
        *outputs,
        COperand("scratch", "uint64", (10, "boxes")),
    )
    return CKernel(name, "vision", _FLOATS, operands, ("batch", "classes", "boxes"), may_fail=True)


def _stft(name: str, window: str) -> CKernel:
    """The Fourier transforms of a signal's frames; scratch: turns, two rows and pairs of complex numbers."""
    operands = (
        COperand("in", "T", ("batch", "length")),
        COperand("in", window, ("size",)),
        COperand("out", "T", ("batch", "frequencies", "frames", 2)),
        COperand("scratch", "float64", (8, "win_length")),
    )
    dims = ("batch", "length", "size", "frequencies", "frames")
    attrs = ("n_fft", "hop_length", "win_length", "normalized")
    return CKernel(name, "fourier", _FLOATS, operands, dims, attrs, may_fail=True)


_DFT = CKernel(
    "dft",
    "fourier",
    _FLOATS,
    (
        *(COperand(role, "T", ("outer", "n")) for role in ("in", "in", "out", "out")),
        COperand("scratch", "float64", (8, "n")),
    ),
    ("outer", "n"),
    ("inverse",),
    may_fail=True,
)
"""The Fourier transforms of rows of complex numbers, given and taken as two tensors."""

_REGULAR_NMS = CKernel(
    "regular_nms",
    "detections",
    ("float32",),
    (
        COperand("in", "T", ("batch", "boxes", 4)),
        COperand("in", "T", ("batch", "boxes", "columns")),
        COperand("out", "T", ("batch", "max_detections", 4)),
        COperand("out", "T", ("batch", "max_detections")),
        COperand("out", "T", ("batch", "max_detections")),
        COperand("out", "int32", ("batch",)),
        COperand("scratch", "uint64", (6, "boxes")),
        COperand("scratch", "int64", (2, "max_detections")),
    ),
    ("batch", "boxes", "columns"),
    ("per_class", "max_detections", "num_classes", "iou_threshold", "score_threshold"),
    may_fail=True,
)
"""Non-maximum suppression of every class by itself, then the best boxes of all; thresholds are bits of float32."""

ANCHOR_SLOTS = 8
"""The most scales, and the most ratios, that `proposal` takes."""

_PROPOSAL = CKernel(
    "proposal",
    "detections",
    ("float32",),
    (
        COperand("in", "T", ("batch", "classes", "height", "width")),
        COperand("in", "T", ("batch", "deltas", "height", "width")),
        COperand("in", "T", ("batch", 3)),
        COperand("out", "T", ("rows", 5)),
        COperand("scratch", "T", ("boxes", 4)),
        COperand("scratch", "uint64", (4, "boxes")),
    ),
    ("batch", "classes", "deltas", "height", "width", "boxes", "rows"),
    (
        *("stride", "pre_nms", "post_nms", "iou_loss", "threshold", "min_size", "scales", "ratios"),
        *(f"{name}{k}" for name in ("scale", "ratio") for k in range(ANCHOR_SLOTS)),
    ),
    may_fail=True,
)
"""Boxes of anchors moved as predicted, suppressed, the best of each image; floats are bits of float32."""


def _sparse_transpose(name: str, index: str) -> CKernel:
    """The rows of a square sparse matrix from its columns: elements, their columns, and where rows end."""
    operands = (("T", "elements"), (index, "elements"), (index, "ends"))
    made = tuple(COperand(role, d, (a,)) for role in ("in", "out") for d, a in operands)
    return CKernel(name, "sparse", _ALL, made, ("elements", "ends"), may_fail=True)


def _fill_empty_rows(name: str, index: str) -> CKernel:
    """The elements of a sparse tensor with one more in each row that has none, and which rows those are."""
    operands = (
        COperand("in", index, ("elements", "axes")),
        COperand("in", "T", ("elements",)),
        COperand("in", index, ("axes",)),
        COperand("in", "T", (1,)),
        COperand("out", "int64", ("count", "axes")),
        COperand("out", "int64", ("count",)),
        COperand("out", "int64", ("rows",)),
    )
    dims = ("elements", "axes", "count", "rows")
    return CKernel(name, "sparse", ("int32", "int64"), operands, dims, may_fail=True)


C_KERNELS: tuple[CKernel, ...] = (
    _arg_reduce("argmax"),
    _arg_reduce("argmin"),
    _top_k("topk", ("T", "int32")),
    _top_k("topk64", ("T", "int64")),
    _top_k("topk_values", ("T",)),
    _top_k("topk_indices", ("int32",)),
    _top_k("topk_indices64", ("int64",)),
    _search_sorted("searchsorted", "int32"),
    _search_sorted("searchsorted64", "int64"),
    _unique("unique", counts=False),
    _unique("unique_counts", counts=True),
    _ARGWHERE,
    _VALID_COUNTS,
    _suppression(
        "nms_indices",
        (COperand("out", "int32", ("batch", "boxes")), COperand("out", "int32", ("batch", 1))),
    ),
    _suppression("nms_boxes", (COperand("out", "T", ("batch", "boxes", "fields")),)),
    _all_classes(
        "all_class_nms",
        (
            COperand("out", "int64", ("batch", "classes", "boxes", 3)),
            COperand("out", "int64", (1,)),
        ),
    ),
    _all_classes(
        "all_class_nms_batches",
        (
            COperand("out", "int64", ("batch", "classes", "boxes", 2)),
            COperand("out", "T", ("batch", "classes", "boxes")),
            COperand("out", "int64", ("batch",)),
        ),
    ),
    _stft("stft", "T"),
    _stft("stft_whole", "int32"),
    _DFT,
    _REGULAR_NMS,
    _PROPOSAL,
    _sparse_transpose("sparse_transpose", "int32"),
    _sparse_transpose("sparse_transpose64", "int64"),
    _fill_empty_rows("fill_empty_rows", "int32"),
    _fill_empty_rows("fill_empty_rows64", "int64"),
)
BY_VARIANT: dict[str, tuple[CKernel, str]] = {
    row.variant(name): (row, name) for row in C_KERNELS for name in row.dtypes
}
if len(BY_VARIANT) != sum(len(row.dtypes) for row in C_KERNELS):
    raise ValueError("c_kernels.C_KERNELS: a name occurs twice")

_ROLE = {"in": "NVM_ROLE_IN", "out": "NVM_ROLE_OUT", "scratch": "NVM_ROLE_SCRATCH"}


def _axis(row: CKernel, axis: int | str) -> str:
    if isinstance(axis, int):
        return f"{{NVM_AXIS_CONST, 0, {axis}}}"
    return f"{{NVM_AXIS_DIM, 0, {(*row.dims, *row.attrs).index(axis)}}}"


def _operand(row: CKernel, operand: COperand, dtype: str) -> str:
    kind = dtype if operand.dtype == "T" else operand.dtype
    axes = ", ".join(_axis(row, axis) for axis in operand.axes) or "{0, 0, 0}"
    number = f"NVM_DTYPE_{kind.upper()}"
    return f"    {{{number}, {_ROLE[operand.role]}, {len(operand.axes)}, 0, {{{axes}}}}},"


def _variant(row: CKernel, dtype: str) -> list[str]:
    name = row.variant(dtype)
    count = [sum(operand.role == role for operand in row.operands) for role in _ROLE]
    attrs = "zero_attrs" if row.attrs else "NULL"
    return [
        f"static const nvm_operand {name}_operands[] = {{",
        *(_operand(row, operand, dtype) for operand in row.operands),
        "};",
        f"static const nvm_signature {name}_signature = {{{len(row.operands)}, {count[0]}, {count[1]}, {count[2]},"
        f" {len(row.dims)}, {len(row.attrs)}, 0, {row.out_dims}, {int(row.may_fail)}, {name}_operands, {attrs},"
        " NULL, 0};",
    ]


def emit_registry() -> str:
    """native/include/generated/nvm_c_kernels.h: declarations, signatures, and the array sorted by name."""
    names = sorted(BY_VARIANT)
    most = max((len(row.attrs) for row in C_KERNELS), default=0)
    lines = [
        "/* generated by native/gen_tables.py from kernels/c_kernels.py, do not edit */",
        "/* clang-format off */",
        "#ifndef NVM_C_KERNELS_H",
        "#define NVM_C_KERNELS_H",
        "",
        '#include "nvm_kernel.h"',
        '#include "generated/nvm_dtype.h"',
        "",
        *(
            f"nvm_status nvm_kernel_{name}(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims);"
            for name in names
        ),
        "",
        "#ifdef NVM_C_KERNELS_TABLE",
        f"static const int64_t zero_attrs[{max(most, 1)}] = {{0}};",
    ]
    for name in names:
        lines += _variant(*BY_VARIANT[name])
    lines += [
        "static const nvm_c_kernel c_kernels[] = {",
        *(f'    {{"{name}", nvm_kernel_{name}, &{name}_signature}},' for name in names),
        "};",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)
