"""Parameters whose variables share a name: an argument by name went to all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm import relay
from nimblevm.bytecode.serialize import serialize
from nimblevm.errors import CompileError, InvalidInput


def module() -> relay.IRModule:
    n = relay.DimVar("n")
    x, twin, other = (relay.var("x", shape=(n,)) for _ in range(3))
    taken = relay.var("x_1", shape=(n,))
    body = relay.Tuple([x - twin, taken - other])
    return relay.IRModule.from_expr(relay.Function([x, twin, taken, other], body))


def test_each_has_a_name_of_its_own() -> None:
    exe = nvm.compile(module(), native=False)
    main = exe.functions["main"]
    assert [p.name for p in main.params] == ["x", "x_2", "x_1", "x_3"]
    one, two, three, four = (np.full(2, i, np.float32) for i in range(1, 5))
    with nvm.VirtualMachine(exe) as vm:
        found = vm.run(one, x_1=three, x_3=four, x_2=two)
        assert [f.tolist() for f in found] == [[-1, -1], [-1, -1]]
        with pytest.raises(InvalidInput, match="parameter %x was given twice"):
            vm.run(one, x=one)
        with pytest.raises(InvalidInput, match=r"%x_3 of @main: axis 0"):
            vm.run(one, one, one, np.zeros(3, np.float32))


def test_files_may_still_share_them() -> None:
    record = nvm.compile(module(), native=False).program_record()
    main = record.functions[0]
    params = tuple(replace(p, name="x") for p in main.params)
    functions = (replace(main, params=params), *record.functions[1:])
    exe = nvm.load(serialize(replace(record, functions=functions)))
    one, two = np.ones(2, np.float32), np.zeros(2, np.float32)
    with nvm.VirtualMachine(exe) as vm:
        assert vm.run(one, two, two, one)[0].tolist() == [1, 1]
        with pytest.raises(InvalidInput, match="%x names several parameters; give them in order"):
            vm.run(one, two, two, x=one)
        with pytest.raises(InvalidInput, match="missing argument for %x, %x"):
            vm.run(one, two)


def test_params_by_an_ambiguous_name_are_refused() -> None:
    with pytest.raises(CompileError, match="params names x, but @main has several parameters"):
        nvm.compile(module(), {"x": np.ones(2, np.float32)})
