"""A perceptron of two layers in a ScopeBuilder, compiled with bound weights, run by set_input."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.scope_builder import ScopeBuilder

batch = relay.Any()
data = relay.var("data", relay.TensorType((batch, 8), "float32"))
w1 = relay.var("w1", shape=(16, 8))
b1 = relay.var("b1", shape=(16,))
w2 = relay.var("w2", shape=(4, 16))
train = relay.var("train", shape=(), dtype="bool")

sb = ScopeBuilder()
hidden = sb.let("hidden", relay.nn.relu(relay.nn.bias_add(relay.nn.dense(data, w1), b1)))
logits = sb.let("logits", relay.nn.dense(hidden, w2))
with sb.if_scope(train):
    sb.ret(relay.nn.log_softmax(logits))
with sb.else_scope():
    sb.ret(relay.nn.softmax(logits))
func = relay.Function([data, w1, b1, w2, train], sb.get())
mod = tvm.IRModule.from_expr(func)

rng = np.random.RandomState(0)
params = {
    "w1": tvm.nd.array(rng.randn(16, 8).astype("float32")),
    "b1": tvm.nd.array(rng.randn(16).astype("float32")),
    "w2": tvm.nd.array(rng.randn(4, 16).astype("float32")),
}
with tvm.transform.PassContext(opt_level=3):
    exe = relay.vm.compile(mod, target="llvm", params=params)
vm = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu(0))


def reference(x):
    h = np.maximum(x @ params["w1"].numpy().T + params["b1"].numpy(), 0)
    z = h @ params["w2"].numpy().T
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


for size in [1, 5]:
    x = rng.randn(size, 8).astype("float32")
    vm.set_input("main", data=x, train=False)
    tvm.testing.assert_allclose(vm.run().numpy(), reference(x), rtol=1e-4, atol=1e-5)
    vm.set_input("main", x, True)
    vm.invoke_stateful("main")
    [out] = vm.get_outputs()
    tvm.testing.assert_allclose(out.numpy(), np.log(reference(x)), rtol=1e-4, atol=1e-4)
