"""An ExprMutator that puts x * x in the place of power(x, 2), and an ExprVisitor that counts calls."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.expr_functor import ExprMutator, ExprVisitor


class SquareByMultiply(ExprMutator):
    def visit_call(self, call):
        new_args = [self.visit(arg) for arg in call.args]
        if call.op == relay.op.get("power"):
            exponent = new_args[1]
            if isinstance(exponent, relay.Constant) and exponent.data.item() == 2.0:
                return relay.multiply(new_args[0], new_args[0])
        return relay.Call(self.visit(call.op), new_args, call.attrs)


class Counter(ExprVisitor):
    def __init__(self):
        super().__init__()
        self.count = {}

    def visit_call(self, call):
        self.count[call.op.name] = self.count.get(call.op.name, 0) + 1
        super().visit_call(call)


x = relay.var("x", shape=(relay.Any(),), dtype="float32")
y = relay.power(x, relay.const(2.0))
f = relay.Function([x], relay.exp(y) + relay.power(y, relay.const(2.0)))
g = SquareByMultiply().visit(f)

counter = Counter()
counter.visit(g)
assert counter.count == {"multiply": 2, "exp": 1, "add": 1}, counter.count
assert len(relay.analysis.free_vars(g.body)) == 1

data = np.linspace(-1, 1, 5).astype("float32")
want = relay.create_executor("debug").evaluate(f)(data)
got = relay.create_executor("vm").evaluate(g)(data)
tvm.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
