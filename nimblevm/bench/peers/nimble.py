"""Our side: compile, save to bytes, load, run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import nimblevm as nvm
from nimblevm.bench.cases import Case
from nimblevm.bench.peers import Prepared
from nimblevm.bench.rows import Row
from nimblevm.bench.workloads import treelstm


def version() -> str:
    return nvm.__version__


_SHARE_RUNS = 30  # a case; the fastest counts


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """One VM a program. Trees become ADT values before the clock starts, as peers get theirs in their own form."""
    weights = row.params()
    start = time.perf_counter()
    executables: dict[str, Any] = {}
    if row.module is not None:
        executables["main"] = nvm.compile(row.module(weights))
    for name, text in row.programs().items():
        mod = nvm.relay.parse(text)
        declared = {p.name_hint for p in mod.function("main").params}
        taken = {key: value for key, value in weights.items() if key in declared}
        executables[name] = nvm.compile(mod, params=taken)
    seconds = time.perf_counter() - start
    machines = {n: nvm.VirtualMachine(exe, threads=threads) for n, exe in executables.items()}

    def load(case: Case) -> tuple[Any, tuple[Any, ...]]:
        vm = machines[case.program]
        return partial(vm.invoke, row.entry), _inputs(row, case, vm.executable)

    def share() -> float:
        return _share(row, executables, threads)

    return Prepared(_run, f"defaults, {threads} thread(s)", seconds, load, share)


def _inputs(row: Row, case: Case, exe: Any) -> tuple[Any, ...]:
    if row.kind != "treelstm":
        return case.inputs
    leaf, node = (exe.constructor(name) for name in ("Leaf", "Node"))
    return (treelstm.fold(case.inputs[0], leaf, node), *case.inputs[1:])


def _share(row: Row, executables: Mapping[str, Any], threads: int) -> float:
    """1 - seconds in kernels / seconds of runs over all cases, of each case's fastest run."""
    run = kernels = 0.0
    for case in row.cases():
        exe = executables[case.program]
        inputs = _inputs(row, case, exe)
        with nvm.VirtualMachine(exe, threads=threads, profile=True) as vm:
            found = []
            for _ in range(_SHARE_RUNS if row.kind != "gpt2" else 1):
                vm.reset_profile()
                vm.invoke(row.entry, *inputs)
                profile = vm.profile()
                found.append((profile.seconds, profile.kernel_seconds))
        best = min(found)
        run += best[0]
        kernels += best[1]
    return 1 - kernels / run


def _run(loaded: tuple[Any, tuple[Any, ...]]) -> Sequence[Any]:
    run, inputs = loaded
    result = run(*inputs)
    if isinstance(result, tuple):
        # The decoder's state, a tuple of tuples, is not compared.
        return [field.numpy() for field in result if isinstance(field, nvm.Tensor)]
    return (result.numpy(),)


__all__ = ["prepare", "version"]
