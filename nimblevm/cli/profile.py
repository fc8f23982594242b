"""nimblevm profile"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

import nimblevm as nvm
from nimblevm.bench.limits import Limits, LimitsUnavailable, measure_limits
from nimblevm.cli.console import Mistake, complain, progress_of, say, table
from nimblevm.cli.inputs import Inputs
from nimblevm.cli.options import (
    Device,
    ExecutableFile,
    Fallback,
    FunctionName,
    Native,
    Seed,
    Threads,
    whole_option,
)
from nimblevm.cli.run import loaded
from nimblevm.cli.sources import find_sources
from nimblevm.files import check_new_file
from nimblevm.profiling.machine import Machine, cache_file, load_machine, save_machine
from nimblevm.vm.profiler import KernelTime, LineTime, Profile

_SHOWN = 15

_Inputs = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT", help="NAME=VALUE or a file, as for `nimblevm run`."),
]
_Trace = Annotated[
    Path | None, typer.Option(help="Write a trace that ui.perfetto.dev and chrome://tracing open.")
]
_Html = Annotated[
    Path | None, typer.Option(help="Write a page with all figures that a browser opens.")
]
_Limits = Annotated[
    str,
    typer.Option(
        metavar="auto|measure|none|FILE",
        help="What the machine can do at most: auto measures it once (ten seconds) and remembers.",
    ),
]
_MaxEvents = Annotated[
    int,
    whole_option("Room for events of --trace and --html, 40 bytes each.", least=0, most=2**32),
]
_Source = Annotated[
    Path | None, typer.Option(help="The program's text, to show lines of; else looked for.")
]
_Weights = Annotated[
    Path | None, typer.Option(help="Weights that FILE leaves out, as for `nimblevm run`.")
]


def profile(
    file: ExecutableFile,
    inputs: _Inputs = None,
    function: FunctionName = "main",
    runs: Annotated[int, whole_option("Runs that are profiled.", least=1)] = 3,
    warmup: Annotated[int, whole_option("Runs before these.", least=0)] = 1,
    threads: Threads = 1,
    trace: _Trace = None,
    html: _Html = None,
    limits: _Limits = "auto",
    max_events: _MaxEvents = 1 << 20,
    source: _Source = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    native: Native = True,
    weights: _Weights = None,
    device: Device = "",
    fallback: Fallback = False,
    seed: Seed = 0,
) -> None:
    """Show where the time of a function goes: by kernel, source line and instruction.

    GFLOP/s and GB/s come from operations and bytes that are counted in the kernels' bodies; "of limit" compares with
    what this machine can do at most. docs/profiling.md says how to read all of it.

    \b
    Examples:
      nimblevm profile lstm.nvm x=random:40x300
      nimblevm profile lstm.nvm x=x.npy --html profile.html --trace trace.json
    """
    for wanted in (trace, html):
        if wanted is not None:
            check_new_file(wanted)
    with loaded(file, native, weights, None) as exe:
        named = Inputs(exe, exe.function(function), seed).read(inputs or [])
        with nvm.VirtualMachine(exe, device or None, threads=threads, fallback=fallback) as vm:
            machine = _machine(limits, threads, vm.devices)
            with progress_of(f"profiling @{function}") as report:
                for number in range(warmup):
                    report("before the clock", number, warmup)
                    vm.invoke(function, **named)
                level = "events" if trace is not None or html is not None else "instructions"
                vm.start_profile(level, max_events)
                for number in range(runs):
                    report("runs", number, runs)
                    vm.invoke(function, **named)
                found = vm.profile()
    names = {row.source for row in found.lines}
    lines_of = find_sources(names, file, source)
    if as_json:
        say(json.dumps(_as_json(found, machine), indent=1, allow_nan=False))
    else:
        _show(found, machine, lines_of)
    if trace is not None:
        nvm.profiling.write_trace(found, trace, title=f"{file.name} @{function}")
    if html is not None:
        facts = [("", f"@{function}"), ("", _cpu()), ("nimblevm", nvm.__version__)]
        nvm.profiling.write_page(found, html, machine, file.name, facts, lines_of)
    for written in (trace, html):
        if written is not None and not as_json:
            say(f"wrote {written}")


# --- the machine ----------------------------------------------------------------------------------


def _machine(wanted: str, threads: int, devices: Sequence[str]) -> Machine | None:
    """The limits that --limits asks for; None: not known. Those measured here are the host's and say nothing of kernels
    that run elsewhere. Raises Mistake.
    """
    if wanted == "none":
        return None
    away = [name for name in devices if not nvm.devices.backends()[name].host_code]
    if away and wanted in ("auto", "measure"):
        complain("note", f"limits are left out: the host's are no measure of {away[0]}", "bold")
        return None
    if wanted not in ("auto", "measure"):
        try:
            return load_machine(Path(wanted))
        except ValueError as error:
            raise Mistake(f"--limits {wanted}: {error}") from None
    kept = cache_file()
    if wanted == "auto":
        try:
            return load_machine(kept)
        except (OSError, ValueError):
            pass  # not measured yet
    try:
        with progress_of("measuring what the machine can do") as report:
            measured = measure_limits(sorted(os.sched_getaffinity(0)), report)
    except LimitsUnavailable as error:
        if wanted == "measure":
            raise Mistake(f"--limits measure: {error}") from None
        complain("note", f"the machine's limits are not known: {error}", "bold")
        return None
    machine = _undisturbed(measured)
    try:
        save_machine(machine, kept)
    except OSError as error:
        complain("note", f"the measured limits can't be kept in {kept}: {error.strerror}", "bold")
    return machine


def _undisturbed(measured: Limits) -> Machine:
    """Without thread counts that something disturbed, which are then judged by the next smaller one. Raises Mistake."""

    def kept(rates: Mapping[int, float]) -> dict[int, float]:
        return {threads: rate for threads, rate in rates.items() if threads not in measured.void}

    peak = kept(measured.peak)
    if not peak:
        raise Mistake(
            "the machine was busy while its limits were measured: try again, or --limits none"
        )
    if measured.void:
        counts = ", ".join(map(str, measured.void))
        told = (
            f"with {counts} thread(s) the machine gave much less a thread than with others, since something else ran "
            "or they share cores; the limits of fewer threads are used instead (--limits measure measures again)"
        )
        complain("note", told, "bold")
    read = {level: kept(rates) for level, rates in measured.read.items()}
    return Machine(peak, read, measured.l2_bytes, measured.l3_bytes)


def _cpu() -> str:
    """The CPU's name, as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return ""


# --- the terminal ---------------------------------------------------------------------------------


def _time(seconds: float) -> str:
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value / 1e9:.3g}"


def _limit(row: KernelTime, machine: Machine, threads: int) -> str:
    floor = machine.floor(row.work, row.calls, threads)
    return f"{floor / row.seconds:.0%}" if row.seconds and floor else ""


def _show(found: Profile, machine: Machine | None, lines_of: Mapping[str, Sequence[str]]) -> None:
    kernel_calls = sum(row.calls for row in found.kernels)
    say(
        f"{found.runs} runs, {_time(found.seconds)}: {_time(found.kernel_seconds)} in {kernel_calls} kernel calls, "
        f"{found.vm_share:.1%} in the VM"
    )
    if machine is not None:
        peak = machine.peak_of(found.threads) / 1e9
        reads = (
            f"{level} {machine.read_of(level, found.threads) / 1e9:.3g}" for level in machine.read
        )
        say(f"the machine at most: {peak:.3g} GFLOP/s, reading GB/s {', '.join(reads)}")
    _show_kernels(found, machine)
    rows = [
        (_place(r), f"@{r.function}", _line(r, lines_of), str(r.calls), _time(r.seconds))
        for r in found.lines[:_SHOWN]
    ]
    table(("line", "function", "text", "instructions", "time"), rows, right=(3, 4), lean=True)
    instructions = [
        (t.name, str(t.calls), _time(t.seconds), _time(t.seconds / t.calls))
        for t in found.instructions[:_SHOWN]
    ]
    table(("instruction", "executed", "time", "each"), instructions, right=(1, 2, 3), lean=True)


def _place(row: LineTime) -> str:
    return f"{row.source}:{row.line}" if row.source else ""


def _line(row: LineTime, lines_of: Mapping[str, Sequence[str]]) -> str:
    lines = lines_of.get(row.source, ())
    return lines[row.line - 1].strip()[:60] if 0 < row.line <= len(lines) else ""


def _show_kernels(found: Profile, machine: Machine | None) -> None:
    columns = ["kernel", "calls", "time", "each", "share", "GFLOP/s", "GB/s"]
    if machine is not None:
        columns.append("of limit")
    rows: list[tuple[str | Text, ...]] = []
    for k in found.kernels[:_SHOWN]:
        row = (
            k.name, str(k.calls), _time(k.seconds), _time(k.seconds / k.calls), f"{k.seconds / found.seconds:.1%}",
            _rate(k.operations_per_second), _rate(k.bytes_per_second),
        )  # fmt: skip
        rows.append((*row, _limit(k, machine, found.threads)) if machine is not None else row)
    table(columns, rows, right=range(1, len(columns)), lean=True)
    rest = found.kernels[_SHOWN:]
    if rest:
        say(f"and {len(rest)} other kernels, {_time(sum(k.seconds for k in rest))}")


def _as_json(found: Profile, machine: Machine | None) -> dict[str, Any]:
    def kernel(row: KernelTime) -> dict[str, Any]:
        made: dict[str, Any] = {
            "name": row.name,
            "calls": row.calls,
            "seconds": row.seconds,
            "operations": row.work.operations,
            "bytes_read": row.work.read,
            "bytes_written": row.work.written,
            "sizes": [
                {
                    "operands": s.shapes,
                    "calls": s.calls,
                    "seconds": s.seconds,
                    "operations": s.work.operations,
                    "bytes": s.work.bytes,
                }
                for s in row.sizes
            ],
        }
        if machine is not None:
            made["seconds_at_least"] = machine.floor(row.work, row.calls, found.threads)
        return made

    return {
        "runs": found.runs,
        "seconds": found.seconds,
        "kernel_seconds": found.kernel_seconds,
        "threads": found.threads,
        "machine": None if machine is None else machine.to_json(),
        "kernels": [kernel(k) for k in found.kernels],
        "lines": [
            {"function": r.function, "source": r.source, "line": r.line, "instructions": r.calls, "seconds": r.seconds}
            for r in found.lines
        ],
        "instructions": [
            {"name": t.name, "executed": t.calls, "seconds": t.seconds} for t in found.instructions
        ],
    }  # fmt: skip


__all__ = ["profile"]
