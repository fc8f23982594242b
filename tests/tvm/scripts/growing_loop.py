"""while_loop over a tensor that grows by a row each turn."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.loops import while_loop

n = relay.var("n", shape=(), dtype="int32")
start = relay.var("start", shape=(relay.Any(), 2), dtype="float32")
i = relay.var("i", shape=(), dtype="int32")
rows = relay.var("rows", shape=(relay.Any(), 2), dtype="float32")


def cond(i, rows):
    return relay.less(i, n)


def body(i, rows):
    row = relay.reshape(relay.cast(i, "float32"), (1, 1))
    new = relay.concatenate([rows, relay.broadcast_to(row, (1, 2))], axis=0)
    return [i + relay.const(1, "int32"), new]


loop = while_loop(cond, [i, rows], body)
result = loop(relay.const(0, "int32"), start)
func = relay.Function([n, start], relay.TupleGetItem(result, 1))
mod = tvm.IRModule.from_expr(func)

exe = relay.vm.compile(mod, "llvm")
vm = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu())
for turns in [0, 1, 7]:
    first = np.ones((3, 2), "float32")
    want = np.concatenate([first, np.repeat(np.arange(turns, dtype="float32"), 2).reshape(-1, 2)])
    got = vm.invoke("main", tvm.nd.array(np.int32(turns)), tvm.nd.array(first))
    tvm.testing.assert_allclose(got.numpy(), want)
