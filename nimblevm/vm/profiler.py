"""Where a VM's time goes: per kernel, and on request per instruction.

vm = nvm.VirtualMachine(exe, profile=True)       # or profile="instructions"
vm.run(x)
print(vm.profile())                              # vm.profile().kernels[0].seconds, .vm_share, ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nimblevm._ffi import check, ffi, lib
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.isa import BY_NUMBER

LEVELS: dict[bool | str, int] = {
    False: lib.NVM_PROFILE_OFF,
    True: lib.NVM_PROFILE_KERNELS,
    "kernels": lib.NVM_PROFILE_KERNELS,
    "instructions": lib.NVM_PROFILE_INSTRUCTIONS,
}
"""What `profile` of a VirtualMachine may be."""
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Time:
    """Calls of one kernel, or executions of one instruction, and the time that all of them took, s."""

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """All runs of a VM since it was made or reset.

    runs, seconds   how many, and their time in C: conversion of arguments and results included, Python's not
    kernels         each kernel that was called, the longest first
    instructions    the same by mnemonic, if they were asked for; CallKernel's time holds the kernels'. Reading the
                    clock makes short instructions seem some 10 ns longer
    """

    runs: int
    seconds: float
    kernels: tuple[Time, ...]
    instructions: tuple[Time, ...]

    @property
    def kernel_seconds(self) -> float:
        return sum(row.seconds for row in self.kernels)

    @property
    def vm_share(self) -> float:
        """The part of the time that was not spent in kernels, 0 to 1; 0 before the first run."""
        return 1 - self.kernel_seconds / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.runs} runs, {self.seconds * 1e6:.1f} us; kernels {self.kernel_seconds * 1e6:.1f} us, "
            f"VM {self.vm_share:.1%}"
        ]
        for title, rows in (("kernel", self.kernels), ("instruction", self.instructions)):
            lines += _table(title, rows, self.seconds)
        return "\n".join(lines)


def _table(title: str, rows: tuple[Time, ...], total: float) -> list[str]:
    if not rows:
        return []
    shown = rows[:_SHOWN]
    width = max(len(title), *(len(row.name) for row in shown))
    lines = [f"{title:<{width}}  {'calls':>9}  {'us':>11}  {'us a call':>10}  {'share':>6}"]
    for row in shown:
        each = f"{row.seconds / row.calls * 1e6:>10.3f}  {row.seconds / total:>6.1%}"
        lines.append(f"{row.name:<{width}}  {row.calls:>9}  {row.seconds * 1e6:>11.1f}  {each}")
    if len(rows) > len(shown):
        rest = rows[_SHOWN:]
        time = sum(row.seconds for row in rest) * 1e6
        lines.append(
            f"{f'{len(rest)} more':<{width}}  {sum(r.calls for r in rest):>9}  {time:>11.1f}"
        )
    return lines


def read(handle: Any, exe: Executable) -> Profile:
    """The profile of a VM (its C handle). InvalidInput if it was made without one; VMBusy during a run."""
    out = ffi.new("nvm_profile *")
    check(lib.nvm_vm_profile_get(handle, out))
    second = out.cycles / out.nanoseconds * 1e9 if out.nanoseconds else 1.0
    names = [kernel.name for kernel in exe.kernels]
    kernels = _times(out.kernels, out.n_kernels, second, lambda number: names[number])
    instructions = _times(
        out.opcodes, out.n_opcodes, second, lambda number: BY_NUMBER[number].mnemonic
    )
    return Profile(int(out.runs), out.cycles / second, kernels, instructions)


def _times(rows: Any, count: int, second: float, name: Callable[[int], str]) -> tuple[Time, ...]:
    found = [
        Time(name(number), int(rows[number].calls), rows[number].cycles / second)
        for number in range(count)
        if rows[number].calls
    ]
    return tuple(sorted(found, key=lambda row: -row.seconds))


__all__ = ["LEVELS", "Profile", "Time", "read"]
