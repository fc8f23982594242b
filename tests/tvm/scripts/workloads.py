"""The networks of relay.testing, the prelude by import_from_std, tensors, executors."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.relay.testing.lstm import get_workload, lstm_cell

mod, params = get_workload(2, 8)
assert isinstance(lstm_cell(8), relay.Function)
assert len(params) == 8
inputs = {name: np.ones((1, 8), "float32") for name in ("data", "data_1")}
results = [
    relay.create_executor(kind, mod=mod, device=tvm.cpu(0), target="llvm")
    .evaluate()(**inputs, **params)
    .numpy()
    for kind in ("debug", "vm", "graph")
]
assert np.isfinite(results[0]).all()
assert results[0].shape == (1, 8)
tvm.testing.assert_allclose(results[0], results[1], rtol=1e-5)
tvm.testing.assert_allclose(results[1], results[2])

net, weights = relay.testing.resnet.get_workload(
    num_layers=8, image_shape=(3, 16, 16), num_classes=4
)
bound = relay.build_module.bind_params_by_name(net["main"], weights)
assert [p.name_hint for p in bound.params] == ["data"]
generator = relay.testing.dcgan.get_workload(1, ngf=4)[0]
assert generator["main"].checked_type.ret_type.concrete_shape == (1, 3, 64, 64)

lists = tvm.IRModule()
lists.import_from_std("prelude.rly")
_, cons, nil = lists.get_type("List")
lists["main"] = relay.Function([], cons(relay.const(1), cons(relay.const(2), nil())))
head = relay.create_executor("vm", mod=lists).evaluate()()
assert (head.tag, len(head), int(head[0].numpy()), int(head[1][0].numpy())) == (
    head.constructor.tag,
    2,
    1,
    2,
)

a = tvm.nd.array(np.arange(6, dtype="float32").reshape(2, 3), tvm.cpu(0))
b = tvm.nd.empty((2, 3))
assert a.copyto(b) is b
assert (b.asnumpy() == a.numpy()).all()
assert b.device == tvm.cpu()
c = b.copyto(tvm.cpu())
c[:] = np.ones((2, 3))
assert c.numpy().sum() == 6
assert b.numpy().sum() == 15
assert c.copyfrom(a).same_as(c)
