"""An encoder block over sequences of any length, saved and loaded."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.runtime.vm import Executable, VirtualMachine

HIDDEN, HEADS, VOCABULARY = 8, 2, 20
rng = np.random.RandomState(4)


def weight(*shape):
    return relay.const((rng.randn(*shape) * 0.3).astype("float32"))


def split(t):
    parted = relay.reshape(t, (-1, HEADS, HIDDEN // HEADS))
    return relay.transpose(parted, axes=[1, 0, 2])


tokens = relay.var("tokens", shape=(relay.Any(),), dtype="int32")
table = weight(VOCABULARY, HIDDEN)
x = relay.take(table, tokens, axis=0)
q, k, v = (split(relay.nn.dense(x, weight(HIDDEN, HIDDEN))) for _ in range(3))
scores = relay.nn.batch_matmul(q, k) / relay.const(np.float32(np.sqrt(HIDDEN // HEADS)))
mixed = relay.nn.batch_matmul(relay.nn.softmax(scores), relay.transpose(v, axes=[0, 2, 1]))
joined = relay.reshape(relay.transpose(mixed, axes=[1, 0, 2]), (-1, HIDDEN))
gamma, beta = relay.const(np.ones(HIDDEN, "float32")), relay.const(np.zeros(HIDDEN, "float32"))
out = relay.nn.layer_norm(x + joined, gamma, beta)
mod = tvm.IRModule.from_expr(relay.Function([tokens], out))
mod = relay.transform.InferType()(mod)
assert len(mod["main"].ret_type.shape) == 2

exe = relay.vm.compile(mod, target="llvm")
code, lib = exe.save()
loaded = Executable.load_exec(code, lib)
assert loaded.globals == ["main"]
assert loaded.get_function_params("main") == ["tokens"]
vm = VirtualMachine(loaded, tvm.cpu())
oracle = relay.create_executor("debug", mod=mod).evaluate()
for length in [1, 2, 9]:
    ids = rng.randint(0, VOCABULARY, length).astype("int32")
    got = vm.invoke("main", tvm.nd.array(ids))
    assert got.shape == (length, HIDDEN)
    tvm.testing.assert_allclose(got.numpy(), oracle(ids).numpy(), rtol=1e-4, atol=1e-5)
