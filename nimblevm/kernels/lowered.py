"""What lowering gives: a kernel, and what its caller has to pass."""

from __future__ import annotations

from dataclasses import dataclass

from nimblevm.kernels.c_calls import CCall
from nimblevm.kernels.loop_ir import Kernel
from nimblevm.relay.dims import DimExpr, DimVar
from nimblevm.relay.types import TensorType


@dataclass(frozen=True, slots=True)
class IntParam:
    """An in-dim that is the value of flat parameter `index` (rank-0 integer or bool)."""

    index: int


InDim = DimExpr | IntParam

STEPS = DimVar("steps")
"""In types of scratch and of rows: the number of steps of a call, which is the value of a parameter."""


@dataclass(frozen=True, eq=False, slots=True)
class LoweredKernel:
    """A kernel and what its caller has to pass.

    kernel         the loop IR; its buffers are the flat parameters (int_params excepted), the outputs, the scratch
                   buffers
    in_dims        what each in-dim is, in the function's own DimVars
    param_types    the flat parameters that are buffers, in order
    out_types      the flat outputs
    scratch_types  sizes and dtypes of the scratch buffers to allocate; STEPS stands for the number of steps
    c_kernels      C kernels that compute the same, best first; where nothing else does, `kernel` is empty
    may_fail       it can report a fault
    """

    kernel: Kernel
    in_dims: tuple[InDim, ...]
    param_types: tuple[TensorType, ...]
    out_types: tuple[TensorType, ...]
    scratch_types: tuple[TensorType, ...]
    c_kernels: tuple[CCall, ...]
    may_fail: bool

    @property
    def alias(self) -> tuple[tuple[int, int], ...]:
        """Pairs (output operand, input operand) that may share storage."""
        return self.kernel.alias


__all__ = ["STEPS", "InDim", "IntParam", "LoweredKernel"]
