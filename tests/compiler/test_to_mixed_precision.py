"""ToMixedPrecision: the table of categories, values of random and golden programs, options, and errors."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.to_mixed_precision import TO_MIXED_PRECISION, to_mixed_precision_pass
from nimblevm.errors import CompileError, InvalidInput, NimbleWarning
from nimblevm.relay.dims import DimVar
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Call, Expr, Function, Let, Tuple, TupleGetItem, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.op.mixed_precision import CATEGORIES, RESULT_DTYPE, Precision
from nimblevm.relay.op.registry import Op, all_ops, get
from nimblevm.relay.parser import parse_module
from nimblevm.relay.structural import structural_equal
from nimblevm.relay.types import TensorType, free_dims, value_tensors
from nimblevm.relay.visitor import post_order
from nimblevm.tvm.relay import transform
from tests.compiler.test_golden import GOLDEN, run
from tests.compiler.test_user_passes import draw
from tests.properties.compare import assert_same
from tests.relay.op.cases import WITHOUT_CASES, generate
from tests.relay.op.draw import SeededSource
from tests.relay.op.test_compiled import infers, of_parameters

CASES = sorted((GOLDEN / "to_mixed_precision").glob("*.rly"))
CONTEXT = PassContext(verify=True)
KEPT = to_mixed_precision_pass(missing_op_mode=0, keep_orig_output_dtype=True)
NARROWED = [op for op in all_ops() if CATEGORIES[op.name] in (Precision.ALWAYS, Precision.FOLLOW)]
HEAD = '#[version = "0.0.5"]\n'


def results(function: Function) -> tuple[TensorType, ...]:
    assert function.ret_type is not None
    return value_tensors(function.ret_type)


def parsed(text: str) -> IRModule:
    return infer_type(parse_module(HEAD + text, "mod.rly"))


def test_every_operator_has_a_category() -> None:
    assert set(CATEGORIES) == {op.name for op in all_ops()}
    for name, attribute in RESULT_DTYPE.items():
        assert CATEGORIES[name] in (Precision.ALWAYS, Precision.FOLLOW)
        assert hasattr(get(name).attrs, "__dataclass_fields__")
        assert attribute in get(name).attrs.__dataclass_fields__, name  # type: ignore[union-attr]


@pytest.mark.parametrize("op", NARROWED, ids=lambda op: op.name)
def test_operators_that_are_narrowed_take_float16(op: Op) -> None:
    assert all("float16" in group for group in op.dtypes if "float32" in group)


@pytest.mark.parametrize("op", all_ops(), ids=lambda op: op.name)
def test_every_operator_goes_through(op: Op) -> None:
    """Its cases of float32 stay well typed in both modes, and products and what follows become narrow."""
    if op.name in WITHOUT_CASES or not any("float32" in group for group in op.dtypes):
        return
    dtype = "float32" if "float32" in op.dtypes[0] else op.dtypes[0][0]
    for seed, symbolic in itertools.product(range(2), (False, True)):
        function = of_parameters(op, generate(op.name, dtype, SeededSource(seed)), symbolic)
        if not infers(function):
            continue
        mod = infer_type(IRModule.from_expr(function))
        new = TO_MIXED_PRECISION(mod, CONTEXT)
        before = {t.dtype for param in function.params for t in tensors(param)}
        if "float32" in before and not before & {"float16", "float64"} and op.name != "cast":
            call = next(
                n for n in post_order(new["main"].body) if isinstance(n, Call) and n.op is op
            )
            operands = {t.dtype for arg in call.args for t in tensors(arg)}
            assert ("float16" in operands) == (op in NARROWED)
        kept = infer_type(KEPT(mod, CONTEXT))
        assert structural_equal(kept["main"].ret_type, mod["main"].ret_type)


def tensors(node: Expr) -> tuple[TensorType, ...]:
    assert node.checked_type is not None
    return value_tensors(node.checked_type)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_values_stay_close(path: Path) -> None:
    before, once = run(path)
    kept = infer_type(KEPT(before, CONTEXT))
    assert structural_equal(kept["main"].ret_type, before["main"].ret_type)
    again = TO_MIXED_PRECISION(infer_type(once), CONTEXT)
    assert structural_equal(again, once), "a second time changes nothing"
    known = [p.checked_type for p in before["main"].params if p.checked_type is not None]
    for size in (2, 4):
        sizes: dict[DimVar, int] = dict.fromkeys((d for t in known for d in free_dims(t)), size)
        rng = np.random.default_rng(size)
        args = [
            np.abs(v) if v.dtype == "float32" else v for v in (draw(t, rng, sizes) for t in known)
        ]
        expected = evaluate(before, args)
        assert_same(evaluate(kept, args), expected, rtol=2e-2)
        if not any("Compiler" in function.attrs for function in kept.functions.values()):
            with nvm.VirtualMachine(nvm.compile(kept)) as vm:
                assert_same(vm.run(*args), expected, rtol=2e-2)


def test_products_sum_in_float32() -> None:
    """4096 ones and small numbers: a float16 sum would stop at 2048 and lose all of the small ones."""
    mod = parsed(
        """def @main(%x: Tensor[(1, 4096), float32], %w: Tensor[(1, 4096), float32]) { nn.dense(%x, %w) }"""
    )
    new = TO_MIXED_PRECISION(mod, CONTEXT)
    x = np.where(np.arange(4096) % 2 == 0, 1, 2**-5).astype("float32")[None]
    exact = np.float16((x.astype("float64") ** 2).sum())
    for result in (
        evaluate(new, [x, x]),
        nvm.VirtualMachine(nvm.compile(new)).run(x, x).numpy(),
        nvm.VirtualMachine(nvm.compile(new, native=False)).run(x, x).numpy(),
    ):
        assert result.dtype == np.float16
        assert result.item() == exact


def test_results_keep_their_dtypes_on_demand() -> None:
    mod = parsed(
        "def @main(%x: Tensor[(?n, 4), float32]) { let %y = nn.dense(%x, %x); (%y, (nn.relu(%y), 1)) }"
    )
    key = "relay.ToMixedPrecision.keep_orig_output_dtype"
    assert key in transform.PassContext.list_configs()
    made = transform.ToMixedPrecision("float16", 0)
    for keep in (False, True):
        with transform.PassContext(config={key: keep}):
            result = made(mod)["main"]
        assert [t.dtype for t in results(result)] == ["float32" if keep else "float16"] * 2 + [
            "int32"
        ]
    assert "float16" in str(made(mod)["main"].ret_type), "outside of a context"


def test_options_are_checked() -> None:
    with pytest.raises(
        InvalidInput, match=r"must be 'float16', not 'bfloat16'.*weights='bfloat16'"
    ):
        transform.ToMixedPrecision("bfloat16")
    for other in ("float32", "int8", "half", 16):
        with pytest.raises((InvalidInput, TypeError), match=r"float16|str"):
            transform.ToMixedPrecision(other)  # type: ignore[arg-type]
    for mode in (-1, 3):
        with pytest.raises(InvalidInput, match=r"missing_op_mode must be 0 .* 1 .* 2 "):
            transform.ToMixedPrecision("float16", mode)


def test_an_operator_without_a_category(monkeypatch: pytest.MonkeyPatch, recwarn: Any) -> None:
    monkeypatch.delitem(CATEGORIES, "erf")
    mod = parsed(
        "def @main(%x: Tensor[(3), float32]) { (erf(%x), erf(nn.dense(%x, reshape(%x, newshape=[1, 3])))) }"
    )
    with pytest.raises(CompileError, match=r"no category of erf \(2 calls\); missing_op_mode=1"):
        transform.ToMixedPrecision("float16", 0)(mod)
    with pytest.warns(NimbleWarning, match=r"no category of erf \(2 calls\): they follow"):
        warned = transform.ToMixedPrecision()(mod)
    recwarn.clear()
    silent = transform.ToMixedPrecision("float16", 2)(mod)
    assert not recwarn.list
    assert structural_equal(warned, silent)
    assert [t.dtype for t in results(silent["main"])] == ["float16", "float16"]


def test_groups_stay() -> None:
    mod = parsed("def @main(%x: Tensor[(3, 3), float32]) { tanh(nn.dense(%x, %x)) }")
    fused = transform.FuseOps()(mod)
    assert structural_equal(transform.ToMixedPrecision()(fused), fused)


def test_programs_of_nothing() -> None:
    mod = parsed("def @main() { () }")
    assert structural_equal(TO_MIXED_PRECISION(mod, CONTEXT), mod)
    assert not TO_MIXED_PRECISION(IRModule(), CONTEXT).functions


def test_no_depth_is_too_deep() -> None:
    """Chains of lets, of operators and of tuples in tuples, longer than Python's stack."""
    x = Var("x", TensorType((2, 2), "float32"))
    value: Any = nvm.relay.nn.dense(x, x)
    for _ in range(3000):
        value = nvm.relay.nn.relu(value)
    whole: Any = value
    for _ in range(1500):
        whole = Tuple([whole])
    y = Var("y")
    part: Any = y
    for _ in range(1500):
        part = TupleGetItem(part, 0)
    body = Let(y, whole, Tuple([y, part]))
    mod = infer_type(IRModule.from_expr(Function([x], body)))
    new = infer_type(TO_MIXED_PRECISION(mod))
    assert {t.dtype for t in results(new["main"])} == {"float16"}
    kept = infer_type(KEPT(mod))
    assert kept["main"].ret_type is mod["main"].ret_type


def test_shared_blocks_are_not_written_twice() -> None:
    """A block with a let that both branches and an operand share is cast as a whole."""
    x, c, t = Var("x", TensorType((2, 2), "float32")), Var("c", TensorType((), "bool")), Var("t")
    block = Let(t, nvm.relay.nn.dense(x, x), nvm.relay.nn.relu(t))
    choice = nvm.relay.If(c, block, nvm.relay.exp(block))
    mod = infer_type(IRModule.from_expr(Function([x, c], Tuple([choice, block]))))
    new = infer_type(TO_MIXED_PRECISION(mod, CONTEXT))
    value = np.array([[1, -2], [3, 0.5]], "float32")
    for branch in (True, False):
        first, second = evaluate(new, [value, branch])
        expected = evaluate(mod, [value, branch])
        np.testing.assert_allclose(first, expected[0], 1e-2)
        np.testing.assert_allclose(second, expected[1], 1e-2)
