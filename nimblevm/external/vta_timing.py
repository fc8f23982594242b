"""How many cycles a stream takes, without running it: the model of docs/vta.md, as the simulator counts it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from nimblevm.devices.vta_isa import (
    INSTRUCTION_BYTES,
    Alu,
    Config,
    Finish,
    Gemm,
    Instruction,
    Load,
    Memory,
    Store,
)

LOADER, COMPUTE, STORER = range(3)
COMMANDS = 512
"""Instructions that wait for one module at most; the fetch waits then."""


def module_of(instruction: Instruction) -> int:
    """Which module executes it."""
    if isinstance(instruction, Store):
        return STORER
    loads = isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT)
    return LOADER if loads else COMPUTE


def duration(instruction: Instruction, config: Config) -> int:
    """Cycles of one instruction."""
    match instruction:
        case Load() | Store():
            i = instruction
            entries = (i.y_pad_0 + i.y_size + i.y_pad_1) * (i.x_pad_0 + i.x_size + i.x_pad_1)
            moved = i.y_size * i.x_size * config.entry_bytes(i.memory)
            return (
                config.dram_latency + max(-(-moved // config.bytes_a_cycle), entries)
                if entries
                else 1
            )
        case Gemm():
            return max(instruction.iter_out * instruction.iter_in * _uops(instruction), 1)
        case Alu():
            ports = 2 if instruction.immediate is None else 1
            return max(instruction.iter_out * instruction.iter_in * _uops(instruction) * ports, 1)
        case Finish():
            return 1


def _uops(instruction: Gemm | Alu) -> int:
    return max(instruction.uop_end - instruction.uop_begin, 0)


def cycles(stream: Sequence[Instruction], config: Config) -> int:
    """From the first fetch to the end of the slowest module. Queues of tokens are taken to be long enough.

    Raises ValueError for a stream that waits for ever.
    """
    commands: tuple[deque[tuple[Instruction, int]], ...] = (deque(), deque(), deque())
    started: tuple[list[int], ...] = ([], [], [])
    put, free, fetched = [0, 0, 0], [0, 0, 0], 0
    tokens: dict[tuple[int, int], deque[int]] = {
        (a, b): deque() for a in range(3) for b in (a - 1, a + 1)
    }
    fetch = -(-INSTRUCTION_BYTES // config.bytes_a_cycle)

    def step(module: int) -> bool:
        """Time the instruction at the head of a module's queue, if its tokens are there."""
        instruction, ready = commands[module][0]
        sources = [module - 1] * instruction.pop_prev + [module + 1] * instruction.pop_next
        if any(not tokens[source, module] for source in sources):
            return False
        start = max(
            [free[module], ready, *(tokens[source, module].popleft() for source in sources)]
        )
        free[module] = start + duration(instruction, config)
        started[module].append(start)
        for target in [module - 1] * instruction.push_prev + [module + 1] * instruction.push_next:
            tokens[module, target].append(free[module])
        commands[module].popleft()
        return True

    def advance() -> None:
        while any(bool(commands[m]) and step(m) for m in range(3)):
            pass

    for instruction in stream:
        module = module_of(instruction)
        if len(commands[module]) == COMMANDS:
            advance()
        fetched += fetch
        if put[module] >= COMMANDS and len(started[module]) > put[module] - COMMANDS:
            fetched = max(fetched, started[module][put[module] - COMMANDS])
        put[module] += 1
        commands[module].append((instruction, fetched))
    advance()
    if any(commands):
        raise ValueError("a stream that waits for ever")
    return max(fetched, *free)


__all__ = ["cycles", "duration", "module_of"]
