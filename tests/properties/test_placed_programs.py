"""Random programs whose kernels run on a device give the oracle's value: no host code reads device memory (it could
not: the simulated device's addresses fault), and no copy is missing or stale.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

import nimblevm as nvm
from nimblevm.errors import NimbleError
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same
from tests.properties.effects import effect_programs
from tests.properties.everywhere import PLAIN, outcome
from tests.properties.examples import examples
from tests.properties.extended import extended_programs
from tests.properties.operators import module_text
from tests.properties.programs import Program, programs
from tests.properties.recurrent import Recurrent, loops, to_adt, walks
from tests.properties.test_operator_programs import batches

FEW = examples(2)
MANY = examples(60)
ARGS = (np.int32(2), np.int32(5))
VARIANTS: tuple[dict[str, Any], ...] = ({"verify": True}, dict(PLAIN), {"unbox": False})


def check(mod: nvm.relay.IRModule, args: tuple[Any, ...], expected: Any, **options: Any) -> None:
    exe = nvm.compile(mod, native=False, device="simulated", **options)
    with nvm.VirtualMachine(exe) as vm:
        assert vm.devices == ("cpu", "simulated")
        for _ in range(2):  # state left over from an earlier call would show
            assert_same(vm.run(*args), expected)
        with nvm.VirtualMachine(exe, device="cpu") as host:
            assert_same(host.run(*args), expected)


def check_all(program: Program) -> None:
    mod = nvm.relay.parse(program.text, source_name="random.rly")
    expected = evaluate(mod, program.args)
    for options in VARIANTS:
        check(mod, program.args, expected, **options)


def check_effects(text: str) -> None:
    """Errors come as they do on the host."""
    mod = nvm.relay.parse(text, source_name="random.rly")
    found = []
    ways: tuple[dict[str, Any], ...] = ({}, {"device": "simulated"})
    for options in ways:
        with nvm.VirtualMachine(nvm.compile(mod, native=False, **PLAIN, **options)) as vm:
            found.append(outcome(vm.run, *ARGS))
    if isinstance(found[0], NimbleError):
        assert type(found[1]) is type(found[0])
    else:
        assert_same(found[1], found[0])


def check_recurrent(program: Recurrent) -> None:
    mod = infer_type(program.mod)
    for options in ({"verify": True}, PLAIN):
        exe = nvm.compile(mod, native=False, device="simulated", **options)
        with exe, nvm.VirtualMachine(exe) as vm:
            for run in program.runs:
                args = [to_adt(a, exe.constructor) for a in run]
                assert_same(vm.run(*args), evaluate(mod, args), rtol=1e-3)


@FEW
@given(program=programs())
def test_programs(program: Program) -> None:
    check_all(program)


@FEW
@given(program=extended_programs())
def test_programs_with_sharing_and_effects(program: Program) -> None:
    check_all(program)


@pytest.mark.slow
@MANY
@given(program=programs())
def test_many_programs(program: Program) -> None:
    check_all(program)


@pytest.mark.slow
@MANY
@given(program=extended_programs())
def test_many_programs_with_sharing_and_effects(program: Program) -> None:
    check_all(program)


@FEW
@given(text=effect_programs(failing=True))
def test_effects(text: str) -> None:
    check_effects(text)


@FEW
@given(program=loops())
def test_loops(program: Recurrent) -> None:
    check_recurrent(program)


@FEW
@given(program=walks())
def test_walks(program: Recurrent) -> None:
    check_recurrent(program)


@pytest.mark.slow
@MANY
@given(program=loops())
def test_many_loops(program: Recurrent) -> None:
    check_recurrent(program)


@pytest.mark.slow
@MANY
@given(program=walks())
def test_many_walks(program: Recurrent) -> None:
    check_recurrent(program)


@pytest.mark.slow
def test_operators() -> None:
    """Every total operator in random company."""
    for index, programs_ in enumerate(batches(0, 250)):
        mod = nvm.relay.parse(module_text(programs_), source_name="random.rly")
        expected = [evaluate(mod, p.args, p.name) for p in programs_]
        exe = nvm.compile(mod, native=False, device="simulated", **VARIANTS[index % 3])
        with nvm.VirtualMachine(exe) as vm:
            for program, value in zip(programs_, expected, strict=True):
                try:
                    assert_same(vm.invoke(program.name, *program.args), value)
                except Exception as error:
                    error.add_note(program.text)
                    raise
