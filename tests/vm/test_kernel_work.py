"""Operations and bytes of kernels, against what is known about them."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode import serialize as s
from nimblevm.kernels import loop_ir, loop_ir_form
from nimblevm.vm import kernel_work
from nimblevm.vm.kernel_work import Work, WorkCounter, operand_shapes
from nimblevm.vm.profiler import KernelTime

HEADER = '#[version = "0.0.5"]\n'


def profiled(text: str, *args: object) -> tuple[KernelTime, ...]:
    exe = nvm.compile(nvm.relay.parse(HEADER + text), native=False)
    with nvm.VirtualMachine(exe, profile=True) as vm:
        vm.run(*args)
        return tuple(sorted(vm.profile().kernels, key=lambda k: k.number))


def test_numbers_are_those_of_the_serialized_form() -> None:
    kinds = ("CONST", "LOOP_VAR", "LOCAL", "DIM_REF", "LOAD", "UNARY", "BINARY", "COMPARE", "SELECT", "CAST",
             "CHECK_INDEX")  # fmt: skip
    statements = ("FOR", "STORE", "SET_LOCAL", "ACCUMULATE", "IF", "SET_DIM")
    operations = ("ADD", "SUB", "MUL", "DIV", "MOD", "FLOORDIV", "FLOORMOD", "MIN", "MAX")
    for ours, theirs in (
        (kinds, loop_ir_form.NODE_KINDS),
        (statements, loop_ir_form.STATEMENT_KINDS),
        (operations, loop_ir.BINARY[: len(operations)]),
    ):
        assert [name.replace("_", "").lower() for name in ours] == [t.lower() for t in theirs]
        assert [getattr(kernel_work, name) for name in ours] == list(range(len(ours)))


@pytest.mark.parametrize("rows", [1, 7, 64, 0])
def test_a_product_is_two_operations_a_weight_and_row(rows: int) -> None:
    text = "def @main(%x: Tensor[(?n, 32), float32], %w: Tensor[(48, 32), float32]) { nn.dense(%x, %w) }"
    kernels = profiled(text, np.ones((rows, 32), "float32"), np.ones((48, 32), "float32"))
    if rows == 0:  # nothing to write: no call
        assert kernels == ()
        return
    (kernel,) = kernels
    assert kernel.work == Work(2.0 * rows * 32 * 48, 4.0 * (rows * 32 + 48 * 32), 4.0 * rows * 48)
    (sizes,) = kernel.sizes
    assert sizes.dims == (("?n", rows),)
    assert sizes.shapes == (f"float32[{rows}, 32]", "float32[48, 32]", f"float32[{rows}, 48]")
    assert sizes.calls == 1


def test_elementwise_counts_each_operation_once() -> None:
    text = "def @main(%x: Tensor[(?n, 8), float32], %b: Tensor[(8), float32]) { exp(add(%x, %b)) }"
    (kernel,) = profiled(text, np.ones((5, 8), "float32"), np.ones(8, "float32"))
    assert kernel.work == Work(2.0 * 5 * 8, 4.0 * (5 * 8 + 8), 4.0 * 5 * 8)


def test_integers_are_bytes_without_operations() -> None:
    text = "def @main(%x: Tensor[(?n), int32]) { add(%x, %x) }"
    (kernel,) = profiled(text, np.ones(9, "int32"))
    assert kernel.work == Work(0.0, 36.0, 36.0)
    assert kernel.operations_per_second is None
    assert kernel.bytes_per_second is not None


def test_rows_of_a_table_that_are_not_gathered_do_not_count() -> None:
    text = "def @main(%t: Tensor[(1000, 16), float32], %i: Tensor[(?n), int64]) { take(%t, %i, axis=0) }"
    (kernel,) = profiled(text, np.ones((1000, 16), "float32"), np.zeros(3, "int64"))
    assert kernel.work == Work(0.0, 3 * (8.0 + 64.0), 3 * 64.0)


def test_a_reduction_reads_all_and_writes_little() -> None:
    text = "def @main(%x: Tensor[(?n, 16), float32]) { sum(%x, axis=[1]) }"
    (kernel,) = profiled(text, np.ones((4, 16), "float32"))
    assert kernel.work == Work(64.0, 256.0, 16.0)


def test_kernels_in_c_have_bytes_alone() -> None:
    text = "def @main(%x: Tensor[(?n), float32]) { sort(%x) }"
    kernels = profiled(text, np.ones(6, "float32"))
    (kernel,) = [k for k in kernels if k.work.operations is None]
    assert kernel.work.bytes >= 48
    assert kernel.operations_per_second is None


def test_broadcast_operands_have_their_own_sizes() -> None:
    text = "def @main(%x: Tensor[(?a), float32], %y: Tensor[(?b), float32]) { add(%x, %y) }"
    (kernel,) = profiled(text, np.ones(1, "float32"), np.ones(6, "float32"))
    assert kernel.sizes[0].shapes == ("float32[1]", "float32[6]", "float32[6]")
    assert kernel.work == Work(6.0, 4.0 + 24.0, 24.0)


def test_several_sizes_are_told_apart_and_added_up() -> None:
    exe = nvm.compile(
        nvm.relay.parse(HEADER + "def @main(%x: Tensor[(?n), float32]) { exp(%x) }"), native=False
    )
    with nvm.VirtualMachine(exe, profile=True) as vm:
        for n in (1, 2, 2, 5, 1):
            vm.run(np.ones(n, "float32"))
        (kernel,) = vm.profile().kernels
    found = {dict(row.dims)["?n"]: (row.calls, row.work.operations) for row in kernel.sizes}
    assert found == {1: (2, 2.0), 2: (2, 4.0), 5: (1, 5.0)}
    assert kernel.work.operations == 11.0
    assert sum(row.seconds for row in kernel.sizes) == pytest.approx(kernel.seconds)


def test_a_loop_over_data_is_not_known() -> None:
    var, local = loop_ir.LoopVar("int64", "i"), loop_ir.Local("float32", "t")
    zero = loop_ir.Const("int64", 0)
    body = (
        loop_ir.For(
            var,
            loop_ir.Load("int64", 0, (zero,)),
            (loop_ir.Accumulate(local, "add", loop_ir.Const("float32", 1.0)),),
        ),
        loop_ir.Store(1, (zero,), local),
    )
    one = (loop_ir.Axis(loop_ir.Const("int64", 1)),)
    buffers = (
        loop_ir.Buffer("n", "int64", "in", one),
        loop_ir.Buffer("y", "float32", "out", one),
    )
    ir = loop_ir_form.serialize(loop_ir.Kernel("k", buffers, (), body))
    axis = (s.AxisRecord(s.AXIS_CONST, 1),)
    operands = (s.OperandRecord(0, 7, axis), s.OperandRecord(1, 2, axis))
    record = s.KernelRecord("k", s.KERNEL_LOOP_IR, operands, ir=ir)
    counted = WorkCounter(record).work(())
    assert counted.operations is None
    assert counted.bytes > 0
    assert [shape for _, shape in operand_shapes(record, ())] == [(1,), (1,)]
    assert Work(1.0, 2.0, 3.0).plus(counted).operations is None


def test_steps_in_one_kernel_read_their_weights_again() -> None:
    text = """def @main(%n: int32, %h: Tensor[(1, 16), float32], %w: Tensor[(16, 16), float32]) -> Tensor[(1, 16), float32] {
      let %loop = fn (%i: int32, %h: Tensor[(1, 16), float32]) -> Tensor[(1, 16), float32] {
        if (less(%i, %n)) { %loop(%i + 1, tanh(nn.dense(%h, %w))) } else { %h }
      };
      %loop(0, %h)
    }"""
    (kernel,) = profiled(text, 5, np.ones((1, 16), "float32"), np.ones((16, 16), "float32"))
    # Once: the first state, and the last one, which is written in place of the others.
    assert kernel.work == Work(5.0 * (2 * 16 * 16 + 16), 4.0 * (5 * 16 * 16 + 16), 4.0 * 16)
