"""order_weights in whole programs: weights that are bound late, that several layers share, and of other layouts."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import nimblevm as nvm
from nimblevm import relay
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.order_weights import ORDER_WEIGHTS
from nimblevm.compiler.rewrite import postorder
from nimblevm.relay.infer_type import infer_type

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, ?h, ?w, 2), int8], %w: Tensor[(1, 2, 2, 3), int8]) {
  let %a = nn.conv2d(%x, %w, channels=3, kernel_size=[1, 2], data_layout="NHWC", kernel_layout="HWIO",
                     out_dtype="int32");
  let %b = nn.conv2d(%x, %w, channels=3, kernel_size=[1, 2], strides=[1, 2], data_layout="NHWC",
                     kernel_layout="HWIO", out_dtype="int32");
  (%a, %b)
}
"""


def _weights() -> NDArray[np.int8]:
    return np.arange(-6, 6, dtype="int8").reshape(1, 2, 2, 3) * 7


def _expected(x: NDArray[np.int8], w: NDArray[np.int8], stride: int) -> NDArray[np.int32]:
    wide = x.astype("int32")
    pairs = (wide[:, :, :-1:stride], wide[:, :, 1::stride])
    return sum(p @ w[0, s].astype("int32") for s, p in enumerate(pairs))


@pytest.mark.parametrize("late", [False, True])
def test_results(late: bool) -> None:
    w, mod = _weights(), nvm.relay.parse(TEXT)
    if late:
        exe = nvm.compile(mod, late_bound={"w": w}).bind({"w": w})
    else:
        exe = nvm.compile(mod, {"w": w})
    x = np.random.default_rng(0).integers(-128, 128, (2, 3, 6, 2)).astype("int8")
    found = nvm.VirtualMachine(exe).run(x)
    for result, stride in zip(found, (1, 2), strict=True):
        np.testing.assert_array_equal(result.numpy(), _expected(x, w, stride))


def test_layers_share_what_is_turned() -> None:
    x = relay.var("x", shape=(1, 4, 6, 2), dtype="int8")
    w = relay.const(_weights())
    layers = [
        relay.nn.conv2d(
            x, w, strides=stride, channels=3, kernel_size=(1, 2), data_layout="NHWC", kernel_layout="HWIO",
            out_dtype="int32",
        )
        for stride in (1, 2)
    ]  # fmt: skip
    mod = infer_type(relay.IRModule.from_expr(relay.Function([x], relay.Tuple(layers))))
    turned = ORDER_WEIGHTS(mod, PassContext(verify=True))
    found = [e for e in postorder(turned["main"].body) if isinstance(e, relay.Constant)]
    assert [c.data.shape for c in found] == [(3, 2, 1, 2)]
