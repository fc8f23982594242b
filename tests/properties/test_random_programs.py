"""Random well-typed programs: oracle = compiled = saved and loaded = native off (IR interpreter)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import nimblevm as nvm
from nimblevm.relay.interpreter import evaluate
from tests.properties.compare import assert_same
from tests.properties.programs import Program, programs

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


def check(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    mod = nvm.relay.parse(program.text, source_name="random.rly")
    expected = evaluate(mod, program.args)
    exe = nvm.compile(mod)
    path = tmp_path_factory.mktemp("program") / "p.nvm"
    exe.save(path)
    for executable in (exe, nvm.load(path), nvm.load(path, native=False)):
        with nvm.VirtualMachine(executable) as vm:
            for _ in range(2):  # state left over from an earlier call would show
                assert_same(vm.run(*program.args), expected)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(program=programs())
def test_random_programs(program: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(program, tmp_path_factory)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, derandomize=True, suppress_health_check=QUIET)
@given(program=programs())
def test_two_thousand_random_programs(
    program: Program, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check(program, tmp_path_factory)


def test_assert_same_sees_differences() -> None:
    assert_same((np.float32(1),), (np.float32(1),))
    with pytest.raises(AssertionError):
        assert_same(np.float32(1), np.float64(1))
    with pytest.raises(AssertionError):
        assert_same(np.zeros(3), np.zeros((3, 1)))
