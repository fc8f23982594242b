"""Where a VM's time goes: by kernel and the sizes it was called with, by instruction and source line, and as events.

vm = nvm.VirtualMachine(exe, profile=True)       # or "instructions", "events": each has what the one before has
vm.run(x)
print(vm.profile())                              # vm.profile().kernels[0].seconds, .operations, .bytes, ...

nimblevm.profiling makes a trace for Perfetto and a page for a browser of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from nimblevm._ffi import check, ffi, lib
from nimblevm.bytecode.executable import Executable
from nimblevm.bytecode.isa import BY_NUMBER
from nimblevm.bytecode.serialize import ProgramRecord
from nimblevm.vm.kernel_work import NO_WORK, Work, WorkCounter, operand_shapes

LEVELS: Mapping[bool | str, int] = MappingProxyType(
    {
        False: lib.NVM_PROFILE_OFF,
        True: lib.NVM_PROFILE_KERNELS,
        "kernels": lib.NVM_PROFILE_KERNELS,
        "instructions": lib.NVM_PROFILE_INSTRUCTIONS,
        "events": lib.NVM_PROFILE_EVENTS,
    }
)
"""What `profile` of a VirtualMachine may be."""
MOST_EVENTS = 1 << 20
"""Room for events if nothing else is said; 40 bytes each."""

_SHOWN = 20
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Time:
    """Calls of one kernel, or executions of one instruction, and the time that all of them took, s."""

    name: str
    calls: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sizes:
    """Calls of one kernel with operands of the same shapes.

    dims        its dims by name; those that are passed as numbers (an index of a loop, say) only in events
    shapes      of its operands, as text
    work        operations and bytes of all these calls
    """

    dims: tuple[tuple[str, int], ...]
    shapes: tuple[str, ...]
    calls: int
    seconds: float
    work: Work


@dataclass(frozen=True, slots=True)
class KernelTime(Time):
    """All calls of one kernel.

    number      its place in the executable's kernel table
    work        operations and bytes of all calls; operations None where they are not known (kernel_work.py)
    sizes       by what it was called with, the longest first; calls of more different sizes than the profile tells
                apart (65,536) are missing here
    """

    number: int
    work: Work
    sizes: tuple[Sizes, ...]

    @property
    def operations_per_second(self) -> float | None:
        """None if operations are not known or there are none."""
        return (
            self.work.operations / self.seconds if self.work.operations and self.seconds else None
        )

    @property
    def bytes_per_second(self) -> float | None:
        return self.work.bytes / self.seconds if self.work.bytes and self.seconds else None


@dataclass(frozen=True, slots=True)
class LineTime:
    """Instructions of one source line in one function: how many ran, and their time, kernels included, s.

    source ""   the place is not known
    """

    function: str
    source: str
    line: int
    calls: int
    seconds: float


EVENT = np.dtype(
    [
        ("at", "u8"),
        ("a", "u8"),
        ("b", "u8"),
        ("kind", "u4"),
        ("index", "u4"),
        ("shape", "i4"),
        ("padding", "u4"),
    ]
)
"""nvm_profile_event. `at` and durations are cycles."""
assert ffi.sizeof("nvm_profile_event") == EVENT.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """What happened, in the order in which it ended.

    rows        records of dtype EVENT; nvm_api.h (NVM_EVENT_*) says what the fields of each kind are
    dropped     events that there was no room for: the last ones
    second      cycles a second
    sizes       index into KernelTime.sizes rows by an event's `shape`: (kernel number, Sizes)
    places      where a word of code is
    """

    rows: np.ndarray[Any, Any]
    dropped: int
    second: float
    sizes: tuple[tuple[int, Sizes], ...]
    places: Places


@dataclass(frozen=True, slots=True)
class Profile:
    """All runs of a VM since it was made or reset.

    runs, seconds   how many, and their time in C: conversion of arguments and results included, not Python's, and not
                    what the profile itself took to note kernels
    kernels         each kernel that was called, the longest first
    instructions    the same by mnemonic, if they were asked for; CallKernel's time holds the kernels'. Reading the
                    clock makes short instructions seem some 10 ns longer
    lines           the same by function and source line
    events          None unless they were asked for
    threads         the most that kernels might use
    """

    runs: int
    seconds: float
    kernels: tuple[KernelTime, ...]
    instructions: tuple[Time, ...]
    lines: tuple[LineTime, ...] = ()
    events: Events | None = None
    threads: int = 1

    @property
    def kernel_seconds(self) -> float:
        return sum(row.seconds for row in self.kernels)

    @property
    def vm_share(self) -> float:
        """The part of the time that was not spent in kernels, 0 to 1; 0 before the first run."""
        return 1 - self.kernel_seconds / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.runs} runs, {self.seconds * _MICRO:.1f} us; kernels {self.kernel_seconds * _MICRO:.1f} us, "
            f"VM {self.vm_share:.1%}"
        ]
        for title, rows in (("kernel", self.kernels), ("instruction", self.instructions)):
            lines += _table(title, rows, self.seconds)
        return "\n".join(lines)


def _rates(row: Time) -> str:
    """GFLOP/s and GB/s, if `row` is a kernel's."""
    if not isinstance(row, KernelTime):
        return ""
    columns = (row.operations_per_second, row.bytes_per_second)
    return "".join(f"  {'' if v is None else f'{v / 1e9:.2f}':>8}" for v in columns)


def _table(title: str, rows: tuple[Time, ...], total: float) -> list[str]:
    if not rows:
        return []
    shown = rows[:_SHOWN]
    width = max(len(title), *(len(row.name) for row in shown))
    rates = f"  {'GFLOP/s':>8}  {'GB/s':>8}" if isinstance(rows[0], KernelTime) else ""
    lines = [f"{title:<{width}}  {'calls':>9}  {'us':>11}  {'us a call':>10}  {'share':>6}{rates}"]
    for row in shown:
        each = f"{row.seconds / row.calls * _MICRO:>10.3f}  {row.seconds / total:>6.1%}"
        line = f"{row.name:<{width}}  {row.calls:>9}  {row.seconds * _MICRO:>11.1f}  {each}"
        lines.append((line + _rates(row)).rstrip())
    if len(rows) > len(shown):
        rest = rows[_SHOWN:]
        time = sum(row.seconds for row in rest) * _MICRO
        lines.append(
            f"{f'{len(rest)} more':<{width}}  {sum(r.calls for r in rest):>9}  {time:>11.1f}"
        )
    return lines


# --- places ---------------------------------------------------------------------------------------


class Places:
    """Which function and source line a word of a program's code belongs to. Words count from the program's first."""

    def __init__(self, program: ProgramRecord) -> None:
        self.functions = tuple(f.name for f in program.functions)
        self._spans = [f.spans for f in program.functions]
        self._pcs: dict[int, list[int]] = {}
        self._sources = program.sources
        self._firsts: list[int] = []
        first = 0
        for f in program.functions:
            self._firsts.append(first)
            first += len(f.code)
        self.words = first

    def function_of(self, word: int) -> int | None:
        """Number of the function; None for a word beyond the code."""
        return bisect_right(self._firsts, word) - 1 if 0 <= word < self.words else None

    def line_of(self, word: int) -> tuple[int | None, str, int]:
        """(function number, source, line); ("", 0) where it is not known."""
        number = self.function_of(word)
        if number is None:
            return None, "", 0
        spans = self._spans[number]
        pcs = self._pcs.get(number)
        if pcs is None:
            pcs = self._pcs[number] = [span.pc for span in spans]
        at = bisect_right(pcs, word - self._firsts[number]) - 1
        if at < 0 or spans[at].source < 0:
            return number, "", 0
        return number, self._sources[spans[at].source], spans[at].line


# --- reading --------------------------------------------------------------------------------------


class Profiler:
    """Reads the profiles of one VM; what it needs of the file is read at the first one."""

    def __init__(self, exe: Executable, threads: int) -> None:
        self._exe = exe
        self._threads = threads
        self._counters: dict[int, WorkCounter] = {}

    @cached_property
    def _program(self) -> ProgramRecord:
        return self._exe.program_record()

    @cached_property
    def _places(self) -> Places:
        return Places(self._program)

    def read(self, handle: Any) -> Profile:
        """The profile of a VM (its C handle). InvalidInput if it was made without one; VMBusy during a run."""
        out, details = ffi.new("nvm_profile *"), ffi.new("nvm_profile_details *")
        check(lib.nvm_vm_profile_get(handle, out))
        check(lib.nvm_vm_profile_details(handle, details))
        second = out.cycles / out.nanoseconds * 1e9 if out.nanoseconds else 1e9
        sizes = self._sizes(details, second)
        return Profile(
            runs=int(out.runs),
            seconds=(out.cycles - out.notes) / second,
            kernels=self._kernels(out, second, sizes),
            instructions=_times(
                out.opcodes, out.n_opcodes, second, lambda number: BY_NUMBER[number].mnemonic
            ),
            lines=self._lines(details, second),
            events=self._events(details, second, sizes),
            threads=self._threads,
        )

    def _sizes(self, details: Any, second: float) -> tuple[tuple[int, Sizes], ...]:
        found: list[tuple[int, Sizes]] = []
        for i in range(details.n_shapes):
            row = details.shapes[i]
            number = int(row.kernel)
            kernel = self._program.kernels[number]
            counter = self._counters.get(number)
            if counter is None:
                counter = self._counters[number] = WorkCounter(kernel)
            values = ffi.unpack(details.values + row.first, row.count) if row.count else []
            sizes = Sizes(
                dims=tuple(zip(kernel.dims, values, strict=False)),
                shapes=tuple(
                    f"{dtype}[{', '.join(map(str, shape))}]" if shape else dtype
                    for dtype, shape in operand_shapes(kernel, values)
                ),
                calls=int(row.calls),
                seconds=row.cycles / second,
                work=counter.work(values).times(int(row.calls)),
            )
            found.append((number, sizes))
        return tuple(found)

    def _kernels(
        self, out: Any, second: float, sizes: tuple[tuple[int, Sizes], ...]
    ) -> tuple[KernelTime, ...]:
        by_kernel: dict[int, list[Sizes]] = {}
        for number, row in sizes:
            by_kernel.setdefault(number, []).append(row)
        made: list[KernelTime] = []
        for number in range(out.n_kernels):
            calls = int(out.kernels[number].calls)
            if not calls:
                continue
            own = sorted(_merged(by_kernel.get(number, [])), key=lambda row: -row.seconds)
            work = NO_WORK
            for row in own:
                work = work.plus(row.work)
            counted = sum(row.calls for row in own)
            if 0 < counted < calls:  # more different sizes than are told apart: like those that are
                work = work.times(calls / counted)
            made.append(
                KernelTime(
                    self._program.kernels[number].name,
                    calls,
                    out.kernels[number].cycles / second,
                    number,
                    work,
                    tuple(own),
                )
            )
        return tuple(sorted(made, key=lambda row: -row.seconds))

    def _lines(self, details: Any, second: float) -> tuple[LineTime, ...]:
        if not details.words or not details.n_words:
            return ()
        data = ffi.buffer(details.words, details.n_words * ffi.sizeof("nvm_profile_row"))
        rows = np.frombuffer(data, dtype="u8").reshape(-1, 2)
        totals: dict[tuple[int | None, str, int], list[int]] = {}
        for word in np.flatnonzero(rows[:, 0]):
            total = totals.setdefault(self._places.line_of(int(word)), [0, 0])
            total[0] += int(rows[word, 0])
            total[1] += int(rows[word, 1])
        made = [
            LineTime(self._places.functions[number or 0], source, line, calls, cycles / second)
            for (number, source, line), (calls, cycles) in totals.items()
        ]
        return tuple(sorted(made, key=lambda row: -row.seconds))

    def _events(
        self, details: Any, second: float, sizes: tuple[tuple[int, Sizes], ...]
    ) -> Events | None:
        if not details.events:
            return None
        data = ffi.buffer(details.events, details.n_events * EVENT.itemsize)
        rows = np.frombuffer(bytes(data), dtype=EVENT)
        return Events(rows, int(details.dropped_events), second, sizes, self._places)


def _merged(rows: list[Sizes]) -> list[Sizes]:
    """Rows with the same shapes as one, with the dims that all of them share."""
    groups: dict[tuple[str, ...], list[Sizes]] = {}
    for row in rows:
        groups.setdefault(row.shapes, []).append(row)
    made: list[Sizes] = []
    for shapes, group in groups.items():
        common = set(group[0].dims).intersection(*(row.dims for row in group))
        work = NO_WORK
        for row in group:
            work = work.plus(row.work)
        made.append(
            Sizes(
                tuple(dim for dim in group[0].dims if dim in common),
                shapes,
                sum(row.calls for row in group),
                sum(row.seconds for row in group),
                work,
            )
        )
    return made


def _times(rows: Any, count: int, second: float, name: Callable[[int], str]) -> tuple[Time, ...]:
    found = [
        Time(name(number), int(rows[number].calls), rows[number].cycles / second)
        for number in range(count)
        if rows[number].calls
    ]
    return tuple(sorted(found, key=lambda row: -row.seconds))


__all__ = [
    "EVENT", "LEVELS", "MOST_EVENTS", "Events", "KernelTime", "LineTime", "Places", "Profile",
    "Profiler", "Sizes", "Time",
]  # fmt: skip
