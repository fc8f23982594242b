"""Kernels of groups that run several times: steps of a loop (relay/steps.py), levels of a tree (relay/levels.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from nimblevm.kernels.levels import NotByLevels, Table, over_levels
from nimblevm.kernels.loop_ir import Buffer, Const, DimRef
from nimblevm.kernels.lowered import STEPS, InDim, IntParam, LoweredKernel
from nimblevm.kernels.repeat import repeat
from nimblevm.relay import dims
from nimblevm.relay.dims import Dim, DimVar
from nimblevm.relay.ir import Function
from nimblevm.relay.levels import LevelLoop
from nimblevm.relay.steps import StepLoop
from nimblevm.relay.types import TensorType


def all_levels(
    level: LoweredKernel, levels: LevelLoop, fn: Function, int_params: frozenset[int]
) -> LoweredKernel:
    """The kernel of all levels of a tree. Its parameters are tensors, so positions are those of flat parameters. Raises
    NotByLevels.
    """
    tensors = [p for p in range(len(fn.params)) if p not in int_params]
    number = dict(fn.attrs["dim_params"])
    whole = level.param_types[tensors.index(levels.whole)].shape[0]
    own = {number[levels.size], *(number[rows] for _, rows, _ in levels.tables)}
    for dim in level.in_dims:
        if isinstance(dim, IntParam | DimVar):
            continue
        if own & set(dims.free_vars(dim)):
            raise NotByLevels

    def place(dim: Dim | IntParam) -> int:
        if isinstance(dim, int) or dim not in level.in_dims:
            raise NotByLevels
        return level.in_dims.index(dim)

    n_in = len(level.param_types)
    tables = [
        Table(tensors.index(table), n_in + result, place(number[rows]))
        for table, rows, result in levels.tables
    ]
    kernel, kept = over_levels(
        level.kernel, tensors.index(levels.sizes), place(number[levels.size]), place(IntParam(levels.row)),
        place(whole), tables,
    )  # fmt: skip
    in_dims = (*(level.in_dims[d] for d in kept), number[levels.most])
    outs = tuple(
        TensorType((dims.add(level.param_types[t.source].shape[0], whole), *o.shape[1:]), o.dtype)
        for t, o in zip(tables, level.out_types, strict=True)
    )
    first = n_in + len(outs)
    scratch = tuple(_scratch_type(b, in_dims) for b in kernel.buffers[first:])
    return dataclasses.replace(
        level, kernel=kernel, in_dims=in_dims, out_types=outs, scratch_types=scratch, c_kernels=()
    )


def _scratch_type(buffer: Buffer, in_dims: Sequence[InDim]) -> TensorType:
    """The type of a scratch buffer whose sizes are numbers and in-dims. Raises NotByLevels for any other."""
    shape: list[Dim] = []
    for axis in buffer.axes:
        match axis.size:
            case Const(value=size):
                shape.append(int(size))
            case DimRef(index=index) if not isinstance(in_dims[index], IntParam):
                shape.append(in_dims[index])  # type: ignore[arg-type]
            case _:
                raise NotByLevels
    return TensorType(tuple(shape), buffer.dtype)


def repeated(step: LoweredKernel, steps: StepLoop, int_params: frozenset[int]) -> LoweredKernel:
    """The kernel of several steps. Its parameters are tensors, so positions are those of flat parameters."""
    n_in = len(step.param_types)
    count = IntParam(steps.count)
    in_dims = step.in_dims if count in step.in_dims else (*step.in_dims, count)
    tensors = [p for p in range(n_in + len(int_params)) if p not in int_params]
    carried = [(tensors.index(p), n_in + result) for p, result in steps.carried]
    counters = {
        in_dims.index(IntParam(p)): by for p, by in steps.counters if IntParam(p) in in_dims
    }
    collected = [n_in + result for result in steps.collected]
    kernel = repeat(step.kernel, counters, in_dims.index(count), carried, collected)
    rows = tuple(
        TensorType((STEPS, *t.shape[1:]), t.dtype)
        for t in (step.out_types[result] for result in steps.collected)
    )
    sizes: list[InDim] = list(in_dims)
    sizes[in_dims.index(count)] = STEPS
    scratch = tuple(_scratch_type(b, sizes) for b in kernel.buffers if b.role == "scratch")
    return dataclasses.replace(
        step,
        kernel=kernel,
        in_dims=in_dims,
        out_types=(*step.out_types, *rows),
        scratch_types=scratch,
        c_kernels=(),
    )


__all__ = ["all_levels", "repeated"]
