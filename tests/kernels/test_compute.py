"""Every operator's lowering against its record's reference, as loop IR and as machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from nimblevm.compiler.qnn_lowering import LOWERINGS
from nimblevm.errors import NimbleError
from nimblevm.kernels import llvm
from nimblevm.kernels.c_rules import is_c_only
from nimblevm.kernels.lower import lower_primitive
from nimblevm.kernels.math_table import NAMES
from nimblevm.kernels.tensor_expr import has_compute
from nimblevm.relay.op import all_ops, get
from nimblevm.relay.op.dyn import STATIC
from tests.kernels.native import (
    Evaluated,
    Interpreted,
    Library,
    Program,
    Runner,
    agree,
    bind,
    flat,
    primitive,
)
from tests.relay.op.cases import cases
from tests.relay.op.draw import Case

# What passes write and the VM or emit handle; shape_of and views have a lowering too. Those of STATIC and LOWERINGS
# become other operators before kernels are made.
HANDLED_ELSEWHERE = ("vm.", "memory.", *STATIC, *LOWERINGS, "dyn.image.", "dyn.nn.")
# What only C kernels compute has no loop IR (tests/kernels/test_c_kernels.py, tests/relay/op/test_compiled.py).
OPS = tuple(
    op.name
    for op in all_ops()
    if not op.name.startswith(HANDLED_ELSEWHERE) and not is_c_only(op.name)
)
TARGETS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


@dataclass(frozen=True)
class Sample:
    """One call of an operator, lowered."""

    op: str
    dtype: str
    case: Case
    program: Program
    expected: tuple[np.ndarray, ...] | NimbleError

    def check(self, runner: Runner, index: int = 0) -> None:
        what = (self.op, self.dtype, self.case)
        if isinstance(self.expected, NimbleError):
            assert self.program.lowered.may_fail, what
            with pytest.raises(type(self.expected)):
                self.program.run(runner, index)
            return
        found = self.program.run(runner, index)
        tolerance = get(self.op).tolerance_of(self.dtype)
        for a, b in zip(found, self.expected, strict=True):
            assert agree(a, b, *tolerance), (what, a, b)


def samples(op: str, dtype: str, count: int, symbolic: bool) -> Iterator[Sample]:
    """Calls that infer (a demand on unknown dims may be one that cases do not meet)."""
    for case in cases(op, dtype, count):
        try:
            function, env = primitive(op, case.inputs, case.attrs, symbolic)
        except NimbleError:
            assert symbolic, (op, dtype, case)
            continue
        lowered = lower_primitive(function, op)
        arrays = flat(case.inputs)
        try:
            reference = get(op).reference(case.inputs, case.attrs, function.body.checked_type)
        except NimbleError as error:
            yield Sample(op, dtype, case, Program(lowered, arrays, env), error)
            continue
        expected = tuple(flat(reference))
        yield Sample(
            op, dtype, case, Program(lowered, arrays, bind(lowered, arrays, expected)), expected
        )


# So many elements of sums that Python takes a second for each dtype; the tests of machine code and C take them all.
HEAVY = (
    "nn.conv",
    "nn.contrib_conv2d",
    "nn.max_pool",
    "nn.avg_pool",
    "nn.adaptive",
    "nn.global",
    "nn.upsampling",
    "image.resize",
)


# They have tests of their own, of compiler and kernels.
HEAVIEST = ("nn.contrib_conv2d_pack", "nn.contrib_conv2d_winograd_pack")


def dtypes_of(op: str) -> tuple[str, ...]:
    rows = get(op).dtypes
    return rows[0] if rows else ("float32",)


def run_native(made: list[Sample], target: str) -> None:
    code = llvm.build([s.program.lowered.kernel for s in made], target)
    if code is None:
        assert {s.op for s in made} == {"power"}
        pytest.skip("the math table has no pow yet")
    library = Library(code)
    for sample, index in zip(made, code.functions, strict=True):
        if index < 0:
            assert sample.op == "power", f"{sample.op} of {sample.dtype} has no generated code"
            assert "pow" not in NAMES
            continue
        sample.check(library, index)


@pytest.mark.parametrize("op", [op.name for op in all_ops()])
def test_every_record_has_a_compute(op: str) -> None:
    assert has_compute(op) or is_c_only(op) or op.startswith(HANDLED_ELSEWHERE)


@pytest.mark.parametrize("drawn", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=pytest.mark.slow if op in HEAVIEST else ()) for op in OPS]
)
def test_loop_ir_agrees_with_the_reference(op: str, drawn: int) -> None:
    if op == "power" and "pow" not in NAMES:
        pytest.skip("the math table has no pow yet")
    heavy = op.startswith(HEAVY)
    for dtype in dtypes_of(op)[-1:] if heavy else dtypes_of(op):
        for symbolic in (heavy,) if heavy else (False, True):
            for sample in samples(op, dtype, 1 if heavy else drawn, symbolic):
                sample.check(Evaluated(sample.program.lowered))


def test_machine_code_agrees_with_the_reference() -> None:
    """A call of each operator for one dtype; the slow test takes two for all of them."""
    made: list[Sample] = []
    for op in (op for op in OPS if op not in HEAVIEST):
        names = dtypes_of(op)
        made += samples(op, names[len(made) % len(names)], 1, symbolic=len(made) % 2 == 0)
    run_native(made, "native")


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_machine_code_agrees_with_the_reference_on_all_dtypes(op: str) -> None:
    made = [
        s
        for dtype in dtypes_of(op)
        for symbolic in (False, True)
        for s in samples(op, dtype, 2, symbolic)
    ]
    run_native(made, "native")


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_the_c_interpreter_agrees_with_the_reference(library: ctypes.CDLL, op: str) -> None:
    if op == "power" and "pow" not in NAMES:
        pytest.skip("the math table has no pow yet")
    for dtype in dtypes_of(op):
        for symbolic in (False, True):
            for sample in samples(op, dtype, 3, symbolic):
                sample.check(Interpreted(library, sample.program.lowered))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_machine_code_of_other_targets(target: str) -> None:
    """A call of each operator for two dtypes, other ones for each target: all compile to one section."""
    first = TARGETS.index(target)
    made: list[Sample] = []
    for op in OPS:
        names = dtypes_of(op)
        for turn in range(min(2, len(names))):
            made += samples(op, names[(len(made) + first + turn) % len(names)], 1, turn == 0)
    wanted = llvm.parse_target(target)
    host = llvm.parse_target("native")
    assert wanted is not None
    if host is None or not set(wanted.features) <= set(host.features):
        pytest.skip(f"this CPU can't run {target}")
    run_native(made, target)
