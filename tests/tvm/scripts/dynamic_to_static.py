"""DynamicToStatic and PartialEvaluate make static what the program computes from static shapes."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay

x = relay.var("x", shape=(4, 6), dtype="float32")
size = relay.take(relay.shape_of(x), relay.const(0)) * relay.const(2, "int32")
target = relay.stack([size, relay.const(-1, "int32")], axis=0)
resized = relay.reshape(x, target)
steps = relay.var("steps", shape=(), dtype="int32")
value = relay.var("value")

mod = tvm.IRModule()
power = relay.GlobalVar("power")
base = relay.var("base", shape=(8, 3), dtype="float32")
n = relay.var("n", shape=(), dtype="int32")
mod[power] = relay.Function(
    [base, n],
    relay.If(
        relay.equal(n, relay.const(0)),
        relay.ones((8, 3), "float32"),
        base * power(base, n - relay.const(1)),
    ),
    relay.TensorType((8, 3), "float32"),
)
mod["main"] = relay.Function([x], power(resized, relay.const(3)))

seq = tvm.transform.Sequential(
    [
        relay.transform.DynamicToStatic(),
        relay.transform.PartialEvaluate(),
        relay.transform.DeadCodeElimination(),
        relay.transform.RemoveUnusedFunctions(),
    ]
)
with tvm.transform.PassContext(opt_level=3):
    static = seq(mod)

names = set()
relay.analysis.post_order_visit(
    static["main"], lambda e: names.add(e.op.name) if isinstance(e, relay.Call) else None
)
assert names == {"reshape", "multiply"}, names
assert static["main"].ret_type == relay.TensorType((8, 3), "float32")
assert len(static.functions) == 1

data = np.random.RandomState(5).rand(4, 6).astype("float32")
for each in [mod, static]:
    got = relay.create_executor("vm", mod=each).evaluate()(data)
    tvm.testing.assert_allclose(got.numpy(), data.reshape(8, 3) ** 3, rtol=1e-5)
