"""Random recurrent programs: the passes on loops, walks and products keep their meaning, at every length."""

from __future__ import annotations

import pytest
from hypothesis import given

import nimblevm as nvm
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same
from tests.properties.examples import examples
from tests.properties.recurrent import Recurrent, loops, to_adt, walks

FEW = examples(5)
MANY = examples(300)


def check(program: Recurrent, native: bool) -> None:
    mod = infer_type(program.mod)
    with nvm.compile(mod, verify=True, native=native) as exe, nvm.VirtualMachine(exe) as vm:
        for run in program.runs:
            args = [to_adt(a, exe.constructor) for a in run]
            assert_same(vm.run(*args), evaluate(mod, args), rtol=1e-3)


@FEW
@given(loops())
def test_loops(program: Recurrent) -> None:
    check(program, native=False)


@FEW
@given(walks())
def test_walks(program: Recurrent) -> None:
    check(program, native=False)


@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True])
@MANY
@given(loops())
def test_many_loops(native: bool, program: Recurrent) -> None:
    check(program, native)


@pytest.mark.slow
@MANY
@given(walks())
def test_many_walks(program: Recurrent) -> None:
    check(program, native=False)
