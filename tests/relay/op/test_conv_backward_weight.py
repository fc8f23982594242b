"""nn.conv2d_backward_weight against differences of nn.conv2d, which is linear in its weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nimblevm import relay
from nimblevm.errors import RelayTypeError
from nimblevm.relay.interpreter import evaluate

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(6)


def run(make: Any, *values: Array) -> Array:
    params = [relay.var(f"x{i}", shape=v.shape, dtype=v.dtype.name) for i, v in enumerate(values)]
    mod = relay.infer_type(relay.IRModule.from_expr(relay.Function(params, make(*params))))
    found: Array = evaluate(mod, list(values))
    return found


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"strides": (2, 1), "padding": (1, 0)},
        {"dilation": (1, 2), "padding": (0, 1, 2, 1), "strides": (3, 2)},
        {"groups": 2, "padding": 1},
    ],
)
@pytest.mark.parametrize(("layout", "kernel_layout"), [("NCHW", "OIHW"), ("NHWC", "HWIO")])
def test_it_is_the_difference_that_each_element_makes(
    given: dict[str, Any], layout: str, kernel_layout: str
) -> None:
    groups = given.get("groups", 1)
    sizes = {"N": 2, "C": 4, "H": 6, "W": 5}
    data = np.asarray(RNG.normal(size=[sizes[c] for c in layout]))
    of_weight = {"O": 6, "I": 4 // groups, "H": 3, "W": 2}
    shape = [of_weight[c] for c in kernel_layout]

    def forward(weight: Array) -> Array:
        return run(
            lambda x, w: relay.nn.conv2d(
                x, w, channels=6, kernel_size=(3, 2), data_layout=layout, kernel_layout=kernel_layout, **given
            ),
            data, weight,
        )  # fmt: skip

    grad = np.asarray(RNG.normal(size=forward(np.zeros(shape)).shape))
    expected = np.zeros(shape)
    for place in np.ndindex(*shape):
        one = np.zeros(shape)
        one[place] = 1
        expected[place] = (forward(one) * grad).sum()
    found = run(
        lambda g, x: relay.nn.conv2d_backward_weight(
            g, x, channels=6, kernel_size=(3, 2), grad_layout=layout, data_layout=layout, kernel_layout=kernel_layout,
            **given,
        ),
        grad, data,
    )  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "kernel_size must be given"),
        ({"kernel_size": (2, 2)}, "axis 2 of argument .* expected 3, got 2"),
        ({"kernel_size": (3, 3), "groups": 3}, "does not split into 3 groups"),
        ({"kernel_size": (3, 3), "channels": 5}, "axis 1 of argument .* expected 5, got 2"),
        ({"kernel_size": (3, 3), "out_dtype": "int32"}, "out_dtype must be a float"),
    ],
)
def test_what_it_refuses(given: dict[str, Any], message: str) -> None:
    grad, data = np.ones((1, 2, 2, 2), "float32"), np.ones((1, 4, 4, 4), "float32")
    with pytest.raises(RelayTypeError, match=message):
        run(lambda g, x: relay.nn.conv2d_backward_weight(g, x, **given), grad, data)
