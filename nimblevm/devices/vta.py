"""VTA (arXiv 1807.04188), simulated: counters of the backend "vta", and a simulator for streams made by hand.

Programs get on it by `compile(device="cpu,vta")`. docs/vta.md states the instruction set and how cycles are counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from nimblevm._ffi import check, ffi, lib
from nimblevm.devices import vta_isa
from nimblevm.devices.vta_isa import Config, Instruction
from nimblevm.errors import Closed


@dataclass(frozen=True, slots=True)
class Stats:
    """Work of runs: of one, or of all since the process started.

    cycles          from the first fetch to the end of the slowest module, `layout_cycles` included
    load_cycles ... of the instructions of each kind; they overlap
    layout_cycles   rearranging tensors between row-major and blocked, beside which nothing runs
    bytes_loaded    all modules; uop_bytes and wgt_bytes are part of it
    uop_loads       micro-kernels that a call had to load; uop_reuses: those that it found loaded
    """

    runs: int
    instructions: int
    cycles: int
    load_cycles: int
    gemm_cycles: int
    alu_cycles: int
    store_cycles: int
    layout_cycles: int
    block_products: int
    bytes_loaded: int
    bytes_stored: int
    uop_bytes: int
    wgt_bytes: int
    uop_loads: int
    uop_reuses: int

    @property
    def utilisation(self) -> float:
        """The share of cycles in which the matrix unit made a block product, 0 to 1."""
        return self.block_products / self.cycles if self.cycles else 0.0

    def __sub__(self, other: Stats) -> Stats:
        """What happened between two readings."""
        return Stats(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


def _stats(record: Any) -> Stats:
    return Stats(*(int(getattr(record, field.name)) for field in fields(Stats)))


def stats() -> Stats:
    """Of all VTA devices since the process started."""
    record = ffi.new("nvm_vta_stats *")
    lib.nvm_vta_stats_get(record)
    return _stats(record)


class Simulator:
    """One VTA with memory of its own, without a VM.

    with Simulator(dram_bytes=4096) as vta:
        vta.dram[:64] = ...
        stats = vta.run([Load(Memory.INP, ...), ..., Finish()])

    Scratchpads are empty at the start of each run, but micro-ops stay. Raises InvalidExecutable for a configuration
    that C refuses, DeviceError that names the instruction at fault. Threads take turns.
    """

    def __init__(self, config: Config | None = None, dram_bytes: int = 1 << 20) -> None:
        self.config = config or Config()
        self._lock = Lock()
        numbers = ffi.new("nvm_vta_config *", self.config.numbers())
        out = ffi.new("nvm_vta_simulator **")
        self._dram = np.zeros(dram_bytes, np.uint8)
        check(lib.nvm_vta_simulator_create(numbers, ffi.from_buffer(self._dram), dram_bytes, out))
        self._handle: Any = out[0]

    @property
    def dram(self) -> npt.NDArray[np.uint8]:
        """The memory, to be read and written between runs."""
        return self._dram

    def run(self, program: Iterable[Instruction] | bytes, cycle_limit: int = 0) -> Stats:
        """Execute a stream, instructions or their encoding. cycle_limit: more cycles are an error, 0 for no limit."""
        data = program if isinstance(program, bytes) else vta_isa.encode(program)
        if len(data) % vta_isa.INSTRUCTION_BYTES:
            raise ValueError(f"{len(data)} bytes are no whole number of instructions")
        record = ffi.new("nvm_vta_stats *")
        count = len(data) // vta_isa.INSTRUCTION_BYTES
        with self._lock:
            check(lib.nvm_vta_simulator_run(self._open(), data, count, cycle_limit, record))
        return _stats(record)

    def _open(self) -> Any:
        if self._handle is None:
            raise Closed("this simulator is closed")
        return self._handle

    def close(self) -> None:
        """Free its memory; the second time nothing happens."""
        with self._lock:
            if self._handle is not None:
                lib.nvm_vta_simulator_destroy(self._handle)
                self._handle = None

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()


def decoded_fields(instruction: bytes) -> list[int]:
    """The fields of one instruction as the C decoder reads them, in the order of docs/vta.md. For tests of encoders.

    Raises DeviceError for what is no instruction.
    """
    if len(instruction) != vta_isa.INSTRUCTION_BYTES:
        raise ValueError(f"an instruction has 16 bytes, not {len(instruction)}")
    out = ffi.new("int64_t[26]")
    check(lib.nvm_vta_fields(instruction, out))
    return [int(value) for value in out]


__all__ = ["Config", "Simulator", "Stats", "decoded_fields", "stats"]
