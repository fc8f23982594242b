"""Statistics and normalization: functions made of several operators, errors, and what is special."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.errors import RelayTypeError, ShapeMismatch
from nimblevm.relay.op import get
from nimblevm.relay.op.scan import ScanopAttrs

DATA = np.random.default_rng(3).normal(2, 3, (4, 5, 6)).astype("float32")


def run(body: relay.Expr, params: list[relay.Var], *inputs: Any, native: bool = False) -> Any:
    mod = relay.IRModule.from_expr(relay.Function(params, body))
    with nvm.compile(mod, native=native) as exe, nvm.VirtualMachine(exe) as vm:
        found = vm.run(*inputs)
    return tuple(np.asarray(f) for f in found) if isinstance(found, tuple) else np.asarray(found)


def data() -> relay.Var:
    return relay.var("x", shape=(relay.Any(), relay.Any(), 6))


def test_deviations_are_numpy_s() -> None:
    x = data()
    body = relay.Tuple([
        relay.variance(x, axis=[0, 2]),
        relay.variance(x, axis=1, keepdims=True, unbiased=True),
        relay.std(x),
        relay.variance(x, axis=1, exclude=True, with_mean=relay.mean(x, 1, True, True)),
        relay.mean_variance(x, axis=2).astuple(),
        relay.mean_std(x, axis=-1, keepdims=True).astuple(),
    ])  # fmt: skip
    mod = relay.IRModule.from_expr(relay.Function([x], body))
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        got = vm.run(DATA)
    expected = (
        np.var(DATA, (0, 2)), np.var(DATA, 1, ddof=1, keepdims=True), np.std(DATA), np.var(DATA, (0, 2)),
        (np.mean(DATA, 2), np.var(DATA, 2)), (np.mean(DATA, 2, keepdims=True), np.std(DATA, 2, keepdims=True)),
    )  # fmt: skip
    for a, b in zip(got, expected, strict=True):
        for found, wanted in zip(
            *((v if isinstance(v, tuple) else (v,)) for v in (a, b)), strict=True
        ):
            np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4)


def test_logsumexp() -> None:
    x = data()
    body = relay.Tuple(
        [relay.logsumexp(x, 1), relay.logsumexp(x), relay.logsumexp(x, (0, -1), True)]
    )
    wide = DATA.astype("float64") * 100
    got = run(body, [x], DATA * 100)

    def expected(axis: Any, keepdims: bool = False) -> Any:
        top = np.max(wide, axis, keepdims=True)
        found = np.log(np.sum(np.exp(wide - top), axis, keepdims=True)) + top
        return found if keepdims else np.squeeze(found, axis)

    for found, wanted in zip(
        got, (expected(1), expected(None), expected((0, -1), True)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_dropout_is_its_operand() -> None:
    x = data()
    np.testing.assert_array_equal(run(relay.nn.dropout(x), [x], DATA), DATA)
    with pytest.raises(RelayTypeError, match="rate must be at least 0 and below 1"):
        run(relay.nn.dropout(x, 1.0), [x], DATA)


def test_batch_norm_gives_the_moving_vectors_back() -> None:
    x = relay.var("x", shape=(relay.Any(), 5))
    vectors = gamma, beta, mean, variance = [relay.var(name, shape=(5,)) for name in "gbmv"]
    values = [np.full(5, v, "float32") for v in (2, 1, 0.5, 4)]
    whole = relay.nn.batch_norm(x, gamma, beta, mean, variance, epsilon=0.0)
    out, centre, spread = run(whole.tuple_value, [x, *vectors], DATA[0, :, :5], *values)
    np.testing.assert_allclose(out, (DATA[0, :, :5] - 0.5) / 2 * 2 + 1, rtol=1e-5)
    assert (centre == 0.5).all()
    assert (spread == 4).all()
    fused = relay.nn.relu(relay.nn.batch_norm(x, gamma, beta, mean, variance)[0])
    assert (run(fused, [x, *vectors], DATA[0, :, :5], *values) >= 0).all()


def test_group_norm_needs_whole_groups() -> None:
    x, g, b = data(), relay.var("g", shape=(6,)), relay.var("b", shape=(6,))
    with pytest.raises(RelayTypeError, match=r"axis 2 of size 6 is no multiple of 4 groups"):
        relay.infer_type(
            relay.IRModule.from_expr(
                relay.Function([x, g, b], relay.nn.group_norm(x, g, b, 4, axis=2))
            )
        )
    one = relay.var("g", shape=(relay.Any(),))
    two = relay.var("b", shape=(relay.Any(),))
    body = relay.nn.group_norm(x, one, two, 3)
    ok = run(body, [x, one, two], DATA[:, :3], np.ones(3, "float32"), np.zeros(3, "float32"))
    np.testing.assert_allclose(ok.mean(2), 0, atol=1e-5)
    with pytest.raises(ShapeMismatch):
        run(body, [x, one, two], DATA, np.ones(5, "float32"), np.zeros(5, "float32"))


@pytest.mark.parametrize("native", [True, False])
def test_scans_wrap_and_round_at_each_element(native: bool) -> None:
    x = relay.var("x", shape=(relay.Any(),), dtype="int8")
    got = run(relay.cumsum(x, 0), [x], np.full(4, 100, "int8"), native=native)
    assert got.tolist() == [100, -56, 44, -112]
    got = run(relay.cumprod(x, 0, "int32", True), [x], np.asarray([2, 3, 4], "int8"), native=native)
    assert got.tolist() == [1, 2, 6]
    half = relay.var("x", shape=(relay.Any(),), dtype="float16")
    ones = np.ones(3000, "float16")
    assert run(relay.cumsum(half), [half], ones, native=native)[-1] == 3000
    # In place: the operand's storage becomes the result's.
    wide = relay.var("x", shape=(relay.Any(),))
    body = relay.cumsum(relay.exp(wide), 0, exclusive=True)
    got = run(body, [wide], np.zeros(50, "float32"), native=native)
    np.testing.assert_array_equal(got, np.arange(50))


def test_a_scan_of_bool_needs_a_dtype() -> None:
    x = relay.var("x", shape=(3,), dtype="bool")
    with pytest.raises(RelayTypeError, match="give dtype"):
        run(relay.cumsum(x), [x], np.ones(3, "bool"))
    assert run(relay.cumsum(x, dtype="int32"), [x], np.ones(3, "bool")).tolist() == [1, 2, 3]
    empty = get("cumsum").reference((np.zeros((0, 2), "float32"),), ScanopAttrs(0, "", True), None)
    assert empty.shape == (0, 2)


def test_the_number_of_elements_takes_no_kernel() -> None:
    x = data()
    mod = relay.IRModule.from_expr(relay.Function([x], relay.ndarray_size(x) * 2))
    with nvm.compile(mod, native=False) as exe, nvm.VirtualMachine(exe) as vm:
        assert vm.run(DATA).numpy() == 2 * DATA.size
        assert "CallKernel" not in exe.disassemble()
