"""A list made with the prelude, mapped and summed with foldl."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.prelude import Prelude

mod = tvm.IRModule()
p = Prelude(mod)
_, cons, nil = mod.get_type("List")
foldl = mod.get_global_var("foldl")
map_ = mod.get_global_var("map")

x = relay.var("x", shape=(4,), dtype="float32")
acc = relay.var("acc", shape=(4,), dtype="float32")
item = relay.var("item", shape=(4,), dtype="float32")
double = relay.Function([item], relay.multiply(item, relay.const(2.0)))
item2 = relay.var("item2", shape=(4,), dtype="float32")
add = relay.Function([acc, item2], acc + item2)

items = nil()
for _ in range(5):
    items = cons(x, items)
body = foldl(add, relay.zeros((4,), "float32"), map_(double, items))
mod["main"] = relay.Function([x], body)
mod = relay.transform.InferType()(mod)

data = np.arange(4, dtype="float32")
for kind in ["debug", "vm"]:
    result = relay.create_executor(kind, mod=mod, device=tvm.cpu(), target="llvm").evaluate()(data)
    tvm.testing.assert_allclose(result.numpy(), 10 * data)
