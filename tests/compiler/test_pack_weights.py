"""pack_weights: which constants are packed, and that products with them fuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.pack_weights import PACK_WEIGHTS
from nimblevm.compiler.rewrite import postorder
from nimblevm.errors import CompileError
from nimblevm.relay.ir import Call, Constant
from nimblevm.relay.op.registry import Op


def _names(body: Callable[[relay.Var], relay.Expr]) -> list[str]:
    """Names of the operators of a function of one tensor, after the pass."""
    x = relay.var("x", shape=(relay.Any(), 5), dtype="float32")
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x], body(x))))
    packed = PACK_WEIGHTS(mod, PassContext())
    nodes = postorder(packed["main"].body)
    return sorted(n.op.name for n in nodes if isinstance(n, Call) and isinstance(n.op, Op))


def _weight(units: int, dtype: str = "float32") -> Constant:
    return relay.const(np.arange(units * 5, dtype=dtype).reshape(units, 5))


def test_dense_and_matmul() -> None:
    w = _weight(20)
    assert _names(lambda x: relay.nn.dense(x, w)) == ["nn.contrib_dense_pack"]
    t = relay.const(np.ones((5, 20), "float32"))
    assert _names(lambda x: relay.nn.matmul(x, t)) == ["nn.contrib_dense_pack"]


@pytest.mark.parametrize(
    ("units", "shape"),
    [(8, (1, 5, 16)), (48, (3, 5, 16)), (64, (1, 5, 64)), (65, (5, 5, 16)), (150, (10, 5, 16)),
     (384, (6, 5, 64)), (2000, (32, 5, 64))],
)  # fmt: skip
def test_wide_panels_where_they_are_nearly_full(units: int, shape: tuple[int, ...]) -> None:
    packed = _packed(relay.var("x", shape=(1, 5), dtype="float32"), units)
    assert packed.data.shape == shape
    columns = packed.data.transpose(0, 2, 1).reshape(-1, 5)
    np.testing.assert_array_equal(columns[:units], _weight(units).data)
    assert not columns[units:].any()


def _packed(x: Any, units: int, *others: Any) -> Constant:
    """The weight of products with x and `others`, after the pass."""
    w = _weight(units)
    body = relay.Tuple([relay.nn.dense(each, w) for each in (x, *others)])
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x, *others], body)))
    nodes = postorder(PACK_WEIGHTS(mod, PassContext())["main"].body)
    return next(node for node in nodes if isinstance(node, Constant))


def test_weights_of_many_rows_have_narrow_panels() -> None:
    """Unless every product has one row: for AVX2 one panel of 16 is what fits beside many rows."""
    one = relay.var("x", shape=(1, 1, 5), dtype="float32")
    many = relay.var("y", shape=(relay.Any(), 5), dtype="float32")
    assert _packed(one, 64).data.shape == (1, 5, 64)
    assert _packed(relay.var("z", shape=(5,), dtype="float32"), 64).data.shape == (1, 5, 64)
    assert _packed(many, 64).data.shape == (4, 5, 16)
    assert _packed(one, 64, many).data.shape == (4, 5, 16)


def test_narrow_weights_stay() -> None:
    assert _names(lambda x: relay.nn.dense(x, _weight(7))) == ["nn.dense"]


def test_a_weight_that_something_else_reads_stays() -> None:
    w = _weight(20)
    names = _names(lambda x: relay.Tuple([relay.nn.dense(x, w), relay.sum(w)]))
    assert names == ["nn.dense", "sum"]


def test_one_weight_in_both_directions_stays() -> None:
    w = relay.const(np.ones((20, 20), "float32"))
    v = _weight(20)
    names = _names(lambda x: relay.nn.matmul(relay.nn.dense(relay.nn.dense(x, v), w), w))
    assert names == ["nn.contrib_dense_pack", "nn.dense", "nn.matmul"]


TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 5), float32], %w: Tensor[(64, 5), float32]) { nn.dense(%x, %w) }"""


def test_results_are_those_of_plain_weights() -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((33, 5)).astype("float32")
    mod = relay.parse(
        '#[version = "0.0.5"]\n'
        "def @main(%x: Tensor[(?n, 5), float32], %w: Tensor[(33, 5), float32]) { nn.dense(%x, %w) }"
    )
    for off in ((), ("pack_weights",)):
        exe = nvm.compile(mod, params={"w": w}, passes_off=off)
        for native in (True, False):
            vm = nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=native))
            for rows in (0, 1, 7):
                x = rng.standard_normal((rows, 5)).astype("float32")
                np.testing.assert_allclose(vm.run(x).numpy(), x @ w.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("weights", "tolerance"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_weights_of_16_bits(weights: str, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 5)).astype("float32")
    sizes = [
        len(nvm.compile(relay.parse(TEXT), params={"w": w}, weights=s, native=False).to_bytes())
        for s in ("float32", weights)
    ]
    assert sizes[0] - sizes[1] >= w.nbytes // 2 - 256
    half = nvm.compile(relay.parse(TEXT), params={"w": w}, weights=weights)
    x = rng.standard_normal((3, 5)).astype("float32")
    for native in (True, False):
        found = nvm.VirtualMachine(nvm.load(half.to_bytes(), native=native)).run(x).numpy()
        np.testing.assert_allclose(found, x @ w.T, rtol=tolerance, atol=tolerance)
        assert (found != x @ w.T).any()


def test_a_weight_beyond_float16_is_an_error() -> None:
    w = np.full((64, 5), 1e5, "float32")
    with pytest.raises(CompileError, match="100000 does not fit in float16"):
        nvm.compile(relay.parse(TEXT), params={"w": w}, weights="float16")
    nvm.compile(relay.parse(TEXT), params={"w": w}, weights="bfloat16")


@pytest.mark.parametrize("call", [nvm.compile, nvm.tune])
def test_an_unknown_dtype_of_weights_is_an_error(call: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="weights must be"):
        call(relay.parse(TEXT), weights="int4")


@pytest.mark.parametrize("rows", [(), (0,), (1, -1)])
def test_wrong_numbers_of_rows_to_tune_for_are_an_error(rows: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rows must be"):
        nvm.tune(relay.parse(TEXT), rows=rows)


def test_a_product_without_depth_is_not_tuned() -> None:
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(?n, 0), float32], %w: Tensor[(1, 0, 16), float32]) {
      nn.contrib_dense_pack(%x, %w, weight_layout="NC16n", units=16) }"""
    assert '"products": []' in nvm.tune(relay.parse(text))
