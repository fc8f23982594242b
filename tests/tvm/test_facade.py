"""The facade's own behaviour: targets, what is absent, modules that run, attributes by name."""

# mypy: disable-error-code="arg-type,attr-defined,var-annotated,union-attr"
# Programs are written as people who come from TVM write them.

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import tvm
from nimblevm.errors import (
    CompileError,
    FileError,
    InvalidInput,
    InvalidInputType,
    NotProvided,
    UnknownAttribute,
)
from nimblevm.tvm import relay
from nimblevm.tvm.contrib import graph_executor
from nimblevm.tvm.target import Target, places

X = relay.var("x", shape=(2, 3))
W = relay.var("w", shape=())
ROWS = relay.var("x", shape=(2, relay.Any()))
PARAMS = tvm.IRModule.from_expr(relay.Function([ROWS, W], ROWS * W))
EXP = tvm.IRModule.from_expr(relay.Function([X], relay.exp(X)))
PLACES: list[tuple[Any, tuple[str, str | None]]] = [
    (None, ("native", None)), ("llvm", ("native", None)), ("c", ("native", None)), (Target("llvm"), ("native", None)),
    ("llvm -mcpu=x86-64-v3", ("x86-64-v3", None)), ("llvm -mcpu=skylake-avx512 -num-cores=4", ("x86-64-v4", None)),
    ("llvm -mcpu=icelake-server", ("x86-64-v4-vnni", None)),
    ("llvm -mtriple=aarch64-linux-gnu", ("aarch64", None)), ("cuda", ("native", "cuda")), ("opencl -device=mali", ("native", "opencl")),
    ({"kind": "llvm", "mcpu": "haswell"}, ("x86-64-v3", None)), ({tvm.cpu(): "llvm"}, ("native", None)),
    ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]}, ("aarch64", None)), (["llvm"], ("native", None)), (tvm.target.cuda("v100"), ("native", "cuda")),
]  # fmt: skip


@pytest.mark.parametrize(("target", "place"), PLACES)
def test_targets(target: Any, place: tuple[str, str | None]) -> None:
    assert places(target) == place


def test_wrong_targets() -> None:
    for wrong in ("vulkan", "nvidia/geforce-rtx-3070", ["llvm", "cuda"], []):
        with pytest.raises(InvalidInput, match="target"):
            places(wrong)
    with pytest.raises(InvalidInputType, match='a text such as "llvm", not the int 5'):
        places(5)
    for host in ("llvm -mcpu=haswell", "cuda"):
        with pytest.raises(InvalidInput, match="the host runs native code"):
            relay.vm.compile(EXP, "llvm", host)
        with pytest.raises(InvalidInput, match="the host runs native code"):
            Target("cuda", host)
    assert places("llvm -mcpu=haswell", "llvm") == ("x86-64-v3", None)
    with pytest.raises(CompileError, match="unknown target 'z80'"):
        relay.vm.compile(EXP, "llvm -mcpu=z80")


def test_targets_of_executors() -> None:
    for target in (None, "llvm -mcpu=native", {"kind": "llvm", "mcpu": "native"}, Target("llvm")):
        run = relay.create_executor("graph", EXP, tvm.cpu(), target).evaluate()
        assert run(np.zeros((2, 3), "float32")).numpy().max() == 1
    assert relay.create_executor("vm", EXP, target="cuda").compiled_for == "cuda"
    with pytest.raises(InvalidInput, match="target"):
        relay.create_executor("debug", EXP, target="vulkan")


def test_current_target() -> None:
    assert Target.current() is None
    with Target("cuda") as outer, Target("llvm -mcpu=x86-64-v2") as inner:
        assert Target.current() is inner
        assert outer.kind.name == "cuda"
        assert places(None) == ("x86-64-v2", None)
    with pytest.raises(InvalidInput, match="no current target"):
        Target.current(allow_none=False)


ABSENT = """tvm.te.placeholder tvm.tir.PrimFunc tvm._ffi tvm.autotvm tvm.rpc tvm.build tvm.vulkan tvm.relay.frontend tvm.relay.quantize tvm.relay.gradient
tvm.relay.transform.Legalize tvm.relay.op.register_mixed_precision_conversion tvm.relay.testing.vgg tvm.contrib.relay_viz
tvm.relay.op.contrib.dnnl tvm.relay.analysis.get_calibration_data tvm.relay.vm.invoke tvm.ir.EnvFunc
tvm.relay.op.register tvm.relay.backend.te_compiler tvm.target.VirtualDevice""".split()


@pytest.mark.parametrize("name", ABSENT)
def test_absent_names_say_what_to_use(name: str) -> None:
    module, _, last = name.rpartition(".")
    text = rf"^{name} is not here: .*docs/from-tvm\.md"
    found = importlib.import_module(f"nimblevm.{module}")
    with pytest.raises(NotProvided, match=text):
        getattr(found, last)
    assert not hasattr(found, last)
    for line in (
        f"from nimblevm.{module} import {last}",
        f"import nimblevm.{name}",
        f"from nimblevm.{name}.parts import part",
    ):
        with pytest.raises(ImportError, match=text) as caught:
            exec(line)
        assert isinstance(caught.value, NotProvided)


def test_names_that_nobody_has() -> None:
    for module, name, close in (
        (relay, "concat", "concatenate"), (relay.nn, "conv2", "conv2d"), (nvm.relay, "softmx", ""), (tvm, "cpus", "cpu"),
        (importlib.import_module("nimblevm.tvm.relay.nn"), "conv2", "conv2d"),
    ):  # fmt: skip
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'.*{close}"):
            getattr(module, name)
        assert not hasattr(module, name)


def test_sizes_by_tirs_names() -> None:
    """As scripts ask whether a size is known, and make unknown ones."""
    tir = tvm.tir
    x = relay.var("x", shape=(tir.Any(), tir.Any(), tvm.te.var("n"), tir.IntImm("int32", 3)))
    dims = x.type_annotation.shape
    found = [
        (isinstance(d, tir.Any), isinstance(d, tir.Var), isinstance(d, tir.IntImm)) for d in dims
    ]
    assert found == [(True, False, False)] * 2 + [(True, True, False), (False, False, True)]
    assert all(isinstance(d, tir.PrimExpr) for d in dims)
    assert dims[0] != dims[1]
    assert isinstance(tir.SizeVar("m", "int64"), relay.DimVar)
    for other in ("n", 1.0, None, True):
        assert not isinstance(other, tir.PrimExpr)
    twice = relay.testing.run_infer_type(relay.concatenate([x, x], 0)).checked_type.shape[0]
    assert isinstance(twice, tir.Any)
    assert not isinstance(twice, tir.Var)
    with pytest.raises(InvalidInputType, match="value must be a whole number"):
        tir.IntImm("int32", "n")


def test_fused_functions_of_a_module_that_is_not_fused_yet() -> None:
    body = relay.exp(X) + relay.nn.dense(X, relay.const(np.ones((3, 3), "float32")))
    mod = tvm.IRModule.from_expr(relay.Function([X], body))
    found = relay.analysis.extract_fused_functions(mod)
    assert (
        found.keys()
        == relay.analysis.extract_fused_functions(relay.transform.FuseOps()(mod)).keys()
    )
    assert all(function.attrs["Primitive"] for function in found.values())
    assert found


def test_libraries_of_relay() -> None:
    with pytest.raises(FileError, match=r"no such library of Relay; there is prelude\.rly"):
        tvm.IRModule().import_from_std("gradient.rly")


def test_graph_module_says_what_is_wrong() -> None:
    lib = relay.build(EXP, "llvm")
    for wrong in (lib, None, EXP):
        with pytest.raises(InvalidInputType, match=r'takes lib\["default"\]\(dev\)'):
            graph_executor.GraphModule(wrong)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    with pytest.raises(InvalidInput, match="nothing has run yet"):
        module.get_output(0)
    with pytest.raises(InvalidInput, match="main has no input 'y'; it has: x"):
        module.set_input("y", 1)
    for number in (1, -1):
        with pytest.raises(InvalidInput, match=f"main has no input {number}; it has: x"):
            module.set_input(number, 1)
        with pytest.raises(InvalidInput, match=f"main has no input {number}; it has: x"):
            module.get_input(number)
    with pytest.raises(InvalidInput, match='func_name must be "run"'):
        module.benchmark(tvm.cpu(), "main")
    with pytest.raises(InvalidInput, match="missing argument"):
        module.run()
    data = np.zeros((2, 3), np.float32)
    module.set_input(0, data)
    data[:] = 7  # a copy was taken
    module.run()
    assert module.get_output(0).numpy().max() == 1
    with pytest.raises(InvalidInput, match="1 outputs, so there is no number 1"):
        module.get_output(1)
    for no_array in ("text", [None], object(), 1j):
        with pytest.raises(InvalidInputType, match=r"input x: .* is no array of numbers"):
            module.set_input("x", no_array)
    with pytest.raises(InvalidInputType, match="input x: 1 of 2 elements are masked"):
        module.set_input("x", np.ma.masked_equal([1.0, 2.0], 1.0))
    with pytest.raises(
        InvalidInputType, match=r"create takes the library of relay\.build or load_module"
    ):
        graph_executor.create("{}", EXP, tvm.cpu())


def test_graph_library_and_parameters(tmp_path: Path) -> None:
    """TVM's older way: three parts that are kept in three files."""
    graph, lib, params = relay.build(PARAMS, "llvm", params={"w": np.float32(2)})
    assert json.loads(graph)["inputs"] == ["x"]
    lib.export_library(tmp_path / "lib.so")
    (tmp_path / "params").write_bytes(relay.save_param_dict(params))
    read = tvm.runtime.load_module(tmp_path / "lib.so")
    for module in (
        graph_executor.create(graph, lib, tvm.cpu()), graph_executor.create(graph, read, [tvm.cpu()]),
        graph_executor.create(graph, read, device=tvm.device("llvm")), graph_executor.create(graph, read),
    ):  # fmt: skip
        assert module.get_input_info() == ({"x": (2, -1)}, {"x": "float32"})
        module.set_input("x", np.ones((2, 3)))
        module.set_input(**params)
        module.load_params((tmp_path / "params").read_bytes())
        module.run()
        assert module.get_output(0).numpy().tolist() == [[2] * 3] * 2


def test_outputs_of_tuples_in_tuples_are_numbered() -> None:
    """A graph has tensors as outputs: nested tuples are flat there, as in TVM."""
    body = relay.Tuple([X, relay.Tuple([relay.exp(X), relay.Tuple([X + X])])])
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([X], body)), "llvm")
    assert (lib.graph_json, lib.lib, lib.params) == tuple(lib)
    module = graph_executor.create(lib.graph_json, lib.lib, tvm.cpu())
    module.run(x=np.ones((2, 3)))
    assert module.get_num_outputs() == 3
    assert [module.get_output(i).numpy()[0, 0] for i in (0, 2)] == [1, 2]


def test_executors_of_graphs_turn_arrays_into_the_dtype() -> None:
    """As the graph executor's set_input; the virtual machine's arguments have dtypes of their own, in TVM too."""
    for kind in ("graph", "aot"):
        call = relay.create_executor(kind, PARAMS).evaluate()
        assert call(np.ones((2, 1)), w=np.array(3)).numpy().tolist() == [[3], [3]]
        assert call(x=np.ones((2, 1), bool), w=tvm.nd.array(np.float32(3))).numpy().tolist() == [
            [3],
            [3],
        ]
        with pytest.raises(InvalidInputType, match="masked"):
            call(np.ma.masked_equal([[1.0], [2.0]], 1.0), 1.0)
        with pytest.raises(InvalidInput, match="takes 2 arguments, got 3"):
            call(np.ones((2, 1)), 1.0, 2.0)
    with pytest.raises(InvalidInputType, match="expected dtype float32, got float64"):
        relay.create_executor("vm", PARAMS).evaluate()(np.ones((2, 1)), 1.0)


@pytest.mark.parametrize("kind", ["float64", "float16", "int64", "bool"])
def test_graph_module_takes_arrays_of_any_dtype(kind: str) -> None:
    """As TVM: set_input copies an array into a tensor of the input's dtype. A tensor has a dtype of its own."""
    module = graph_executor.GraphModule(relay.build(EXP, "llvm")["default"](tvm.cpu()))
    for given in (np.ones((2, 3), kind), np.ones((2, 3), kind).tolist()):
        module.set_input("x", given)
        assert module.get_input("x").dtype == "float32"
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), np.full((2, 3), np.e), rtol=1e-6)
    module.set_input(x=tvm.nd.array(np.ones((2, 3), kind)))
    with pytest.raises(InvalidInputType, match=f"expected dtype float32, got {kind}"):
        module.run()


def test_parameters_and_attributes() -> None:
    w = relay.var("w")
    call = relay.nn.conv2d(relay.var("x", shape=(1, 3, 8, 8)), w, channels=4, kernel_size=(3, 3))
    assert (
        call.attrs["groups"],
        call.attrs.get_int("groups"),
        call.attrs.get_str("data_layout"),
    ) == (1, 1, "NCHW")
    assert call.attrs.get_int_tuple("kernel_size") == (3, 3)
    assert "strides" in call.attrs
    with pytest.raises(UnknownAttribute, match="no attribute 'stride'; there are: strides"):
        call.attrs["stride"]
    function = relay.Function(relay.analysis.free_vars(call), call).with_attr("Inline", 1)
    assert function.attrs == {"Inline": 1}
    assert function.without_attr("Inline").attrs == {}
    weights = {"w": tvm.nd.array(np.ones((4, 3, 3, 3), "float32"))}
    assert len(relay.build_module.bind_params_by_name(function, weights).params) == 1


def test_tensors() -> None:
    a = tvm.nd.array([[1.5, 2.5]])
    assert (a.dtype, a.shape, tvm.nd.array([1]).dtype, tvm.nd.array(a).dtype) == (
        "float32",
        (1, 2),
        "int32",
        "float32",
    )
    with pytest.raises(InvalidInput, match=r"shape \(1, 2\) for a tensor of shape \(2,\)"):
        a.copyto(tvm.nd.empty((2,)))
    with pytest.raises(InvalidInputType, match="a tensor or a device"):
        a.copyto(5)
    for wrong in ("zz", {}, [object()]):
        with pytest.raises(InvalidInputType, match="array: "):
            tvm.nd.array(wrong)
    with pytest.raises(InvalidInputType, match="dtype must be one of bool"):
        tvm.nd.empty((2,), "float33")
    assert tvm.nd.from_dlpack(a).numpy().tolist() == [[1.5, 2.5]]
    assert relay.const(tvm.nd.array(np.ones(2))).checked_type.dtype == "float64"


def test_profiler() -> None:
    exe = relay.vm.compile(EXP, "llvm")
    machine = tvm.runtime.profiler_vm.VirtualMachineProfiler(exe, tvm.cpu())
    profile = machine.profile(np.zeros((2, 3), "float32"), func_name="main")
    assert [k.name for k in profile.kernels] == ["exp"]


def test_instruments_of_the_default_context() -> None:
    timing = tvm.ir.instrument.PassTimingInstrument()
    context = tvm.transform.PassContext.current()
    context.override_instruments([timing])
    try:
        relay.transform.InferType()(EXP)
        assert "InferType" in timing.render()
    finally:
        context.override_instruments(None)
    relay.transform.InferType()(EXP)
    assert timing.render().count("InferType") == 1


@pytest.mark.slow
def test_networks_of_full_size_have_types() -> None:
    testing = relay.testing
    found = {
        testing.resnet.get_workload(num_layers=18)[0]: (1, 1000),
        testing.resnet.get_workload(num_layers=50, layout="NHWC", image_shape=(224, 224, 3))[0]: (
            1,
            1000,
        ),
        testing.mobilenet.get_workload(batch_size=2)[0]: (2, 1000),
        testing.mobilenet.get_workload(image_shape=(224, 224, 3), layout="NHWC")[0]: (1, 1000),
        testing.dcgan.get_workload(1)[0]: (1, 3, 64, 64),
    }
    for module, shape in found.items():
        kind = module.function("main").checked_type
        assert isinstance(kind, relay.FuncType)
        assert isinstance(kind.ret_type, relay.TensorType)
        assert kind.ret_type.concrete_shape == shape
    with pytest.raises(ValueError, match="no residual network has 19 layers"):
        testing.resnet.get_workload(num_layers=19)
