"""Our side: compile, save to bytes, load, run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import nimblevm as nvm
from nimblevm.bench.cases import Case
from nimblevm.bench.peers import Prepared
from nimblevm.bench.rows import Row
from nimblevm.bench.workloads import treelstm


def version() -> str:
    return nvm.__version__


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """One VM a program. Trees become ADT values before the clock starts, as peers get theirs in their own form."""
    weights = row.params()
    start = time.perf_counter()
    vms: dict[str, Any] = {}
    if row.module is not None:
        vms["main"] = nvm.VirtualMachine(nvm.compile(row.module(weights)), threads=threads)
    for name, text in row.programs().items():
        mod = nvm.relay.parse(text)
        declared = {p.name_hint for p in mod.function("main").params}
        taken = {key: value for key, value in weights.items() if key in declared}
        exe = nvm.compile(mod, params=taken)
        vms[name] = nvm.VirtualMachine(exe, threads=threads)
    seconds = time.perf_counter() - start

    def load(case: Case) -> tuple[Any, tuple[Any, ...]]:
        vm = vms[case.program]
        inputs = case.inputs
        if row.kind == "treelstm":
            leaf, node = (vm.executable.constructor(name) for name in ("Leaf", "Node"))
            inputs = (treelstm.fold(inputs[0], leaf, node), *inputs[1:])
        return vm.run if row.entry == "main" else partial(vm.invoke, row.entry), inputs

    return Prepared(_run, "defaults", seconds, load)


def _run(loaded: tuple[Any, tuple[Any, ...]]) -> Sequence[Any]:
    run, inputs = loaded
    result = run(*inputs)
    if isinstance(result, tuple):
        # The decoder's state, a tuple of tuples, is not compared.
        return [field.numpy() for field in result if isinstance(field, nvm.Tensor)]
    return (result.numpy(),)


__all__ = ["prepare", "version"]
