"""A function_pass and a module_pass, in a Sequential, under contexts that disable and require passes."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay

x = relay.var("x", shape=(3,), dtype="float32")
c = relay.const(np.ones(3, "float32"))
unused = relay.var("unused")
body = relay.Let(unused, relay.exp(x), x * (c + c))
mod = tvm.IRModule.from_expr(relay.Function([x], body))


@relay.transform.function_pass(opt_level=1)
def double(func, mod, ctx):
    return relay.Function(func.params, func.body + func.body, None, func.type_params, func.attrs)


@tvm.transform.module_pass(opt_level=2, name="AddHelper")
class AddHelper:
    def __init__(self, name):
        self.name = name

    def transform_module(self, mod, ctx):
        y = relay.var("y", shape=(3,), dtype="float32")
        new = tvm.IRModule(mod.functions, mod.type_definitions)
        new[relay.GlobalVar(self.name)] = relay.Function([y], relay.exp(y))
        return new


def ops(mod):
    found = []
    relay.analysis.post_order_visit(
        mod["main"], lambda e: found.append(e.op.name) if isinstance(e, relay.Call) else None
    )
    return sorted(found)


assert double.info.name == "double"
assert double.info.opt_level == 1
seq = tvm.transform.Sequential(
    [
        relay.transform.InferType(),
        relay.transform.FoldConstant(),
        relay.transform.DeadCodeElimination(),
        double,
        AddHelper("helper"),
    ]
)

assert tvm.transform.PassContext.current().opt_level == 2
with tvm.transform.PassContext(opt_level=2):
    everything = seq(mod)
assert ops(everything) == ["add", "multiply"], ops(everything)
assert "helper" in [v.name_hint for v in everything.get_global_vars()]

with tvm.transform.PassContext(opt_level=2, disabled_pass=["FoldConstant", "AddHelper"]):
    some = seq(mod)
assert ops(some) == ["add", "add", "multiply"], ops(some)
assert len(some.get_global_vars()) == 1

with tvm.transform.PassContext(opt_level=0, required_pass=["DeadCodeElimination"]) as ctx:
    assert tvm.transform.PassContext.current() is ctx
    few = seq(mod)
assert ops(few) == ["add", "multiply"], ops(few)

data = np.arange(3, dtype="float32")
for each, factor in [(everything, 4), (some, 4), (few, 2)]:
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["FoldConstant"]):
        exe = relay.vm.compile(each, "llvm")
    out = tvm.runtime.vm.VirtualMachine(exe, tvm.cpu()).run(data)
    tvm.testing.assert_allclose(out.numpy(), factor * data)
