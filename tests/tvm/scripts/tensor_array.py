"""Tensor arrays of the prelude: write rows of different lengths, read one, stack equal ones."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.prelude import Prelude, StaticTensorArrayOps


def check(mod, args, expected):
    for kind in ["debug", "vm"]:
        executor = relay.create_executor(kind, mod=mod, device=tvm.cpu(), target="llvm")
        tvm.testing.assert_allclose(executor.evaluate()(*args).numpy(), expected)


# rows of any length
mod = tvm.IRModule()
p = Prelude(mod)
array = p.get_global_var("tensor_array", "float32")
write = p.get_global_var("tensor_array_write", "float32")
concat = p.get_global_var("tensor_array_concat", "float32")
tensor1 = p.get_tensor_ctor("tensor1", "float32")
v1 = relay.var("v1", shape=(relay.Any(),), dtype="float32")
v2 = relay.var("v2", shape=(relay.Any(),), dtype="float32")
ta = array(relay.const(2))
ta = write(ta, relay.const(0), tensor1(v1))
ta = write(ta, relay.const(1), tensor1(v2))
t = relay.var("t")
clause = relay.Clause(relay.PatternConstructor(tensor1, [relay.PatternVar(t)]), t)
mod["main"] = relay.Function([v1, v2], relay.Match(concat(ta), [clause], False))
a, b = np.ones(3, "float32"), np.zeros(2, "float32")
check(mod, [a, b], np.concatenate([a, b]))

# rows of one shape
mod = tvm.IRModule()
p = Prelude(mod)
ops = StaticTensorArrayOps(p, "int32", (4,))
ops.register()
make = p.get_tensor_ctor_static("tensor_constructor", "int32", (4,))
_, cons, nil = mod.get_type("List")
stack = p.get_global_var_static("tensor_array_stack", "int32", (4,))
x = relay.var("x", shape=(4,), dtype="int32")
stacked = StaticTensorArrayOps(p, "int32", (relay.Any(), 4))
stacked.define_tensor_get_data()
get_data = stacked.get_global_var("tensor_get_data")
rows = cons(make(x), cons(make(x + x), nil()))
mod["main"] = relay.Function([x], get_data(stack(rows)))
data = np.arange(4, dtype="int32")
check(mod, [data], np.stack([data, 2 * data]))
