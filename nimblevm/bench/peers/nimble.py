"""Our side: compile, save to bytes, load, run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import nimblevm as nvm
from nimblevm.bench.cases import Case
from nimblevm.bench.peers import Parts, Prepared, whole
from nimblevm.bench.rows import Row
from nimblevm.bench.workloads import gpt2, treelstm


def version() -> str:
    return nvm.__version__


_SHARE_ROUNDS, _SHARE_OF = 30, 3  # rounds a case; the fastest one in so many count
_SHARE_ROUND = 5e-3  # seconds: reading a profile takes the caches from the run after it


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

    if row.kind == "gpt2":
        decoder = _decoding(machines["main"], row)
        told = f"defaults, {threads} thread(s), a call a token"
        return Prepared(whole(decoder), told, seconds, share=share, parts=decoder)
    return Prepared(_run, f"defaults, {threads} thread(s)", seconds, load, share)


def _decoding(vm: nvm.VirtualMachine, row: Row) -> Parts:
    """A greedy loop in Python around a step, a part, which is given the caches of the last one."""

    def run(inputs: Any) -> Generator[None, None, Sequence[Any]]:
        ids, steps = inputs
        state: Any = gpt2.empty_state(row.sizes["config"])
        out = []
        for _ in range(int(steps)):
            ids, _, state = vm.run(ids, state)
            state = nvm.move(state)
            out.append(int(ids.numpy()[0]))
            yield
        return [np.array(out, np.int32)]

    return run


def _inputs(row: Row, case: Case, exe: Any) -> tuple[Any, ...]:
    if row.kind != "treelstm":
        return case.inputs
    leaf, node = (exe.constructor(name) for name in ("Leaf", "Node"))
    return (treelstm.fold(case.inputs[0], leaf, node), *case.inputs[1:])


def _share(row: Row, executables: Mapping[str, Any], threads: int) -> float:
    """1 - seconds in kernels / seconds of runs over all cases, of each case's fastest rounds: what is left of one run
    varies by half.
    """
    run = kernels = 0.0
    for case in row.cases():
        exe = executables[case.program]
        inputs = _inputs(row, case, exe)
        with nvm.VirtualMachine(exe, threads=threads, profile=True) as vm:
            vm.invoke(row.entry, *inputs)
            turns = max(1, round(_SHARE_ROUND / vm.profile().seconds))
            found = []
            for _ in range(1 if row.kind == "gpt2" else _SHARE_ROUNDS):
                vm.reset_profile()
                for _ in range(turns):
                    vm.invoke(row.entry, *inputs)
                profile = vm.profile()
                found.append((profile.seconds / turns, profile.kernel_seconds / turns))
        fastest = sorted(found)[: max(1, len(found) // _SHARE_OF)]
        run += statistics.mean(taken for taken, _ in fastest)
        kernels += statistics.mean(spent for _, spent in fastest)
    return 1 - kernels / run


def _run(loaded: tuple[Any, tuple[Any, ...]]) -> Sequence[Any]:
    run, inputs = loaded
    result = run(*inputs)
    if isinstance(result, tuple):
        # The decoder's state, a tuple of tuples, is not compared.
        return [field.numpy() for field in result if isinstance(field, nvm.Tensor)]
    return (result.numpy(),)


__all__ = ["prepare", "version"]
