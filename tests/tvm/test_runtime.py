"""Executables, virtual machines and executors with TVM's methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nimblevm import driver, tvm
from nimblevm.errors import InvalidInput, InvalidInputType, NotProvided
from nimblevm.tvm import relay
from nimblevm.tvm.runtime.vm import Executable, VirtualMachine

X, Y = relay.var("x", shape=(relay.Any(),)), relay.var("y", shape=())
MOD = tvm.IRModule.from_expr(relay.Function([X, Y], relay.Tuple([X + Y, relay.exp(Y)])))
ONE = np.ones(3, "float32")


@pytest.fixture(scope="module")
def exe() -> Executable:
    return relay.vm.compile(MOD, tvm.target.Target("llvm -mcpu=x86-64"))


def test_executable(exe: Executable) -> None:
    assert exe.globals == ["main"]
    assert exe.get_function_params("main") == ["x", "y"]
    assert exe.primitive_ops
    assert "main" in exe.bytecode
    assert "main" in exe.stats
    code, lib = exe.save()
    assert isinstance(code, bytearray)
    for given in (None, lib):
        assert Executable.load_exec(code, given).save()[0] == code
    with pytest.raises(InvalidInputType, match="lib that save"):
        Executable.load_exec(code, code)  # type: ignore[arg-type]
    with pytest.raises(
        NotProvided, match=r"move_late_bound_consts is not here: nvm\.compile\(late_bound=, weights"
    ):
        exe.move_late_bound_consts("consts")
    assert not hasattr(exe, "library")


def test_libraries_hold_the_whole_program(exe: Executable, tmp_path: Path) -> None:
    """TVM's ways to keep a program: code and library in two files, or exe.mod in one."""
    code, lib = exe.save()
    lib.export_library(str(tmp_path / "lib.so"), "cc")
    (tmp_path / "code.ro").write_bytes(code)
    library = tvm.runtime.load_module(str(tmp_path / "lib.so"))
    assert isinstance(library, tvm.runtime.Module)
    again = Executable.load_exec(bytearray((tmp_path / "code.ro").read_bytes()), library)
    exe.mod.export_library(tmp_path / "vm.so")
    module = tvm.runtime.load_module(tmp_path / "vm.so")
    profiler = tvm.runtime.profiler_vm.VirtualMachineProfiler(module, tvm.cpu())
    for vm in (
        *(VirtualMachine(x, tvm.cpu()) for x in (again, library, module, Executable(module))),
        profiler,
    ):
        np.testing.assert_array_equal(vm.run(ONE, 1.0)[0].numpy(), ONE * 2)
    run = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
    run.run(x=ONE, y=1.0)
    np.testing.assert_array_equal(run.get_output(0).numpy(), ONE * 2)


def test_what_has_fields(exe: Executable) -> None:
    """isinstance(result, ADT), as scripts ask before they read fields."""
    container = tvm.runtime.container
    result = VirtualMachine(exe, tvm.cpu()).run(ONE, 1.0)
    assert isinstance(result, container.ADT)
    assert not isinstance(result[0], container.ADT)
    mod = tvm.IRModule()
    prelude = relay.prelude.Prelude(mod)
    _, cons, nil = prelude.mod.get_type("List")
    mod["main"] = relay.Function([Y], cons(Y, nil()))
    for kind in ("debug", "vm"):
        assert isinstance(relay.create_executor(kind, mod).evaluate()(1.0), container.ADT), kind
    assert container.tuple_object([ONE, 1]) == (ONE, 1)
    assert container.tuple_object() == ()
    with pytest.raises(NotProvided, match="a tuple is a Python tuple"):
        container.ADT(0, [ONE])


def test_inputs_and_outputs(exe: Executable) -> None:
    vm = VirtualMachine(exe, [tvm.cpu()])
    assert vm.get_input_index("y") == 1
    assert vm.get_input_index("z") == -1
    vm.set_input("main", ONE, y=2.0)
    vm.invoke_stateful("main")
    total, exponent = vm.get_outputs()
    np.testing.assert_array_equal(total.numpy(), ONE * 3)
    assert exponent.shape == ()
    vm.set_one_input("main", "y", 4.0)
    np.testing.assert_array_equal(vm.run()[0].numpy(), ONE * 5)
    vm.set_one_input("main", y=1.0)
    vm.set_one_input("main", 0, ONE * 2)
    np.testing.assert_array_equal(vm.run()[0].numpy(), ONE * 3)
    with pytest.raises(InvalidInput, match="takes x, y, got x"):
        vm.set_input("main", ONE)
    with pytest.raises(InvalidInput, match="takes x, y, got x, y"):
        vm.set_input("main", ONE, x=ONE, y=1.0)
    for name in ("z", 2, -1):
        with pytest.raises(InvalidInput, match=r"@main has no parameter .*; it has: x, y"):
            vm.set_one_input("main", name, 1.0)
    for args, kwargs in (((0,), {}), ((0, 1, 2), {}), ((), {}), ((0, 1.0), {"y": 1.0})):
        with pytest.raises(InvalidInput, match="takes an index or a name and a value"):
            vm.set_one_input("main", *args, **kwargs)


def test_benchmark(exe: Executable) -> None:
    vm = VirtualMachine(exe, tvm.cpu())
    found = vm.benchmark(
        tvm.cpu(), ONE, 1.0, repeat=2, number=1, min_repeat_ms=1, cooldown_interval_ms=1
    )
    assert len(found.results) == 2
    assert 0 < found.min <= found.median <= found.max
    assert (
        str(found).splitlines()[0].split()
        == "mean (ms) median (ms) max (ms) min (ms) std (ms)".split()
    )
    counts: list[dict[str, Any]] = [{"repeat": 0}, {"number": 0}, {"repeats_to_cooldown": 0}]
    for wrong in counts:
        with pytest.raises(InvalidInput, match=f"{next(iter(wrong))} must be at least 1, not 0"):
            vm.benchmark(tvm.cpu(), ONE, 1.0, **wrong)


def test_outputs_are_those_of_the_last_call(exe: Executable) -> None:
    vm = VirtualMachine(exe, tvm.cpu())
    with pytest.raises(InvalidInput, match="nothing has run yet"):
        vm.get_outputs()
    vm.run(ONE, 1.0)
    assert vm.get_outputs()[0].numpy().tolist() == [2, 2, 2]
    total, exponent = tvm.nd.empty((3,)), np.ones((), np.float32)
    vm.invoke_with_outputs("main", {"y": 0.0, "x": tvm.nd.array(ONE)}, [total, exponent])
    assert total.numpy().tolist() == [1, 1, 1]
    assert exponent == 1
    single = relay.vm.compile(tvm.IRModule.from_expr(relay.Function([Y], relay.exp(Y))), "llvm")
    VirtualMachine(single, tvm.cpu()).invoke_with_outputs("main", {"y": 1.0}, [exponent])
    np.testing.assert_allclose(exponent, np.exp(np.float32(1)), rtol=1e-6)


def test_compiler_in_steps() -> None:
    compiler = relay.vm.VMCompiler()
    with pytest.raises(ValueError, match="call lower"):
        compiler.get_exec()
    compiler.set_params({"y": tvm.nd.array(2.0)})
    compiler.lower(MOD, "llvm")
    compiler.codegen()
    assert list(compiler.get_params()) == ["y"]
    vm = VirtualMachine(compiler.get_exec(), tvm.device("llvm"))
    np.testing.assert_array_equal(vm.run(ONE)[0].numpy(), ONE * 3)
    with pytest.raises(ValueError, match="code for CPUs"):
        compiler.lower(MOD, "vulkan")


def test_compiler_shows_what_it_makes_code_of() -> None:
    compiler = relay.vm.VMCompiler()
    made, params = compiler.optimize(MOD, "llvm", params={"y": tvm.nd.array(2.0)})
    assert list(params) == ["y"]
    assert [p.name_hint for p in made["main"].params] == ["x"]
    assert not relay.analysis.free_vars(made["main"].body)[1:]
    text = made.astext(show_meta_data=False)
    assert "Primitive=1" in text
    assert "memory.alloc_tensor" in text
    assert "exp(" not in text
    with tvm.transform.PassContext(disabled_pass=["FoldConstant"]):
        assert "exp(" in compiler.optimize(MOD)[0].astext(show_meta_data=False)
    assert [p.name_hint for p in MOD["main"].params] == ["x", "y"]
    with pytest.raises(InvalidInputType, match="params must map names"):
        driver.optimize(MOD, [ONE])  # type: ignore[arg-type]


def test_executors_tell_mistakes() -> None:
    with pytest.raises(ValueError, match="debug, vm, graph and aot"):
        relay.create_executor("interpreter")
    with pytest.raises(ValueError, match="no value for %y"):
        relay.create_executor("debug").evaluate(Y + Y)
    call = relay.create_executor("debug", MOD, params={"y": 1.0}).evaluate()
    np.testing.assert_array_equal(call(x=ONE)[0].numpy(), ONE * 2)
    with pytest.raises(TypeError, match="no other parameter z"):
        call(ONE, z=1)


def test_arrays_copy_and_take_tvms_dtypes() -> None:
    source = np.zeros(2)
    made = tvm.nd.array(source)
    source[0] = 1
    assert made.numpy()[0] == 0
    assert made.dtype == "float64"
    assert tvm.nd.array([1.5]).dtype == "float32"
    assert tvm.nd.array(3).dtype == "int32"
    assert tvm.nd.array(made).shape == (2,)
    assert tvm.nd.empty((2, 3), "int8").numpy().shape == (2, 3)


def test_parameters_by_name() -> None:
    bound = relay.build_module.bind_params_by_name(MOD["main"], {"y": np.float32(1), "other": ONE})
    assert isinstance(bound, relay.Function)
    assert [p.name_hint for p in bound.params] == ["x"]


def test_assert_allclose() -> None:
    tvm.testing.assert_allclose(ONE, ONE + 1e-9)
    with pytest.raises(AssertionError):
        tvm.testing.assert_allclose(ONE, ONE[:2])
