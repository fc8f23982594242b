"""Lay constant weights out as panels of columns, the way the kernels read them.

before:  nn.dense(%x, meta[relay.Constant][0])             (the constant is (units, K))
after:   nn.contrib_dense_pack(%x, meta[relay.Constant][0], weight_layout="NC16n", units=512)
         (the constant is (ceil(units / 16), K, 16), zeros behind the last column)

Weights that are only multiplied with single rows have panels of 64 columns, which is what a kernel reads at once: one
stream, which takes 4 % less time than four (docs/performance-log.md). Panels have 16 columns where 64 would leave too
many of them empty, and where there may be more rows, since AVX2's kernels then take one panel of 16 at once (adr 12).
The columns of panels of 64 lie in pairs if they are bfloat16 (relay/op/dense_pack.py).

Gates of a cell share panels if these have fewer empty columns so (compiler/shared_panels.py).

Also nn.matmul with a constant right operand. A constant has one layout for all of its uses: one that anything but such
a product reads stays as it is, except that rows of a large table (an embedding's, which is the last product's weight
too) are taken out of the panels: compiler/packed_rows.py. So do weights of fewer columns than
MIN_UNITS stay, where padding costs more than it gains, and dtypes without packed kernels. With `weights` "float16" or
"bfloat16" float32 weights are stored in 16 bits; tables whose rows are taken keep their layout and 32 bits then.

Needs: inferred types. Keeps: them. Cost: one walk and a copy of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nimblevm.compiler.constants import late_constant
from nimblevm.compiler.packed_rows import is_row_lookup, packed_rows
from nimblevm.compiler.pass_base import Pass, PassContext
from nimblevm.compiler.rewrite import (
    Rewriter,
    map_functions,
    op_call,
    postorder,
    type_of,
    with_body,
)
from nimblevm.compiler.shared_panels import Shared, shared_products
from nimblevm.errors import CompileError
from nimblevm.relay.ir import Call, Constant, Expr, Function, Span, children, late_array
from nimblevm.relay.late import LateArray
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.common import Array
from nimblevm.relay.op.dense_pack import (
    DTYPES,
    NARROW,
    PAIRED,
    PAIRS,
    WIDE,
    WIDTHS,
    in_pairs,
    layout_of,
    panels_of,
    shared_panels,
    to_bfloat16,
)
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType

MIN_UNITS = 8


def _weight(node: Expr) -> Constant | None:
    """The constant weight of a product that has a packed form."""
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return None
    if node.op.name not in ("nn.dense", "nn.matmul") or not isinstance(node.args[1], Constant):
        return None
    weight, result, data = node.args[1], type_of(node), type_of(node.args[0])
    if not isinstance(result, TensorType) or not isinstance(data, TensorType):
        return None
    if node.op.name == "nn.matmul" and node.attrs.transpose_a:
        return None
    units = weight.data.shape[_unit_axis(node)]
    plain = weight.data.dtype.name == result.dtype == data.dtype and result.dtype in DTYPES
    return weight if plain and units >= MIN_UNITS and weight.data.size else None


def _is_one_row(node: Expr) -> bool:
    """Whether a product is known to multiply a single row."""
    data = type_of(node.args[0]) if isinstance(node, Call) else None
    return isinstance(data, TensorType) and all(size == 1 for size in data.shape[:-1])


def _unit_axis(node: Expr) -> int:
    """The axis of the weight that counts columns of the result."""
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        raise TypeError(f"{type(node).__name__} is no product")
    return 0 if node.op.name == "nn.dense" or node.attrs.transpose_b else 1


@dataclass(frozen=True, slots=True)
class _Packing:
    """How a weight is packed: the axis that counts its columns, and the layout."""

    axis: int
    layout: str


def _packable(mod: IRModule, weights: str) -> dict[Constant, _Packing]:
    """Constants that only such products read, all in one way. Lookups of rows may read them too, unless weights are
    stored in 16 bits.
    """
    rows = weights == "float32"
    axis: dict[Constant, int] = {}
    other: set[Constant] = set()
    tables: set[Constant] = set()
    narrow: set[Constant] = set()
    for function in mod.functions.values():
        for node in postorder(function.body):
            weight = _weight(node)
            for position, child in enumerate(children(node)):
                if not isinstance(child, Constant):
                    continue
                if rows and is_row_lookup(node, child):
                    tables.add(child)
                    continue
                wanted = weight is child and position == 2 and isinstance(node, Call)
                if not wanted or axis.setdefault(child, _unit_axis(node)) != _unit_axis(node):
                    other.add(child)
                elif not _is_one_row(node):
                    narrow.add(child)
    narrow |= tables  # whoever takes a row of a table reads its whole panel
    other.update(c for c in tables if axis.get(c) != 0)
    return {
        constant: _Packing(
            a, NARROW if constant in narrow else _one_row_layout(constant, a, weights)
        )
        for constant, a in axis.items()
        if constant not in other
    }


def _one_row_layout(weight: Constant, axis: int, weights: str) -> str:
    """Of a weight that only meets single rows."""
    layout = layout_of(weight.data.shape[axis])
    in_pairs = weights == "bfloat16" and weight.data.dtype == np.float32
    return PAIRED if layout == WIDE and in_pairs else layout


def _may_share(node: Expr, packable: dict[Constant, _Packing]) -> Constant | None:
    """The weight of a product of several rows whose panels may be those of other products too."""
    weight = _weight(node)
    if weight is None or weight not in packable or late_array(weight) is not None:
        return None
    return None if _is_one_row(node) else weight


def _stored(panels: Array, dtype: str, product: Call) -> Array:
    """A packed weight in the dtype that the user wants; float64 weights stay."""
    if panels.dtype != np.float32 or dtype == "float32":
        return panels
    if dtype == "bfloat16":
        return to_bfloat16(panels)
    with np.errstate(over="ignore"):
        half = panels.astype(np.float16)
    if np.isinf(half).sum() != np.isinf(panels).sum():
        place = f"{product.span}: " if isinstance(product.span, Span) else ""
        largest = np.abs(panels[np.isfinite(panels)]).max()
        raise CompileError(
            f"{place}a weight of {largest:.6g} does not fit in float16 (at most 65504); store weights as "
            "bfloat16 or float32"
        )
    return half


def _stored_late(panels: LateArray, dtype: str) -> LateArray:
    """As _stored; whether the numbers fit is checked when they are bound."""
    if panels.dtype != np.float32 or dtype == "float32":
        return panels
    return panels.stored_as("uint16" if dtype == "bfloat16" else dtype)


class _Packer(Rewriter):
    def __init__(
        self, packable: dict[Constant, _Packing], shared: dict[Expr, Shared],
        made: dict[Constant | tuple[Constant, ...], Constant], dtype: str,
    ) -> None:  # fmt: skip
        super().__init__()
        self.packable = packable
        self.shared = shared
        self.made = made
        self.dtype = dtype

    def _columns(self, weight: Constant) -> Array:
        return weight.data if self.packable[weight].axis == 0 else weight.data.T

    def _packed(self, weight: Constant, product: Call) -> Constant:
        packed = self.made.get(weight)
        if packed is None:
            packed = self.made[weight] = self._panels(weight, product)
        return packed

    def _piece(self, shared: Shared, product: Call, old: Call) -> Call:
        """A product with its part of panels that several share."""
        weights, block = shared.weights, shared.block
        if weights not in self.made:
            panels = shared_panels([self._columns(w) for w in weights], block)
            stored = _stored(panels, self.dtype, old)
            stored.flags.writeable = False  # see _panels
            self.made[weights] = Constant(stored, span=weights[0].span)
        units = weights[0].data.shape[self.packable[weights[0]].axis]
        return op_call(
            "nn.contrib_dense_pack", (product.args[0], self.made[weights]), type_of(product), product.span,
            weight_layout=NARROW, units=units, out_dtype="", piece=(shared.number, len(weights), block),
        )  # fmt: skip

    def _panels(self, weight: Constant, product: Call) -> Constant:
        packing = self.packable[weight]
        width = WIDTHS[packing.layout]
        late = late_array(weight)
        if late is not None:
            columns = late if packing.axis == 0 else late.transposed(1, 0)
            stored = _stored_late(columns.panels(width), self.dtype)
            if packing.layout == PAIRED:
                stored = stored.in_pairs(*PAIRS[:2])
            return late_constant(stored, weight.span)
        panels = _stored(panels_of(self._columns(weight), width), self.dtype, product)
        if packing.layout == PAIRED:
            panels = in_pairs(panels)
        panels.flags.writeable = False  # nobody else writes to it: Constant need not copy it
        return Constant(panels, span=weight.span)

    def visit(self, node: Expr, new: Expr) -> Expr:
        if not isinstance(new, Call):
            return new
        table = new.args[0] if new.args else None
        if isinstance(table, Constant) and table in self.packable and is_row_lookup(new, table):
            return packed_rows(new, self._packed(table, new))
        weight = _weight(new)
        if weight is None or weight not in self.packable:
            return new
        if node in self.shared and isinstance(node, Call):
            return self._piece(self.shared[node], new, node)
        packing = self.packable[weight]
        return op_call(
            "nn.contrib_dense_pack", (new.args[0], self._packed(weight, new)), type_of(new), new.span,
            weight_layout=packing.layout, units=weight.data.shape[packing.axis], out_dtype="",
        )  # fmt: skip


def pack_weights(mod: IRModule, ctx: PassContext) -> IRModule:
    """See the module's docstring."""
    packable = _packable(mod, ctx.weights)
    if not packable:
        return mod
    shared = shared_products(
        [f.body for f in mod.functions.values()],
        lambda node: _may_share(node, packable),
        lambda weight: weight.data.shape[packable[weight].axis],
    )
    made: dict[Constant | tuple[Constant, ...], Constant] = {}

    def pack(function: Function) -> Function:
        packer = _Packer(packable, shared, made, ctx.weights)
        return with_body(function, packer.rewrite(function.body))

    return map_functions(mod, pack)


PACK_WEIGHTS = Pass("pack_weights", pack_weights)
