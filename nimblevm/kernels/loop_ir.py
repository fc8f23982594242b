"""The loop IR: what a kernel computes, as typed loops over buffers; unscheduled, one body for all targets.

A Kernel has operands (buffers with a dtype and one size expression an axis), int64 `dims` that it is called with, and
a body of statements. Index and size expressions are ordinary int64 expressions. All nodes are immutable; an expression
object that occurs twice is one value (generators and the serialized form compute it once where scopes allow).

Numbers. Integer arithmetic wraps in its dtype. Integer `div`, `mod` (truncated), `floordiv`, `floormod` fail with
DivisionByZero; MIN / -1 wraps to MIN, its remainder is 0. float16 operations are computed in float32 and rounded
after each. No operation is contracted to FMA, except that an Accumulate of op "add" may be reassociated and fused by
a code generator. min and max of floats give NaN if either is NaN, and either zero of +0 and -0. Float to integer
casts saturate, NaN gives 0; anything to bool is x != 0. `round` goes half away from zero. Shifts take the count
modulo the width. Comparisons with NaN are false, ne true. Float `mod` is C's fmod, `floormod` that plus the divisor
where the signs differ, a zero with the divisor's sign, `floordiv` floor(x / y); `pow` is C's and defined for floats
only; add and max of bools are "or", mul and min "and". exp, log, ... are math_table's, bit for bit.

An expression is evaluated where a statement uses it, with the locals and buffers of that moment. Locals start as 0.

Safety. The C interpreter checks every index of every load and store against its axis, so a body from a hostile file is
an error, never a fault. Generated code trusts the compiler, which is why native sections are code: lower.py must prove
or check (CheckIndex) what it indexes with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

from nimblevm.kernels.panel_tile import TILE_ROW
from nimblevm.kernels.variants import PLAIN, Variant

UNARY_FLOAT = ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "tan",
               "floor", "ceil", "round", "trunc", "sign", "log2", "log10", "sinh", "cosh", "asin", "acos", "atan",
               "asinh", "acosh", "atanh")  # fmt: skip
UNARY_INT = ("neg", "abs", "sign", "bitnot")
UNARY_BOOL = ("not",)
UNARY_TEST = ("isnan", "isinf", "isfinite")  # float -> bool
UNARY_BITS = ("bits",)  # float32, float64 <-> an integer of that width: the same bits
BINARY = ("add", "sub", "mul", "div", "mod", "floordiv", "floormod", "min", "max", "pow", "and", "or",
          "xor", "shl", "shr")  # fmt: skip
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
ACCUMULATE = ("add", "mul", "min", "max", "and", "or")
BYTES = ("int8", "uint8")
"""dtypes of products with instructions of their own (ByteProduct, ByteWindows)."""


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """Base of expressions; `dtype` is a name of nimblevm.dtypes."""

    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class Const(Value):
    """A literal: bool, int or float that its dtype can hold (NaN and infinities pass)."""

    value: bool | int | float


@dataclass(frozen=True, eq=False, slots=True)
class LoopVar(Value):
    """The counter of the For that binds it (dtype int64); identity is the object."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Local(Value):
    """A scalar variable of the kernel, set by SetLocal before it is read; identity is the object."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class DimRef(Value):
    """dims[index], an in-dim or attribute (dtype int64)."""

    index: int


@dataclass(frozen=True, eq=False, slots=True)
class Load(Value):
    """buffers[buffer][indices]; one int64 index an axis. A `broadcast` axis whose size is 1 reads 0 for any index."""

    buffer: int
    indices: tuple[Value, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Unary(Value):
    """op of UNARY_*; operand dtype = dtype (bool result for UNARY_TEST, the other kind for UNARY_BITS)."""

    op: str
    operand: Value


@dataclass(frozen=True, eq=False, slots=True)
class Binary(Value):
    """op of BINARY on two operands of this dtype. "and", "or", "xor" work on bool (logical) and integers (bits)."""

    op: str
    lhs: Value
    rhs: Value


@dataclass(frozen=True, eq=False, slots=True)
class Compare(Value):
    """op of COMPARE on two operands of one dtype; dtype of the result is bool."""

    op: str
    lhs: Value
    rhs: Value


@dataclass(frozen=True, eq=False, slots=True)
class Select(Value):
    """cond ? if_true : if_false. Both are evaluated, so both must be safe; guard unsafe ones with an If statement."""

    cond: Value
    if_true: Value
    if_false: Value


@dataclass(frozen=True, eq=False, slots=True)
class Cast(Value):
    """operand converted to dtype (saturating from float, wrapping between integers)."""

    operand: Value


@dataclass(frozen=True, eq=False, slots=True)
class CheckIndex(Value):
    """`index` (int64) if 0 <= index < bound, else IndexOutOfRange that names `operand`, index and bound."""

    index: Value
    bound: Value
    operand: int


@dataclass(frozen=True, eq=False, slots=True)
class Statement:
    """Base of statements."""


@dataclass(frozen=True, eq=False, slots=True)
class For(Statement):
    """body for var = 0 .. extent - 1. `parallel`: turns are independent (no Local set inside is read across turns).

    `masked` is a wish of a schedule, never stored in files: all turns as lanes of one masked vector.
    """

    var: LoopVar
    extent: Value
    body: tuple[Statement, ...]
    _: KW_ONLY
    parallel: bool = False
    masked: bool = False

    def around(self, body: Sequence[Statement]) -> For:
        """This loop with another body."""
        return replace(self, body=tuple(body))


@dataclass(frozen=True, eq=False, slots=True)
class Store(Statement):
    """buffers[buffer][indices] = value."""

    buffer: int
    indices: tuple[Value, ...]
    value: Value


@dataclass(frozen=True, eq=False, slots=True)
class SetLocal(Statement):
    """local = value."""

    local: Local
    value: Value


@dataclass(frozen=True, eq=False, slots=True)
class Accumulate(Statement):
    """local = local op value, op of ACCUMULATE; turns of the loop around it may be taken in any order and grouping."""

    local: Local
    op: str
    value: Value


@dataclass(frozen=True, eq=False, slots=True)
class If(Statement):
    """Branch on a bool value."""

    cond: Value
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Part(Statement):
    """Statements that may run in any order with the other parts of the same body, which stand at its beginning. No
    Local that is set in a part is read outside of it. Made by schedules, never stored in files.
    """

    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False, slots=True)
class SetDim(Statement):
    """out-dim `index` (0-based among the out-dims) = value (int64)."""

    index: int
    value: Value


@dataclass(frozen=True, eq=False, slots=True)
class Beside:
    """Sums that are computed beside a product of one row (llvm_beside.py):

    tile[TILE_ROW r + 16 p + t] += sum over k < depth of x[r x_row + k] * w[p w_panel + k w_step + t] for r < 8,
    p < panels <= 2, t < 16, if rows > 0; `begins`: as if the tile were 0 before. Strides are literals. turns: of the
    product's depth that stand beside one of this depth.
    """

    tile: int
    x: Load
    w: Load
    x_row: Value
    w_step: Value
    w_panel: Value
    depth: Value
    rows: Value
    panels: Value
    begins: bool
    turns: int


@dataclass(frozen=True, eq=False, slots=True)
class PanelProduct(Statement):
    """A tile of a product whose right operand lies in rows of 16 columns. Made by schedules, never stored in files.

    tile[tile_row r + 16 p + t] = sum over k < depth of x[r x_row + k] * w[p w_panel + k w_step + t] for r < rows,
    p < panels, t < 16 (llvm_panels.py): x and w are the elements that the strides (in elements) count from. following:
    where the weights begin that are read after these, if known. blocks: how many blocks of rows meet these weights, if
    they are likely to come from memory. beside: with one row, other sums for the time that its weights take. pairs: of
    one row alone, w the bits of bfloat16: element t of panel p lies at 16 (p - p % 2) + 2 t + p % 2 behind k w_step.
    """

    tile: int
    x: Load
    x_row: Value
    w: Load
    w_step: Value
    w_panel: Value
    depth: Value
    rows: Value
    panels: Value
    variant: Variant = PLAIN
    following: Load | None = None
    blocks: Value | None = None
    beside: Beside | None = None
    tile_row: int = TILE_ROW
    pairs: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class WindowProduct(Statement):
    """A tile of sums over windows, times weights in rows of 16 columns. Made by schedules, never stored in files.

    tile[TILE_ROW r + 16 p + t] = sum over a < A, b < B, k < depth of
        x[offsets[r] + a step_a + b step_b + k] * w[p w_panel + 16 ((a B + b) depth + k) + t]
    for r < rows, p < panels, t < 16 (llvm_windows.py); steps = ((A, step_a), (B, step_b)), strides and offsets in
    elements, offsets an array of int64 on the stack. x and w are the elements that these count from.
    """

    tile: int
    x: Load
    offsets: int
    steps: tuple[tuple[Value, Value], tuple[Value, Value]]
    w: Load
    w_panel: Value
    depth: Value
    rows: Value
    panels: Value


@dataclass(frozen=True, eq=False, slots=True)
class ByteProduct(Statement):
    """A tile of a product of int8 or uint8 operands that both run along the depth. Made by schedules, never stored in
    files.

    tile[TILE_ROW r + c] = sum over k < depth of x[r x_row + k] * w[c w_row + k] for r < rows, c < columns <= TILE_ROW
    (llvm_bytes.py), int32 that wraps: x and w are the elements that the strides (in elements) count from.
    """

    tile: int
    x: Load
    x_row: Value
    w: Load
    w_row: Value
    depth: Value
    rows: Value
    columns: Value


@dataclass(frozen=True, eq=False, slots=True)
class ByteWindows(Statement):
    """A tile of sums over windows of planes of int8 or uint8, times weights that run along the window. Made by
    schedules, never stored in files.

    tile[TILE_ROW r + c] = sum over k < depth of x[offsets[k] + c] * w[r w_row + k] for r < rows, c < 16 panels <=
    TILE_ROW (llvm_byte_windows.py), int32 that wraps; `more`: what the tile holds is added. offsets: an array of int64
    on the stack; x and w are the elements that offsets and strides (in elements) count from.
    """

    tile: int
    x: Load
    offsets: int
    w: Load
    w_row: Value
    depth: Value
    rows: Value
    panels: Value
    more: Value


Product = ByteProduct | ByteWindows | PanelProduct | WindowProduct
"""Statements that write tiles on the stack."""


@dataclass(frozen=True, eq=False, slots=True)
class PackPanels(Statement):
    """Rows copied into panels of 16 columns. Made by schedules, never stored in files.

    target[p panel + 16 k + t] = source[(16 p + t) row + k] for 16 p + t < count, k < depth (llvm_pack.py): target and
    source are the elements that the strides (in elements) count from.
    """

    target: Load
    panel: Value
    source: Load
    row: Value
    count: Value
    depth: Value


@dataclass(frozen=True, eq=False, slots=True)
class Barrier(Statement):
    """All threads of a group wait for each other here, and see what the others have stored. Made by schedule/grid.py,
    never stored in files. A group reaches it with all of its threads or with none.
    """


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """The size of one axis of an operand, int64 of Const, DimRef, Binary. `broadcast`: the actual size may be 1."""

    size: Value
    broadcast: bool = False


Role = Literal["in", "out", "scratch", "shared", "private"]
OPERAND_ROLES: tuple[Role, ...] = ("in", "out", "scratch")
"""Those of operands, in their order."""


def operand_roles(ins: int, outs: int, scratch: int) -> list[Role]:
    """The roles of so many operands of each."""
    counts = zip(OPERAND_ROLES, (ins, outs, scratch), strict=True)
    return [role for role, count in counts for _ in range(count)]


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """An operand: compact row-major. Order in Kernel.buffers = inputs, outputs, scratch = order in CallKernel.

    A grid's own buffers (schedule/grid.py), of literal sizes, are "shared" by a group's threads or "private" to each.
    """

    name: str
    dtype: str
    role: Role
    axes: tuple[Axis, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """One kernel.

    dims        names of the in-dims (for people), in order; the caller passes them, attributes included
    out_dims    number of out-dims that the body sets with SetDim
    alias       pairs (output operand, input operand): the output may share the input's storage (elementwise, same
                dtype and shape, each element read before it is written)
    """

    name: str
    buffers: tuple[Buffer, ...]
    dims: tuple[str, ...]
    body: tuple[Statement, ...]
    out_dims: int = 0
    alias: tuple[tuple[int, int], ...] = ()
