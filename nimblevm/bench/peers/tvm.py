"""Apache TVM after Relay: Relax, its VM, and a schedule for products whose weights are K-major.

TVM's default pipeline leaves products as a scalar loop over the reduction (100 times slower), and its template for CPUs
is for the decoding of language models, so the schedule is written here: 128 columns a task, vectors of 16, the
reduction outside of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir

from nimblevm.bench.cases import Case
from nimblevm.bench.peers import Prepared, Unsupported
from nimblevm.bench.peers.choose import Run, fastest
from nimblevm.bench.rows import Row

Array = np.ndarray[Any, Any]
_COLUMNS, _LANES = 128, 16
_PARALLEL = 1 << 18  # elements of a matrix from which tasks pay


def version() -> str:
    return str(tvm.__version__)


def prepare(row: Row, threads: int, variant: str = "") -> Prepared:
    """Loops are recursive functions: Relax has no other. Weights are tensors before the clock starts."""
    if row.kind not in ("lstm", "chain") or row.sizes.get("layers", 1) != 1:
        raise Unsupported(f"no Relax program of {row.kind}")
    start = time.perf_counter()
    target = tvm.target.Target(
        {"kind": "llvm", "mcpu": tvm.target.codegen.llvm_get_system_cpu(), "num-cores": threads}
    )
    weights = row.params()
    chosen: dict[str, Run] = {}
    for case in row.cases():
        if case.program in chosen:
            continue
        if row.kind == "lstm":
            text, operands = _lstm(weights, row.sizes["inputs"], row.sizes["hidden"])
        else:
            text, operands = _chain(weights, case.units, row.sizes["size"])
        ways = {
            name: _runner(text, target, operands, row.kind == "lstm", fuse)
            for name, fuse in (("fused", True), ("not fused", False))
        }
        values = [c.inputs for c in row.cases() if c.program == case.program]
        _, chosen[case.program] = fastest(ways, values[:4])
    seconds = time.perf_counter() - start
    options = f"Relax VM, own schedule, {threads} thread(s)"

    def load(case: Case) -> Any:
        return chosen[case.program], case.inputs

    return Prepared(lambda loaded: loaded[0](loaded[1]), options, seconds, load)


def _runner(text: str, target: Any, operands: Sequence[Array], count: bool, fuse: bool) -> Run:
    """count: the number of rows is the second argument."""
    mod = relax.transform.LegalizeOps()(tvm.script.from_source(text))
    if fuse:
        for each in ("AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
            mod = getattr(relax.transform, each)()(mod)
    vm = relax.VirtualMachine(relax.build(_scheduled(mod), target=target), tvm.cpu())
    main: Callable[..., Any] = vm["main"]
    constants = [tvm.runtime.tensor(array) for array in operands]

    def run(inputs: Any) -> Sequence[Array]:
        (x,) = inputs
        given = [tvm.runtime.tensor(x)]
        if count:
            given.append(tvm.runtime.tensor(np.array(len(x), np.int64)))
        return (main(*given, *constants).numpy(),)

    return run


def _scheduled(mod: Any) -> Any:
    """Every product's columns in tasks and vectors; elementwise loops in vectors."""
    functions = dict(mod.functions.items())
    for var, function in functions.items():
        if not isinstance(function, tvm.tirx.PrimFunc):
            continue
        schedule = s_tir.Schedule(function)
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            if schedule.get(block).name_hint == "matmul":
                _product(schedule, block)
            else:
                _elementwise(schedule, block)
        functions[var] = schedule.mod["main"].with_attr("global_symbol", var.name_hint)
    return tvm.IRModule(functions)


def _product(schedule: Any, block: Any) -> None:
    *rows, column, reduced = schedule.get_loops(block)
    extents = [int(schedule.get(loop).extent) for loop in (column, reduced)]
    outer, inner = schedule.split(column, [None, min(_COLUMNS, extents[0])])
    schedule.reorder(*rows, outer, reduced, inner)
    if extents[0] * extents[1] >= _PARALLEL:
        schedule.parallel(outer)
    several, lanes = schedule.split(inner, [None, _LANES])
    schedule.reorder(*rows, outer, reduced, several, lanes)
    schedule.unroll(several)
    schedule.vectorize(lanes)
    schedule.decompose_reduction(block, reduced)


def _elementwise(schedule: Any, block: Any) -> None:
    loops = schedule.get_loops(block)
    extent = schedule.get(loops[-1]).extent if loops else None
    if isinstance(extent, tvm.tirx.IntImm) and int(extent) % _LANES == 0:
        _, lanes = schedule.split(loops[-1], [None, _LANES])
        schedule.vectorize(lanes)


def _lstm(weights: dict[str, Array], inputs: int, hidden: int) -> tuple[str, list[Array]]:
    """(program, weights): the input product hoisted, the loop as a recursive function."""
    w, b = weights["w"], weights["b"]
    state = f'R.Tensor((1, {hidden}), "float32")'
    number = 'R.Tensor((), "int64")'
    rows = f'R.Tensor(("m", {4 * hidden}), "float32")'
    inner = f'R.Tensor(({hidden}, {4 * hidden}), "float32")'
    text = f"""
@I.ir_module
class Module:
    @R.function
    def cell(i: {number}, p: {rows}, h: {state}, c: {state}, w: {inner}) -> R.Tuple({state}, {state}):
        m = T.int64()
        with R.dataflow():
            row = R.reshape(R.take(p, i, axis=0), (1, {4 * hidden}))
            z = R.add(row, R.matmul(h, w))
            g = R.split(z, 4, axis=1)
            c1 = R.add(R.multiply(R.sigmoid(g[1]), c), R.multiply(R.sigmoid(g[0]), R.tanh(g[2])))
            h1 = R.multiply(R.sigmoid(g[3]), R.tanh(c1))
            R.output(c1, h1)
        return (h1, c1)

    @R.function
    def loop(i: {number}, n: {number}, p: {rows}, h: {state}, c: {state}, w: {inner}) -> {state}:
        m = T.int64()
        going: R.Tensor((), "bool") = R.less(i, n)
        if going:
            s = Module.cell(i, p, h, c, w)
            next = R.add(i, R.const(1, "int64"))
            out = Module.loop(next, n, p, s[0], s[1], w)
        else:
            out = h
        return out

    @R.function
    def main(x: R.Tensor(("m", {inputs}), "float32"), n: {number},
             wx: R.Tensor(({inputs}, {4 * hidden}), "float32"), w: {inner},
             b: R.Tensor(({4 * hidden},), "float32")) -> {state}:
        m = T.int64()
        with R.dataflow():
            p = R.add(R.matmul(x, wx), b)
            z = R.zeros((1, {hidden}), "float32")
            R.output(p, z)
        return Module.loop(R.const(0, "int64"), n, p, z, z, w)
"""
    matrices = (w[:, :inputs].T, w[:, inputs:].T)
    return text, [*map(np.ascontiguousarray, matrices), b]


def _chain(weights: dict[str, Array], length: int, size: int) -> tuple[str, list[Array]]:
    """(program, weights)."""
    matrix = f'R.Tensor(({size}, {size}), "float32")'
    rows = f'R.Tensor(("m", {size}), "float32")'
    names = [f"w{k}" for k in range(length)]
    lines = [f"            x{k + 1} = R.matmul(x{k}, w{k})" for k in range(length)]
    text = f"""
@I.ir_module
class Module:
    @R.function
    def main(x0: {rows}, {", ".join(f"{name}: {matrix}" for name in names)}) -> {rows}:
        m = T.int64()
        with R.dataflow():
{chr(10).join(lines)}
            R.output(x{length})
        return x{length}
"""
    return text, [np.ascontiguousarray(weights[name].T) for name in names]


__all__ = ["prepare", "version"]
