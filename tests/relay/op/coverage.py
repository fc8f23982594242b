"""What every operator record has: a kernel, and the four generic tests that need nothing but the record and its cases.

    against numpy        test_compiled.py: a case for each dtype of the record that its relation takes
    ? against concrete   test_symbolic.py, test_compiled.py: a case that infers without sizes
    folded               test_compiled.py: a case whose reference gives a value
    located errors       test_errors.py: wrong operands, attributes and shapes are refused, at the call's place

The test modules run over all records. What is missing here would be no failure there, but silence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, fields

from nimblevm.compiler.qnn_lowering import LOWERINGS
from nimblevm.errors import NimbleError
from nimblevm.kernels import compute  # noqa: F401  fills the table of computes
from nimblevm.kernels.c_rules import is_c_only
from nimblevm.kernels.tensor_expr import has_compute
from nimblevm.relay.op import Op
from nimblevm.relay.op.common import ALL, FLOATS, INTEGERS, NUMERIC
from nimblevm.relay.op.concrete import ConcreteContext
from nimblevm.relay.op.qnn_common import QUANTIZED
from tests.relay.op.cases import cases
from tests.relay.op.mutants import (
    class_refuses,
    is_refused,
    largest_case,
    other_attributes,
    other_operands,
)
from tests.relay.op.test_compiled import reference, with_unknowns

INTERNAL = ("vm.", "memory.", "dyn.window")
"""Operators that passes write: no kernels of their own, tested with the passes."""

ANY_SHAPE = frozenset(
    """abs acos acosh annotation.checkpoint annotation.compiler_begin annotation.compiler_end
    annotation.stop_fusion argwhere asin asinh atan atanh bitwise_not cast cast_like ceil clip copy cos cosh device_copy
    dyn.full dyn.ones dyn.zeros erf exp fixed_point_multiply floor full isfinite isinf isnan log log10 log2 logical_not mean ndarray_size
    negative nn.dropout nn.leaky_relu nn.relu on_device ones ones_like reinterpret round rsqrt shape_of sigmoid sign sin sinh sqrt tan
    tanh tile trunc zeros zeros_like""".split()
)
"""Operators that take a tensor of any shape, or none: no shape is wrong."""

NO_UNKNOWNS = frozenset(("dyn.ones", "dyn.zeros"))
"""Their one operand is a vector whose length is the rank of the result, which must be known."""

_BYTES = ("int8", "uint8")
# What a record's first operand can't be, and why. Every other gap in the table of dtypes is a mistake.
_WIDE = ("int16", "int32", "int64", "uint16", "uint32", "uint64")
DTYPE_GAPS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (tuple(d for d in ALL if d not in _BYTES), ("qnn.",), "quantized layers are of bytes, as in TVM"),
    (
        tuple(d for d in ALL if d not in QUANTIZED), ("qnn.",),
        "numbers of quantized tensors are in int32 where they are sums, and else narrower",
    ),
    (
        tuple(d for d in ALL if d not in ("float16", "float32")), ("qnn.quantize",),
        "scales are float32, and real numbers no wider than they",
    ),
    (tuple(d for d in ALL if d != "float32"), ("qnn.simulated_",), "simulated numbers are float32, as scales are"),
    (("bool",), (), "arithmetic on truth values has no meaning; logical_*, bitwise_*, all, any and cast do"),
    (("bool", *INTEGERS), (), "mathematics of real numbers: integers are cast first, as in TVM"),
    (NUMERIC, (), "an operator of truth values: numbers are compared first"),
    (FLOATS, (), "bits of integers"),
    (("bool", *FLOATS), (), "positions and counts of bits are integers"),
    (
        ("bool", *(d for d in _WIDE if d != "int32")), ("image.", "dyn.image.", "nn.upsampling", "dyn.nn.upsampling"),
        "pixels are bytes, int32 or floats; others are cast first",
    ),
    (
        tuple(d for d in ALL if d not in ("int32", "int64")),
        ("dyn.", "invert_permutation", "sparse_", "unravel_index"),
        "sizes and positions are int32 or int64",
    ),
    (
        tuple(d for d in ALL if d != "int32"), ("fixed_point_multiply",),
        "numbers of fixed point are int32, as quantized layers have them",
    ),
    (
        ("bool", "float16"), ("reinterpret",),
        "no other bytes than 0 and 1 are a bool; kernels hold float16 values as float32, where a NaN's bits change",
    ),
    (tuple(d for d in ALL if d != "uint64"), ("random.",), "keys of random numbers are uint64, as in TVM"),
    (
        tuple(d for d in ALL if d != "float32"), ("vision.proposal", "vision.regular_non_max_suppression"),
        "boxes and scores are float32, as in TVM",
    ),
    (
        tuple(d for d in ALL if d not in ("float32", "float64")), ("nn.contrib_",),
        "passes write them for the dtypes of the register tiles; nn.dense and nn.conv2d take the others",
    ),
)  # fmt: skip


def unexplained(op: Op) -> tuple[str, ...]:
    """The dtypes that the first operand may not have without a reason in DTYPE_GAPS."""
    missing = tuple(d for d in ALL if d not in op.dtypes[0])
    return () if not missing or reason(op) else missing


def reason(op: Op) -> str | None:
    """Why dtypes are missing; None if none is or if nobody said."""
    missing = {d for d in ALL if d not in op.dtypes[0]}
    for dtypes, prefixes, why in DTYPE_GAPS:
        if set(dtypes) == missing and (not prefixes or op.name.startswith(prefixes)):
            return why
    return None


@dataclass(frozen=True)
class Coverage:
    """One record: which of the five it has."""

    kernel: bool
    numpy: bool
    unknown: bool
    folded: bool
    errors: bool


def is_public(op: Op) -> bool:
    return not op.name.startswith(INTERNAL)


def has_kernel(op: Op) -> bool:
    """For every dtype: generated, a C kernel, or those of the operators that it becomes."""
    return all(is_computed(op.name, dtype) for dtype in op.dtypes[0])


def is_computed(op: str, dtype: str) -> bool:
    lowered = op.startswith("dyn.") or op in LOWERINGS
    return has_compute(op, dtype) or is_c_only(op) or lowered


def coverage(op: Op) -> Coverage:
    """What the record has, by trying."""
    return Coverage(has_kernel(op), _fits(op), _infers(op), _evaluates(op), _refuses(op))


def _fits(op: Op) -> bool:
    """Whether there is a case for each dtype, and the relation takes it."""
    try:
        for dtype in op.dtypes[0]:
            case = next(iter(cases(op.name, dtype, 1)))
            types = case.types
            if len(types) != len(op.args):
                return False
            op.relation(ConcreteContext(op, types), types, case.attrs)
    except (LookupError, TypeError, NimbleError):
        return False
    return True


def _infers(op: Op) -> bool:
    if op.name in NO_UNKNOWNS:
        return True
    with contextlib.suppress(LookupError, TypeError):
        made = cases(op.name, op.dtypes[0][-1], 8)
        return any(with_unknowns(op, case) is not None for case in made)
    return False


def _evaluates(op: Op) -> bool:
    with contextlib.suppress(LookupError, TypeError):
        made = cases(op.name, op.dtypes[0][-1], 8)
        return any(not isinstance(reference(op, case), type) for case in made)
    return False


def _refuses(op: Op) -> bool:
    """A wrong value of an attribute that has wrong ones, and a wrong shape."""
    try:
        case = largest_case(op)
    except LookupError:
        return False
    types = case.types
    if case.attrs is not None and not (
        any(is_refused(op, types, changed) for _, changed in other_attributes(case.attrs))
        or class_refuses(case.attrs)
    ):
        return False
    if op.name in ANY_SHAPE:
        return True
    return any(
        is_refused(op, changed, case.attrs)
        for case in cases(op.name, op.dtypes[0][-1], 8)
        for changed in other_operands(case.types)
    )


def gaps(ops: Iterable[Op]) -> list[str]:
    """ "operator: what it lacks", for all public operators."""
    found = []
    for op in filter(is_public, ops):
        has = coverage(op)
        lacks = [f.name for f in fields(has) if not getattr(has, f.name)]
        lacks += [f"a reason for no {dtype}" for dtype in unexplained(op)]
        if lacks:
            found.append(f"{op.name}: {', '.join(lacks)}")
    return found
