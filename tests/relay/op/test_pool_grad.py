"""Gradients of pools against differences of the pools themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.errors import RelayTypeError
from nimblevm.relay.interpreter import evaluate
from nimblevm.relay.ir import Expr

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(5)

ATTRS = [
    {"pool_size": (2, 2), "strides": (2, 2)},
    {"pool_size": (3, 2), "strides": (1, 2), "padding": (1, 0)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (0, 1, 1, 1), "ceil_mode": True},
    {"pool_size": (2, 3), "strides": (3, 1), "layout": "NHWC", "out_layout": "NCHW"},
]


def run(make: Any, *values: Array) -> Array:
    params = [relay.var(f"x{i}", shape=v.shape, dtype=v.dtype.name) for i, v in enumerate(values)]
    body: Expr = make(*params)
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function(params, body)))
    found: Array = evaluate(mod, list(values))
    return found


def by_differences(pool: Any, data: Array, grad: Array, step: float) -> Array:
    """How the sum of grad * pool(data) changes with each element of data."""
    out = np.zeros_like(data)
    for place in np.ndindex(data.shape):
        sides = []
        for sign in (1, -1):
            moved = data.copy()
            moved[place] += sign * step
            sides.append(float((run(pool, moved) * grad).sum()))
        out[place] = (sides[0] - sides[1]) / (2 * step)
    return out


@pytest.mark.parametrize("attrs", ATTRS)
@pytest.mark.parametrize(
    ("name", "more"),
    [("max", {}), ("avg", {"count_include_pad": True}), ("avg", {"count_include_pad": False})],
)
def test_gradients_are_differences(name: str, more: dict[str, Any], attrs: dict[str, Any]) -> None:
    given = {**attrs, **more}
    shape = (2, 5, 6, 3) if attrs.get("layout") else (2, 3, 5, 6)
    # Distances of 1, so that no step changes which element is the greatest.
    data = np.asarray(RNG.permutation(int(np.prod(shape))).reshape(shape), "float64")
    pool, pool_grad = (getattr(relay.nn, f"{name}_pool2d{end}") for end in ("", "_grad"))

    def forward(x: Expr) -> Expr:
        return pool(x, **given)

    grad = np.asarray(RNG.normal(size=run(forward, data).shape))
    found = run(lambda g, x: pool_grad(g, x, **given), grad, data)
    np.testing.assert_allclose(found, by_differences(forward, data, grad, 0.25), atol=1e-9)


def test_the_first_of_equals_takes_all_and_a_nan_is_greatest() -> None:
    data = np.asarray([[1, 1, 2, 2], [1, 1, np.nan, 3]], "float32").reshape(1, 1, 2, 4)
    grad = np.asarray([5, 7], "float32").reshape(1, 1, 1, 2)
    found = run(lambda g, x: relay.nn.max_pool2d_grad(g, x, (2, 2), (2, 2)), grad, data)
    np.testing.assert_array_equal(found.reshape(2, 4), [[5, 0, 0, 0], [0, 0, 7, 0]])


def test_padding_is_never_greatest() -> None:
    """Not even of infinities below all numbers; a window of padding alone changes nothing."""
    data = np.full((1, 1, 2, 2), -np.inf, "float32")
    grad = np.ones((1, 1, 4, 4), "float32")
    found = run(lambda g, x: relay.nn.max_pool2d_grad(g, x, (1, 1), (1, 1), (1, 1)), grad, data)
    np.testing.assert_array_equal(found, np.ones((1, 1, 2, 2)))
    found = run(lambda g, x: relay.nn.max_pool2d_grad(g, x, (3, 3), (1, 1), (2, 2)), grad, data)
    assert found.sum() == 16


def test_out_grad_has_the_results_shape() -> None:
    grad, data = np.ones((1, 1, 2, 3), "float32"), np.ones((1, 1, 4, 4), "float32")
    with pytest.raises(RelayTypeError, match=r"axis 3 of argument .* expected 2, got 3"):
        run(lambda g, x: relay.nn.max_pool2d_grad(g, x, (2, 2), (2, 2)), grad, data)
    with pytest.raises(RelayTypeError, match="argument 0 must have rank 4"):
        run(lambda g, x: relay.nn.avg_pool2d_grad(g, x), grad[0], data)
