"""Lowering: the loop IR means what the oracle computes, and its signature says the right things."""

from __future__ import annotations

import numpy as np
import pytest

from nimblevm.errors import CompileError, IndexOutOfRange
from nimblevm.kernels.loop_ir import For, If
from nimblevm.kernels.lower import IntParam, LoweredKernel, lower_primitive
from nimblevm.kernels.rewrite import all_statements
from nimblevm.relay import dims
from nimblevm.relay.dims import DimVar
from nimblevm.relay.infer_type import infer_expr
from nimblevm.relay.ir import Call, Constant, Function, Var
from nimblevm.relay.op import get
from nimblevm.relay.types import TensorType
from tests.kernels.fused import FUSED, floats
from tests.kernels.native import Evaluated, Program, agree, parsed, program


def lowered(name: str) -> LoweredKernel:
    return lower_primitive(parsed(FUSED[name][0])[1])


@pytest.mark.parametrize("name", sorted(FUSED))
def test_fused_function_means_what_the_oracle_says(name: str) -> None:
    text, args = FUSED[name]
    made, expected = program(text, *args)
    found = made.run(Evaluated(made.lowered))
    for a, b in zip(found, expected, strict=True):
        assert agree(a, b, 1e-4, 1e-5), (a, b)


def test_unknown_axes_that_are_stretched_get_the_flag() -> None:
    kernel = lowered("broadcast_none_stretched").kernel
    assert [[a.broadcast for a in b.axes] for b in kernel.buffers] == [
        [True, False],
        [True, False],
        [False, False],
    ]
    both = lowered("one_operand_stretched_and_whole").kernel
    assert not any(a.broadcast for b in both.buffers for a in b.axes[1:])


def test_in_dims_are_the_dims_that_are_needed() -> None:
    text = """def @main(%x: Tensor[(?n, 4), float32], %y: Tensor[(?m, 4), float32],
    %unused: Tensor[(), int32]) { concatenate((%x, %y), axis=0) }"""
    found = lower_primitive(parsed(text)[1])
    n, m = (t.shape[0] for t in found.param_types[:2])
    assert set(found.in_dims) == {n, m, dims.add(n, m)}
    assert [b.name for b in found.kernel.buffers] == ["x", "y", "unused", "out0"]
    assert len(found.kernel.dims) == 3
    assert not found.may_fail


def test_a_concatenate_at_the_output_has_one_nest_a_part() -> None:
    body = lowered("concatenate_then_relu").kernel.body
    assert len(body) == 2
    assert not any(isinstance(s, If) for s in all_statements(body))
    inner = all_statements(lowered("concatenate_with_an_empty_part").kernel.body)
    assert any(isinstance(s, If) for s in inner)


def test_reductions_are_computed_once_a_row() -> None:
    (rows,) = lowered("softmax_by_hand").kernel.body
    assert isinstance(rows, For)
    assert sum(isinstance(s, For) for s in all_statements(rows.body)) == 3
    assert lowered("softmax_by_hand").scratch_types == ()
    assert [t.shape for t in lowered("softmax_along_rows").scratch_types] == [(1, 6), (1, 6)]


def test_a_chain_is_linear() -> None:
    """Every operator uses the one before twice; each is computed once."""
    text, args = FUSED["two_hundred_operators"]
    made, expected = program(text, *args)
    assert len(made.lowered.kernel.body) == 1
    assert agree(made.run(Evaluated(made.lowered))[0], expected[0], 1e-4, 1e-5)


def test_alias_only_where_elements_are_read_before_they_are_written() -> None:
    elementwise = "def @main(%x: Tensor[(?n, 4), float32]) { tanh(%x) }"
    assert lower_primitive(parsed(elementwise)[1]).alias == ((1, 0),)
    moved = "def @main(%x: Tensor[(4, 4), float32]) { transpose(%x) }"
    assert lower_primitive(parsed(moved)[1]).alias == ()
    summed = "def @main(%x: Tensor[(4), float32]) { add(%x, sum(%x)) }"
    assert lower_primitive(parsed(summed)[1]).alias == ()
    stretched = "def @main(%x: Tensor[(?n), float32], %y: Tensor[(?), float32]) { add(%x, %y) }"
    assert lower_primitive(parsed(stretched)[1]).alias == ()
    # The second output is stored last, when both operands have been read.
    assert lowered("lstm_cell").alias == ((3, 1),)


def test_may_fail_only_where_a_check_is_left() -> None:
    def fails(body: str, params: str = "%x: Tensor[(?n), int32], %y: Tensor[(?n), int32]") -> bool:
        return lower_primitive(parsed(f"def @main({params}) {{ {body} }}")[1]).may_fail

    assert fails("divide(%x, %y)")
    assert not fails("divide(%x, 3)")
    assert not fails("add(%x, %y)")
    assert not fails("divide(%x, %y)", "%x: Tensor[(?n), float32], %y: Tensor[(?n), float32]")
    assert fails('take(%x, %y, axis=0, mode="fast")')
    assert not fails('take(%x, %y, axis=0, mode="wrap")')


def test_checked_take_names_operand_index_and_bound() -> None:
    text = """def @main(%t: Tensor[(?n), float32], %i: Tensor[(2), int64]) {
    take(%t, %i, axis=0, mode="fast") }"""
    made, _ = program(text, floats(3), np.asarray([0, 2]))
    made.arrays[1] = np.asarray([0, 3])
    with pytest.raises(IndexOutOfRange):
        made.run(Evaluated(made.lowered))


def test_integer_parameters_may_be_in_dims() -> None:
    text = """def @main(%i: Tensor[(), int32], %x: Tensor[(?n), float32]) {
    (take(%x, %i, axis=0), add(%i, 1)) }"""
    lowered_ = lower_primitive(parsed(text)[1], int_params=frozenset({0}))
    assert IntParam(0) in lowered_.in_dims
    assert [b.role for b in lowered_.kernel.buffers] == ["in", "out", "out"]
    (dim,) = (d for d in lowered_.in_dims if isinstance(d, DimVar))
    x = floats(4)
    made = Program(lowered_, [np.asarray(2, "int32"), x], {dim: 4})
    first, second = made.run(Evaluated(lowered_))
    assert first == x[2]
    assert second == 3


def test_argmax_offers_the_c_kernel() -> None:
    text = "def @main(%x: Tensor[(?n, 3, 4, 5), float32]) { argmax(%x, axis=[1, 2]) }"
    found = lower_primitive(parsed(text)[1])
    n = found.param_types[0].shape[0]
    (call,) = found.c_kernels
    assert (call.name, call.dims, call.attrs) == ("argmax_float32", (n, 12, 5), (0,))
    assert call.shapes == ((n, 12, 5), (n, 5))
    apart = "def @main(%x: Tensor[(?n, 3, 4), float32]) { argmax(%x, axis=[0, 2]) }"
    assert lower_primitive(parsed(apart)[1]).c_kernels == ()


def test_constants_with_several_values_are_refused_with_the_name() -> None:
    x = Var("x", TensorType((2,)))
    body = Call(get("add"), (x, Constant(np.asarray([1, 2], "float32"))))
    with pytest.raises(CompileError, match="kernel k: a constant with several values"):
        lower_primitive(_typed(Function((x,), body)), "k")
    same = Call(get("add"), (x, Constant(np.asarray([2, 2], "float32"))))
    assert len(lower_primitive(_typed(Function((x,), same))).kernel.buffers) == 2


def _typed(function: Function) -> Function:
    found = infer_expr(function)
    assert isinstance(found, Function)
    return found
