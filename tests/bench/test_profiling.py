"""What profiles cost, by level: a loop of four instructions, and kernels of one element. Measured, not asserted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nimblevm as nvm
from nimblevm.bytecode.assembler import assemble
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.serialize import serialize
from tests.bench.measure import nanoseconds, record
from tests.bench.test_budgets import CHAIN, HEADER, KERNELS, TURNS

pytestmark = pytest.mark.bench
LEVELS = [False, True, "instructions", "events"]


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_instructions(benchmark: Any, level: bool | str) -> None:
    text = Path(__file__).with_name("budgets.nvmasm").read_text()
    vm = nvm.VirtualMachine(Executable.from_bytes(serialize(assemble(text))))
    vm.start_profile(level, max_events=1000)
    took = nanoseconds(benchmark, lambda: vm.invoke("base", TURNS))
    record(benchmark, f"profile {level}: a turn of four instructions", "vm", took / TURNS, None)


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_kernels(benchmark: Any, level: bool | str) -> None:
    vm = nvm.VirtualMachine(nvm.compile(nvm.relay.parse(HEADER + KERNELS)))
    vm.start_profile(level, max_events=1000)
    turns, x = TURNS // CHAIN, np.ones(1, np.float32)
    took = nanoseconds(benchmark, lambda: vm.run(turns, x))
    record(benchmark, f"profile {level}: a kernel of 1 element", "vm", took / (turns * CHAIN), None)
