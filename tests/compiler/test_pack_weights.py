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
from nimblevm.compiler.shared_panels import block_of
from nimblevm.errors import CompileError
from nimblevm.relay.ir import Call, Constant
from nimblevm.relay.op.dense_pack import block_panels, to_bfloat16
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


def test_wide_panels_of_bfloat16_lie_in_pairs() -> None:
    x = relay.var("x", shape=(1, 5), dtype="float32")
    packed = _packed(x, 2000, weights="bfloat16")
    assert packed.data.shape == (32, 5, 2, 16, 2)
    bits, wanted = packed.data, to_bfloat16(_weight(2000).data)
    for unit in (0, 1, 15, 16, 31, 32, 47, 63, 64, 1999):
        column = bits[unit // 64, :, unit // 32 % 2, unit % 16, unit // 16 % 2]
        np.testing.assert_array_equal(column, wanted[unit])
    assert _packed(x, 65, weights="bfloat16").data.shape == (5, 5, 16)
    assert _packed(x, 2000, weights="float16").data.shape == (32, 5, 64)


def _packed(x: Any, units: int, *others: Any, weights: str = "float32") -> Constant:
    """The weight of products with x and `others`, after the pass."""
    w = _weight(units)
    body = relay.Tuple([relay.nn.dense(each, w) for each in (x, *others)])
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function([x, *others], body)))
    nodes = postorder(PACK_WEIGHTS(mod, PassContext(weights=weights))["main"].body)
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


def _pieces(
    body: Callable[..., relay.Expr], units: int = 150, rows: int | None = None
) -> list[tuple[int, int, int] | None]:
    """The pieces of products, after the pass, in a function of two tensors and four weights."""
    shape = (relay.Any() if rows is None else rows, 5)
    x, y = (relay.var(name, shape=shape, dtype="float32") for name in "xy")
    function = relay.Function([x, y], body(x, y, *(_weight(units) for _ in range(4))))
    packed = PACK_WEIGHTS(relay.infer_type(relay.IRModule.from_expr(function)), PassContext())
    again = relay.infer_type(relay.parse(packed.astext()))
    relay.assert_structural_equal(again["main"], packed["main"])
    nodes = postorder(packed["main"].body)
    return [n.attrs.piece for n in nodes if isinstance(n, Call) and n.attrs is not None and hasattr(n.attrs, "piece")]  # fmt: skip


def _gated(*products: relay.Expr) -> relay.Expr:
    found = relay.tanh(products[0])
    for product in products[1:]:
        found = found * relay.sigmoid(product)
    return found


def test_gates_share_panels() -> None:
    dense = relay.nn.dense
    three = _pieces(lambda x, y, a, b, c, d: _gated(*(dense(x, w) for w in (a, b, c))))
    assert three == [(k, 3, 150) for k in range(3)]
    four = _pieces(lambda x, y, *ws: _gated(*(dense(x, w) for w in ws)), units=22)
    assert four == [(k, 4, 22) for k in range(4)]
    five = _pieces(lambda x, y, *ws: _gated(*(dense(x, w) for w in (*ws, _weight(150)))))
    assert five == [(k, 5, 75) for k in range(5)]
    apart = _pieces(
        lambda x, y, a, b, c, d: relay.Tuple([_gated(dense(x, a), dense(x, b)), dense(x, c)]),
        units=40,
    )
    assert apart == [(0, 2, 40), (1, 2, 40), None]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda x, y, a, b, c, d: _gated(relay.nn.dense(x, a)), id="one"),
        pytest.param(
            lambda x, y, a, b, c, d: _gated(relay.nn.dense(x, a), relay.nn.dense(y, b)),
            id="other rows",
        ),
        pytest.param(
            lambda x, y, a, b, c, d: _gated(relay.nn.dense(x, a), relay.nn.dense(x, a)),
            id="a weight twice",
        ),
        pytest.param(
            lambda x, y, a, b, c, d: _gated(
                relay.nn.dense(x, a), relay.nn.dense(x, b), relay.nn.dense(y, c)
            ),
            id="another product joined",
        ),
        pytest.param(
            lambda x, y, a, b, c, d: relay.nn.dense(relay.tanh(relay.nn.dense(x, a)), relay.const(np.ones((150, 150), "float32"))),
            id="one behind the other",
        ),
    ],
)  # fmt: skip
def test_products_that_share_no_panels(body: Callable[..., relay.Expr]) -> None:
    assert set(_pieces(body)) == {None}


@pytest.mark.parametrize(("units", "rows"), [(160, None), (512, None), (150, 1)])
def test_full_panels_and_single_rows_share_none(units: int, rows: int | None) -> None:
    dense = relay.nn.dense
    pieces = _pieces(lambda x, y, *ws: _gated(*(dense(x, w) for w in ws)), units, rows)
    assert pieces == [None] * 4


@pytest.mark.parametrize("pieces", [2, 3, 4, 5])
def test_blocks_of_columns(pieces: int) -> None:
    """They divide the columns, and there are fewer panels than without."""
    for units in range(16, 200):
        block = block_of(units, pieces)
        alone = pieces * -(-units // 16)
        if block is None:
            assert units % 16 == 0 or block_panels(pieces, units) > 0.98 * alone
        else:
            assert units % block == 0
            assert units // block * block_panels(pieces, block) < alone


@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
def test_results_with_shared_panels(weights: str) -> None:
    rng = np.random.default_rng(3)
    shape = "Tensor[(22, 5), float32]"
    text = f"""#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 5), float32], %u: {shape}, %v: {shape}, %w: {shape}) {{
  tanh(nn.dense(%x, %u)) * sigmoid(nn.dense(%x, %v)) + nn.dense(%x, %w)
}}"""
    params = {n: rng.standard_normal((22, 5)).astype("float32") for n in "uvw"}
    exe = nvm.compile(relay.parse(text), params=params, weights=weights)
    assert len(exe.program_record().constants) == 1
    for native in (True, False):
        vm = nvm.VirtualMachine(nvm.load(exe.to_bytes(), native=native), threads=2)
        for rows in (0, 1, 7, 40):
            x = rng.standard_normal((rows, 5)).astype("float32")
            u, v, w = (x @ params[n].T for n in "uvw")
            expected = np.tanh(u) / (1 + np.exp(-v)) + w
            tolerance = 1e-5 if weights == "float32" else 5e-2
            np.testing.assert_allclose(vm.run(x).numpy(), expected, rtol=tolerance, atol=tolerance)
