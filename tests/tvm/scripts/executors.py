"""create_executor("debug") against create_executor("vm"): expressions, functions, tuples, closures, references."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay


def check(expr, *args, mod=None):
    results = []
    for kind in ["debug", "vm"]:
        executor = relay.create_executor(kind, mod=mod, device=tvm.cpu(0), target="llvm")
        value = executor.evaluate(expr)
        results.append(value(*args) if isinstance(expr, relay.Function) else value)
    flat = [r if isinstance(r, tuple) else (r,) for r in results]
    for left, right in zip(*flat, strict=True):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        tvm.testing.assert_allclose(left.numpy(), right.numpy(), rtol=1e-5, atol=1e-6)
    return results[0]


x = relay.var("x", shape=(relay.Any(), 3))
y = relay.var("y", shape=(3,))
data, row = np.random.RandomState(3).rand(2, 4, 3).astype("float32")[0], np.ones(3, "float32")

check(relay.Function([x, y], relay.Tuple([relay.sum(x * y, axis=0), relay.max(x)])), data, row)
check(relay.const(2, "int32") + relay.const(3, "int32"))

z = relay.var("z", shape=(3,))
adder = relay.Function([z], z + y)
f = relay.var("f")
check(relay.Function([y], relay.Let(f, adder, f(f(y)))), row)

r = relay.var("r")
u = relay.var("u")
cell = relay.Let(
    r,
    relay.RefCreate(y),
    relay.Let(u, relay.RefWrite(r, relay.RefRead(r) + y), relay.RefRead(r)),
)
tvm.testing.assert_allclose(check(relay.Function([y], cell), row).numpy(), 2 * row)

n = relay.var("n", shape=(), dtype="int32")
mod = tvm.IRModule()
fact = relay.GlobalVar("fact")
one = relay.const(1, "int32")
mod[fact] = relay.Function(
    [n], relay.If(relay.less_equal(n, one), one, n * fact(n - one)), relay.scalar_type("int32")
)
m = relay.var("m", shape=(), dtype="int32")
assert check(relay.Function([m], fact(m)), 6, mod=mod).numpy() == 720

bound = relay.create_executor("debug").evaluate(y * relay.const(3.0), {y: row})
tvm.testing.assert_allclose(bound.numpy(), 3 * row)
