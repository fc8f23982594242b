"""ResNet-18 and a detection head with NMS: compiled = numpy on random batches and image sizes, saved, native off."""

from __future__ import annotations

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bench.workloads import resnet, ssd


@pytest.mark.slow
def test_resnet18_on_20_random_sizes() -> None:
    params = resnet.params(4, 10)
    exe = nvm.compile(nvm.relay.parse(resnet.text(4, 10), source_name="resnet.rly"), params=params)
    blob = exe.to_bytes()
    rng = np.random.default_rng(1)
    with (
        nvm.VirtualMachine(nvm.load(blob)) as vm,
        nvm.VirtualMachine(nvm.load(blob, native=False)) as interpreted,
    ):
        for turn in range(20):
            n, h, w = (int(rng.integers(0, 4)), int(rng.integers(1, 70)), int(rng.integers(1, 70)))
            x = rng.standard_normal((n, 3, h, w)).astype(np.float32)
            want = resnet.reference(x, **params)
            np.testing.assert_allclose(vm.run(x).numpy(), want, rtol=1e-4, atol=1e-4)
            if turn % 5 == 0:
                got = interpreted.run(x).numpy()
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("turns", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_a_detection_head_on_random_sizes(turns: int) -> None:
    params = ssd.params()
    exe = nvm.compile(nvm.relay.parse(ssd.text(), source_name="ssd.rly"), params=params)
    blob = exe.to_bytes()
    rng = np.random.default_rng(2)
    machines = [nvm.VirtualMachine(e) for e in (exe, nvm.load(blob), nvm.load(blob, native=False))]
    kept = 0
    for turn in range(turns):
        n, h, w = (int(rng.integers(1, 9)) for _ in range(3))
        n = n if turn else 0
        x = 2 * rng.standard_normal((n, 16, h, w)).astype(np.float32)
        want = ssd.reference(x, **params)
        kept += int((want[..., 0] >= 0).sum())
        for vm in machines:
            got = vm.run(x).numpy()
            assert (
                np.diff(got[..., 1], axis=1) < 1e-5
            ).all()  # best first; nearly equal scores may swap
            np.testing.assert_allclose(by_place(got), by_place(want), rtol=1e-4, atol=1e-5)
    assert kept > 5 * turns
    for vm in machines:
        vm.close()


def by_place(rows: np.ndarray) -> np.ndarray:
    """The rows of every image in an order that rounding hardly changes: of a mix of all their fields."""
    order = np.argsort(rows @ np.array([1.0, 2.3, 3.7, 5.1, 7.9, 11.2]), axis=1, kind="stable")
    return np.take_along_axis(rows, order[..., None], axis=1)
