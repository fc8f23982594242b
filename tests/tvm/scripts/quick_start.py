"""As TVM's first tutorial: a network of relay.testing, relay.build, graph_executor, a library written and read."""

import numpy as np

from nimblevm import tvm
from nimblevm.tvm import relay
from nimblevm.tvm.contrib import graph_executor, utils
from nimblevm.tvm.relay import testing

batch_size = 1
num_class = 10
image_shape = (1, 28, 28)
data_shape = (batch_size, *image_shape)
out_shape = (batch_size, num_class)

mod, params = testing.mlp.get_workload(batch_size=batch_size, num_classes=num_class)
assert "nn.dense" in mod.astext(show_meta_data=False)

target = tvm.target.Target("llvm", host="llvm")
with tvm.transform.PassContext(opt_level=3):
    lib = relay.build(mod, target, params=params)

dev = tvm.cpu()
data = np.random.uniform(-1, 1, size=data_shape).astype("float32")
module = graph_executor.GraphModule(lib["default"](dev))
module.set_input("data", data)
module.run()
out = module.get_output(0, tvm.nd.empty(out_shape)).numpy()
assert out.shape == out_shape
assert abs(out.sum() - 1) < 1e-5
assert (module.get_num_inputs(), module.get_num_outputs(), module.get_input_index("data")) == (
    1,
    1,
    0,
)

temp = utils.tempdir()
path_lib = temp.relpath("deploy_lib.tar")
lib.export_library(path_lib)
loaded_lib = tvm.runtime.load_module(path_lib)
module = graph_executor.GraphModule(loaded_lib["default"](dev))
module.run(data=data)
tvm.testing.assert_allclose(module.get_output(0).numpy(), out, atol=1e-5)
assert module.benchmark(dev, repeat=2, number=2).mean > 0

# The weights may stay inputs.
late = relay.build(mod, target="llvm")
module = graph_executor.GraphModule(late["default"](dev))
module.set_input("data", tvm.nd.array(data))
module.set_input(**params)
module.run()
tvm.testing.assert_allclose(module.get_output(0).numpy(), out, rtol=1e-5, atol=1e-5)
temp.remove()
