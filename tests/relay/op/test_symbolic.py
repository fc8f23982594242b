"""Operators inside programs: sizes known, unknown and named give the same values; text keeps their attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.relay import ir
from nimblevm.relay.claims import check
from nimblevm.relay.dim_scope import DimScope
from nimblevm.relay.dims import DimVar
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.module import IRModule
from nimblevm.relay.op import all_ops
from nimblevm.relay.op.concrete import concrete_type
from nimblevm.relay.op.registry import Op
from nimblevm.relay.types import TensorType, TupleType, Type
from tests.relay.op.cases import WITHOUT_CASES, cases
from tests.relay.op.cases_dyn import LOWERED
from tests.relay.op.cases_move import NEEDS_LENGTHS
from tests.relay.op.draw import Case

OPS = [op for op in all_ops() if op.name not in WITHOUT_CASES]


def widened(type_: Type | None) -> Type:
    """Every size unknown."""
    if isinstance(type_, TupleType):
        return TupleType(widened(field) for field in type_.fields)
    assert isinstance(type_, TensorType)
    return TensorType((DimVar(None) for _ in type_.shape), type_.dtype)


def program(op: Op, case: Case, unknown: bool) -> IRModule:
    params = [ir.Var(f"a{i}", widened(t) if unknown else t) for i, t in enumerate(case.types)]
    call = ir.Call(op, params, case.attrs)
    body = ir.Let(var := ir.Var("out"), call, ir.Tuple((var,)))
    return relay.infer_type(IRModule.from_expr(ir.Function(params, body)))


def result_of(function: ir.Function) -> ir.Expr:
    """The operator's result in `program`."""
    assert isinstance(function.body, ir.Let)
    assert isinstance(function.body.body, ir.Tuple)
    return function.body.body.fields[0]


def same(got: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            same(a, b)
        return
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def needs_sizes(op: Op, case: Case) -> bool:
    """squeeze without axes is refused where sizes are unknown, as are vectors that stand for a rank and rows to view."""
    if op.name in NEEDS_LENGTHS | LOWERED | {"vm.rows"}:
        return True
    return op.name == "squeeze" and case.attrs.axis is None and case.inputs[0].ndim > 0


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_in_a_program(op: Op) -> None:
    for case in cases(op.name, op.dtypes[0][-1], 8):
        expected = op.reference(case.inputs, case.attrs, None)
        for unknown in (False, True):
            if unknown and needs_sizes(op, case):
                continue
            mod = program(op, case, unknown)
            (got,) = evaluate(mod, case.inputs)
            same(got, expected)
            # The inferred dims are true: they are compared with the value once more, parameters first.
            main = mod.function("main")
            result = result_of(main)
            claims: list[Any] = [
                (v, p.checked_type, p.name_hint)
                for v, p in zip(case.inputs, main.params, strict=True)
            ]
            claims.append((got, result.checked_type, "result"))
            check(claims, DimScope())
            if not unknown:
                assert (
                    result.checked_type is concrete_type(got)
                    or op.shape_values
                    or op.bound is not None
                )


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_text_keeps_attributes(op: Op) -> None:
    for case in cases(op.name, op.dtypes[0][0], 4):
        mod = program(op, case, unknown=False)
        text = mod.astext()
        again = relay.parse(text)
        assert relay.structural_equal(mod, again), text
        call = again.function("main").body
        assert isinstance(call, ir.Let)
        assert isinstance(call.value, ir.Call)
        assert call.value.attrs == case.attrs or op.name == "vm.match_type"
