"""Text out and in, with constants in the metadata section."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay

rng = np.random.RandomState(2)
weight = rng.randn(3, 5).astype("float32")
x = relay.var("x", shape=(2, 5), dtype="float32")
dense = relay.nn.dense(x, relay.const(weight))
mod = tvm.IRModule.from_expr(relay.Function([x], relay.add(dense, relay.const(weight[:, 0]))))
mod = relay.transform.InferType()(mod)

text = mod.astext()
assert "meta[relay.Constant][0]" in text
assert "#[metadata]" in text
again = relay.fromtext(text)
tvm.ir.assert_structural_equal(mod, again)
assert tvm.ir.structural_hash(mod) == tvm.ir.structural_hash(again)
short = mod.astext(show_meta_data=False)
assert "b64ndarrays" not in short

source = """
#[version = "0.0.5"]
def @main(%x: Tensor[(2, 5), float32], %k: int32) -> (Tensor[(2, 5), float32], int32) {
  let %y: Tensor[(2, 5), float32] = if (%k > 0) { %x * 2f } else { %x };
  (%y, %k + 1)
}
"""
parsed = relay.parse(source)
assert not tvm.ir.structural_equal(parsed, mod)
tvm.ir.assert_structural_equal(parsed, relay.parse(parsed.astext()))

data = rng.randn(2, 5).astype("float32")
got = relay.create_executor("vm", mod=again).evaluate()(data)
tvm.testing.assert_allclose(got.numpy(), data @ weight.T + weight[:, 0], rtol=1e-4, atol=1e-5)
y, k = relay.create_executor("vm", mod=parsed).evaluate()(data, tvm.nd.array(3))
tvm.testing.assert_allclose(y.numpy(), data * 2)
assert k.numpy() == 4
