"""Times by kernel and by instruction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.errors import InvalidInput

TEXT = """#[version = "0.0.5"]
def @main(%x: Tensor[(?n, 8), float32], %steps: int64) -> Tensor[(?n, 8), float32] {
  if (less(%steps, 1i64)) { %x } else { @main(tanh(%x), subtract(%steps, 1i64)) }
}
"""


@pytest.fixture(scope="module")
def exe() -> nvm.Executable:
    return nvm.compile(nvm.relay.parse(TEXT))


def test_kernels_are_counted(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile=True) as vm:
        assert vm.profile().runs == 0
        assert vm.profile().vm_share == 0.0
        for _ in range(3):
            vm.run(np.ones((400, 8), "float32"), 5)
        found = vm.profile()
        assert (found.runs, [row.calls for row in found.kernels]) == (3, [15])
        assert found.instructions == ()
        assert 0 < found.kernel_seconds < found.seconds < 1
        assert 0 < found.vm_share < 1
        assert "3 runs" in str(found)
        assert found.kernels[0].name in str(found)
        vm.reset_profile()
        assert (vm.profile().runs, vm.profile().kernels) == (0, ())


def test_instructions_are_counted(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile="instructions") as vm:
        vm.run(np.ones((3, 8), "float32"), 5)
        found = vm.profile()
    calls = {row.name: row.calls for row in found.instructions}
    assert calls["CallKernel"] == 5
    assert calls["Ret"] == 1
    times = {row.name: row.seconds for row in found.instructions}
    assert times["CallKernel"] >= found.kernel_seconds
    assert sum(times.values()) < found.seconds
    assert "CallKernel" in str(found)


def test_a_run_that_fails_is_counted_too(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe, profile="instructions", limits=nvm.Limits(instructions=40)) as vm:
        with pytest.raises(nvm.NimbleError):
            vm.run(np.ones((3, 8), "float32"), 10**9)
        assert vm.profile().runs == 1


def test_results_do_not_depend_on_it(exe: nvm.Executable) -> None:
    x = np.linspace(-2, 2, 24, dtype="float32").reshape(3, 8)
    results: list[Any] = []
    for profile in (False, True, "instructions"):
        with nvm.VirtualMachine(exe, profile=profile) as vm:
            results.append(vm.run(x, 4).numpy().copy())
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_mistakes(exe: nvm.Executable) -> None:
    with nvm.VirtualMachine(exe) as vm:
        with pytest.raises(InvalidInput, match="without a profile"):
            vm.profile()
        with pytest.raises(InvalidInput, match="without a profile"):
            vm.reset_profile()
    with pytest.raises(ValueError, match="profile must be"):
        nvm.VirtualMachine(exe, profile="calls")
