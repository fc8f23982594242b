"""The backends that the suite runs on: ONE small table. A new backend adds an entry, and nothing else.

What an entry says: how to get code for the two kernels of the suite where the backend needs any (device code of loop
IR, or an external section), what makes a bad section, and why the backend can't be had here, if so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache

import msgpack

import nimblevm as nvm
from nimblevm.compiler.kernel_table import KernelCache
from nimblevm.compiler.pass_base import PassContext
from nimblevm.compiler.passes.fuse_ops import FUSE_OPS
from nimblevm.compiler.passes.insert_checks import INSERT_CHECKS
from nimblevm.compiler.passes.to_anf import TO_ANF
from nimblevm.compiler.rewrite import is_primitive, postorder
from nimblevm.devices.vta_isa import Config
from nimblevm.external.vta_program import ProgramWriter
from nimblevm.kernels import device_support, llvm
from nimblevm.kernels.loop_ir import Kernel
from nimblevm.relay.ir import Function
from tests.devices.backend import needs_opencl
from tests.devices.conformance.driver import harness
from tests.devices.cuda_programs import fake_gpus, translated
from tests.devices.fake_cuda import driver as fake_driver

DEVICE_SECTION, EXTERNAL_SECTION = 4, 5
ADD_ONE, GATHER = 0, 1
"""The suite's kernels: out = x + 1 of float32[n], called with dims [n]; out = take(x, index) of float32[n] and int32[m],
checked, called with dims [m, n].
"""
TEXTS = (
    "def @main(%x: Tensor[(?n), float32]) { add(%x, 1f) }",
    """def @main(%x: Tensor[(?n), float32], %i: Tensor[(?m), int32]) {
      take(%x, %i, axis=0, mode="fast") }""",
)


@dataclass(frozen=True)
class Section:
    """A section of the file for a backend: kind 4 or 5, target, bytes."""

    kind: int
    target: str
    code: bytes


@dataclass(frozen=True)
class Case:
    """A backend under test.

    section   code for kernels ADD_ONE and GATHER; None: it runs the host's functions
    bad       bytes that no module can be made of
    computes  False: kernels leave outputs as they are (null)
    general   False: it runs kernels of its own external code alone, which have tests elsewhere
    reports   kernels can report faults
    skip      why it can't be had here, "" if it can; asked when a test runs
    machine   what stands for the hardware while a test runs, and looks at what was left behind
    """

    name: str
    section: Callable[[], Section] | None = None
    bad: Sequence[bytes] = (
        b"",
        b"\x80",
        b"no msgpack",
        b"\x82\xa6source\xc4\x00\xa7kernels\x81\x00\x91\x01",
    )
    computes: bool = True
    reports: bool = True
    general: bool = True
    skip: Callable[[], str] = lambda: ""
    machine: Callable[[], AbstractContextManager[object]] = nullcontext


def suite_kernels() -> list[tuple[int, Kernel]]:
    """The suite's kernels as loop IR, with their numbers: what generators of device code take."""
    found = []
    for number, text in enumerate(TEXTS):
        mod = nvm.relay.parse('#[version = "0.0.5"]\n' + text)
        for step in (INSERT_CHECKS, TO_ANF, FUSE_OPS):
            mod = step(mod, PassContext())
        groups = [
            n
            for f in mod.functions.values()
            for n in postorder(f.body)
            if isinstance(n, Function) and is_primitive(n)
        ]
        found.append((number, KernelCache().find(groups[0])[0].lowered.kernel))
    return found


def generated(backend: str) -> Callable[[], Section]:
    """Device code by the compiler's own generator, made once a process."""
    return cache(
        lambda: Section(
            DEVICE_SECTION, backend, device_support.DEVICE_CODE[backend](suite_kernels())
        )
    )


def vta_programs() -> Section:
    """External code for VTA, programs without steps: what the suite's kernels compute, float32, it can't."""
    blob = ProgramWriter(Config(), 2).data()
    code = msgpack.packb({ADD_ONE: blob, GATHER: blob}, use_bin_type=True)
    return Section(EXTERNAL_SECTION, "vta", code)


def _no_opencl() -> str:
    missing = needs_opencl.mark.args[0]
    return str(needs_opencl.mark.kwargs["reason"]) if missing else ""


@contextmanager
def fake_gpu_machine() -> Iterator[None]:
    """Two GPUs of a driver made for tests, which asserts that no call broke a rule and nothing stayed alive. It runs
    the PTX that is generated meanwhile, translated to C.
    """
    assert harness().nvm_cuda_driver_set(fake_driver.path().encode()) == 0
    with fake_gpus(), translated():
        yield


CASES: tuple[Case, ...] = (
    Case("cpu"),
    Case("null", computes=False, reports=False),
    Case("simulated"),
    Case("opencl", generated("opencl"), skip=_no_opencl),
    Case(
        "cuda",
        generated("cuda"),
        skip=lambda: "" if llvm.HAVE_LLVM else "no llvmlite, which makes the PTX",
        machine=nullcontext if os.environ.get("NVM_TEST_GPU") else fake_gpu_machine,
    ),
    Case(
        "vta", vta_programs, computes=False, reports=False, general=False
    ),  # tests/devices/test_vta.py
)
"""Every backend of this build has an entry."""
