"""Random well-typed programs: oracle = compiled = saved and loaded = native off (IR interpreter).

1,500 of the programs in CI, at least 5,000; the others are those of test_operator_programs.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, reject

import nimblevm as nvm
from nimblevm.errors import NimbleError, RelayTypeError
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same
from tests.properties.everywhere import PLAIN
from tests.properties.examples import examples
from tests.properties.extended import extended_programs
from tests.properties.programs import Program, programs

FEW = examples(5)
MANY = examples(500)


def check(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All paths give the oracle's value."""
    mod = nvm.relay.parse(program.text, source_name="random.rly")
    expected = evaluate(mod, program.args)
    exe = nvm.compile(mod)
    path = tmp_path_factory.mktemp("program") / "p.nvm"
    exe.save(path)
    for executable in (exe, nvm.load(path), nvm.load(path, native=False)):
        run(executable, program, expected)


def run(executable: nvm.Executable, program: Program, expected: Any) -> None:
    with nvm.VirtualMachine(executable) as vm:
        for _ in range(2):  # state left over from an earlier call would show
            assert_same(vm.run(*program.args), expected)


def check_with_errors(program: Program) -> None:
    """Without the optional passes also errors agree; with them, what is dead may be gone, but nothing fails that did
    not fail.
    """
    try:
        mod = nvm.relay.parse(program.text, source_name="random.rly")
    except RelayTypeError as refuted:
        # A size that a program found out to be 0 may be one that inference knows, too.
        if "needs a non-empty axis" not in str(refuted):
            raise
        reject()
    expected: Any = None
    error: NimbleError | None = None
    try:
        expected = evaluate(mod, program.args)
    except NimbleError as found:
        error = found
    plain = nvm.compile(mod, **PLAIN)
    for executable in (plain, nvm.load(plain.to_bytes(), native=False)):
        if error is None:
            run(executable, program, expected)
            continue
        with nvm.VirtualMachine(executable) as vm, pytest.raises(type(error)):
            vm.run(*program.args)
    executable = nvm.compile(mod, verify=True)
    if error is None:
        run(executable, program, expected)
        return
    with nvm.VirtualMachine(executable) as vm:
        try:
            vm.run(*program.args)
        except NimbleError:
            return


@FEW
@given(program=programs())
def test_random_programs(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(program, tmp_path_factory)


@FEW
@given(program=extended_programs())
def test_random_programs_with_sharing_and_effects(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(program, tmp_path_factory)


@FEW
@given(program=extended_programs(failing=True))
def test_random_programs_that_may_fail(program: Program) -> None:
    check_with_errors(program)


@pytest.mark.slow
@MANY
@given(program=programs())
def test_five_hundred_random_programs(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(program, tmp_path_factory)


@pytest.mark.slow
@MANY
@given(program=extended_programs())
def test_five_hundred_random_programs_with_sharing_and_effects(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(program, tmp_path_factory)


@pytest.mark.slow
@MANY
@given(program=extended_programs(failing=True))
def test_five_hundred_random_programs_that_may_fail(program: Program) -> None:
    check_with_errors(program)
