"""Programs compiled for "cuda", whose PTX is translated on the way, so that the fake driver can load it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from nimblevm.devices import cuda
from nimblevm.driver import compile_to_bytes
from nimblevm.kernels import device_support, ptx
from nimblevm.kernels.loop_ir import Kernel
from tests.devices.fake_cuda import driver as fake


@contextmanager
def fake_gpus() -> Iterator[fake.Driver]:
    """A machine with two GPUs; afterwards it has none. Checks that no call broke a rule and nothing is alive."""
    cuda.use_driver(fake.path())
    driver = fake.driver()
    with driver.gpus():
        yield driver
        assert driver.violations() == ""
        assert driver.state().held() == {}


@contextmanager
def translated(run: bool = True) -> Iterator[list[bytes]]:
    """Payloads of sections for "cuda" that are made in here. `run`: so that the driver can load them."""
    payloads: list[bytes] = []

    def generate(kernels: Sequence[tuple[int, Kernel]]) -> bytes:
        payloads.append(ptx.generate(kernels))
        if run:
            fake.add_payload(payloads[-1])
        return payloads[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            device_support, "DEVICE_CODE", {**device_support.DEVICE_CODE, "cuda": generate}
        )
        yield payloads


def compiled(
    module: Any, device: str = "cuda", run: bool = True, **options: Any
) -> tuple[bytes, bytes]:
    """The file, and the payload of its section for "cuda". `run`: so that the driver can load it."""
    with translated(run) as payloads:
        data = compile_to_bytes(module, device=device, **options)
    return data, payloads[-1]


__all__ = ["compiled", "fake_gpus", "translated"]
