"""Patterns: batch norm by hand found and replaced; dense + bias + relu partitioned."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.dataflow_pattern import (
    DFPatternCallback,
    is_constant,
    is_op,
    rewrite,
    wildcard,
)


class BatchnormCallback(DFPatternCallback):
    def __init__(self):
        super().__init__()
        self.x = wildcard()
        self.var = wildcard()
        self.mean = wildcard()
        self.beta = wildcard()
        self.gamma = wildcard()
        self.eps = is_constant()
        self.pattern = (
            self.gamma * (self.x - self.mean) / is_op("sqrt")(self.var + self.eps) + self.beta
        )

    def callback(self, pre, post, node_map):
        x = node_map[self.x][0]
        var = node_map[self.var][0]
        mean = node_map[self.mean][0]
        beta = node_map[self.beta][0]
        gamma = node_map[self.gamma][0]
        eps = node_map[self.eps][0]
        return relay.nn.batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=eps.data.item())[0]


x = relay.var("x", shape=(relay.Any(), 4))
var, mean, beta, gamma = (relay.var(n, shape=(4,)) for n in ["var", "mean", "beta", "gamma"])
plain = gamma * (x - mean) / relay.sqrt(var + relay.const(1e-5)) + beta
fused = rewrite(BatchnormCallback(), plain)
assert BatchnormCallback().pattern.match(plain)
names = []
relay.analysis.post_order_visit(
    fused, lambda e: names.append(e.op.name) if isinstance(e, relay.Call) else None
)
assert names == ["nn.batch_norm"], names

params = [x, gamma, beta, mean, var]
rng = np.random.RandomState(1)
values = [rng.rand(3, 4).astype("float32"), *rng.rand(4, 4).astype("float32")]
want = relay.create_executor("debug").evaluate(relay.Function(params, plain))(*values)
got = relay.create_executor("vm").evaluate(relay.Function(params, fused))(*values)
tvm.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)

w, b = relay.var("w", shape=(2, 4)), relay.var("b", shape=(2,))
layer = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, w), b))
pattern = is_op("nn.relu")(
    is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), wildcard()), wildcard())
)
parted = pattern.partition(layer)
assert isinstance(parted, relay.Call)
assert isinstance(parted.op, relay.Function)
assert parted.op.attrs["PartitionedFromPattern"] == "nn.dense_nn.bias_add_nn.relu_"
